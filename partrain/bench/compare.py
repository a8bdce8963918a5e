"""`partrain compare`: jobs or run folders side by side, one line each, and their differences."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from partrain.bench import Case, Interrupted, outcomes, refuse_seed
from partrain.bench.assertions import check_names_of_jobs, medians, verdict
from partrain.config.toml_source import TomlSource
from partrain.errors import NOT_REACHED, OK, USAGE, BadJob, InputMissing
from partrain.job.load import LoadedJob, load, parse
from partrain.record.events import StartEvent
from partrain.record.file_names import RANKING
from partrain.record.result import Course, RunResult, course_of
from partrain.record.round_record import number_of
from partrain.record.run_folder import RunFolder, is_superseded, run_folders
from partrain.record.run_state import RunState
from partrain.record.summary import read_summary
from partrain.record.waiting import cause, participation_of, shares_of
from partrain.runs.comparing import ComparedRow, ComparedRuns, target_of
from partrain.runs.conditions import Condition
from partrain.runs.listing import numbers_in
from partrain.runs.ranking import Combination, Ranking, sort_key
from partrain.runs.selection import BadSelection, check_names, differences, ordered

METRIC = "metrics."
"""Prefix of the names of judged metrics."""
FACTS = ("rule", "workers", "status", "rounds", "seconds", "items", "seconds_to_target", "items_to_target", "loss", "accuracy",
         "test_accuracy", "bytes_per_round", "participation", "waiting", "staleness", "distance")  # fmt: skip
"""Names of the results of a run."""
Facts = dict[str, float | str | None]
"""The results of a run; None if unknown."""


@dataclass(frozen=True)
class LineSource:
    """A line of the table, before anything is read: a job, a run, or the runs of one combination of a sweep."""

    path: Path
    """The job, the run folder, or the folder of the sweep."""
    ranking: Ranking | None = None
    """The sweep that ranks the line."""
    combination: Combination | None = None

    @property
    def runs(self) -> list[Path]:
        """The existing run folders; empty for a job."""
        if self.ranking and self.combination:
            return [run for name in self.combination.runs if RunFolder(run := self.path / name).exists]
        return [self.path] if self.path.is_dir() else []

    @property
    def order(self) -> tuple[str, bool]:
        """The number by which the line's sweep ranks it, and whether the largest is the best; "" for a line outside of sweeps."""
        return (self.ranking.by, self.ranking.largest) if self.ranking else ("", False)

    @property
    def sort_key(self) -> float:
        """A number for sorting the combinations of sweeps with one order, the best first."""
        return sort_key(self.combination.median if self.combination else math.nan, largest=self.order[1])

    @classmethod
    def labelled(cls, sources: Sequence[LineSource]) -> Iterator[tuple[str, LineSource]]:
        """Give each line a label: the settings of a combination, or the end of a path that distinguishes it from the others."""
        sweeps = list(dict.fromkeys(source.path for source in sources if source.combination))
        plain = [source.path for source in sources if not source.combination]
        names = iter(labels([*sweeps, *plain]))
        of_sweep = {path: next(names) for path in sweeps}
        for source in sources:
            if source.combination:
                settings = source.combination.label
                parts = [of_sweep[source.path]] if not settings or len(of_sweep) + len(plain) > 1 else []
                yield ": ".join([*parts, settings] if settings else parts), source
            else:
                yield next(names), source


def sources_below(folder: Path, note: Callable[[str], None]) -> Iterator[LineSource]:
    """Iterate over the runs below a folder. The runs of a sweep are grouped as in its ranking.

    Runs missing from a ranking become separate lines, after a note.
    """
    rankings: dict[Path, Ranking | None] = {}
    for run in run_folders(folder):
        if is_superseded(run):
            note(f"left out: {run} is a run of former settings")
            continue
        place = run.parent
        if place not in rankings:
            rankings[place] = ranking = _ranking_in(place, note)
            yield from (LineSource(place, ranking, row) for row in (ranking.rows if ranking else ()))
        if not (ranking := rankings[place]):
            yield LineSource(run)
        elif not any(run.name in row.runs for row in ranking.rows):
            note(f"{run} is not in the ranking of its sweep: it is of another sweep, or of one that has not ended")
            yield LineSource(run)


def _ranking_in(place: Path, note: Callable[[str], None]) -> Ranking | None:
    """Read the ranking in a folder; None if there is none, or if it is damaged, which a note reports."""
    try:
        return Ranking.read(place) if (place / RANKING).exists() else None
    except InputMissing as damaged:
        note(damaged.message)
        return None


