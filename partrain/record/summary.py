"""The content of `summary.json`: a finished run in numbers, from its state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

from pydantic import BaseModel, ValidationError

from partrain.record.events import BesideTrivial, TakenClients
from partrain.record.privacy import Privacy, privacy_of
from partrain.record.result import BestJudgement, best_judgement
from partrain.record.run_state import RunState
from partrain.record.worker_state import WorkerState
from partrain.system.regular_file import read_json

PAST_BEST = "past its best"
END = 0.2
"""Share of the rounds at the end that counts as the end of a run."""
FEWEST_JUDGEMENTS = 8
"""Smallest number of judgements that shows the course of a run."""
FALLS, RISES = 0.03, 0.1
"""Shares of the whole range of judged losses from which a fall and a rise count. `benchmarks/verdicts.py` measures their accuracy."""


class RunSeconds(TypedDict):
    """Seconds of all sessions."""

    startup: float
    """Seconds from the command to the first local iteration."""
    train: float
    """Seconds from the first local iteration to the last judgement, with waits, mixing and judging."""
    total: float
    """Seconds of the whole command."""


class WorkerSeconds(TypedDict):
    """Seconds of one worker."""

    compute: float
    """Seconds of local iterations."""
    wait: float
    """Seconds of waiting for other workers."""
    sync: float
    """Seconds of mixing."""


class SummaryOptions(TypedDict, total=False):
    """Fields that only some runs have."""

    item_iterations_elsewhere: int
    """Item-iterations of the run in another folder, from which `resume --out` continues it here; `seconds` do not cover them."""
    judged_round: int
    """The round that was judged last, if the run ended in a later round."""
    best: BestJudgement
    """The best judgement whose network is on disk, if there are held-out items."""
    unsaved_best: int
    """Round of a better judgement, if its network is not on disk: the run was killed, or the disk was full."""
    tested_round: int
    """The round whose network was tested, if there are test items: the best one, or the newest without held-out items."""
    trivial: dict[str, dict[str, float]]
    """Numbers of answers that need no training, for the test items, or else the held-out items. `constant`: the shares of the
    classes, or the mean of the training targets. `naive`: a forecast that repeats the newest value. `seasonal_naive`: a forecast
    that repeats the newest season."""
    comparisons: dict[str, BesideTrivial]
    """The network compared with each of these answers on the same items, by the name of the answer."""
    course: str
    """`improving`: the judged loss still fell at the end. `past its best`: it has risen since its minimum. Absent in other cases."""
    undefined: dict[str, int]
    """Judgements in which a number that `[stop]` names was undefined, by its name. Such a judgement is neither the best nor a miss."""
    judgements: int
    """Number of judgements, if one had an undefined number."""
    replays: int
    """Number of times that rounds ran again after the loss of a worker, or a checkpoint was written by another process after the
    loss of its writer."""
    discarded_item_iterations: int
    """Item-iterations that ran again; `item_iterations` counts them once."""
    exclusions: int
    """Number of times that a worker was left out of a mean because its numbers were not finite (`[faults] on_nonfinite`)."""
    excluded_item_iterations: int
    """Item-iterations of these workers in these rounds."""
    clipped_updates: int
    """Number of workers' updates that were longer than `[faults] max_update_norm` and were scaled down to it."""
    spikes: int
    """Number of losses far above the losses before them."""
    privacy: Privacy
    """The privacy of a client, if the job has `[sync] noise`."""
    clients: TakenClients
    """The clients, if workers take them in turn."""


class SlowWorker(TypedDict):
    """A worker that is slow compared with the others."""

    factor: float
    """Its seconds of computing for each item-iteration, divided by the median of the others."""
    since: int
    """First round in which it was slow."""


class WorkerOptions(TypedDict, total=False):
    """Fields that only some workers have."""

    slow: SlowWorker
    """The newest report on the worker, if it is slow at the end."""
    core_wait: float
    """Seconds in which the worker was ready to run and no core was free."""

    unevenness: float
    """Label skew of the partition: total variation distance to all items, 0 to 1."""
    participation: float
    """Share of the rounds in which the worker trained, if it sat some out."""


class WorkerSummary(WorkerOptions):
    """One worker's part of the run."""

    rank: int
    """Number of the worker, from 0."""
    device: str
    """Device: `cpu`, or a GPU such as `cuda:0`."""
    iterations: int
    """Local iterations of the run."""
    item_iterations: int
    """Items that went through a backward pass."""
    items_per_second: float | None
    """Item-iterations per second of training, in this run folder."""
    seconds: WorkerSeconds
    """Seconds by kind of work."""


class Summary(SummaryOptions):
    """The end of a run in numbers. The file is absent while a run trains."""

    status: str
    """`reached`: a target was met. `finished`: a limit ended a run without targets. `not-reached`: a limit ended a run before a
    target was met. `stopped`: a signal or the user ended it. `diverged`: numbers were not finite. `failed`: any other failure."""
    reason: str
    """The stop condition, signal or failure that ended the run, such as `target`, `rounds`, `patience`, `SIGINT`."""
    rounds: int
    """Number of the last round."""
    loss: float | None
    """Loss of the last judgement, on held-out items."""
    metrics: dict[str, float]
    """Accuracy and further metrics of the last judgement, by name."""
    test: dict[str, float | None]
    """Loss and metrics of the test items, if there are any."""
    seconds: RunSeconds
    """Seconds of the run."""
    item_iterations: int
    """Item-iterations of all workers."""
    cores: int
    """Cores of this machine that the run could use in its newest session."""
    threads: int
    """Threads of its CPU workers on this machine."""
    workers: list[WorkerSummary]
    """All workers, by rank."""


