"""Asynchronous rules on several machines: each slice of the center has a process of its own, which every worker reaches through gloo.

A worker is connected to a thread of each process, and the thread does at the slice what the worker itself would do where memory is
shared: it holds the worker's `CenterClient`, over memory that belongs to all threads. A request is a verb with numbers, then vectors, and
is answered before the next. Threads take turns, so updates are merged one at a time, in the order in which they come. Requests to
several processes are under way together. What is about workers and not about slices is with the first process.
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
from partrain.comm.center import CenterClient, Locks
from partrain.comm.distributed import translate_connection_errors
from partrain.comm.machine import Machine
from partrain.errors import WorkersLost

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

    from partrain.protocols import Rule

VERBS = ("open", "begin", "claim", "wait_for_slowest", "pull", "push", "send", "receive", "push_state", "pull_state", "leave")
NUMBERS = 3
"""Numbers that go with a verb."""
CENTER, WORKER = 0, 1
"""The ends of a connection."""
FOREVER = timedelta(days=365)
"""The center waits for a worker as long as there is a connection: its training may take any time."""


class CenterConnection:
    """One end of the connection between a worker and a process of the center: tensors, one after the other, to and fro."""

    def __init__(self, machine: Machine, store: Store, number: int, rank: int, end: int) -> None:
        self._other = machine.center(number) if end == WORKER else f"another machine (worker {rank})"
        self._peer = 1 - end
        self._under_way: list[Any] = []
        with translate_connection_errors(self._other):
            store, timeout = PrefixStore(f"center/{number}/{rank}", store), timedelta(seconds=machine.timeout_s)
            self._group: Any = ProcessGroupGloo(store, end, 2, timeout)

    def send(self, *tensors: Tensor) -> None:
        """Begin to send."""
        with translate_connection_errors(self._other):
            self._under_way += [self._group.send([tensor.contiguous()], self._peer, 0) for tensor in tensors]

    def recv(self, *tensors: Tensor) -> None:
        """Begin to receive, into these tensors."""
        with translate_connection_errors(self._other):
            self._under_way += [self._group.recv([tensor], self._peer, 0) for tensor in tensors]

    def request(self, verb: str, *numbers: float, vectors: Sequence[Tensor] = ()) -> Tensor:
        """Begin a request; where its answer (1,) will be. Vectors that come with it are still to be taken."""
        header, answer = torch.zeros(1 + NUMBERS, dtype=torch.float64), torch.empty(1, dtype=torch.float64)
        header[: 1 + len(numbers)] = torch.tensor([VERBS.index(verb), *numbers], dtype=torch.float64)
        self.send(header, *vectors)
        self.recv(answer)
        return answer

    def finish(self, timeout: timedelta | None = None) -> None:
        """Wait for all that was begun."""
        with translate_connection_errors(self._other):
            for work in self._under_way:
                work.wait(timeout) if timeout else work.wait()
        self._under_way = []


class Remote(CenterClient):
    """A worker's access to the center's processes; `vectors` are a copy, which worker 0 publishes and fetches."""

    def __init__(self, arena: Arena, rank: int, vectors: Tensor, turns: Locks, machine: Machine, processes: int) -> None:
        d = vectors.shape[1]
        super().__init__(arena, rank, vectors, turns, slices=min(processes, d))
        with translate_connection_errors():
            store = machine.store()
        self._links = [CenterConnection(machine, store, number, rank, WORKER) for number in range(processes)]
        self._held = list(zip(self._links, self._slices, strict=False))  # there may be processes without a slice
        for number, (link, part) in enumerate(self._held):
            link.request("open", part.stop - part.start, vectors.itemsize, 0 if number else d)
        self._finish()

    def push_state(self) -> None:
        if self._rank == 0:
            for number, (link, _) in enumerate(self._held):
                link.request("push_state", vectors=self.of_slice(number))
            self._finish()

    def pull_state(self) -> None:
        if self._rank == 0:
            for number, (link, _) in enumerate(self._held):
                link.request("pull_state")
                link.recv(*self.of_slice(number))
            self._finish()

    def leave(self) -> None:
        for link in self._links:
            with suppress(WorkersLost):  # it may be gone before
                link.request("leave")
                link.finish()

    def begin(self) -> None:
        self.staleness = []
        for link, _ in self._held:
            link.request("begin")
        self._finish()

    def claim(self, visits: int) -> bool:
        return bool(self._request("claim", visits))

    def wait_for_slowest(self, fresh: int) -> None:
        while not self._request("wait_for_slowest", fresh):  # so no answer takes so long that the center seems to be lost
            pass

    def pull(self) -> Tensor:
        copy = self.vectors.new_empty(self.vectors.shape[1])
        for link, part in self._held:
            link.request("pull")
            link.recv(copy[part])
        self._finish()
        return copy

    def push(self, delta: Tensor, base: Tensor | None, lr: float) -> int:
        given = (delta,) if base is None else (delta, base)
        stale = [link.request("push", lr, len(given), vectors=[x[part] for x in given]) for link, part in self._held]
        self._finish()
        self.staleness.append(int(max(stale)))
        return self.staleness[-1]

    def send(self, x: Tensor, share: float, peer: int) -> None:
        self._request("send", share, peer, vectors=(x,))

    def receive(self) -> tuple[Tensor, float]:
        share = self._request("receive")
        total = self.vectors.new_empty(self.vectors.shape[1] if share else 0)
        if share:
            self._links[0].recv(total)
            self._finish()
        return total, share

    def _request(self, verb: str, *numbers: float, vectors: Sequence[Tensor] = ()) -> float:
        """What the first process answers."""
        answer = self._links[0].request(verb, *numbers, vectors=vectors)
        self._finish()
        return float(answer)

    def _finish(self) -> None:
        """Wait for all that was begun with any process."""
        for link in self._links:
            link.finish()


def serve(number: int, machine: Machine, members: range, size: int, rule: Rule) -> None:
    """The work of one of the center's processes, until all N workers have left. `members`: workers of its own machine, others answer for them."""
    server, endings = Server(size, rule, machine.timeout_s / 4), SimpleQueue[tuple[int, BaseException | None]]()

    def attend(rank: int, link: CenterConnection) -> None:
        try:
            torch.set_flush_denormal(True)
            Session(rank, link, server).serve()
            endings.put((rank, None))
        except BaseException as error:
            endings.put((rank, error))

    with translate_connection_errors():
        store = machine.store()
    threads = []
    for rank in range(size):  # in turn, as workers come to one process after the other, too: so one connection to the store does
        link = CenterConnection(machine, store, number, rank, CENTER)
        threads.append(threading.Thread(target=attend, args=(rank, link), daemon=True))
        threads[-1].start()
    for _ in range(size):
        rank, error = endings.get()
        if error is not None and not (rank in members and isinstance(error, WorkersLost)):
            raise error
    for thread in threads:
        thread.join()  # connections are closed


