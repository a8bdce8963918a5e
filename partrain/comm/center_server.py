"""Parameter servers for asynchronous rules on several machines: one process per slice of the center, reached through gloo.

Each process has a thread per worker. The thread holds the worker's `CenterClient`, over memory that all threads share, and does
what the worker itself does on one machine. A request is a verb with numbers, then vectors; the next one waits for its answer.
The threads share one lock, so updates are merged one at a time, in the order of arrival. A worker sends its requests to all
processes before it waits. The first process also keeps what concerns workers rather than slices: visits and inboxes.
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
"""Maximum number of numbers in a request."""
CENTER, WORKER = 0, 1
"""The ends of a connection."""
FOREVER = timedelta(days=365)
"""Timeout of the center while it waits for a request: a worker may train for any time. A lost connection ends the wait."""


class CenterConnection:
    """One end of the connection between a worker and a center process. It carries tensors in order, both ways."""

    def __init__(self, machine: Machine, store: Store, number: int, rank: int, end: int) -> None:
        self._other = machine.center(number) if end == WORKER else f"another machine (worker {rank})"
        self._peer = 1 - end
        self._under_way: list[Any] = []
        with translate_connection_errors(self._other):
            store, timeout = PrefixStore(f"center/{number}/{rank}", store), timedelta(seconds=machine.timeout_s)
            self._group: Any = ProcessGroupGloo(store, end, 2, timeout)

    def send(self, *tensors: Tensor) -> None:
        """Start to send tensors."""
        with translate_connection_errors(self._other):
            self._under_way += [self._group.send([tensor.contiguous()], self._peer, 0) for tensor in tensors]

    def recv(self, *tensors: Tensor) -> None:
        """Start to receive into these tensors."""
        with translate_connection_errors(self._other):
            self._under_way += [self._group.recv([tensor], self._peer, 0) for tensor in tensors]

    def request(self, verb: str, *numbers: float, vectors: Sequence[Tensor] = ()) -> Tensor:
        """Start a request. Return the tensor (1,) that will hold the answer; the caller receives any vectors after it."""
        header, answer = torch.zeros(1 + NUMBERS, dtype=torch.float64), torch.empty(1, dtype=torch.float64)
        header[: 1 + len(numbers)] = torch.tensor([VERBS.index(verb), *numbers], dtype=torch.float64)
        self.send(header, *vectors)
        self.recv(answer)
        return answer

    def finish(self, timeout: timedelta | None = None) -> None:
        """Wait until all started transfers are complete."""
        with translate_connection_errors(self._other):
            for work in self._under_way:
                work.wait(timeout) if timeout else work.wait()
        self._under_way = []


class RemoteCenterClient(CenterClient):
    """A worker's access to the center processes. `vectors` is a local copy, for `push_state` and `pull_state` of worker 0."""

    def __init__(self, arena: Arena, rank: int, vectors: Tensor, turns: Locks, machine: Machine, processes: int) -> None:
        d = vectors.shape[1]
        super().__init__(arena, rank, vectors, turns, slices=min(processes, d))
        with translate_connection_errors():
            store = machine.store()
        self._links = [CenterConnection(machine, store, number, rank, WORKER) for number in range(processes)]
        self._held = list(zip(self._links, self._slices, strict=False))  # a process may have no slice
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
            with suppress(WorkersLost):  # the process may have ended already
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
        while not self._request("wait_for_slowest", fresh):  # short answers: the connection never seems lost
            pass

    def pull(self) -> Tensor:
        copy = self.vectors.new_empty(self.vectors.shape[1])
        for link, part in self._held:
            link.request("pull")
            link.recv(copy[part])
        self._finish()
        return copy

    def push(self, delta: Tensor, base: Tensor | None, lr: float) -> int:
        sent = (delta,) if base is None else (delta, base)
        stale = [link.request("push", lr, len(sent), vectors=[x[part] for x in sent]) for link, part in self._held]
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
        """Send a request to the first process and return its answer."""
        answer = self._links[0].request(verb, *numbers, vectors=vectors)
        self._finish()
        return float(answer)

    def _finish(self) -> None:
        """Wait until all transfers with all processes are complete."""
        for link in self._links:
            link.finish()


