"""A run from job to summary: what `partrain run` and `partrain resume` do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain import __version__
from partrain.comm.machine import Machine
from partrain.console import Display
from partrain.data import Dataset
from partrain.data.partition import assign, windows
from partrain.data.unevenness import uneven, unevenness
from partrain.environment import process_start
from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, BadCheckpoint, Failure
from partrain.job import LoadedJob
from partrain.launch.coordinator import Coordinator, Ended, Start
from partrain.launch.folder import check_home, forget, locked, point_at, stage_file
from partrain.launch.machines import Meeting, keep_folder
from partrain.launch.manifest import Manifest, continued, manifest_for, manifest_of
from partrain.launch.signals import Signals
from partrain.launch.stock import stocked
from partrain.launch.writer import HISTORY
from partrain.plan import Plan, make_plan
from partrain.record import EventLog, cut, read_events, summary, write_summary
from partrain.view import WELL

if TYPE_CHECKING:
    from partrain.checkpoint import Content


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    code: int
    """Exit code."""
    folder: Path
    summary: dict[str, Any]
    checkpoint: Path | None
    """The newest one, if any was committed."""
    failure: Failure | None = None
    horizon: int | None = None
    """Item-iterations over which the learning rate's schedule runs, if it has one."""


@dataclass(frozen=True)
class Stage:
    """Where a run plays: its folder, who watches it, who is warned."""

    folder: Path
    display: Display
    warn: Callable[[str], None] = lambda text: None
    started: float = field(default_factory=process_start)
    """Unix time from which start-up counts."""
    machine: Machine | None = None
    """Which machine this is, where there are several."""
    signals: Signals = field(default_factory=Signals)
    """What asks the run to end; whoever calls it may have noted some already."""


def run(loaded: LoadedJob, stage: Stage) -> Outcome:
    """Train a job in a new run folder."""
    with locked(stage.folder):
        forget(stage.folder, "events.jsonl", "summary.json")  # of an attempt that committed nothing
        return _train(loaded, stage, Start(), lambda: _prepare(loaded, stage, None))


def resume(loaded: LoadedJob, content: Content, stage: Stage) -> Outcome:
    """Continue from what a checkpoint holds; later events of its folder are cut off, once it is sure that it can be continued.

    Raises BadCheckpoint where it does not fit the job.
    """
    progress = manifest_of(content).progress
    history = _history(content)
    with locked(stage.folder):
        check_home(content, stage.folder)
        _warn_of_the_end(loaded, content, stage)
        ground = _prepare(loaded, stage, content)
        point_at(content, stage.folder)
        earlier = cut(stage.folder / "events.jsonl", progress.round)
        stage.display.adopt(earlier)
        ended = _ended(stage.folder, progress.round)
        forget(stage.folder, "summary.json")  # it tells of an end that this is no longer
        try:
            return _train(loaded, stage, Start(progress, content.arrays, history, earlier.clock.train), lambda: ground)
        finally:
            if ended and not went_on(stage, content):
                write_summary(stage.folder / "summary.json", ended)


def went_on(stage: Stage, content: Content) -> bool:
    """Whether a resumed run has committed anything: else the checkpoint that it went on from is still what is there."""
    commit = stage.display.view.commit
    return commit is not None and commit.round > content.round


def _ended(folder: Path, number: int) -> dict[str, Any]:
    """The summary of a run that had come to its end with this round."""
    try:
        told = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return dict(told) if told["status"] in WELL and told["rounds"] == number else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _warn_of_the_end(loaded: LoadedJob, content: Content, stage: Stage) -> None:
    """Beyond the end of its schedule a learning rate stays what it was there, which may be nothing."""
    manifest = manifest_of(content)
    horizon = manifest.horizon
    if horizon and manifest.progress.item_iterations >= horizon and not loaded.job.optimizer.rate(horizon, horizon):
        over = f"the learning rate is 0 since item-iteration {horizon:,}, where its schedule ended"
        stage.warn(f"{over}: this changes nothing more; to train for longer, run the job anew with a higher limit or `horizon`")


def nothing_left(loaded: LoadedJob, content: Content, folder: Path | None) -> str | None:
    """The stop condition that holds already where a checkpoint stands; `folder` is that of its run, if there is one."""
    progress, stop = manifest_of(content).progress, loaded.job.stop
    if progress.judged_round == progress.round and stop.reached(progress):
        return "target"
    return stop.limit(progress, stop.seconds is not None and _trained(folder, progress.round) >= stop.seconds)


