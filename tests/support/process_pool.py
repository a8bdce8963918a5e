"""The `distributed` transport for the tests: processes that stand for the workers of several machines, case after case."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import torch
import torch.distributed as dist
from support.lab import NOTHING, Common, Program, Result, collect, join

from partrain.comm.arena import Arena
from partrain.comm.distributed import DistributedTransport
from partrain.comm.machine import Machine
from partrain.launch import forkserver

MACHINES = {1: 1, 2: 2, 3: 3, 4: 2}
"""Over how many machines so many workers are spread."""
PATIENCE_S = 60.0


class Met(Machine):
    """A machine whose way to the store is kept from case to case: new connections by the hundred would stall the store."""

    def store(self, prefix: str | None = None) -> dist.Store:
        return dist.PrefixStore(f"case/{self.attempt}", connected(self.host, self.port))


@cache
def connected(host: str, port: int) -> dist.Store:
    return dist.TCPStore(host, port, is_master=False)


@dataclass(frozen=True)
class Case:
    """What one process is to do."""

    file: str
    """The arena of its machine."""
    rank: int
    size: int
    members: range
    machine: Machine
    program: Callable[..., Any]
    numbers: int
    wire: int
    dtype: torch.dtype
    common: Common
    exact: bool

    def run(self) -> Any:
        arena = Arena(os.open(self.file, os.O_RDWR | os.O_CLOEXEC), self.size)
        try:
            waiting = DistributedTransport(arena, self.rank, self.members, self.machine)
            group, row = join(
                arena, self.rank, waiting, self.numbers, self.wire, self.dtype, self.common, self.members, self.exact
            )
            return self.program(group, row)
        finally:
            os.close(arena.descriptor)


class ProcessPool:
    """Up to four worker processes, and the store where machines meet. Every case has arenas and a group of its own."""

    def __init__(self) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._cases = 0
        self._processes: list[ForkServerProcess] = []
        self._pipes: list[Connection] = []
        context = forkserver.start()
        for _ in range(max(MACHINES)):
            ours, theirs = multiprocessing.Pipe()
            self._processes.append(context.Process(target=serve, args=(theirs,)))
            with forkserver.without_main():
                self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)

    def __call__(
        self,
        size: int,
        program: Program[Result],
        numbers: int = 64,
        wire: int = 0,
        dtype: torch.dtype = torch.float32,
        common: Common = NOTHING,
        exact: bool = True,
    ) -> list[Result]:
        """Each worker's result. The program is a function of a module, its result can be pickled. A failure ends the pool."""
        assert self._pipes, "an earlier case has failed"
        self._cases += 1
        count, local = MACHINES[size], size // MACHINES[size]
        arenas = [Arena.create(size) for _ in range(count)]
        try:
            for rank, pipe in enumerate(self._pipes[:size]):
                number = rank // local
                machine = Met(number, count, "127.0.0.1", self._store.port, self._cases, PATIENCE_S)
                file = f"/proc/{os.getpid()}/fd/{arenas[number].descriptor}"
                members = range(number * local, (number + 1) * local)
                pipe.send(Case(file, rank, size, members, machine, program, numbers, wire, dtype, common, exact))
            return collect(self._pipes[:size])
        except BaseException:
            self.close()
            raise
        finally:
            for arena in arenas:
                os.close(arena.descriptor)

    def close(self) -> None:
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.kill()
            process.join()
            process.close()
            pipe.close()
        self._processes, self._pipes = [], []


def serve(pipe: Connection) -> None:
    """One of the processes: cases come by the pipe, results go back."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    threads = torch.get_num_threads()
    while True:
        case: Case = pipe.recv()
        if dist.is_initialized():  # of the last case, with which all others are done, too
            dist.destroy_process_group()
        torch.set_num_threads(threads)
        try:
            pipe.send(case.run())
        except BaseException as error:
            pipe.send(error)