@dataclass
class ComparedJob:
    """One line of the table: a job to run with several seeds, an existing run, or the runs of one combination of a sweep."""

    label: str
    settings: dict[str, Any]
    """The parsed job, without the seed if each run gets a different one."""
    source: LineSource
    """The source of the line."""
    loaded: LoadedJob | None = None
    """The job to run."""
    runs: list[Facts] = field(default_factory=list)
    numbers: list[dict[str, Any]] = field(default_factory=list)
    """All numbers that each run recorded, by the names of summary.json and of the results."""

    @cached_property
    def row(self) -> ComparedRow:
        """The job's line in the table."""
        return ComparedRow(self.label, self.settings)

    @property
    def cases(self) -> list[Case]:
        """The runs to do: empty for an existing run."""
        return [Case(self.label, self.seeded)] if self.loaded else []

    def seeded(self, seed: int) -> LoadedJob:
        """Return the job with this seed, as it was when the comparison began."""
        assert self.loaded
        return parse(self.loaded.text, self.loaded.folder, self.label, local=True, overrides=[f"seed={seed}"])

    def add(self, folder: Path) -> None:
        """Add a finished run."""
        facts, summary, course = _read(folder)
        self.runs.append(facts)
        self.row.summaries.append(summary)
        self.row.courses.append(course)
        self.numbers.append(numbers_in(summary) | RunResult.of(summary).numbers | facts)

    def values(self, key: str) -> list[float]:
        return [float(run[key]) for run in self.runs if run[key] is not None]  # type: ignore[arg-type]


class NoResult(InputMissing):
    """A run without a result: it ended before training started, or has not ended."""


def enter(sources: Sequence[LineSource], overrides: Sequence[str], note: Callable[[str], None]) -> list[ComparedJob]:
    """Load and check the jobs, and read the results in the run folders. Overrides apply to the jobs.

    A run without a result is left out with a note, unless all runs lack results.
    """
    refuse_seed(overrides)
    if overrides and all(source.runs for source in sources):
        raise BadJob(f"--set {overrides[0]}: overrides apply to jobs, but all of these are existing runs; leave it out")
    jobs = []
    for label, source in LineSource.labelled(sources):
        if runs := source.runs:
            settings = _kept_job(runs[0])
            job = ComparedJob(label, {key: v for key, v in settings.items() if key != "seed" or len(runs) == 1}, source)
            for run in runs:
                try:
                    job.add(run)
                except NoResult as empty:
                    if len(runs) == len(sources) == 1:
                        raise
                    note(f"left out: {empty}")
            jobs += [job] if job.runs else []
        elif source.combination is None:
            loaded = load(source.path, overrides)
            settings = {key: v for key, v in tomllib.loads(loaded.text).items() if key != "seed"}
            jobs.append(ComparedJob(label, settings, source, loaded))
    if not jobs:
        raise InputMissing("none of these runs has a result: nothing to compare")
    return jobs


def compare(
    contenders: Sequence[ComparedJob],
    seeds: int,
    note: Callable[[str], None],
    conditions: Sequence[Condition] = (),
    sort: str | None = None,
) -> dict[str, Any]:
    """Train the jobs, each with every seed, interleaved. Return all results; after a signal, only those of completed runs.

    Args:
        contenders: Jobs and existing runs.
        seeds: Repeats of each job.
        note: Called with a sentence about each run.
        conditions: Assertions: the code is 1 if one does not hold.
        sort: Name of a number to sort by, with a leading `-` for the largest first. Default: the best first, in the order of the
            sweep if
            all are from sweeps with one order, else as `ComparedRuns.ranked`.

    Raises:
        BadSelection: No run recorded a number that a condition or `sort` names. This is checked before the training as far as possible.
    """
    names = [name for condition in conditions for name in condition.names] + ([sort.removeprefix("-")] if sort else [])
    _check(contenders, names)
    by_label, code = {contender.label: contender for contender in contenders}, OK
    cases = [case for contender in contenders for case in contender.cases]
    planned = len(contenders) + len(cases) * (seeds - 1)
    try:
        with closing(outcomes(cases, range(seeds), note)) as runs:
            for case, outcome in runs:
                by_label[case.label].add(outcome.folder)
    except Interrupted as interrupted:
        code = interrupted.code
    complete = [contender for contender in contenders if contender.runs]
    order = "" if sort else _common_order(complete)
    if order:
        present = sorted(complete, key=lambda job: job.source.sort_key)
    else:
        present = [by_label[row.label] for row in ComparedRuns([job.row for job in complete]).ranked.rows]
    verdicts = [verdict(job.label, condition, job.numbers) for job in present for condition in conditions]
    if code == OK and not all(answer["holds"] for answer in verdicts):
        code = NOT_REACHED
    unknown = ""
    try:
        check_names(names, (name for job in present for number in job.numbers for name in number)) if present else None
        middle = {job.label: medians(job.numbers) for job in present}
        present = ordered(present, sort, lambda job: middle[job.label]) if sort else present
    except BadSelection as error:  # a wrong word must not discard hours of training
        unknown, code = str(error), USAGE if code in (OK, NOT_REACHED) else code
    if sort and not unknown:
        order = sort.removeprefix("-")
    swept = {key for job in present if order and job.source.combination for key in job.source.combination.settings}
    differ = differences({job.label: job.settings for job in present})
    comparison = ComparedRuns([job.row for job in present], order, [_numbers(job, order) for job in present] if order else ())
    head, cells = comparison.cells()
    return {
        "code": code,
        "planned": planned,
        "finished": sum(len(job.runs) for job in present),
        "rows": [_row(job) for job in present],
        "table": {"head": head, "rows": cells, "note": comparison.note},
        "limits": {job.label: limits[0] for job in present if (limits := [*filter(None, map(cause, job.row.summaries))])},
        "without": [contender.label for contender in contenders if not contender.runs],
        "differ": {key: values for key, values in differ.items() if key not in swept},  # the labels of a sweep show its settings
        **({"asserts": verdicts} if conditions else {}),
        **({"unknown": unknown} if unknown else {}),
    }