def conclude(
    loaded: LoadedJob, content: Content, folder: Path, reason: str, test: Callable[[], tuple[float, float | None] | None]
) -> None:
    """Write down the end of a run that was ended after its last checkpoint, before it could do so: while it was tested, say.

    `test` gives loss and accuracy on the test set, if there is one.
    """
    with locked(folder):
        check_home(content, folder)
        told = list(read_events(folder / "events.jsonl"))
        ended = told and told[-1]["event"] == "end" and told[-1]["status"] in WELL
        if ended and (folder / "summary.json").exists():
            return
        progress, stop = manifest_of(content).progress, loaded.job.stop
        view = cut(folder / "events.jsonl", progress.round)
        status = "reached" if reason == "target" else "not-reached" if stop.has_target else "finished"
        scores = _scores(test())
        event = {
            "event": "end",
            "t": time.time(),
            "status": status,
            "reason": reason,
            "round": progress.round,
            "seconds": {"startup": view.clock.startup, "train": view.clock.train, "total": view.clock.total},
            "test": scores,
        }
        with EventLog(folder / "events.jsonl") as log:
            log.add(event)
        view.feed(event)
        write_summary(folder / "summary.json", summary(view, scores))


def _scores(test: tuple[float, float | None] | None) -> dict[str, float]:
    """Loss and accuracy by their names, as far as there are any."""
    loss, accuracy = test or (None, None)
    return {name: value for name, value in (("loss", loss), ("accuracy", accuracy)) if value is not None}


def _trained(folder: Path | None, number: int) -> float:
    """Training seconds of a run that ended with this round; 0 if it went on, or nobody knows."""
    told = list(read_events(folder / "events.jsonl")) if folder else []
    ended = bool(told) and told[-1]["event"] == "end" and told[-1]["round"] == number
    return float(told[-1]["seconds"]["train"]) if ended else 0.0


def _history(content: Content) -> list[tuple[float, ...]]:
    """The rows of `/history`, one for each round."""
    columns = [content.arrays.get(f"history/{name}") for name in HISTORY]
    if any(column is None or column.shape != (content.round,) for column in columns):
        raise BadCheckpoint(f"/history does not hold {', '.join(HISTORY)} of {content.round} rounds")
    return list(zip(*(column.tolist() for column in columns if column is not None), strict=True))


@dataclass(frozen=True)
class Ground:
    """What a run stands on."""

    dataset: Dataset
    stock: int
    """Memory file of the data."""
    machine: Machine | None
    plan: Plan
    manifest: Manifest


def _prepare(loaded: LoadedJob, stage: Stage, content: Content | None) -> Ground:
    """Read the data and plan the run; nothing of the run folder is touched."""
    job = loaded.job
    dataset, stock = stocked(loaded)
    try:
        machine = stage.machine and replace(stage.machine, patience_s=job.transport.stall_seconds)
        plan = make_plan(job, dataset.items, machine.count if machine else 1)
        manifest = manifest_for(loaded, plan, dataset)
        if content is not None:
            _warn_if_newer(manifest, content, stage)
            plan, manifest = continued(plan, manifest, content)
        if job.partition.order == "given" and dataset.task != "language":
            _warn_if_uneven(job, plan, dataset, stage)
    except BaseException:
        os.close(stock)
        raise
    return Ground(dataset, stock, machine, plan, manifest)


def _train(loaded: LoadedJob, stage: Stage, start: Start, prepare: Callable[[], Ground]) -> Outcome:
    """Train, and tell the run folder how it ended, also where it could not begin."""
    with EventLog(stage.folder / "events.jsonl") as log, closing(stage.display):
        stage_file(stage.folder / "job.toml", loaded.text)

        def hear(event: dict[str, Any]) -> None:
            log.add(event)
            stage.display.feed(event)
            if event["event"] == "stopping":
                stage.warn(f"{event['signal']}: {event['what']}")

        def tick() -> None:
            log.flush()
            stage.display.tick(time.time())

        try:
            ground = prepare()
            try:
                return _perform(loaded, stage, start, ground, hear, tick)
            finally:
                os.close(ground.stock)
        except Exception as error:
            what = str(error).partition("\n")[0] or type(error).__name__
            reason = error.name if isinstance(error, Failure) else "internal"
            seconds = stage.display.view.clock.train
            with suppress(Failure):  # the disk may be what has failed
                hear({"event": "fault", "t": time.time(), "what": what, "rank": None})
                _close(Ended("failed", reason, start.progress, seconds, None), None, stage, hear, tick)
            raise


def _perform(
    loaded: LoadedJob,
    stage: Stage,
    start: Start,
    ground: Ground,
    hear: Callable[[dict[str, Any]], None],
    tick: Callable[[], None],
) -> Outcome:
    """Meet the other machines, if there are any, and train."""
    job, machine, plan, dataset = loaded.job, ground.machine, ground.plan, ground.dataset
    meeting = Meeting(machine) if machine else None
    if machine and meeting:
        keep_folder(machine, stage.folder)
        meeting.lead(loaded, plan, start, dataset.fingerprint)
    with stage.signals as signals:  # to the last line: a run that is done is done
        agree = meeting.agree if meeting else (lambda complaint: None)
        coordinator = Coordinator(job, loaded.folder, plan, start, hear, tick, signals, machine, agree)
        describe = _describer(loaded, plan, ground.manifest, start, stage, hear, _unevenness(job, plan, dataset))
        ended = coordinator.run(dataset.card, ground.stock, stage.folder, ground.manifest.model_dump(), loaded.text, describe)
        return replace(_close(ended, coordinator.began_at, stage, hear, tick), horizon=plan.horizon)


