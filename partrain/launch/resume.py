"""Resume a run from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from partrain.checkpoint.manifest import Manifest, manifest_of
from partrain.display.run_state import RunState, WorkerState
from partrain.errors import BadCheckpoint
from partrain.job.load import LoadedJob
from partrain.launch.context import RunContext
from partrain.launch.coordinator import Start

if TYPE_CHECKING:
    from partrain.checkpoint import Content
import json
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from partrain.config.overrides import as_toml
from partrain.display.event_log import EventLog, read_events, summary, truncate_after, write_summary
from partrain.display.run_state import COMPLETED
from partrain.display.stop_conditions import CONDITIONS
from partrain.launch.checkpoint_writer import HISTORY
from partrain.launch.outcome import Outcome, _scores
from partrain.launch.run import _prepare, _train
from partrain.launch.run_folder import check_same_run, locked, relink_latest, remove_stale
from partrain.launch.start_event import _before


def restore_run_state(view: RunState, start: Start, manifest: Manifest) -> None:
    """Tell the view of a run that goes on in a folder of its own, which has no events yet, what stands by the checkpoint's word."""
    view.round = start.progress.round
    for member, before in zip(manifest.workers, _before(start, len(manifest.workers)), strict=True):
        worker = view.workers[member.rank] = WorkerState(member.rank)
        worker.begin({"device": member.device, **before}, view.round)
    view.item_iterations = sum(worker.item_iterations for worker in view.workers.values())


def warn_of_the_end(loaded: LoadedJob, content: Content, stage: RunContext) -> None:
    """Beyond the end of its schedule a learning rate stays what it was there, which may be nothing."""
    manifest = manifest_of(content)
    horizon = manifest.horizon
    if horizon and manifest.progress.item_iterations >= horizon and not loaded.job.optimizer.rate(horizon, horizon):
        over = f"the learning rate is 0 since item-iteration {horizon:,}, where its schedule ended"
        stage.warn(f"{over}: this changes nothing more; to train for longer, run the job anew with a higher limit or `horizon`")


def end_of(folder: Path, number: int) -> dict[str, Any]:
    """The summary of a run that had come to its end with this round."""
    try:
        told = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return dict(told) if told["status"] in COMPLETED and told["rounds"] == number else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def made_progress(stage: RunContext, content: Content) -> bool:
    """Whether a resumed run has committed anything: else the checkpoint that it went on from is still what is there."""
    commit = stage.display.view.commit
    return commit is not None and commit.round > content.round


def drop_met_targets(loaded: LoadedJob, content: Content, until: Sequence[str]) -> LoadedJob:
    """The job without the targets, and the patience, that ended it where a checkpoint stands: who moves a limit, and none of these,
    wants it to go on to that limit."""
    progress, stop = manifest_of(content).progress, loaded.job.stop
    named = {each.partition("=")[0].strip() for each in until}
    ends = {each.name for each in stop.conditions() if each.judged and each.holds(progress.standing())}
    steady, judged = ({each.name for each in CONDITIONS if each.judged is kind} for kind in (False, True))
    if not ends or progress.judged_round < progress.round or not named & steady or named & judged:
        return loaded
    data = tomllib.loads(loaded.text)
    data["stop"] = {key: value for key, value in data["stop"].items() if key not in ends}
    job = loaded.job.model_copy(update={"stop": stop.model_copy(update=dict.fromkeys(ends))})
    return replace(loaded, job=job, text=as_toml(data))


def already_finished(loaded: LoadedJob, content: Content, folder: Path | None) -> str | None:
    """The stop condition that holds already where a checkpoint stands; `folder` is that of its run, if there is one."""
    progress, stop = manifest_of(content).progress, loaded.job.stop
    if progress.judged_round == progress.round and stop.reached(progress):
        return "target"
    return stop.limit(progress, stop.seconds is not None and _trained(folder, progress.round) >= stop.seconds)


def _trained(folder: Path | None, number: int) -> float:
    """Training seconds of a run that ended with this round; 0 if it went on, or nobody knows."""
    told = list(read_events(folder / "events.jsonl")) if folder else []
    ended = bool(told) and told[-1]["event"] == "end" and told[-1]["round"] == number
    return float(told[-1]["seconds"]["train"]) if ended else 0.0


def finish_interrupted_run(
    loaded: LoadedJob, content: Content, folder: Path, reason: str, test: Callable[[], tuple[float, float | None] | None]
) -> None:
    """Write down the end of a run that was ended after its last checkpoint, before it could do so: while it was tested, say.

    `test` gives loss and accuracy on the test set, if there is one.
    """
    with locked(folder):
        check_same_run(content, folder)
        told = list(read_events(folder / "events.jsonl"))
        ended = told and told[-1]["event"] == "end" and told[-1]["status"] in COMPLETED
        if ended and (folder / "summary.json").exists():
            return
        progress, stop = manifest_of(content).progress, loaded.job.stop
        view = truncate_after(folder / "events.jsonl", progress.round)
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
        view.apply(event)
        write_summary(folder / "summary.json", summary(view, scores))


def resume(loaded: LoadedJob, content: Content, stage: RunContext) -> Outcome:
    """Continue from what a checkpoint holds; later events of its folder are cut off, once it is sure that it can be continued.

    Raises BadCheckpoint where it does not fit the job.
    """
    progress = manifest_of(content).progress
    history = _history(content)
    with locked(stage.folder):
        check_same_run(content, stage.folder)
        warn_of_the_end(loaded, content, stage)
        ground = _prepare(loaded, stage, content)
        relink_latest(content, stage.folder)
        earlier = truncate_after(stage.folder / "events.jsonl", progress.round)
        start = Start(progress, content.arrays, history, earlier.clock.train)
        if not earlier.workers:
            restore_run_state(earlier, start, ground.manifest)
        stage.display.adopt(earlier)
        ended = end_of(stage.folder, progress.round)
        remove_stale(stage.folder, "summary.json")  # it tells of an end that this is no longer
        try:
            return _train(loaded, stage, start, lambda: ground)
        finally:
            if ended and not made_progress(stage, content):
                write_summary(stage.folder / "summary.json", ended)


def _history(content: Content) -> list[tuple[float, ...]]:
    """The rows of `/history`, one for each round."""
    columns = [content.arrays.get(f"history/{name}") for name in HISTORY]
    if any(column is None or column.shape != (content.round,) for column in columns):
        raise BadCheckpoint(f"/history does not hold {', '.join(HISTORY)} of {content.round} rounds")
    return list(zip(*(column.tolist() for column in columns if column is not None), strict=True))
