"""A machine that lends its workers to machine 0's run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from partrain.comm.machine import Machine
from partrain.errors import BadJob, Failure
from partrain.job.load import LoadedJob, parse
from partrain.job.plan import plan_for
from partrain.launch.context import RunContext, Start
from partrain.launch.coordinator import Coordinator
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.initial_weights import load_start
from partrain.launch.machines.rendezvous import Rendezvous, note_run_folder
from partrain.launch.prepared import PreparedRun
from partrain.launch.shared_dataset import load_shared
from partrain.system.environment import versions
from partrain.training.stop import Progress


def run_follower(machine: Machine, own: LoadedJob | None, show: Callable[[str], None]) -> Failure | None:
    """Take part in a run. `own` is this machine's copy of the job, None on resume; `show` shows the user a line."""
    rendezvous = Rendezvous(machine)
    proposal = rendezvous.receive()
    if proposal is None:
        show("the first machine has nothing left to train")
        return None
    note_run_folder(machine, Path(proposal["run_folder"]))
    try:
        prepared = _prepare(machine, own, proposal)
    except Failure as failure:
        rendezvous.answer(failure.message)
        raise
    rendezvous.answer()
    point = ResumePoint(**proposal["point"] | {"progress": Progress(**proposal["point"]["progress"])})
    rendezvous.machine = replace(machine, timeout_s=prepared.loaded.job.transport.stall_seconds)
    context = RunContext(folder=None, display=None, warn=show, machine=rendezvous.machine, note=show)
    with closing(prepared), context.signals:
        coordinator = Coordinator(prepared, Start(point), context, rendezvous)
        members = coordinator.attempt.members
        show(
            f"machine {machine.number} of {machine.count} trains workers {members[0]} to {members[-1]}; "
            "machine 0 has the run folder"
        )
        return coordinator.run({}, "", lambda *_: None).failure


def _prepare(machine: Machine, own: LoadedJob | None, proposal: Mapping[str, Any]) -> PreparedRun:
    """Read the data and plan the run like the first machine. Raises BadJob if anything differs from it."""
    if own is not None and own.text != proposal["job"]:
        raise BadJob("its job file differs from the first machine's")
    if versions() != proposal["versions"]:
        raise BadJob(f"its versions are {versions()}, and the first machine has {proposal['versions']}")
    folder = own.folder if own else Path(proposal["folder"])
    resuming = proposal["point"]["resuming"]
    loaded = parse(proposal["job"], folder, "<first machine>", local=True, resuming=resuming)
    dataset, dataset_fd = load_shared(loaded)
    if dataset.fingerprint != proposal["data"]:
        raise BadJob("its data set differs from the first machine's")
    initial = None if resuming else load_start(loaded)
    if initial and initial.file.sha256 != proposal["from"]:
        raise BadJob(f"[model] from: its {initial.file.name} differs from the first machine's")
    pinned = {name: proposal[name] for name in ("horizon", "average_from")}
    return PreparedRun(loaded, replace(plan_for(loaded, dataset, machine.count), **pinned), dataset, dataset_fd, initial)
