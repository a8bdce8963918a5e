"""A run from job to summary: what `partrain run` and `partrain resume` do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from partrain.checkpoint.manifest import Manifest
from partrain.comm.machine import Machine
from partrain.data import Dataset
from partrain.display.event_log import EventLog
from partrain.errors import Failure
from partrain.job.load import LoadedJob
from partrain.job.plan import Plan, make_plan
from partrain.launch.context import RunContext
from partrain.launch.coordinator import Coordinator, Ended, Start
from partrain.launch.manifest import continued, manifest_for
from partrain.launch.outcome import Outcome, close
from partrain.launch.rendezvous import Rendezvous, keep_folder
from partrain.launch.run_folder import locked, remove_stale, stage_file
from partrain.launch.shared_dataset import load_shared
from partrain.launch.start_event import describer, unevenness_of, warn_if_newer, warn_if_uneven

if TYPE_CHECKING:
    from partrain.checkpoint import Content


def run(loaded: LoadedJob, stage: RunContext) -> Outcome:
    """Train a job in a new run folder."""
    with locked(stage.folder):
        remove_stale(stage.folder, "events.jsonl", "summary.json")  # of an attempt that committed nothing
        return _train(loaded, stage, Start(), lambda: _prepare(loaded, stage, None))


@dataclass(frozen=True)
class PreparedRun:
    """What a run stands on."""

    dataset: Dataset
    stock: int
    """Memory file of the data."""
    machine: Machine | None
    plan: Plan
    manifest: Manifest


def _prepare(loaded: LoadedJob, stage: RunContext, content: Content | None) -> PreparedRun:
    """Read the data and plan the run; nothing of the run folder is touched."""
    job = loaded.job
    dataset, stock = load_shared(loaded)
    try:
        machine = stage.machine and replace(stage.machine, timeout_s=job.transport.stall_seconds)
        plan = make_plan(job, dataset.items, machine.count if machine else 1)
        manifest = manifest_for(loaded, plan, dataset)
        if content is not None:
            warn_if_newer(manifest, content, stage)
            plan, manifest = continued(plan, manifest, content)
        if job.partition.order == "given" and dataset.task != "language":
            warn_if_uneven(job, plan, dataset, stage)
    except BaseException:
        os.close(stock)
        raise
    return PreparedRun(dataset, stock, machine, plan, manifest)


def _train(loaded: LoadedJob, stage: RunContext, start: Start, prepare: Callable[[], PreparedRun]) -> Outcome:
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
                close(Ended("failed", reason, start.progress, seconds, None), loaded.job.sync, None, stage, hear, tick)
            raise


def _perform(
    loaded: LoadedJob,
    stage: RunContext,
    start: Start,
    ground: PreparedRun,
    hear: Callable[[dict[str, Any]], None],
    tick: Callable[[], None],
) -> Outcome:
    """Meet the other machines, if there are any, and train."""
    job, machine, plan, dataset = loaded.job, ground.machine, ground.plan, ground.dataset
    meeting = Rendezvous(machine) if machine else None
    if machine and meeting:
        keep_folder(machine, stage.folder)
        meeting.lead(loaded, plan, start, dataset.fingerprint)
    with stage.signals as signals:  # to the last line: a run that is done is done
        agree = meeting.agree if meeting else (lambda complaint: None)
        coordinator = Coordinator(job, loaded.folder, plan, start, hear, tick, signals, machine, agree, stage.warn)
        describe = describer(loaded, plan, ground.manifest, start, stage, hear, unevenness_of(job, plan, dataset))
        ended = coordinator.run(dataset.card, ground.stock, stage.folder, ground.manifest.model_dump(), loaded.text, describe)
        return replace(close(ended, job.sync, coordinator.began_at, stage, hear, tick), horizon=plan.horizon)
