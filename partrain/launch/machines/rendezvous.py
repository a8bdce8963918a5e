"""The rendezvous of machines under torchrun or srun: machine 0 leads the run, the others lend it their workers.

Only machine 0 touches the run folder. Before anything starts it proposes a job and a starting point. Each other machine
answers with its obstacles (another job file, other versions, other data). Either all machines start, or none.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from partrain.comm.machine import Machine, serve_store
from partrain.errors import BadJob, UserCodeFailed, WorkersLost
from partrain.job.load import LoadedJob
from partrain.job.workers import has_replicas
from partrain.system.environment import versions

if TYPE_CHECKING:
    from partrain.launch.folder.resume_point import ResumePoint
    from partrain.launch.prepared import RecordedRun

PARTING_S = 5.0
"""Longest wait of machine 0 for the others at the end, in seconds."""
SILENT_S = 5.0
"""Seconds after which a waiting machine names the machines that it waits for."""
STOPPED = "it was stopped"
"""The vote of a machine whose user ended its dry run."""


class Rendezvous:
    """Messages between the machines' coordinators before workers start, as keys of the store."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._store = machine.store()

    def propose(self, prepared: RecordedRun, point: ResumePoint, run_folder: Path) -> None:
        """Propose a run from a point on (machine 0). Raises BadJob with the other machines' problems if any cannot join."""
        loaded, plan = prepared.loaded, prepared.plan
        proposal = {
            "job": loaded.text,
            "folder": str(loaded.folder.resolve()),
            "run_folder": str(run_folder.resolve()),
            "versions": versions(),
            "data": prepared.dataset.fingerprint,
            "from": prepared.manifest.start_file,
            "horizon": plan.horizon,
            "average_from": plan.average_from,
            "point": asdict(point),
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
        """Propose nothing (machine 0), so that the others stop waiting. `problem`: the reason; "" if nothing is left to train."""
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

    def vote(self, problem: str, code: Mapping[str, str]) -> None:
        """Send the outcome of this machine's dry run, and the digests of its user code; without a problem, wait for the others' votes.

        Raises UserCodeFailed with their problems, or if a file of user code differs between machines; WorkersLost if they were only
        stopped.
        """
        self._store.set(f"code/{self.machine.number}", json.dumps(dict(code)))
        self._store.set(f"tried/{self.machine.number}", self._signed(problem))
        if problem:
            return
        answers = [self._get(f"tried/{number}", f"machine {number}") for number in range(self.machine.count)]
        if problems := "; ".join(answer for answer in answers if answer):
            kind = WorkersLost if all(answer.endswith(STOPPED) for answer in answers if answer) else UserCodeFailed
            raise kind(problems)
        first, *others = (json.loads(self._get(f"code/{number}", f"machine {number}")) for number in range(self.machine.count))
        for number, files in enumerate(others, 1):
            if unlike := [name for name, digest in files.items() if first.get(name, digest) != digest]:
                raise UserCodeFailed(
                    f"machine {number}: {', '.join(unlike)}: not the file of the first machine; copy it to all machines"
                )

    def _signed(self, problem: str) -> str:
        return f"machine {self.machine.number} ({socket.gethostname()}): {problem}" if problem else ""

    def _get(self, key: str, sender: str) -> str:
        try:
            return str(self._store.get(key).decode())
        except RuntimeError:
            raise WorkersLost(f"{sender} did not join within {self.machine.timeout_s:g} s") from None


def refusal(loaded: LoadedJob) -> str:
    """Return the reason why a job cannot run on several machines; "" if it can."""
    job = loaded.job
    if has_replicas(job.workers):
        return "`replicas` are for one machine: take `count` instead, or run the job without torchrun"
    return job.transport.implementation().single_machine_reason or job.sync.single_machine_reason


NOTE = "partrain-run-folder"
"""Name of the file next to torchrun's logs that names the run folder."""


@contextmanager
def announced(machine: Machine, note: Callable[[str], None]) -> Iterator[None]:
    """Report where this machine waits, if the others take long to meet it."""
    what = f"waiting for {machine.count} machines to meet at {machine.host}:{machine.port}, up to {machine.timeout_s:g} s"
    advice = (
        "if a machine's own name means its loopback address, give torchrun --local-addr ADDRESS (srun: MASTER_ADDR), "
        "and set GLOO_SOCKET_IFNAME"
    )
    timer = Timer(SILENT_S, note, [f"{what}; {advice}"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def meet(machine: Machine) -> Machine:
    """Agree with the other machines on the name of this attempt; return this machine with the name and the former run folder.

    torchrun does not count attempts when machines come and go, and its store keeps the keys of former attempts. So each machine
    draws a name and sends hello under it, and machine 0 answers to that name with the attempt's name.
    Raises WorkersLost if a machine does not come.
    """
    if machine.serves and not machine.number:
        serve_store(machine.port)
    store, own, former = machine.store(of_all_attempts=True), secrets.token_hex(8), _noted_run_folder(machine)
    deadline = time.monotonic() + machine.timeout_s
    if machine.number:
        store.set(f"hello/{machine.number}", own)
        while not store.check([f"welcome/{own}"]):
            _wait(deadline, "the first machine", machine)
        attempt = store.get(f"welcome/{own}").decode()
        store.set(f"{attempt}/here/{machine.number}", former)
        while not store.check([f"{attempt}/former"]):
            _wait(deadline, "another machine", machine)
        former = store.get(f"{attempt}/former").decode()
        return replace(machine, attempt=attempt, former=Path(former) if former else None)
    missing = dict.fromkeys(range(1, machine.count), "")
    while missing:
        for number, welcomed in list(missing.items()):
            if store.check([f"{own}/here/{number}"]):
                former = former or store.get(f"{own}/here/{number}").decode()
                del missing[number]
            elif store.check([f"hello/{number}"]) and (name := store.get(f"hello/{number}").decode()) != welcomed:
                store.set(f"welcome/{name}", own)
                missing[number] = name
        if missing:
            _wait(deadline, f"machine {min(missing)}", machine)
    store.set(f"{own}/former", former)
    return replace(machine, attempt=own, former=Path(former) if former else None)


def part(machine: Machine) -> None:
    """Part from the other machines. Machine 0 waits some seconds for them to finish reading a store that it serves."""
    with suppress(RuntimeError):  # the store is gone
        store = machine.store()
        if machine.number:
            store.set(f"parted/{machine.number}", "")
        elif machine.serves:
            deadline = time.monotonic() + PARTING_S
            others = [f"parted/{number}" for number in range(1, machine.count)]
            while others and not store.check(others) and time.monotonic() < deadline:
                time.sleep(0.01)


def _wait(deadline: float, other: str, machine: Machine) -> None:
    if time.monotonic() > deadline:
        raise WorkersLost(f"{other} did not join within {machine.timeout_s:g} s")
    time.sleep(0.01)


def note_run_folder(machine: Machine, folder: Path) -> None:
    """Let the remaining machines, whichever they are, find the run folder in the next attempt."""
    if machine.logs:
        (machine.logs / NOTE).write_text(str(folder.resolve()), encoding="utf-8")


def _noted_run_folder(machine: Machine) -> str:
    try:
        return (machine.logs / NOTE).read_text(encoding="utf-8") if machine.logs else ""
    except FileNotFoundError:
        return ""
