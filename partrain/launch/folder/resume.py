"""Resume a run from a checkpoint."""

from __future__ import annotations

import math
import os
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain import checkpoint
from partrain.checkpoint import link_best, round_path
from partrain.checkpoint.manifest import Manifest, WorkerRecord, manifest_of
from partrain.checkpoint.runs import run_folder_of
from partrain.config.overrides import as_toml
from partrain.config.toml_source import TomlSource
from partrain.errors import BadJob
from partrain.job.code_changes import changed_code_explained, changed_files, code_digests
from partrain.job.load import LoadedJob
from partrain.launch.checkpoint_writer import own_columns
from partrain.launch.context import RunContext, Start
from partrain.launch.coordinator import Coordinator
from partrain.launch.folder.manifest import accepting, surroundings
from partrain.launch.folder.other_workers import history_of, next_pass, shared_out
from partrain.launch.folder.outcome import Outcome
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.folder.run_folder import check_same_run, locked, relink, remove_stale, removed_unless_begun, set_best_aside
from partrain.launch.folder.start_event import counts_before, warn_if_code_changed
from partrain.launch.initial_weights import shared_network
from partrain.launch.prepared import PreparedRun
from partrain.launch.repeated_rounds import compared
from partrain.launch.run import prepare, train
from partrain.launch.signals import StoppedNow
from partrain.launch.worker.spec import user_code_under_test
from partrain.number_format import plural
from partrain.record.event_log import EventLog, read_events, truncate_after, write_summary
from partrain.record.events import BesideTrivial, EndEvent, JudgementEvent, RoundEvent
from partrain.record.file_names import BEST, EVENTS, SUMMARY
from partrain.record.final_scores import FinalScores
from partrain.record.round_record import RoundRecord
from partrain.record.run_folder import RunFolder
from partrain.record.run_state import COMPLETED, RunState
from partrain.record.stop_conditions import CONDITIONS, conditions_of
from partrain.record.summary import summary
from partrain.record.worker_state import WorkerState
from partrain.training.stop import Progress

if TYPE_CHECKING:
    from partrain.checkpoint import Content


def restore_run_state(state: RunState, start: Start, manifest: Manifest) -> None:
    """Fill the run state from the checkpoint if a run resumes in a new folder, which has no events yet."""
    state.round = start.point.progress.round
    for member, before in zip(manifest.workers, counts_before(start, len(manifest.workers)), strict=True):
        worker = state.workers[member.rank] = WorkerState(member.rank)
        worker.begin(member.device, state.round, before.get("before"))
    state.item_iterations = sum(worker.items for worker in state.workers.values())


def warn_if_schedule_ended(loaded: LoadedJob, content: Content, context: RunContext) -> None:
    """Warn if the learning rate's schedule has ended at 0, where it stays, and name what may still move the network."""
    manifest = manifest_of(content)
    horizon = manifest.horizon
    if horizon and manifest.progress.item_iterations >= horizon and not loaded.job.optimizer.rate(horizon, horizon):
        over = f"the learning rate is 0 since item-iteration {horizon:,}, where its schedule ended"
        rule = loaded.job.sync
        moving = " and ".join(filter(None, (rule.still_moves, "the average over rounds" if rule.averages_networks else "")))
        effect = (
            f"local steps are zero, and only {moving} still moves the network"
            if moving
            else "no step changes the network any more"
        )
        context.warn(f"{over}: {effect}; to train for longer, run the job again with a higher limit or `horizon`")


def end_of(folder: Path, number: int) -> dict[str, Any]:
    """Read the summary of a run that ended with this round; {} without one."""
    ended = RunFolder(folder).summary
    return ended if ended.get("status") in COMPLETED and ended.get("rounds") == number else {}


def made_progress(context: RunContext, content: Content) -> bool:
    """Return whether a resumed run has committed anything after its starting checkpoint."""
    commit = context.state.commit
    return commit is not None and commit.round > content.round


def drop_met_targets(loaded: LoadedJob, content: Content, until: Sequence[str]) -> LoadedJob:
    """Drop the targets and the patience that ended the run at this checkpoint, if `--until` moves a limit and none of these.

    The user then wants the run to continue to that limit.
    """
    progress, stop = manifest_of(content).progress, loaded.job.stop
    named = {condition.partition("=")[0].strip() for condition in until}
    ends = {
        condition.name.partition(".")[0]
        for condition in stop.conditions()
        if condition.judged and condition.holds(progress.standing())
    }
    steady, judged = ({condition.name for condition in CONDITIONS if condition.judged is kind} for kind in (False, True))
    moved = named & judged or any("." in key for key in named)
    if not ends or progress.judged_round < progress.round or not named & steady or moved:
        return loaded
    data = tomllib.loads(loaded.text)
    data["stop"] = {key: value for key, value in data["stop"].items() if key not in ends}
    job = loaded.job.model_copy(update={"stop": stop.model_copy(update=dict.fromkeys(ends))})
    return replace(loaded, job=job, source=TomlSource.parse(as_toml(data), loaded.source.file.name))