def _common_order(contenders: Sequence[ComparedJob]) -> str:
    """Return the number by which the sweeps of all contenders rank; "" if there is no common one."""
    orders = {job.source.order for job in contenders}
    return orders.pop()[0] if len(orders) == 1 else ""


def _numbers(job: ComparedJob, name: str) -> list[float | None]:
    """Return a number of each run of a contender, by its sweep's ranking, else as recorded."""
    if job.source.combination and job.source.order[0] == name:
        return job.source.combination.values
    return [number_of(numbers.get(name)) for numbers in job.numbers]


def _check(contenders: Sequence[ComparedJob], names: Sequence[str]) -> None:
    """Check names of numbers before any training: existing runs have theirs, of jobs only some are known."""
    recorded = [name for contender in contenders for number in contender.numbers for name in number]
    if any(contender.loaded for contender in contenders):
        check_names_of_jobs(names, FACTS, recorded)
    else:
        check_names(names, recorded)


def facts(folder: Path) -> Facts:
    """Return the results in a run folder."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[Facts, dict[str, Any], Course]:
    """Return the results in a run folder, its summary and its judgements."""
    files = RunFolder(folder)
    all_events = list(files.events()) if files.events_file.exists() else []
    if all_events and not files.summary_file.exists():
        raise NoResult(f"{folder}: the run is still training, or was killed: partrain resume {folder}")
    try:
        summary = read_summary(files.summary_file)
    except (OSError, ValueError) as error:
        raise InputMissing(f"{folder}: no readable summary.json: {error}; is it a run folder?") from None
    starts = [event for event in all_events if isinstance(event, StartEvent)]
    if not starts:
        raise NoResult(f"{folder}: the run ended before training started: nothing to compare")
    # The status of a trial that its sweep pruned is in another file.
    summary |= {key: files.summary[key] for key in ("status", "reason")}
    state, result, reached = RunState(), RunResult.of(summary), summary["status"] == "reached"
    for event in all_events:
        state.apply(event)
    facts: Facts = {
        "rule": starts[-1].rule,
        "workers": len(summary["workers"]),
        "status": summary["status"],
        "rounds": summary["rounds"],
        "seconds": summary["seconds"]["train"],
        "items": summary["item_iterations"],
        "seconds_to_target": summary["seconds"]["train"] if reached else None,
        "items_to_target": summary["item_iterations"] if reached else None,
        "loss": result.loss,
        "accuracy": result.metrics.get("accuracy"),
        "test_accuracy": summary["test"].get("accuracy"),
        "bytes_per_round": state.bytes_per_round(),
        "participation": participation_of(summary["workers"]),
        "waiting": shares_of(summary["workers"]).get("wait"),
        "staleness": state.merged("staleness"),
        "distance": state.merged("distance"),
    }
    return facts, summary, course_of(all_events)


def labels(paths: Sequence[Path]) -> list[str]:
    """Label each path by the end that distinguishes it from the others, without `.toml`; number duplicates."""
    whole = [path.resolve() if path.is_dir() else path.parent.resolve() / path.name for path in paths]
    bare = [path.with_suffix("") if path.suffix == ".toml" and path.with_suffix("") not in whole else path for path in whole]
    ends = [_end(path, [other for other in bare if other != path]) for path in bare]
    names: list[str] = []
    for end in ends:
        spare = (f"{end} ({number})" for number in count(2))
        names.append(end if end not in names else next(label for label in spare if label not in ends + names))
    return names


def _end(path: Path, others: Sequence[Path]) -> str:
    """Return the shortest end of a path that no other path has."""
    ends = (path.parts[start:] for start in range(len(path.parts) - 1, -1, -1))
    return str(Path(*next(end for end in ends if all(other.parts[-len(end) :] != end for other in others))))


def _kept_job(folder: Path) -> dict[str, Any]:
    """Parse a run folder's copy of its job."""
    return TomlSource.read(RunFolder(folder).job_file).data


def _row(contender: ComparedJob) -> dict[str, Any]:
    runs = contender.runs
    numbers = [key for key, value in runs[0].items() if not isinstance(value, str)]
    reached = sum(run["status"] == "reached" for run in runs)
    same = {"label": contender.label, "rule": runs[0]["rule"], "runs": len(runs), "reached": reached}
    results = [result.metrics for result in contender.row.results]
    names = dict.fromkeys(name for metrics in results for name in metrics if name != "accuracy")
    metrics = {f"{METRIC}{name}": [run[name] for run in results if name in run] for name in names}
    statuses = {"statuses": contender.row.statuses, "has_target": bool(target_of(contender.settings))}
    return same | {key: contender.values(key) for key in numbers} | statuses | metrics