def _warn_if_newer(manifest: Manifest, content: Content, stage: Stage) -> None:
    before, now = manifest_of(content).versions, manifest.versions
    if changed := [f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]]:
        stage.warn(
            f"the checkpoint was made with {'; '.join(changed)}: the last bits may differ from those of a run of one piece"
        )


def _warn_if_uneven(job: Any, plan: Plan, dataset: Dataset, stage: Stage) -> None:
    cuts = windows(plan.training_items, [share.spec.partition_size for share in plan.shares], job.partition.overlap)
    if text := uneven(dataset.targets[: plan.training_items], cuts):
        stage.warn(text)


def _unevenness(job: Any, plan: Plan, dataset: Dataset) -> list[dict[str, float]]:
    """For each worker, how unlike all together its targets are; nothing where a shuffle leaves it to chance."""
    if job.partition.order == "shuffled" or dataset.task == "language":
        return [{}] * len(plan.shares)
    n, sizes = plan.training_items + plan.held_out, [share.spec.partition_size for share in plan.shares]
    section = job.partition
    cut = assign(section, n, plan.held_out, sizes, job.seed, None, dataset.gap, dataset.targets, job.dataset.stratify)
    return [{"unevenness": distance} for distance in unevenness(dataset.targets, cut.partitions)]


def _describer(
    loaded: LoadedJob,
    plan: Plan,
    manifest: Manifest,
    start: Start,
    stage: Stage,
    hear: Callable[[dict[str, Any]], None],
    unlike: list[dict[str, float]],
) -> Callable[[dict[int, int], int], None]:
    """Gives the start event once the workers' processes and the network are known."""
    job = loaded.job

    def describe(pids: dict[int, int], parameters: int) -> None:
        before = _before(start, len(plan.shares))
        workers: list[dict[str, Any]] = [
            {
                "rank": share.spec.rank,
                "device": share.spec.device,
                "threads": share.spec.threads,
                "pid": pids.get(share.spec.rank),
                "partition": share.partition,
                **unlike[share.spec.rank],
                "iterations": share.iterations,
                "passes": share.spec.passes,
                "batch_size": job.optimizer.batch(share.partition),
                **before[share.spec.rank],
            }
            for share in plan.shares
        ]
        hear(
            {
                "event": "start",
                "t": stage.started,
                "version": __version__,
                "name": job.name,
                "run_id": manifest.run,
                "rule": job.sync.rule,
                "resumed_from": start.progress.round if start.arrays is not None else None,
                "parameters": parameters,
                "held_out": plan.held_out,
                "judge_every": plan.judge_every,
                "cores": len(os.sched_getaffinity(0)),
                "workers": workers,
                "stop": job.stop.model_dump(exclude_none=True),
            }
        )

    return describe


def _before(start: Start, size: int) -> list[dict[str, Any]]:
    """What each worker had done before this start, by the checkpoint's word."""
    if start.arrays is None:
        return [{}] * size
    counts = [start.arrays[f"workers/{rank}/counts"].tolist() for rank in range(size)]
    return [{"before": {"iterations": iterations, "item_iterations": items}} for _, iterations, items, _ in counts]


def _close(
    ended: Ended,
    began_at: float | None,
    stage: Stage,
    hear: Callable[[dict[str, Any]], None],
    tick: Callable[[], None],
) -> Outcome:
    """Write down how a run ended."""
    hear(_end_event(ended, stage, began_at))
    tick()
    content = summary(stage.display.view, _scores(ended.test))
    write_summary(stage.folder / "summary.json", content)
    checkpoint = stage.folder / "checkpoint.h5"
    newest = checkpoint if checkpoint.exists() else None
    return Outcome(_code(ended, stage.machine is None), stage.folder, content, newest, ended.failure)


def _end_event(ended: Ended, stage: Stage, began_at: float | None) -> dict[str, Any]:
    now, clock = time.time(), stage.display.view.clock
    since = stage.display.view.t if clock.running else stage.started
    startup = max(0.0, began_at - stage.started) if began_at else 0.0
    seconds = {
        "startup": clock.startup or startup,
        "train": ended.seconds,
        "total": clock.total + max(0.0, now - since),
    }
    return {
        "event": "end",
        "t": now,
        "status": ended.status,
        "reason": ended.reason,
        "round": ended.progress.round,
        "seconds": seconds,
        "test": _scores(ended.test),
    }


def _code(ended: Ended, alone: bool) -> int:
    if ended.failure:
        return ended.failure.code
    stopped = {None: OK, 2: INTERRUPTED}.get(ended.signal, TERMINATED)
    # Torchrun would take anything but 0 for a failure to start again from; the summary has the status.
    not_reached = NOT_REACHED if alone else OK
    return {"reached": OK, "finished": OK, "not-reached": not_reached}.get(ended.status, stopped)