def note_dropped_conditions(loaded: LoadedJob, content: Content, context: RunContext) -> None:
    """Note the conditions of the checkpoint's job that no longer end the run: those that `drop_met_targets` dropped."""
    standing, kept = manifest_of(content).progress.standing(), {condition.name for condition in loaded.job.stop.conditions()}
    for condition in conditions_of(tomllib.loads(content.job).get("stop", {})):
        if condition.name not in kept:
            reached = "was reached, and " if condition.holds(standing) else ""
            over = f"[stop] {condition.name} = {condition.goal:g} {reached}no longer ends the run"
            context.note(f"{over}; --until {condition.name}=VALUE sets another")


def already_finished(loaded: LoadedJob, content: Content, folder: Path | None) -> str | None:
    """Name the stop condition that already holds at a checkpoint, if any. `folder`: its run's folder, if known."""
    progress, stop = manifest_of(content).progress, loaded.job.stop
    if progress.judged_round == progress.round and stop.reached(progress):
        return "target"
    return stop.limit(progress, out_of_time=stop.seconds is not None and _trained(folder, progress.round) >= stop.seconds)


def _trained(folder: Path | None, number: int) -> float:
    """Read the training seconds of a run that ended with this round; 0 if they are unknown."""
    all_events = list(RunFolder(folder).events()) if folder else []
    last = all_events[-1] if all_events else None
    return float(last.seconds["train"]) if isinstance(last, EndEvent) and last.round == number else 0.0


def finish_interrupted_run(
    loaded: LoadedJob,
    content: Content,
    folder: Path,
    reason: str,
    evaluate: Callable[[LoadedJob, Content], tuple[FinalScores | None, dict[str, dict[str, float]], dict[str, BesideTrivial]]],
) -> None:
    """Write the end of a run that was killed between its last checkpoint and its summary, for example during the test.

    `evaluate` computes a checkpoint's numbers on the test items, if any, the numbers of trivial answers, and the comparison with them.
    """
    with locked(folder):
        check_same_run(content, folder)
        all_events = list(RunFolder(folder).events())
        ended = all_events and isinstance(all_events[-1], EndEvent) and all_events[-1].status in COMPLETED
        if ended and (folder / SUMMARY).exists():
            return
        progress, stop = manifest_of(content).progress, loaded.job.stop
        state = truncate_after(folder / EVENTS, progress.round)
        status = "reached" if reason == "target" else "not-reached" if stop.has_target else "finished"
        scores, trivial, comparisons = evaluate(
            loaded, checkpoint.read_best(folder, progress.best_round or progress.round) or content
        )
        event = EndEvent(
            t=time.time(),
            status=status,
            reason=reason,
            round=progress.round,
            seconds={"startup": state.clock.startup, "train": state.clock.train, "total": state.clock.total},
            test=scores.by_name() if scores else {},
            tested_round=scores.round if scores else 0,
            trivial=trivial,
            comparisons=comparisons,
        )
        with EventLog(folder / EVENTS) as log:
            log.add(event)
        state.apply(event)
        write_summary(folder / SUMMARY, summary(state))


