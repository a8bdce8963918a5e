"""The verdict: one sentence on whether more workers paid, or on what limited the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from partrain.number_format import counted, number, plural
from partrain.record.added_speed import SHORT, paid
from partrain.record.result import RunResult, SharedResult
from partrain.record.waiting import cause
from partrain.report.history import RunHistory, compared_runs
from partrain.report.sweep import shares
from partrain.runs.ranking import Ranking

FOLLOWS = ("workers", "stop.judge_every", "sync.lr_scale")
"""Settings that may differ if only the number of workers does: `judge_every` counts rounds, and one worker has no rate to
scale."""
MOST_KEYS = 3
"""Maximum number of settings that the verdict names."""
REASON = 160
"""Maximum number of characters of a reason in the verdict."""
SOONER, NOT_PAID = "In these two runs more workers were sooner", "More workers did not pay"
"""Beginnings of the verdict. One pair of runs shows reliably that more workers do not pay, not that they do
(benchmarks/verdicts_workers.py)."""
ENDS = {
    "reached": "The run reached its target",
    "finished": "The run finished",
    "not-reached": "The run did not reach its target",
    "stopped": "The run was stopped",
    "diverged": "The run diverged",
    "failed": "The run failed",
    "training": "The run is still training",
    "killed": "The run was killed before its end",
}


class Comparison(NamedTuple):
    """A run of several workers against one worker, to the same goal."""

    run: RunHistory
    seconds: float
    alone: float
    """Seconds of the single worker."""
    goal: str

    @property
    def speedup(self) -> float:
        return self.alone / self.seconds


def verdict(runs: Sequence[RunHistory], sweeps: Sequence[Ranking] = ()) -> str:
    """Return the verdict on these runs, or on the one sweep that they come from, in one sentence."""
    if len(sweeps) == 1:
        return _best_combination(sweeps[0])
    if not runs:
        return "There is no run whose folder is still there."
    several = [run for run in runs if run.size > 1]
    if (alone := baseline(runs)) is None or not several:
        return limits(runs[0]) if len(runs) == 1 else compared_runs(runs).best()
    compared = [comparison for run in several if (comparison := compare(run, alone))]
    if not compared:
        return f"It is unknown whether more workers paid: {_obstacle(several[0], alone)}."
    best = max(compared, key=lambda comparison: comparison.speedup)
    clock = "simulated seconds" if best.run.simulated else "s"
    facts = f"{best.run.size} workers ({best.run.label}) took {best.seconds:.3g} {clock} to {best.goal}, one worker ({alone.label}) {best.alone:.3g} {clock}"  # fmt: skip
    ratio = f"{best.speedup:.2f} times as fast, {best.speedup / best.run.size:.0%} of the ideal"
    shortest = SHORT if best.run.simulated else min(best.seconds, best.alone)
    if (sooner := paid([best.speedup], shortest)) is None:
        few = f"less than {SHORT:g} s tell nothing: ask for a better result" if shortest < SHORT else "one pair of runs does not show so small a difference: partrain bench"  # fmt: skip
        return f"It is unknown whether more workers paid: {facts}, which is {ratio}; {few}."
    if sooner:
        return f"{SOONER}: {facts}, which is {ratio}; another pair may differ: partrain bench."
    reason = cause(best.run.summary)
    return f"{NOT_PAID}: {facts}, which is {ratio}{f'; {reason}' if reason else ''}."


def _obstacle(run: RunHistory, alone: RunHistory) -> str:
    """Return why the times of two runs cannot be compared."""
    if keys := differing(run, alone):
        return (
            f"{run.label} and {alone.label}, the run of one worker, differ in {', '.join(f'`{key}`' for key in keys[:MOST_KEYS])}"
        )
    if labels := continuing([run, alone]):
        return f"{labels[0]} continues a run of another folder, whose seconds are not in its record"
    return f"{run.label} and {alone.label}, the run of one worker, have no common result; judge more often ([stop] judge_every)"


def baseline(runs: Sequence[RunHistory]) -> RunHistory | None:
    """Return the single-worker run that others are measured against, the fastest if there are several."""
    single = [run for run in runs if run.size == 1 and run.judgements]
    return min(single, key=lambda run: run.summary["seconds"]["train"], default=None)


def compare(run: RunHistory, alone: RunHistory) -> Comparison | None:
    """Compare times to the target if both reached the same one, else to the judged result that both reached; None without one.

    Also None if more than the workers differs, or if a run had the result when it was first judged: then only a bound is known.
    """
    if differing(run, alone) or continuing([run, alone]):
        return None
    goals = [{name: side.state.start.stop.get(name) for name in ("loss", "accuracy")} for side in (run, alone)]
    if goals[0] == goals[1] and run.status == alone.status == "reached":
        named = " and ".join(f"{name} {value:g}" for name, value in goals[0].items() if value is not None)
        seconds = [float(side.summary["seconds"]["train"]) for side in (run, alone)]
        return Comparison(run, seconds[0], seconds[1], f"the target, {named}") if min(seconds) > 0 else None
    shared = SharedResult.of(RunResult.of(side.summary) for side in (run, alone))
    times = [(shared.seconds(side.judgements), side.judgements[0].seconds) for side in (run, alone)] if shared else []
    measured = [seconds for seconds, first in times if seconds is not None and seconds > first]
    return Comparison(run, measured[0], measured[1], f"judged {shared}, which both reached") if len(measured) == 2 else None


def continuing(runs: Sequence[RunHistory]) -> list[str]:
    """Return the labels of the runs that continue a run of another folder."""
    return [run.label for run in runs if run.state.item_iterations_elsewhere]


def differing(run: RunHistory, alone: RunHistory) -> list[str]:
    """Return the settings that differ, but must be equal to compare the times of a run and of a single-worker run."""
    from partrain.runs.selection import differences

    return [key for key in differences({"": run.job, " ": alone.job}) if not key.startswith(FOLLOWS)]


def limits(run: RunHistory) -> str:
    """Describe how a run ended and what limited its speed."""
    seconds, clock = run.summary["seconds"]["train"], "simulated seconds" if run.simulated else "s"
    reason = (run.status == "failed" and run.state.tallies["fault"].newest) or str(run.summary.get("reason") or "")
    why = f" ({reason[:REASON]})" if run.status in ("failed", "diverged", "stopped") and reason not in ("", run.status) else ""
    start = f"{ENDS.get(run.status, 'The run ended')}{why} after {counted(run.state.round, 'round')} and {seconds:.3g} {clock} of training"
    shares = run.shares
    if why:
        return f"{start}."
    if not shares:
        return f"{start}, without a finished round." if run.status != "training" else f"{start}; no round has finished yet."
    if run.size == 1:
        return f"{start}; its one worker spent {shares['compute']:.0%} of its time computing."
    spent = f"its {run.size} workers computed {shares['compute']:.0%}, waited {shares['wait']:.0%} and mixed {shares['mix']:.0%} of their time"  # fmt: skip
    return f"{start}; {spent}: {cause(run.summary) or 'computing was the limit'}."


def _best_combination(sweep: Ranking) -> str:
    """Name the best combination of a sweep, and the setting that mattered most."""
    count = counted(len(sweep.rows), "combination")
    if not sweep.measured:
        return f"None of the {count} recorded {sweep.by}."
    best, by_key = sweep.measured[0], shares(sweep)
    runs = f", the median of {len(best.runs)} runs" if len(best.runs) > 1 else ""
    runs += (
        f", as {sweep.level - 1:,} {plural('other', sweep.level - 1)} {'has' if sweep.level == 2 else 'have'}"
        if sweep.level > 1
        else ""
    )
    most = next(iter(by_key), None)
    mattered = f"; {most} mattered most ({by_key[most]:.0%} of the variance)" if most else ""
    return f"Best of {count}: {best.label or 'the job as it is'}, with {sweep.by} {number(best.median)}{runs}{mattered}."
