"""Several machines under torchrun: the first leads the run, the others lend it their workers.

Only the first touches the run folder. Before anything starts it says what is to be trained and from where on; each of the others
answers what keeps it from that (another job file, other versions, other data), and all start, or none.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from partrain.comm.machine import Machine
from partrain.errors import BadJob, Failure, UserCodeFailed, WorkersLost
from partrain.job.load import LoadedJob, parse
from partrain.job.plan import Plan, make_plan
from partrain.launch.coordinator import STOPPED, Coordinator, Start
from partrain.launch.shared_dataset import load_shared
from partrain.launch.signals import Signals
from partrain.system.environment import versions
from partrain.train.stop import Progress


class Rendezvous:
    """The machines' coordinators among themselves, before the workers start: keys of torchrun's store."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._store = machine.store()

    def lead(self, loaded: LoadedJob, plan: Plan, start: Start, data: str) -> None:
        """Say what is to be done and hear whether all can; BadJob with what they say if one cannot."""
        told = {
            "job": loaded.text,
            "folder": str(loaded.folder.resolve()),
            "versions": versions(),
            "data": data,
            "horizon": plan.horizon,
            "progress": asdict(start.progress),
            "elapsed": start.elapsed,
            "resuming": start.resuming,
            "refusal": refusal(loaded),
        }
        self._store.set("start", json.dumps(told))
        if told["refusal"]:
            raise BadJob(str(told["refusal"]))
        answers = [self._get(f"answer/{number}", f"machine {number}") for number in range(1, self._machine.count)]
        complaints = "; ".join(answer for answer in answers if answer)
        self._store.set("go", complaints)
        if complaints:
            raise BadJob(complaints)

    def follow(self) -> dict[str, Any]:
        """What the first machine says."""
        told: dict[str, Any] = json.loads(self._get("start", "the first machine"))
        if told["refusal"]:
            raise BadJob(told["refusal"])
        return told

    def answer(self, complaint: str = "") -> None:
        """Say what keeps this machine from it, if anything, and hear whether all start."""
        self._store.set(f"answer/{self._machine.number}", self._complaint(complaint))
        if complaints := self._get("go", "the first machine"):
            raise BadJob(complaints)

    def agree(self, complaint: str) -> None:
        """Say what came of this machine's trial, and hear what came of the others', if that matters.

        Raises UserCodeFailed with what they say, WorkersLost where they were only stopped.
        """
        self._store.set(f"tried/{self._machine.number}", self._complaint(complaint))
        if complaint:
            return
        answers = [self._get(f"tried/{number}", f"machine {number}") for number in range(self._machine.count)]
        if complaints := "; ".join(answer for answer in answers if answer):
            kind = WorkersLost if all(answer.endswith(STOPPED) for answer in answers if answer) else UserCodeFailed
            raise kind(complaints)

    def _complaint(self, text: str) -> str:
        return f"machine {self._machine.number} ({socket.gethostname()}): {text}" if text else ""

    def _get(self, key: str, who: str) -> str:
        try:
            return str(self._store.get(key).decode())
        except RuntimeError:
            raise WorkersLost(f"{who} did not come to the meeting in {self._machine.timeout_s:g} s") from None


def refusal(loaded: LoadedJob) -> str:
    """Why a job cannot run on several machines, if it cannot."""
    if loaded.job.transport.kind == "simulated":
        return "simulated workers live in one process: run the job without torchrun"
    return loaded.job.sync.single_machine_reason


def keep_folder(machine: Machine, folder: Path) -> None:
    """Let the first machine find its run folder again when torchrun has restarted it."""
    machine.store("partrain").set("folder", str(folder.resolve()))


def kept_folder(machine: Machine) -> Path | None:
    """The run folder of an earlier attempt, if there was one."""
    store = machine.store("partrain")
    if not machine.attempt or not store.check(["folder"]):
        return None
    return Path(store.get("folder").decode())


def assist(machine: Machine, own: LoadedJob | None, say: Callable[[str], None]) -> Failure | None:
    """Lend this machine's workers to the first machine's run. `own` is the job as it is here, None on resume."""
    meeting = Rendezvous(machine)
    told = meeting.follow()
    stock = -1
    try:
        if own is not None and own.text != told["job"]:
            raise BadJob("its job file is not that of the first machine")
        if versions() != told["versions"]:
            raise BadJob(f"its versions are {versions()}, those of the first machine {told['versions']}")
        loaded = parse(told["job"], own.folder if own else Path(told["folder"]), "<first machine>", here=True)
        dataset, stock = load_shared(loaded)
        if dataset.fingerprint != told["data"]:
            raise BadJob("its data set is not that of the first machine")
        plan = replace(make_plan(loaded.job, dataset.items, machine.count), horizon=told["horizon"])
    except Failure as failure:
        meeting.answer(failure.message)
        raise
    meeting.answer()
    start = Start(Progress(**told["progress"]), elapsed=told["elapsed"], elsewhere=told["resuming"])
    with Signals() as signals:
        machine = replace(machine, timeout_s=loaded.job.transport.stall_seconds)
        agree, tick = meeting.agree, lambda: None
        coordinator = Coordinator(loaded.job, loaded.folder, plan, start, _ignore, tick, signals, machine, agree, say)
        first, last = coordinator.members[0], coordinator.members[-1]
        say(f"machine {machine.number} of {machine.count} trains workers {first} to {last}; machine 0 has the run folder")
        try:
            return coordinator.run(dataset.card, stock, None, {}, "", lambda *_: None).failure
        finally:
            os.close(stock)


def _ignore(event: dict[str, Any]) -> None:
    """Machine 0 tells what happens."""