def resume(
    loaded: LoadedJob,
    content: Content,
    context: RunContext,
    *,
    moved: bool = False,
    other_workers: bool = False,
    source: Path | None = None,
    accept_changes: bool = False,
) -> Outcome:
    """Continue from a checkpoint. Cut off later events of its folder once the run can certainly continue.

    `moved`: the job is `moved_job`. `other_workers`: its workers may differ. `source`: the checkpoint's file, if of another folder.
    `accept_changes`: continue although user code computes different numbers. Raises BadCheckpoint if the checkpoint does not
    fit the job, and UserCodeFailed if changed code is not accepted.
    """
    manifest, folder = manifest_of(content), context.run_folder
    progress = manifest.progress
    with locked(folder), removed_unless_begun(folder, context.made):
        check_same_run(content, folder)
        warn_if_schedule_ended(loaded, content, context)
        note_dropped_conditions(loaded, content, context)
        prepared = prepare(loaded, context, content, moved=moved, other_workers=other_workers)
        changed = changed_files(loaded, manifest.versions)
        point = ResumePoint(progress, resuming=True)
        start = Start(point, content.arrays, content=content, accept_changes=accept_changes, changed_files=changed)
        _try_code(loaded, content, context, prepared, start)
        warn_if_code_changed(changed, context)
        prepared = replace(prepared, manifest=accepting(prepared.manifest, start.accepted, progress.round, code_digests(loaded)))
        before, now = manifest_of(content).workers, prepared.manifest.workers
        if before != now and loaded.job.sync.noise_multiplier:
            raise BadJob(
                "[sync] noise hides a worker with its items and moments, and other workers would share them out: keep the workers"
            )
        if start.accepted and loaded.job.sync.noise_multiplier:
            raise BadJob(
                "[sync] noise: rounds that run again with other code have the same noise, and the difference of both networks has none: "
                "begin a new run with another `seed`"
            )
        columns = own_columns(loaded.job, manifest.network.task, len(now))  # type: ignore[arg-type]
        history = history_of(content, columns)
        relink(content, folder, progress.best_round or None, source and _best_beside(source, progress))
        if start.accepted:
            point.progress = progress.without_best()
            if former := set_best_aside(folder, progress.round):
                context.warn(
                    f"code that has changed judged round {progress.best_round} the best: its checkpoint is now {former.name}, and "
                    f"best.h5 will be the best from round {progress.round + 1} on"
                )
        if moved:
            _move_best(folder, point.progress.best_round, loaded)
        recorded = recorded_rounds(folder / EVENTS, progress.round) if before == now else []
        if recorded:
            last = recorded[-1][0].round
            which = f"rounds {progress.round + 1:,} to {last:,} run" if len(recorded) > 1 else f"round {last:,} runs"
            context.note(f"{which} again, after the checkpoint of round {progress.round:,}")
        earlier = truncate_after(folder / EVENTS, progress.round)
        start.history, point.elapsed = history, earlier.clock.train
        point.caps = [[int(record.cap) for record in rows] for rows in recorded if all(math.isfinite(row.cap) for row in rows)]
        comparable = (
            loaded.job.user_code
            and not (start.accepted or start.changed_files)
            and surroundings().items() <= manifest.versions.items()
        )
        if loaded.job.sync.repeatable and comparable:
            start.recorded = [(rows[0].round, compared(rows)) for rows in recorded]
        if before != now:
            start.arrays, point.other_workers = shared_out(content.arrays, len(now)), True
            context.note(
                f"{_described(before)} before, {_described(now)} from round {progress.round + 1} on: the network, moments and center "
                f"stay, {_shared_out(content.arrays)}"
            )
        if not earlier.workers:
            restore_run_state(earlier, start, prepared.manifest)
        assert context.display is not None
        context.display.adopt(earlier)
        ended = end_of(folder, progress.round)
        remove_stale(folder, SUMMARY)  # the run is no longer ended
        try:
            return train(loaded, context, start, lambda: prepared)
        finally:
            if ended and not made_progress(context, content):
                write_summary(folder / SUMMARY, ended)


def _try_code(loaded: LoadedJob, content: Content, context: RunContext, prepared: PreparedRun, start: Start) -> None:
    """Let a dry run compare the numbers of user code with the checkpoint, before the run changes anything."""
    if not user_code_under_test(loaded.job, judging=True):
        return
    network = shared_network(content)
    try:
        with changed_code_explained(loaded, manifest_of(content).versions), suppress(StoppedNow), context.signals:
            Coordinator(replace(prepared, initial=network), start, context).dry_run(built_in=False)
    except BaseException:
        prepared.close()
        raise
    finally:
        os.close(network.descriptor)
    start.has_tried_code = True


def _best_beside(source: Path, progress: Progress) -> Path | None:
    """Return the checkpoint of the best round in a checkpoint's run; None if it belongs to no run."""
    if progress.best_round == progress.round:
        return source
    folder = run_folder_of(source)
    return folder and round_path(folder, progress.best_round)


def _move_best(folder: Path, best_round: int, loaded: LoadedJob) -> None:
    """Record the data's new place also in the checkpoint of the best round."""
    if best_round and (content := checkpoint.read_best(folder, best_round)):
        moved = replace(content, job=loaded.text, manifest=content.manifest | {"folder": str(loaded.folder)})
        path = round_path(folder, best_round)
        checkpoint.write(path if path.exists() else folder / BEST, checkpoint.encode(moved))
        link_best(folder, best_round)


def _shared_out(arrays: dict[str, Any]) -> str:
    """Describe how the items are shared among other workers."""
    number = next_pass(arrays)
    return "partitions are drawn again" if number is None else f"the stream is sharded again, and begins with pass {number}"


def recorded_rounds(path: Path, after_round: int) -> list[list[RoundRecord]]:
    """Read the records of the rounds after a checkpoint, written by a session that continued from it.

    The resumed run repeats these rounds. By round, then by rank; rounds that some workers have not finished are left out.
    """
    by_round: dict[int, dict[int, RoundRecord]] = {}
    for event in read_events(path) if path.exists() else ():
        if isinstance(event, RoundEvent) and event.record.round > after_round:
            by_round.setdefault(event.record.round, {})[event.rank] = event.record
        if isinstance(event, JudgementEvent) and event.round in by_round:
            by_round[event.round][0].judged_loss = math.nan if event.loss is None else event.loss
    workers, rows = max(map(len, by_round.values()), default=0), list[list[RoundRecord]]()
    while len(records := by_round.get(after_round + 1 + len(rows), {})) == workers > 0:
        rows.append([records[rank] for rank in sorted(records)])
    return rows


def _described(workers: Sequence[WorkerRecord]) -> str:
    """Count workers by device: `2 cpu and 1 cuda:0 workers`."""
    devices = [worker.device for worker in workers]
    counts = [f"{devices.count(device)} {device}" for device in dict.fromkeys(devices)]
    return f"{' and '.join(counts)} {plural('worker', len(devices))}"
