"""The rendezvous of machines under torchrun: machine 0 leads the run, the others lend it their workers.

Only machine 0 touches the run folder. Before anything starts it proposes a job and a starting point. Each other machine
answers what keeps it from that (another job file, other versions, other data). All machines start, or none does.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from partrain.comm.machine import Machine
from partrain.errors import BadJob, UserCodeFailed, WorkersLost
from partrain.job.load import LoadedJob
from partrain.job.plan import Plan
from partrain.launch.context import Start
from partrain.system.environment import versions

STOPPED = "it was stopped"
"""The vote of a machine whose user ended its dry run."""


class Rendezvous:
    """Messages between the machines' coordinators before workers start: keys of torchrun's store."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._store = machine.store()

    def propose(self, loaded: LoadedJob, plan: Plan, start: Start, data: str, start_file: str | None = None) -> None:
        """Propose a run (machine 0). Raises BadJob with the other machines' problems if one cannot join."""
        proposal = {
            "job": loaded.text,
            "folder": str(loaded.folder.resolve()),
            "versions": versions(),
            "data": data,
            "from": start_file,
            "horizon": plan.horizon,
            "average_from": plan.average_from,
            "progress": start.progress.stored(),
            "elapsed": start.elapsed,
            "resuming": start.resuming,
            "other_workers": start.other_workers,
            "refusal": refusal(loaded),
        }
        self._store.set("start", json.dumps(proposal))
        if proposal["refusal"]:
            raise BadJob(str(proposal["refusal"]))
        answers = [self._get(f"answer/{number}", f"machine {number}") for number in range(1, self.machine.count)]
        problems = "; ".join(answer for answer in answers if answer)
        self._store.set("go", problems)
        if problems:
            raise BadJob(problems)

    def withdraw(self, problem: str) -> None:
        """Propose nothing (machine 0), so that the others need not wait: for a problem, or "" if nothing is left to train."""
        refusal = self._signed(problem)
        self._store.compare_set("start", "", json.dumps({"refusal": refusal, "nothing": not refusal}))

    def receive(self) -> dict[str, Any] | None:
        """Receive the proposal of machine 0; None if nothing is left to train."""
        proposal: dict[str, Any] = json.loads(self._get("start", "the first machine"))
        if proposal.get("nothing"):
            return None
        if proposal["refusal"]:
            raise BadJob(proposal["refusal"])
        return proposal

    def answer(self, problem: str = "") -> None:
        """Send this machine's problem, if any. Raises BadJob if any machine has one."""
        self._store.set(f"answer/{self.machine.number}", self._signed(problem))
        if problems := self._get("go", "the first machine"):
            raise BadJob(problems)

    def vote(self, problem: str) -> None:
        """Send the outcome of this machine's dry run; without a problem, wait for the others'.

        Raises UserCodeFailed with their problems, WorkersLost if they were only stopped.
        """
        self._store.set(f"tried/{self.machine.number}", self._signed(problem))
        if problem:
            return
        answers = [self._get(f"tried/{number}", f"machine {number}") for number in range(self.machine.count)]
        if problems := "; ".join(answer for answer in answers if answer):
            kind = WorkersLost if all(answer.endswith(STOPPED) for answer in answers if answer) else UserCodeFailed
            raise kind(problems)

    def _signed(self, problem: str) -> str:
        return f"machine {self.machine.number} ({socket.gethostname()}): {problem}" if problem else ""

    def _get(self, key: str, sender: str) -> str:
        try:
            return str(self._store.get(key).decode())
        except RuntimeError:
            raise WorkersLost(f"{sender} did not join within {self.machine.timeout_s:g} s") from None


def refusal(loaded: LoadedJob) -> str:
    """Say why a job cannot run on several machines; "" if it can."""
    return loaded.job.transport.implementation().single_machine_reason or loaded.job.sync.single_machine_reason


def store_run_folder(machine: Machine, folder: Path) -> None:
    """Let machine 0 find its run folder again after torchrun has restarted it."""
    machine.store("partrain").set("folder", str(folder.resolve()))


def previous_run_folder(machine: Machine) -> Path | None:
    """Give the run folder of an earlier attempt, if there was one."""
    store = machine.store("partrain")
    if not machine.attempt or not store.check(["folder"]):
        return None
    return Path(store.get("folder").decode())
