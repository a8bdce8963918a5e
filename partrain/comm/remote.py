"""Asynchronous rules on several machines: the center is a process of its own, which every worker reaches through gloo.

A worker is connected to a thread of that process, and the thread does at the center what the worker itself would do where memory is
shared: it holds the worker's `Commons`, over memory that belongs to all threads. A request is a verb with numbers, then vectors, and
is answered before the next. Threads take turns, so updates are merged one at a time, in the order in which they come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroupGloo
from torch.distributed.distributed_c10d import PrefixStore

from partrain.comm.arena import Arena
from partrain.comm.center import Commons, Turns
from partrain.comm.distributed import machines_lost
from partrain.comm.machine import Machine
from partrain.errors import WorkersLost

if TYPE_CHECKING:
    from partrain.protocols import Rule

VERBS = ("open", "begin", "claim", "keep_step", "pull", "push", "send", "receive", "publish", "fetch", "leave")
NUMBERS = 2
"""Numbers that go with a verb."""
CENTER, WORKER = 0, 1
"""The ends of a connection."""
FOREVER = timedelta(days=365)
"""The center waits for a worker as long as there is a connection: its training may take any time."""


class Link:
    """One end of the connection between a worker and the center: tensors, one after the other, to and fro."""

    def __init__(self, machine: Machine, rank: int, end: int) -> None:
        center = "the center (a process of machine 0)"
        self._other = center if end == WORKER else f"another machine (worker {rank})"
        self._peer = 1 - end
        with machines_lost(self._other):
            store, patience = PrefixStore(f"center/{rank}", machine.store()), timedelta(seconds=machine.patience_s)
            self._group: Any = ProcessGroupGloo(store, end, 2, patience)

    def give(self, *tensors: Tensor) -> None:
        """Send."""
        with machines_lost(self._other):
            for tensor in tensors:
                self._group.send([tensor.contiguous()], self._peer, 0).wait()

    def take(self, tensor: Tensor, patience: timedelta | None = None) -> Tensor:
        """Receive into a tensor."""
        whole = tensor if tensor.is_contiguous() else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        with machines_lost(self._other):
            work = self._group.recv([whole], self._peer, 0)
            work.wait(patience) if patience else work.wait()
        return tensor if whole is tensor else tensor.copy_(whole)


class Remote(Commons):
    """A worker's access to the center's process; `vectors` are a copy, which worker 0 publishes and fetches."""

    def __init__(self, arena: Arena, rank: int, vectors: Tensor, turns: Turns, machine: Machine) -> None:
        super().__init__(arena, rank, vectors, turns)
        self._link = Link(machine, rank, WORKER)
        self._ask("open", vectors.shape[1], vectors.itemsize)

    def publish(self) -> None:
        if self._rank == 0:
            self._ask("publish", gives=tuple(self.tensors().values()))

    def fetch(self) -> None:
        if self._rank == 0:
            self._ask("fetch")
            for tensor in self.tensors().values():
                self._link.take(tensor)

    def leave(self) -> None:
        with suppress(WorkersLost):  # it may be gone before
            self._ask("leave")

    def begin(self) -> None:
        self.staleness = []
        self._ask("begin")

    def claim(self, visits: int) -> bool:
        return bool(self._ask("claim", visits))

    def keep_step(self, fresh: int) -> None:
        while not self._ask("keep_step", fresh):  # so no answer takes so long that the center seems to be lost
            pass

    def pull(self) -> Tensor:
        self._ask("pull")
        return self._link.take(self.vectors.new_empty(self.vectors.shape[1]))

    def push(self, delta: Tensor, base: Tensor | None, lr: float) -> int:
        self.staleness.append(int(self._ask("push", lr, base is not None, gives=(delta,) if base is None else (delta, base))))
        return self.staleness[-1]

    def send(self, x: Tensor, share: float, peer: int) -> None:
        self._ask("send", share, peer, gives=(x,))

    def receive(self) -> tuple[Tensor, float]:
        share = self._ask("receive")
        total = self.vectors.new_empty(self.vectors.shape[1] if share else 0)
        return self._link.take(total) if share else total, share

    def _ask(self, verb: str, *numbers: float, gives: Sequence[Tensor] = ()) -> float:
        """A request, and the number it is answered with. Vectors of the answer are still to be taken."""
        header = torch.zeros(1 + NUMBERS, dtype=torch.float64)
        header[: 1 + len(numbers)] = torch.tensor([VERBS.index(verb), *numbers], dtype=torch.float64)
        self._link.give(header, *gives)
        return float(self._link.take(torch.empty(1, dtype=torch.float64)))


def serve(machine: Machine, members: range, size: int, rule: Rule) -> None:
    """The work of the center's process, until all N workers have left. `members`: workers of its own machine, others answer for them."""
    server, endings = Server(size, rule, machine.patience_s / 4), SimpleQueue[tuple[int, BaseException | None]]()

    def attend(rank: int) -> None:
        try:
            torch.set_flush_denormal(True)
            Session(rank, Link(machine, rank, CENTER), server).serve()
            endings.put((rank, None))
        except BaseException as error:
            endings.put((rank, error))

    for rank in range(size):
        threading.Thread(target=attend, args=(rank,), daemon=True).start()
    for _ in range(size):
        rank, error = endings.get()
        if error is not None and not (rank in members and isinstance(error, WorkersLost)):
            raise error