class Server:
    """What the threads of a process share, and how they take turns at it."""

    def __init__(self, size: int, rule: Rule, timeout_s: float) -> None:
        self._arena, self._rule, self._timeout_s = Arena.create(size), rule, timeout_s
        self._changed = threading.Condition()
        self._vectors: Tensor | None = None

    def commons(self, rank: int, numbers: int, itemsize: int, message: int) -> CenterClient:
        """A worker's access to so many numbers of the center, and to inboxes for messages of so many."""
        with self._changed:
            if self._vectors is None:
                dtype = {4: torch.float32, 8: torch.float64}[itemsize]
                self._vectors = torch.zeros(self._rule.shared_vectors, numbers, dtype=dtype)
                self._inboxes = list(torch.zeros(self._arena.size, message, dtype=dtype))
        return CenterClient(self._arena, rank, self._vectors, self, self._rule.merge, inboxes=self._inboxes)

    def message(self) -> None:
        """Nothing to do."""

    @contextmanager
    def lock(self, index: int) -> Iterator[None]:
        """There is one turn for all places."""
        with self._changed:
            yield

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds; TimeoutError if that takes too long to leave the worker without an answer."""
        with self._changed:
            if not self._changed.wait_for(ready, self._timeout_s):
                raise TimeoutError(what)

    def notify_all(self) -> None:
        """Something has changed that others may wait for."""
        with self._changed:
            self._changed.notify_all()


class Session:
    """A thread of the center: does what its worker asks for."""

    def __init__(self, rank: int, link: CenterConnection, server: Server) -> None:
        self._rank, self._link, self._server = rank, link, server
        self._commons: CenterClient
        self._message = 0

    def serve(self) -> None:
        """Answer until the worker leaves."""
        header, verb = torch.empty(1 + NUMBERS, dtype=torch.float64), ""
        while verb != "leave":
            self._link.recv(header)
            self._link.finish(FOREVER)
            index, *numbers = header.tolist()
            verb = VERBS[int(index)]
            number, *vectors = self._do(verb, *numbers)
            self._link.send(torch.tensor([number], dtype=torch.float64), *vectors)
            self._link.finish()

    def _do(self, verb: str, one: float, two: float, three: float) -> tuple[float, *tuple[Tensor, ...]]:
        """The answer: a number, and vectors."""
        match verb:
            case "open":
                self._message = int(three)
                self._commons = self._server.commons(self._rank, int(one), int(two), self._message)
            case "begin":
                self._commons.begin()
                self._server.notify_all()
            case "claim":
                granted = self._commons.claim(int(one))
                self._server.notify_all()
                return (float(granted),)
            case "wait_for_slowest":
                try:
                    self._commons.wait_for_slowest(int(one))
                except TimeoutError:
                    return (0.0,)
                return (1.0,)
            case "pull":
                return 0.0, self._commons.pull()
            case "push":
                delta, *base = self._given(int(two), self._commons.vectors.shape[1])
                return (float(self._commons.push(delta, base[0] if base else None, one)),)
            case "send":
                (x,) = self._given(1, self._message)
                self._commons.send(x, one, int(two))
            case "receive":
                total, share = self._commons.receive()
                return (share, total) if share else (0.0,)
            case "push_state":
                self._link.recv(*self._commons.of_slice(0))
                self._link.finish()
            case "pull_state":
                return 0.0, *self._commons.of_slice(0)
        return (0.0,)

    def _given(self, count: int, numbers: int) -> list[Tensor]:
        """Vectors of so many numbers that come with a request."""
        vectors = [self._commons.vectors.new_empty(numbers) for _ in range(count)]
        self._link.recv(*vectors)
        self._link.finish()
        return vectors