class SummarySeconds(BaseModel):
    """Seconds in summary.json."""

    train: float
    total: float


class SummaryScores(BaseModel):
    """The best judgement in summary.json."""

    round: int
    loss: float | None
    metrics: dict[str, float | None]


class SummaryFile(BaseModel, extra="allow", strict=True):
    """The numbers of summary.json that its readers show."""

    status: str
    rounds: int
    loss: float | None
    metrics: dict[str, float | None]
    test: dict[str, float | None]
    seconds: SummarySeconds
    item_iterations: int
    workers: list[dict[str, Any]]
    best: SummaryScores | None = None


def read_summary(path: Path) -> dict[str, Any]:
    """Read `summary.json`. Raises OSError, and ValueError if it is not the summary of a run."""
    content = read_json(path)
    try:
        SummaryFile.model_validate(content)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ValueError(f"not a summary of a run{f': `{place}` is missing or wrong' if place else ''}") from None
    return dict(content)


def summary(state: RunState) -> Summary:
    """Return the content of `summary.json`. Seconds cover all sessions."""
    judged, clock, end = state.judged, state.clock, state.end
    earlier: SummaryOptions = {}
    if state.item_iterations_elsewhere:
        earlier["item_iterations_elsewhere"] = state.item_iterations_elsewhere
    if judged and judged.round != state.round:  # stopping early skips the last judgement
        earlier["judged_round"] = judged.round
    best: SummaryOptions = {}
    if state.best and state.commit and state.best is not state.saved_best:
        best["unsaved_best"] = state.best.round
    if newest := state.saved_best if state.commit else state.best:
        lower = state.start.lower_is_better
        best["best"] = best_judgement(newest.round, newest.loss, newest.metrics, state.start.stop, lower_is_better=lower)
        course = _course(state.judged_losses.resampled())
        late = newest.round > (1 - END) * state.round  # the number that chooses the best round improved, whatever the loss did
        if course and not (late and course == PAST_BEST):
            best["course"] = course
    ended: SummaryOptions = {}
    if state.undefined:
        ended |= {"undefined": dict(state.undefined), "judgements": state.judgements}
    if end and end.tested_round:
        ended["tested_round"] = end.tested_round
    if end and end.trivial:
        ended["trivial"] = end.trivial
    if end and end.comparisons:
        ended["comparisons"] = end.comparisons
    faults: SummaryOptions = {}
    tallies = state.tallies
    if (replays := tallies["replay"]).count:
        faults |= {"replays": replays.count, "discarded_item_iterations": replays.items}
    if (exclusions := tallies["exclusion"]).count:
        faults |= {"exclusions": exclusions.count, "excluded_item_iterations": exclusions.items}
    if state.clipped_updates:
        faults["clipped_updates"] = state.clipped_updates
    if spikes := tallies["spike"].count:
        faults["spikes"] = spikes
    if state.start.privacy:
        ended["privacy"] = privacy_of(state.start.privacy, state.round)
    if state.start.clients:
        ended["clients"] = state.start.clients
    return {
        "status": state.status or "failed",
        "reason": state.reason or "killed",
        "rounds": state.round,
        **earlier,
        "loss": judged.loss if judged else None,
        "metrics": judged.metrics if judged else {},
        **best,
        "test": dict(end.test) if end else {},
        **ended,
        "seconds": {"startup": _seconds(clock.startup), "train": _seconds(clock.train), "total": _seconds(clock.total)},
        "item_iterations": state.item_iterations,
        **faults,
        "cores": state.start.cores,
        "threads": sum(  # replicas share those of their process
            {
                worker["pid"]: worker.get("threads", 1)
                for worker in state.start.workers
                if worker.get("pid") and worker["device"] == "cpu"
            }.values()
        ),
        "workers": [_worker_summary(worker, clock.train) for _, worker in sorted(state.workers.items())],
    }


def _course(losses: Sequence[float]) -> str:
    """Name the course of the judged loss (n,) at the end; "" without a fall or a rise, or with too few judgements.

    The function compares the medians of the last fifth and of the fifth before it, so no single judgement decides.
    """
    count = len(losses)
    if count < FEWEST_JUDGEMENTS:
        return ""
    fifth, least, span = max(count // 5, 2), min(losses), max(losses) - min(losses)
    newest, before, place = median(losses[-fifth:]), median(losses[-2 * fifth : -fifth]), losses.index(least)
    if place >= count - fifth and before - newest > FALLS * span:
        return "improving"
    rise = newest - least
    rises = place < 0.6 * count and newest >= before and rise > RISES * span and rise > 0.02 * abs(least)
    return PAST_BEST if rises else ""


def _worker_summary(worker: WorkerState, train: float) -> WorkerSummary:
    unlike: WorkerOptions = {} if worker.unevenness is None else {"unevenness": worker.unevenness}
    if worker.slow:
        unlike["slow"] = {"factor": worker.slow.factor, "since": worker.slow.since}
    if worker.trained_rounds < worker.rounds:
        unlike["participation"] = round(worker.trained_rounds / worker.rounds, 4)
    if core_wait := worker.numbers["core_wait"]:
        unlike["core_wait"] = _seconds(core_wait)
    return {
        "rank": worker.rank,
        "device": worker.device,
        **unlike,
        "iterations": int(worker.numbers["iterations"]),
        "item_iterations": worker.items,
        "items_per_second": round((worker.items - worker.elsewhere) / train, 3) if train > 0 else None,
        "seconds": {
            "compute": _seconds(worker.numbers["compute"]),
            "wait": _seconds(worker.numbers["wait"]),
            "sync": _seconds(worker.numbers["mix"]),
        },
    }


def _seconds(value: float) -> float:
    """Round to microseconds: more digits are noise."""
    return round(value, 6)