class Server:
    """What the threads of the center share, and how they take turns at it."""

    def __init__(self, size: int, rule: Rule, patience_s: float) -> None:
        self._arena, self._rule, self._patience_s = Arena.create(size), rule, patience_s
        self._changed = threading.Condition()
        self._vectors: Tensor | None = None

    def commons(self, rank: int, d: int, itemsize: int) -> Commons:
        """A worker's access, for a network of d numbers."""
        with self._changed:
            if self._vectors is None:
                dtype = {4: torch.float32, 8: torch.float64}[itemsize]
                self._vectors = torch.zeros(self._rule.shared_vectors, d, dtype=dtype)
                self._inboxes = list(torch.zeros(self._arena.size, d, dtype=dtype))
        slices = min(self._rule.slices, d)
        return Commons(self._arena, rank, self._vectors, self, self._rule.merge, slices, self._inboxes)

    def message(self) -> None:
        """Nothing to do."""

    @contextmanager
    def alone(self, place: int) -> Iterator[None]:
        """There is one turn for all places."""
        with self._changed:
            yield

    def until_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds; TimeoutError if that takes too long to leave the worker without an answer."""
        with self._changed:
            if not self._changed.wait_for(ready, self._patience_s):
                raise TimeoutError(what)

    def tell(self) -> None:
        """Something has changed that others may wait for."""
        with self._changed:
            self._changed.notify_all()


class Session:
    """A thread of the center: does what its worker asks for."""

    def __init__(self, rank: int, link: Link, server: Server) -> None:
        self._rank, self._link, self._server = rank, link, server
        self._commons: Commons

    def serve(self) -> None:
        """Answer until the worker leaves."""
        header, verb = torch.empty(1 + NUMBERS, dtype=torch.float64), ""
        while verb != "leave":
            index, *numbers = self._link.take(header, FOREVER).tolist()
            verb = VERBS[int(index)]
            number, *vectors = self._do(verb, *numbers)
            self._link.give(torch.tensor([number], dtype=torch.float64), *vectors)

    def _do(self, verb: str, one: float, two: float) -> tuple[float, *tuple[Tensor, ...]]:
        """The answer: a number, and vectors."""
        match verb:
            case "open":
                self._commons = self._server.commons(self._rank, int(one), int(two))
            case "begin":
                self._commons.begin()
                self._server.tell()
            case "claim":
                granted = self._commons.claim(int(one))
                self._server.tell()
                return (float(granted),)
            case "keep_step":
                try:
                    self._commons.keep_step(int(one))
                except TimeoutError:
                    return (0.0,)
                return (1.0,)
            case "pull":
                return 0.0, self._commons.pull()
            case "push":
                delta = self._vector()
                return (float(self._commons.push(delta, self._vector() if two else None, one)),)
            case "send":
                self._commons.send(self._vector(), one, int(two))
            case "receive":
                total, share = self._commons.receive()
                return (share, total) if share else (0.0,)
            case "publish":
                for tensor in self._commons.tensors().values():
                    self._link.take(tensor)
            case "fetch":
                return 0.0, *self._commons.tensors().values()
        return (0.0,)

    def _vector(self) -> Tensor:
        return self._link.take(self._commons.vectors.new_empty(self._commons.vectors.shape[1]))
