"""A run from job to summary: `partrain run`, and the training part of `partrain resume`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from partrain import checkpoint
from partrain.checkpoint.manifest import manifest_of
from partrain.checkpoint.signature import sign
from partrain.config.problems import WrongValue
from partrain.errors import BadJob, Failure, InputOutputFailed
from partrain.job.code_changes import changed_files
from partrain.job.load import LoadedJob, locating
from partrain.job.plan import plan_for
from partrain.launch.checkpoint_writer import own_columns
from partrain.launch.context import Ended, RunContext, Start
from partrain.launch.coordinator import Coordinator
from partrain.launch.folder.manifest import continued, manifest_for
from partrain.launch.folder.other_workers import history_of, shared_out, without_lost_worker
from partrain.launch.folder.outcome import Outcome, close
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.folder.run_folder import locked, remove_stale, removed_unless_begun, stage_file
from partrain.launch.folder.start_event import label_skews, start_event, warn_if_code_changed, warn_if_newer, warn_if_skewed
from partrain.launch.initial_weights import load_start
from partrain.launch.machines.rendezvous import Rendezvous, note_run_folder
from partrain.launch.prepared import RecordedRun
from partrain.launch.shared_dataset import load_shared
from partrain.launch.targets import check_targets, remark
from partrain.launch.worker.messages import Ready
from partrain.record.event_log import EventLog
from partrain.record.events import FaultEvent
from partrain.record.file_names import EVENTS, JOB, SUMMARY
from partrain.record.run_folder import RunFolder

if TYPE_CHECKING:
    from partrain.checkpoint import Content


def run(loaded: LoadedJob, context: RunContext) -> Outcome:
    """Train a job in a new run folder, removed if the run ends before it begins to train. Raises BadJob for a job with a `[sweep]`, which is many runs."""
    if loaded.job.sweep and not loaded.job.sweep.is_empty:
        raise BadJob("the job has a [sweep]: `partrain run` trains its trials; `--set sweep={}` trains the job once")
    # torchrun starts the run again in the same folder
    tidy = nullcontext() if context.machine else removed_unless_begun(context.run_folder, context.made)
    with locked(context.run_folder), tidy:
        remove_stale(context.run_folder, EVENTS, SUMMARY)  # of an attempt that committed no checkpoint
        return train(loaded, context, Start(), lambda: prepare(loaded, context, None))


def prepare(
    loaded: LoadedJob, context: RunContext, content: Content | None, *, moved: bool = False, other_workers: bool = False
) -> RecordedRun:
    """Read the data and plan the run, without changes in the run folder.

    `moved`: the user names the checkpoint's job: its data or code have moved. `other_workers`: the job's workers differ from the checkpoint's.
    """
    with locating(loaded):
        return _prepare(loaded, context, content, moved=moved, other_workers=other_workers)


def _prepare(loaded: LoadedJob, context: RunContext, content: Content | None, *, moved: bool, other_workers: bool) -> RecordedRun:
    job = loaded.job
    dataset, dataset_fd = load_shared(loaded)
    initial = None
    try:
        initial = load_start(loaded) if content is None else None
        check_targets(loaded, dataset)
        plan = plan_for(loaded, dataset, context.machine.count if context.machine else 1)
        for text in filter(None, (dataset.remark(len(plan.shares)), dataset.label_remark(), remark(job, dataset))):
            context.warn(text)
        manifest = manifest_for(loaded, plan, dataset, initial.file.sha256 if initial else None)
        if content is not None:
            warn_if_newer(manifest, content, context)
            plan, manifest = continued(plan, manifest, content, loaded if moved else None, other_workers=other_workers)
        if job.partition.order == "given" and dataset.kind.orders:
            warn_if_skewed(job, plan, dataset, context)
    except BaseException:
        os.close(dataset_fd)
        if initial:
            os.close(initial.descriptor)
        raise
    return RecordedRun(loaded, plan, dataset, dataset_fd, initial, manifest)


def train(loaded: LoadedJob, context: RunContext, start: Start, prepared: Callable[[], RecordedRun]) -> Outcome:
    """Train, and write the end to the run folder, even if training could not start."""
    assert context.display is not None
    with closing(context.hooks), EventLog(context.run_folder / EVENTS) as context.log, closing(context.display):
        _stage_job(loaded, context)
        context.hooks.start(context.run_folder, context.warn, context.note)
        try:
            with closing(prepared()) as ready:
                ended = _perform(ready, start, context)
            while isinstance(ended, LostWorker):
                loaded = ended.fewer
                ended = _go_on(ended, start, context)
            return ended
        except Exception as error:
            problem = str(error).partition("\n")[0] or type(error).__name__
            reason = error.name if isinstance(error, Failure) else "internal"
            seconds = context.state.clock.train
            with suppress(Failure):  # the disk itself may have failed
                context.emit(FaultEvent(t=context.now(), what=problem, rank=None))
                close(Ended("failed", reason, context.state.round, seconds), loaded.job.sync, None, context)
            raise


def _stage_job(loaded: LoadedJob, context: RunContext) -> None:
    """Write the job to the run folder, signed if it names user code or files."""
    stage_file(context.run_folder / JOB, loaded.text)
    if loaded.job.user_code or loaded.job.data_files:
        sign(context.run_folder, loaded.text, loaded.folder)


@dataclass(frozen=True)
class LostWorker:
    """The end of a training that continues without its lost worker."""

    failure: Failure
    fewer: LoadedJob
    """The job with one worker fewer."""
    run: str
    """Identity of the run, which does not change."""


def _go_on(lost: LostWorker, first: Start, context: RunContext) -> Outcome | LostWorker:
    """Continue without a lost worker from the newest checkpoint. Without a checkpoint, begin again at `first`, where the run began."""
    loaded, newest = lost.fewer, RunFolder(context.run_folder).newest_checkpoint
    content = checkpoint.read(newest) if newest else first.content
    begun = f"goes on from round {content.round}" if content else "begins again"
    text = f"{lost.failure.message.partition(';')[0]}: the run {begun} without this worker"
    context.rewind(content.round if content else 0)
    _stage_job(loaded, context)
    context.emit(FaultEvent(t=context.now(), what=text, rank=lost.failure.rank))
    context.warn(text)
    start = Start(ResumePoint(elapsed=context.state.clock.train))
    if content:
        manifest, size = manifest_of(content), sum(group.count for group in loaded.job.workers)
        history = history_of(content, own_columns(loaded.job, manifest.network.task, size))  # type: ignore[arg-type]
        arrays = shared_out(content.arrays, size)
        warn_if_code_changed(changed_files(loaded, manifest.versions), context)
        accepted = first.accepted and first.content and content.round == first.content.round
        progress = manifest.progress.without_best() if accepted else manifest.progress
        start = Start(replace(start.point, progress=progress, resuming=True, other_workers=True), arrays, history)
    with closing(prepare(loaded, context, content, other_workers=True)) as ready:
        manifest_now = ready.manifest.model_copy(update={"run": lost.run})
        return _perform(replace(ready, manifest=manifest_now), start, context)


def _perform(prepared: RecordedRun, start: Start, context: RunContext) -> Outcome | LostWorker:
    """Meet the other machines, if any, and train."""
    loaded, plan, dataset, rendezvous = prepared.loaded, prepared.plan, prepared.dataset, None
    job = loaded.job
    if context.torchrun:
        note_run_folder(context.torchrun, context.run_folder)
    if context.machine:
        rendezvous = Rendezvous(replace(context.machine, timeout_s=job.transport.stall_seconds))
        rendezvous.propose(prepared, start.point, context.run_folder)
    with context.signals:  # to the last line: a done run stays done
        coordinator = Coordinator(prepared, start, context, rendezvous)
        skews = label_skews(job, plan, dataset)

        def on_start(ready: dict[int, Ready]) -> None:
            context.emit(start_event(prepared, start, context, skews, ready))

        ended = coordinator.run(prepared.manifest.stored(), loaded.text, on_start)
        if isinstance(ended.failure, WrongValue):
            ended = replace(ended, failure=loaded.located(ended.failure))
        fewer = without_lost_worker(ended.failure, loaded) if context.machine is None else None
        if ended.failure and fewer:
            return LostWorker(ended.failure, fewer, prepared.manifest.run)
        return replace(_closed(ended, coordinator, context), horizon=plan.horizon, task=job.kind_of_task(dataset.task).name)


def _closed(ended: Ended, coordinator: Coordinator, context: RunContext) -> Outcome:
    """Write the end of a run. If that also fails, raise the failure that ended the run, with both reasons."""
    if ended.failure:
        context.emit(FaultEvent(t=context.now(), what=ended.failure.message, rank=ended.failure.rank))
    try:
        return close(ended, coordinator.job.sync, coordinator.started_at, context)
    except InputOutputFailed as second:
        if ended.failure is None:
            raise
        ended.failure.message += f"; and {second.message.partition('; ')[0]}"
        raise ended.failure from second
