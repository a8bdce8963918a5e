"""The `distributed` transport for tests: a pool of processes that act as the workers of several machines."""

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
"""Number of machines by number of workers."""
TIMEOUT_S = 60.0


class ConnectedMachine(Machine):
    """A machine that reuses its connection to the store between cases: hundreds of new connections would stall the store."""

    def store(self, of_all_attempts: bool = False) -> dist.Store:
        return dist.PrefixStore(f"case/{self.attempt}", connected(self.host, self.port))


@cache
def connected(host: str, port: int) -> dist.Store:
    return dist.TCPStore(host, port, is_master=False)


@dataclass(frozen=True)
class Case:
    """The work of one process."""

    file: str
    """File of its machine's arena."""
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
    """Up to four worker processes and the store of their machines. Each case has its own arenas and group."""

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
        """Run a program, a module-level function, on each worker. Return the results, which are pickled. A failure closes the pool."""
        assert self._pipes, "an earlier case has failed"
        self._cases += 1
        count, local = MACHINES[size], size // MACHINES[size]
        arenas = [Arena.create(size) for _ in range(count)]
        try:
            for rank, pipe in enumerate(self._pipes[:size]):
                number = rank // local
                machine = ConnectedMachine(
                    number, count, "127.0.0.1", self._store.port, attempt=str(self._cases), timeout_s=TIMEOUT_S
                )
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
    """Run cases from the pipe in a worker process and send their results back."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    threads = torch.get_num_threads()
    while True:
        case: Case = pipe.recv()
        if dist.is_initialized():  # of the last case, which all processes have finished
            dist.destroy_process_group()
        torch.set_num_threads(threads)
        try:
            pipe.send(case.run())
        except BaseException as error:
            pipe.send(error)
