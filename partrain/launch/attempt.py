"""An attempt at a run: the arena and its processes, from their start to the last exit.

A lost worker ends its attempt: `restart` kills all its processes, so that none of their late answers reaches the next attempt, and
starts them again in the same arena.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from partrain.comm.arena import Arena
from partrain.comm.machine import Machine
from partrain.errors import UserCodeFailed, WorkersLost
from partrain.launch import forkserver
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.prepared import PreparedRun
from partrain.launch.processes import MemoryFile, WorkerProcesses
from partrain.launch.ready_check import ReadyWorkers
from partrain.launch.worker.entry import dry_run_main, worker_main
from partrain.launch.worker.messages import Done, Message, Ready
from partrain.launch.worker.spec import CenterPart, ProcessSpec, user_code_under_test
from partrain.system.memory import memory_limits
from partrain.system.parent_death import describe_exit


class Attempt:
    """The workers of this machine: not ready, ready, done or lost."""

    def __init__(self, prepared: PreparedRun, point: ResumePoint, machine: Machine | None, run_folder: Path | None) -> None:
        """Make the arena."""
        self._prepared, self._machine, self._run_folder = prepared, machine, run_folder
        self.job, self.plan, self._initial = job, plan, initial = prepared.loaded.job, prepared.plan, prepared.initial
        self.point = point
        """The point where the workers begin."""
        number, count = (machine.number, machine.count) if machine else (0, 1)
        local = len(plan.shares) // count
        self.members = range(number * local, (number + 1) * local)
        """The workers of this machine, by rank."""
        self.arena = Arena.create(len(plan.shares), len(job.metrics(prepared.dataset.task)))
        self.processes = WorkerProcesses()
        self.ready = ReadyWorkers()
        self.done: dict[int, Done] = {}
        """Workers that have left the loop."""
        self.tried = user_code_under_test(job, judging=True) or (f"the start from {initial.file.name}" if initial else "")
        """User code or file that a dry run tries, in words; "" without one."""
        self.tries_built_in = False
        """True if the dry run also tries built-in networks and tasks."""
        self.dry_running = False
        self.slots: list[memoryview] = []
        """The slots of the arena, once mapped."""
        self._memory = memory_limits()  # the data are already in memory, the workers are not

    @property
    def complete(self) -> bool:
        """True if all workers of this machine are done."""
        return len(self.done) == len(self.members)

    @property
    def all_ready(self) -> bool:
        """True if all workers of this machine have built their networks."""
        return len(self.ready.processes) == len(self.members)

    def start_dry_run(self) -> None:
        """Start a process that tries user code, and a file to start from, as the first worker would."""
        shares = self.plan.shares
        first = min(self.members, key=lambda rank: (shares[rank].spec.device != "cpu", rank))
        self.dry_running = True
        self._start_process((first,), dry_run_main, "partrain dry run")

    def end_dry_run(self) -> None:
        """End the dry run at once: user code may have left threads running in it."""
        self.dry_running = False
        self.kill()

    def start_workers(self) -> None:
        """Start the processes of this machine's workers and, if the rule has a center, of its parts."""
        if self._machine and not self.job.sync.synchronous:
            for number in self._machine.centers(self.job.sync.slices):
                self._start_process((), worker_main, f"partrain center {number}", CenterPart(number))
        for ranks in self._ranks_by_process():
            self._start_process(ranks, worker_main, f"partrain worker {ranks[0]}")

    def _ranks_by_process(self) -> list[tuple[int, ...]]:
        return self.job.transport.ranks_by_process(self.members, lambda rank: self.plan.shares[rank].spec.process)

    def restart(self, point: ResumePoint) -> None:
        """Start the workers again; the state to restore, if any, is in a slot."""
        self.kill()
        self.arena.reset(self.ready.slots_at or os.fstat(self.arena.descriptor).st_size)
        self.point = point
        self.ready.forget_processes()
        self.done = {}
        self.start_workers()

    def map_slots(self) -> list[memoryview]:
        """Map the slots that the workers fill with snapshots. All workers are ready."""
        self.slots = self.arena.map_slots(self.ready.slots_at, self.ready.map.size)
        return self.slots

    def free_start(self) -> None:
        """Free the memory of the file that the network started from."""
        if self._initial:
            self._initial.free()
            self._initial = None

    def _start_process(
        self, ranks: tuple[int, ...], main: Callable[[Connection, ProcessSpec], None], name: str, part: CenterPart | None = None
    ) -> None:
        spec = ProcessSpec(
            job=self.job,
            folder=self._prepared.loaded.folder,
            run_folder=self._run_folder,
            plan=self.plan,
            ranks=ranks,
            members=self.members,
            machine=self._machine,
            arena_fd=MemoryFile(self.arena.descriptor),
            dataset_fd=MemoryFile(self._prepared.dataset_fd),
            dataset=self._prepared.dataset.info,
            point=self.point,
            memory=self._memory,
            start_file=self._initial.file if self._initial else None,
            start_fd=MemoryFile(self._initial.descriptor) if self._initial else None,
            tries_built_in=self.tries_built_in,
            center_part=part,
        )
        self.processes[part or ranks[0]] = forkserver.start_process(name, main, spec)

    def receive(self, ready: list[Any]) -> Iterator[Message]:
        """Yield the messages of `ready` processes. Note which workers are ready or done."""
        for message in self.processes.messages(ready):
            match message:
                case Ready():
                    self.ready.enter(message)
                case Done():
                    self.done[message.rank] = message
                case _:
                    yield message

    def check_exits(self, ready: list[Any]) -> None:
        """Raise if a process has exited before its workers were done."""
        for process, code in self.processes.exited(ready):
            self._on_exit(process, code)

    def check_other_processes(self, rank: int | None) -> None:
        """Raise if a process of this machine has exited, after worker `rank` (None: the center) missed another process."""
        for other, code in self.processes.other_exited(rank):
            self._on_exit(other, code)

    def _on_exit(self, process: int | CenterPart, code: int | None) -> None:
        """Raise unless the process had finished its work. The center's parts end when all workers have left them."""
        if code is None and not self.complete:
            raise WorkersLost("the process that starts workers was killed, and they ended with it")
        if self.dry_running:
            kind = WorkersLost if code == -signal.SIGKILL else UserCodeFailed  # by the kernel or a person, not the code itself
            raise kind(f"{self.tried}, tried before any worker starts: its process {describe_exit(code)}")
        if isinstance(process, CenterPart):
            assert self._machine is not None
            if code:
                raise WorkersLost(f"{self._machine.center(process.number)} {describe_exit(code)}")
            return
        (ranks,) = [ranks for ranks in self._ranks_by_process() if process in ranks]
        if any(rank not in self.done for rank in ranks):
            device = self.plan.shares[process].spec.device
            who = f"worker {process}" if len(ranks) == 1 else f"the process of workers {ranks[0]} to {ranks[-1]}"
            raise WorkersLost(f"{who} ({device}) {describe_exit(code)}", rank=process)

    def signs_of_life(self) -> object:
        """Return a value that changes while any process makes progress."""
        return (self.arena.beats.tobytes(), self.arena.arrivals.tobytes(), *self.ready.processes, *self.processes)

    def stalled_workers(self) -> list[int]:
        """List the workers of this machine that the others wait for. This machine does not see arrivals of other machines' workers."""
        came = {rank: int(self.arena.arrivals[rank]) for rank in self.members if rank not in self.done}
        return [rank for rank, count in came.items() if count == min(came.values())]

    def kill(self) -> None:
        """End all processes. Done workers exit by themselves."""
        self.processes.stop(at_once=not self.complete)

    def close(self) -> None:
        """End all processes and free the arena."""
        self.kill()
        os.close(self.arena.descriptor)
