"""A run from job to summary: `partrain run`, and the part of `partrain resume` that trains."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from partrain.checkpoint.manifest import Manifest
from partrain.data import Dataset
from partrain.display.event_log import EventLog
from partrain.display.events import FaultEvent
from partrain.errors import BadJob, Failure
from partrain.job.load import LoadedJob
from partrain.job.plan import Plan, make_plan
from partrain.launch.context import Ended, RunContext, Start
from partrain.launch.coordinator import Coordinator
from partrain.launch.manifest import continued, manifest_for
from partrain.launch.outcome import Outcome, close
from partrain.launch.rendezvous import Rendezvous, store_run_folder
from partrain.launch.run_folder import locked, remove_stale, stage_file
from partrain.launch.shared_dataset import load_shared
from partrain.launch.shared_start import SharedStart, load_start
from partrain.launch.start_event import label_skews, start_event, warn_if_newer, warn_if_skewed

if TYPE_CHECKING:
    from partrain.checkpoint import Content


def run(loaded: LoadedJob, context: RunContext) -> Outcome:
    """Train a job in a new run folder. Raises BadJob for a job with a `[sweep]`, which is many runs."""
    if loaded.job.sweep and not loaded.job.sweep.is_empty:
        raise BadJob("the job has a [sweep]: `partrain run` trains its trials; `--set sweep={}` trains the job once")
    with locked(context.run_folder):
        remove_stale(context.run_folder, "events.jsonl", "summary.json")  # of an attempt that committed nothing
        return train(loaded, context, Start(), lambda: prepare(loaded, context, None))


@dataclass(frozen=True)
class PreparedRun:
    """Data and plan of a run."""

    dataset: Dataset
    dataset_fd: int
    """Memory file of the data."""
    plan: Plan
    manifest: Manifest
    start: SharedStart | None
    """The file that the network starts from; None on resume, too."""

    def close(self) -> None:
        """Close the memory files."""
        os.close(self.dataset_fd)
        if self.start:
            os.close(self.start.descriptor)


def prepare(loaded: LoadedJob, context: RunContext, content: Content | None) -> PreparedRun:
    """Read the data and plan the run. Nothing in the run folder changes."""
    job = loaded.job
    dataset, dataset_fd = load_shared(loaded)
    initial = None
    try:
        initial = load_start(loaded) if content is None else None
        plan = make_plan(job, dataset.items, context.machine.count if context.machine else 1)
        manifest = manifest_for(loaded, plan, dataset, initial.file.sha256 if initial else None)
        if content is not None:
            warn_if_newer(manifest, content, context)
            plan, manifest = continued(plan, manifest, content)
        if job.partition.order == "given" and dataset.task != "language":
            warn_if_skewed(job, plan, dataset, context)
    except BaseException:
        os.close(dataset_fd)
        if initial:
            os.close(initial.descriptor)
        raise
    return PreparedRun(dataset, dataset_fd, plan, manifest, initial)


def train(loaded: LoadedJob, context: RunContext, start: Start, prepared: Callable[[], PreparedRun]) -> Outcome:
    """Train, and write to the run folder how it ended, even if it could not start."""
    assert context.display is not None
    with closing(context.hooks), EventLog(context.run_folder / "events.jsonl") as context.log, closing(context.display):
        stage_file(context.run_folder / "job.toml", loaded.text)
        context.hooks.start(context.run_folder, context.warn, context.note)
        try:
            ready = prepared()
            try:
                return _perform(loaded, context, start, ready)
            finally:
                ready.close()
        except Exception as error:
            problem = str(error).partition("\n")[0] or type(error).__name__
            reason = error.name if isinstance(error, Failure) else "internal"
            seconds = context.state.clock.train
            with suppress(Failure):  # the disk may be what has failed
                context.emit(FaultEvent(t=time.time(), what=problem, rank=None))
                close(Ended("failed", reason, start.progress, seconds, None), loaded.job.sync, None, context)
            raise


def _perform(loaded: LoadedJob, context: RunContext, start: Start, prepared: PreparedRun) -> Outcome:
    """Meet the other machines, if there are any, and train."""
    job, plan, dataset, rendezvous = loaded.job, prepared.plan, prepared.dataset, None
    if context.machine:
        rendezvous = Rendezvous(replace(context.machine, timeout_s=job.transport.stall_seconds))
        store_run_folder(rendezvous.machine, context.run_folder)
        rendezvous.propose(loaded, plan, start, dataset.fingerprint, prepared.manifest.start_file)
    with context.signals:  # to the last line: a run that is done is done
        coordinator = Coordinator(
            job, loaded.folder, plan, start, context, dataset.info, prepared.dataset_fd, rendezvous, prepared.start
        )
        skews = label_skews(job, plan, dataset)

        def on_start(pids: dict[int, int], parameters: int) -> None:
            context.emit(start_event(loaded, plan, prepared.manifest, start, context, skews, pids, parameters))

        ended = coordinator.run(prepared.manifest.stored(), loaded.text, on_start)
        return replace(close(ended, job.sync, coordinator.started_at, context), horizon=plan.horizon)
