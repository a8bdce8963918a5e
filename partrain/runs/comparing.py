"""Runs side by side in one table, the best first, shared by `compare`, reports of several runs and the end of a workflow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from partrain.display.text_table import table, wrapped
from partrain.number_format import count, number, plural, scores, spread
from partrain.record.result import Course, RunResult, SharedResult
from partrain.record.round_record import finite
from partrain.record.run_folder import is_simulated
from partrain.record.run_state import COMPLETED
from partrain.record.stop_conditions import conditions_of
from partrain.record.waiting import TELLING_SECONDS, core_wait_share, shares_of
from partrain.tasks import metric_names

MARK = "*"
"""Suffix of the best number of a column."""


def lower_is_better(name: str, job: Mapping[str, Any]) -> bool:
    """Return whether a lower number of this name is better: a loss, an error of the tool, or the job's `lower_is_better`."""
    return metric_names.lower_is_better(name, (job.get("task") or {}).get("lower_is_better", ()))


def target_of(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the targets in a job's `[stop]`, by name."""
    return {condition.name: condition.goal for condition in conditions_of(job.get("stop", {})) if condition.kind == "target"}


def alike(jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether jobs learn the same task from the same data, so that their results can be compared."""
    return all(job.get(name) == jobs[0].get(name) for job in jobs for name in ("dataset", "task"))


@dataclass
class ComparedRow:
    """A row: one run, or several of one job."""

    label: str
    job: Mapping[str, Any]
    summaries: list[Mapping[str, Any]] = field(default_factory=list)
    """The contents of the runs' summary.json."""
    courses: list[Course] = field(default_factory=list)
    """The judgements of each run; empty if they are not compared."""

    @property
    def statuses(self) -> list[str]:
        return [str(summary["status"]) for summary in self.summaries]

    @property
    def continues(self) -> bool:
        """True if one of the row's runs continues a run of another folder, whose seconds are unknown."""
        return any("item_iterations_elsewhere" in summary for summary in self.summaries)

    @property
    def reached(self) -> bool:
        """True if all of the row's runs reached their target, after a known number of seconds."""
        return set(self.statuses) == {"reached"} and not self.continues

    @cached_property
    def results(self) -> list[RunResult]:
        return [RunResult.of(summary, self.job.get("stop")) for summary in self.summaries]

    @property
    def seconds(self) -> list[float]:
        """Training seconds of each run."""
        return [summary["seconds"]["train"] for summary in self.summaries]

    @property
    def rank(self) -> float:
        """The median of the numbers that rank the row's results, the best first; infinity without one."""
        ranks = [result.rank for result in self.results if result.rank is not None]
        return statistics.median(ranks) if ranks and "diverged" not in self.statuses else math.inf

    @property
    def loss(self) -> float:
        """The median of the losses of the row's results, which decides between equal ranks; infinity without one."""
        losses = [result.place[1] for result in self.results]
        return statistics.median(losses) if losses else math.inf


@dataclass(frozen=True)
class _Column:
    """A column: its heading, the numbers of each row, and the rows among which the best is marked."""

    head: str
    values: list[list[float | None]]
    show: Callable[[float], str] = number
    lower: bool = True
    among: Collection[int] = ()

    @property
    def cells(self) -> list[str]:
        """The numbers as texts of one width, with the best marked, unless all are equal."""
        finite_values = [[value for value in values if value is not None and finite(value) is not None] for values in self.values]
        texts = [spread(values, self.show) for values in finite_values]
        middle = {row: statistics.median(finite_values[row]) for row in self.among if finite_values[row]}
        if len({self.show(value) for value in middle.values()}) < 2:
            return texts
        best = self.show((min if self.lower else max)(middle.values()))
        return [text + (MARK if row in middle and self.show(middle[row]) == best else " ") for row, text in enumerate(texts)]


@dataclass(frozen=True)
class ComparedRuns:
    """Runs side by side."""

    rows: Sequence[ComparedRow]
    order: str = ""
    """Name of the number by which the rows are sorted, if not as `ranked`."""
    numbers: Sequence[Sequence[float | None]] = ()
    """That number of each run, by row."""

    @property
    def target(self) -> dict[str, float]:
        """The common target of all runs; empty if they have none, or different ones."""
        targets = [target_of(row.job) for row in self.rows]
        return targets[0] if targets and all(target == targets[0] for target in targets) else {}

    @property
    def by(self) -> str:
        """The number that chose the networks of all runs; empty if the numbers differ."""
        names = {result.by for row in self.rows for result in row.results if result.rank is not None}
        return names.pop() if len(names) == 1 else ""

    @property
    def judged(self) -> bool:
        """True if any run has a network that a judged number chose."""
        return any(result.rank is not None for row in self.rows for result in row.results)

    @property
    def shared(self) -> SharedResult | None:
        """Without a common target: the result that all runs reached which did not diverge; None if their tasks differ."""
        rows = [row for row in self.rows if "diverged" not in row.statuses]
        if self.target or len(rows) < 2 or not alike([row.job for row in rows]):
            return None
        return SharedResult.of(result for row in rows for result in row.results)

    @property
    def ranked(self) -> ComparedRuns:
        """The same runs, the best row first: those that reached the common target by their seconds to it, others by result."""

        def place(row: ComparedRow) -> tuple[bool, float, float]:
            if self.target and row.reached:
                return False, statistics.median(row.seconds), 0.0
            return True, *((row.rank, row.loss) if self.by else (0.0, 0.0))

        return ComparedRuns(sorted(self.rows, key=place))

    @property
    def note(self) -> str:
        """A line below the table: the runs per row, the order and the mark."""
        counts = {len(row.summaries) for row in self.rows if row.summaries} or {1}
        pruned = "; pruned runs are last" * any("pruned" in row.statuses for row in self.rows)
        runs = "one run each" if counts == {1} else f"medians of {min(counts)}{f' to {max(counts)}' * (len(counts) > 1)} {plural('run', max(counts))} each (least-most)"  # fmt: skip
        goal = ", ".join(f"{name} {value:g}" for name, value in self.target.items())
        order = [f"seconds to the target ({goal})"] * bool(goal) + [f"judged {self.by}"] * bool(self.by)
        reason = "different numbers chose the networks" if self.judged else "no run was judged"
        ranked = f"best first by {', then by '.join(order)}" if order else f"not ranked: {reason}"
        ranked = f"sorted by {self.order}{pruned}" if self.order else ranked
        later = ", ".join(row.label for row in self.rows if row.continues)
        since = f"; seconds of {later} do not count those in another folder, from which it continues" if later else ""
        ended = [row for row in self.rows if row.summaries]
        simulated = [row.label for row in ended if is_simulated(row.job)]
        which = f" of {', '.join(simulated)}" * (len(simulated) < len(ended))
        clock = f"; seconds{which} are simulated" if simulated else ""
        shares = [core_wait_share(summary["workers"]) is not None for row in self.rows for summary in row.summaries]
        short = f"; - is unknown, as the core wait of runs below {TELLING_SECONDS:g} s" if any(shares) and not all(shares) else ""
        return f"{runs}; {ranked}; {MARK} is the best of its column{since}{clock}{short}"

    def best(self) -> str:
        """Return a sentence that names the best run."""
        row, several = self.ranked.rows[0], f"Of {len(self.rows)} runs, one each,"
        seconds = f"{row.seconds[0]:.3g} {'simulated seconds' if is_simulated(row.job) else 's'}"
        if self.target and row.reached:
            return f"{several} {row.label} reached its target first, after {seconds}."
        if not self.judged:
            return f"None of the {len(self.rows)} runs was judged yet."
        if not self.by:
            return f"It is unknown which of {len(self.rows)} runs is best: different numbers ([stop] patience_by) chose their networks."  # fmt: skip
        numbers = row.results[0].numbers
        shown = scores({self.by: numbers.get(self.by)} | numbers)
        return f"{several} {row.label} is best: its network has {shown} (judged), after {seconds}.{self._first()}"

    def _first(self) -> str:
        """Return a sentence naming the run that first had the result that all reached; "" if that is unknown."""
        times = {row: values[0] for row, values in enumerate(self._seconds_to_shared()) if values and values[0] is not None}
        if len(times) < len(self.rows):
            return ""
        first = min(times, key=times.__getitem__)
        return f" {self.rows[first].label} was the first with {self.shared}, which all reached: after {_seconds(times[first])} s."

    def _seconds_to_shared(self) -> list[list[float | None]]:
        """Return the seconds of each row's runs to the result that all reached; empty if any are unknown."""
        shared = None if any(row.continues for row in self.rows) else self.shared
        times = [[shared.seconds(course) for course in row.courses] for row in self.rows] if shared else []
        complete = [any(values) or "diverged" in row.statuses for row, values in zip(self.rows, times, strict=False)]
        return times if all(complete) else []

    def lines(self, width: int | None) -> list[str]:
        """Return the table and the note as lines for a terminal of this width; None: any width."""
        return [*table(*self.cells(), width), *wrapped([self.note], width)]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the rows of texts, without columns that have no numbers."""
        texts = [("run", [row.label for row in self.rows])]
        if len(counts := [len(row.summaries) for row in self.rows]) != counts.count(1):
            texts.append(("runs", [f"{runs}" for runs in counts]))
        texts.append(("status", [_counted(row.statuses) for row in self.rows]))
        if not self.by:
            texts.append(("chosen by", [row.results[0].by if row.rank < math.inf else "-" for row in self.rows]))
        texts += [(column.head, column.cells) for column in self._columns()]
        names = [head for head, _ in texts]
        if self.numbers and not {self.order.replace(".", " "), f"judged {self.order.removeprefix('metrics.')}"} & {*names}:
            texts.insert(1, (self.order, _Column(self.order, [list(values) for values in self.numbers]).cells))
        kept = [(head, cells) for head, cells in texts if any(cell.strip(" -") for cell in cells)]
        return [head for head, _ in kept], [list(row) for row in zip(*(cells for _, cells in kept), strict=True)]

    def _columns(self) -> Iterator[_Column]:
        rows, everywhere = self.rows, range(len(self.rows))
        judged = [[result.numbers for result in row.results] for row in rows]
        tests = [[summary["test"] for summary in row.summaries] for row in rows]
        for kind, tables in (("judged", judged), ("test", tests)):
            names = dict.fromkeys(name for table in tables for numbers in table for name in numbers)
            for name in sorted(names, key=lambda name: (name != self.by, name != "loss")):
                lower = (
                    lower_is_better(name, rows[0].job)
                    if name != self.by
                    else next(row.results[0].lower for row in rows if row.results)
                )
                yield _Column(f"{kind} {name}", [[numbers.get(name) for numbers in table] for table in tables], number, lower=lower, among=everywhere)  # fmt: skip
        reached = [row for row in everywhere if rows[row].reached]
        whole = bool(self.target) and len(reached) == len(rows)
        alike = all(
            row.job.get("stop") == rows[0].job.get("stop") and set(row.statuses) <= set(COMPLETED) and not row.continues
            for row in rows
        )
        among = reached if self.target else everywhere if alike else ()
        yield _Column("seconds to target" if whole else "seconds", [list(row.seconds) for row in rows], _seconds, among=among)
        if times := self._seconds_to_shared():
            yield _Column(f"seconds to {self.shared}", times, _seconds, among=everywhere)
        yield _Column("item-iterations", self._numbers(lambda summary: summary["item_iterations"]), count, among=among)
        yield _Column("workers", self._numbers(lambda summary: len(summary["workers"])), count)
        for name, share in (("waiting", _waiting), ("core wait", lambda summary: core_wait_share(summary["workers"]))):
            shares = self._numbers(share)
            complete = all(value is not None for row in shares for value in row)
            yield _Column(name, shares, "{:.0%}".format, among=everywhere if complete else ())

    def _numbers(self, of: Callable[[Mapping[str, Any]], float | None]) -> list[list[float | None]]:
        return [[of(summary) for summary in row.summaries] for row in self.rows]


def _waiting(summary: Mapping[str, Any]) -> float | None:
    """Return the share of its workers' time that a run of several workers waited."""
    return shares_of(summary["workers"]).get("wait") if len(summary["workers"]) > 1 else None


def _seconds(value: float) -> str:
    return f"{value:#.3g}" if 0 < value < 100 else f"{value:,.0f}"


def _counted(statuses: Sequence[str]) -> str:
    """Return the statuses of a row: one word if all are equal, else each with its count."""
    names = dict.fromkeys(statuses)
    return statuses[0] if len(names) == 1 else ", ".join(f"{statuses.count(name)} {name}" for name in names)