def serve(number: int, machine: Machine, members: range, size: int, rule: Rule) -> None:
    """Run one center process until all N workers have left.

    `members`: workers of this machine. Their loss raises nothing here, as their own coordinator reports it.
    """
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
    for rank in range(size):  # workers also connect to one process after the other: one connection to the store is enough
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
    """Memory that the threads of a center process share, under one lock."""

    def __init__(self, size: int, rule: Rule, timeout_s: float) -> None:
        self._arena, self._rule, self._timeout_s = Arena.create(size), rule, timeout_s
        self._changed = threading.Condition()
        self._vectors: Tensor | None = None

    def center_client(self, rank: int, numbers: int, itemsize: int, message: int) -> CenterClient:
        """Return a worker's access to a slice of `numbers` numbers and to inboxes for messages of `message` numbers."""
        with self._changed:
            if self._vectors is None:
                dtype = {4: torch.float32, 8: torch.float64}[itemsize]
                self._vectors = torch.zeros(self._rule.shared_vectors, numbers, dtype=dtype)
                self._inboxes = list(torch.zeros(self._arena.size, message, dtype=dtype))
        return CenterClient(self._arena, rank, self._vectors, self, self._rule.merge, inboxes=self._inboxes)

    def message(self, size: int = 0, *, central: bool = True) -> None:
        """Do nothing: time is real."""

    @contextmanager
    def lock(self, index: int) -> Iterator[None]:
        """Hold the process's only lock, whatever the index."""
        with self._changed:
            yield

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds. Raise TimeoutError in time to send the worker an answer before it gives up."""
        with self._changed:
            if not self._changed.wait_for(ready, self._timeout_s):
                raise TimeoutError(what)

    def notify_all(self) -> None:
        """Wake the threads in `wait_for_peers`: the counters have changed."""
        with self._changed:
            self._changed.notify_all()


class Session:
    """A thread of a center process that serves the requests of one worker."""

    def __init__(self, rank: int, link: CenterConnection, server: Server) -> None:
        self._rank, self._link, self._server = rank, link, server
        self._commons: CenterClient
        self._message = 0

    def serve(self) -> None:
        """Answer requests until the worker leaves."""
        header, verb = torch.empty(1 + NUMBERS, dtype=torch.float64), ""
        while verb != "leave":
            self._link.recv(header)
            self._link.finish(FOREVER)
            index, *numbers = header.tolist()
            verb = VERBS[int(index)]
            number, *vectors = self._do(verb, *numbers)
            self._link.send(torch.tensor([number], dtype=torch.float64), *vectors)
            self._link.finish()

    def _do(self, verb: str, first: float, second: float, third: float) -> tuple[float, *tuple[Tensor, ...]]:
        """Execute a request and return its answer: a number, then vectors."""
        match verb:
            case "open":
                self._message = int(third)
                self._commons = self._server.center_client(self._rank, int(first), int(second), self._message)
            case "begin":
                self._commons.begin()
                self._server.notify_all()
            case "claim":
                granted = self._commons.claim(int(first))
                self._server.notify_all()
                return (float(granted),)
            case "wait_for_slowest":
                try:
                    self._commons.wait_for_slowest(int(first))
                except TimeoutError:
                    return (0.0,)
                return (1.0,)
            case "pull":
                return 0.0, self._commons.pull()
            case "push":
                delta, *base = self._given(int(second), self._commons.vectors.shape[1])
                return (float(self._commons.push(delta, base[0] if base else None, first)),)
            case "send":
                (x,) = self._given(1, self._message)
                self._commons.send(x, first, int(second))
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
        """Receive the `count` vectors of a request, each of `numbers` numbers."""
        vectors = [self._commons.vectors.new_empty(numbers) for _ in range(count)]
        self._link.recv(*vectors)
        self._link.finish()
        return vectors
