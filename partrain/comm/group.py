"""The `Group` of workers that share an arena, and the one thing in which its transports differ: how to wait.

A verb never sends: a vector that lies in the worker's row is already where the others can read it; any other is first
copied to the row's wire, and a CUDA worker's row is staged through one pinned buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.comm.arena import Arena
from partrain.comm.center import CenterClient, Locks
from partrain.flat import first_non_finite, mean_into, share_into

if TYPE_CHECKING:
    from partrain.flat import SparseVector


class NonFinite(Exception):
    """A vector with NaN or Inf, caught before it was mixed: `offset` and `index` say where in the worker's row."""

    def __init__(self, offset: int, index: int) -> None:
        super().__init__(f"non-finite number at {index}")
        self.offset = offset
        self.index = index


Parts = Callable[[], Sequence[Sequence[Tensor]]]
"""Gives pieces of shared memory, bytes by rank, equally long for all ranks."""


class Transport(Locks, Protocol):
    """How a worker waits for the others: spinning and sleeping between processes, passing the baton in one process."""

    def clock(self) -> float:
        """Seconds: the machine's, or simulated ones."""

    def advance_clock(self, number: int) -> None:
        """A local iteration is done, the worker's so-many-th of all."""

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has come here, and what each has put into `parts` can be read by all."""

    def local_barrier(self) -> None:
        """Return when every worker of this machine has come here: enough where only its memory is at stake."""

    def replicate(self, parts: Parts) -> None:
        """A barrier where there are other machines, to show them `parts`; nothing where there are none."""

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Where there are other machines: make these bytes what they are on the first."""

    def all_reduce_sum(self, x: Tensor) -> None:
        """A barrier of this machine, after which x, the same memory for all its workers, is the sum over all machines."""

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds, which the coordinator brings about; `what` names the thing waited for."""

    def free(self) -> AbstractContextManager[None]:
        """What is done meanwhile takes no simulated time."""


class ArenaGroup:
    """Group of N workers over the rows of an arena.

    `row` is this worker's row on its own device: the arena's row itself for a CPU worker, a copy of the same layout on a
    CUDA device. `wire` is the start of the space for vectors that lie elsewhere.
    """

    def __init__(
        self,
        arena: Arena,
        rank: int,
        row: Tensor,
        rows: Sequence[Tensor],
        wire: int,
        waiting: Transport,
        commons: CenterClient | None = None,
        members: range | None = None,
        exact: bool = True,
    ) -> None:
        """`members`: the workers of this machine; default: all. `exact`: each machine sums what all workers have, not only its own."""
        self.members = members or range(len(rows))
        self._exact = exact
        self._weights = bytes_by_rank(arena.weights)
        self.arena = arena
        self.rank = rank
        self.size = len(rows)
        self.waiting = waiting
        self.waited = 0.0
        """Seconds spent waiting for other workers."""
        self.measure = False
        """Whether the next mean is to be compared with what each worker brought."""
        self.distance = math.nan
        """Root mean square of (own vector - mean), where measured."""
        self.bytes = 0
        """Bytes of the messages this worker gave to the others, or took from the center, since the round began."""
        self.commons = commons or CenterClient(arena, rank, row.new_zeros(0, 0, device="cpu"), waiting)
        """What belongs to all: see its verbs."""
        self.center = self.commons.vectors
        self._exchanges = 0
        self._row = row
        self._rows = rows
        self._wire = wire
        self._bytes = [row.view(torch.uint8) for row in rows]
        staged = row.is_cuda and self.size > 1
        self._pinned = torch.empty(row.nbytes, dtype=torch.uint8, pin_memory=True) if staged else None

    def begin(self, measure: bool) -> None:
        """A round begins."""
        self.measure, self.distance, self.bytes = measure, math.nan, 0
        self.commons.begin()

    def barrier(self, parts: Parts | None = None) -> None:
        if self.size > 1:
            began = self.waiting.clock()
            self.waiting.barrier(parts)
            self.waited += self.waiting.clock() - began

    def _done(self) -> None:
        """All of this machine are done with what lies in its memory: it may change again, or be read."""
        began = self.waiting.clock()
        self.waiting.local_barrier()
        self.waited += self.waiting.clock() - began

    def all_reduce_mean(self, x: Tensor, weight: float = 1.0) -> None:
        self._check(x)
        if self.size == 1:
            return
        if x.dtype != self._row.dtype:
            raise TypeError(f"a vector of {x.dtype} in a group of {self._row.dtype}")
        self.bytes += x.nbytes
        brought = x.clone() if self.measure and self._offset(x) == 0 else None  # parameters, not gradients
        place = self._stage(x)
        self.arena.weights[self.rank] = weight
        mix = self._mean_of_all if self._exact else self._mean_of_machines
        mix(x, place)
        if brought is not None:
            self.distance, self.measure = float(brought.sub_(x).square_().mean().sqrt()), False

    def _mean_of_all(self, x: Tensor, place: slice) -> None:
        """Each machine has everyone's numbers and sums for itself: the same bits, whatever the number of machines."""
        self.barrier(lambda: [self._at(place), self._weights])
        turn = self._turn(place)
        mean_into([row[turn] for row in self._rows], self.arena.weights.tolist())
        self._done()
        self._unstage(x, place, self.rank)

    def _mean_of_machines(self, x: Tensor, place: slice) -> None:
        """Each machine sums what its own workers have, and only these sums are sent: in the first of its rows, in the type of x."""
        self.barrier(lambda: [self._weights])
        first, turn = self.members.start, self._turn(place)
        weights = self.arena.weights.tolist()
        own = slice(first, self.members.stop)
        share_into(self._rows[first][turn], [row[turn] for row in self._rows[own]], weights[own], sum(weights))
        began = self.waiting.clock()
        self.waiting.all_reduce_sum(self._bytes[first][place].view(x.dtype))
        self.waited += self.waiting.clock() - began
        self._unstage(x, place, first)
        self._done()

    def _turn(self, place: slice) -> slice:
        """The part of a place, in numbers, that this worker sums for its machine."""
        start, stop = place.start // self._row.itemsize, place.stop // self._row.itemsize
        turn, turns = self.rank - self.members.start, len(self.members)
        return slice(start + (stop - start) * turn // turns, start + (stop - start) * (turn + 1) // turns)

    def compare(self, x: Tensor) -> None:
        """Measure how far x is from the mean of all; x stays as it is, and nothing counts as sent."""
        mean, sent, self.measure = x.clone(), self.bytes, False
        self.all_reduce_mean(mean)
        self.bytes = sent
        self.distance = float(mean.sub_(x).square_().mean().sqrt())

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return self.exchange(x, range(self.size))

    def exchange(self, x: Tensor, peers: Sequence[int]) -> list[Tensor]:
        self.bytes += x.nbytes * sum(peer != self.rank for peer in peers)
        return self._read(x, peers)

    def gather(self, message: Tensor) -> list[Tensor]:
        return self._messages(message, range(self.size))[0]

    def reduce_messages(
        self, message: Tensor, read: Callable[[Tensor, int], SparseVector], d: int, weight: float | None = None
    ) -> Tensor:
        wire = slice(self._wire, self._wire + d)
        mine = range(self.rank - self.members.start, self.size, len(self.members))
        messages, weights = self._messages(message, mine, 1.0 if weight is None else weight, sole=True)
        for peer, one in zip(mine, messages, strict=True):
            read(one, d).put(self._rows[peer][wire])  # over the message, which nobody else of this machine reads
        self._done()
        turn = self._turn(slice(wire.start * self._row.itemsize, wire.stop * self._row.itemsize))
        mean_into([row[turn] for row in self._rows], weights, 1.0 if weight is None else None)
        self._done()
        return self._rows[self.rank][wire].to(self._row.device, copy=True)

    def _messages(
        self, message: Tensor, peers: Sequence[int], weight: float = 1.0, sole: bool = False
    ) -> tuple[list[Tensor], list[float]]:
        """The messages of some workers, and the weights of all. `sole`: see `_read`."""
        told = self.scores(message.numel(), weight)
        lengths = [int(length) for length, _ in told]
        self.bytes += message.numel() * (self.size > 1)
        padded = message.new_zeros(-(-max(lengths) // 8) * 8)  # whole numbers of any type, and never nothing
        padded[: message.numel()] = message
        got = [one[: lengths[peer]] for peer, one in zip(peers, self._read(padded, peers, sole), strict=True)]
        return got, [each for _, each in told]

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        if self.size == 1:
            return
        self.bytes += x.nbytes if self.rank == source else 0
        place = self._stage(x) if self.rank == source else self._place(x)
        self.barrier(lambda: [self._at(place)])
        if self.rank != source:
            self._unstage(x, place, source)
        self._done()

    def scores(self, *values: float) -> list[list[float]]:
        """A few numbers of every worker, by rank. Two boards in turn: nobody writes one that others still read."""
        board = self.arena.scores[self._exchanges % 2]
        self._exchanges += 1
        board[self.rank, : len(values)] = values
        self.barrier(lambda: [bytes_by_rank(board)])
        return board[:, : len(values)].tolist()  # type: ignore[no-any-return]

    # The verbs that nobody waits for

    @property
    def staleness(self) -> float:
        """Mean staleness of the updates pushed since the round began; NaN if there was none."""
        stale = self.commons.staleness
        return sum(stale) / len(stale) if stale else math.nan

    def claim(self, visits: int) -> bool:
        return self.commons.claim(visits)

    def pull(self, fresh: int | None = None) -> Tensor:
        if fresh is not None:
            began = self.waiting.clock()
            self.commons.wait_for_slowest(fresh)
            self.waited += self.waiting.clock() - began
        center = self.commons.pull().to(self._row.device)
        self.bytes += center.nbytes
        return center

    def push(self, delta: Tensor, base: Tensor | None = None, lr: float = 0.0) -> int:
        self._check(delta)
        self.bytes += delta.nbytes + (0 if base is None else base.nbytes)
        return self.commons.push(delta.cpu(), None if base is None else base.cpu(), lr)

    def send(self, x: Tensor, share: float, peer: int) -> None:
        self._check(x)
        self.bytes += x.nbytes
        self.commons.send(x.cpu(), share, peer)

    def receive(self) -> tuple[Tensor, float]:
        total, share = self.commons.receive()
        return total.to(self._row.device), share

    def _check(self, x: Tensor) -> None:
        bad = first_non_finite(x)
        if bad is not None:
            raise NonFinite(self._offset(x), bad)

    def _read(self, x: Tensor, peers: Sequence[int], sole: bool = False) -> list[Tensor]:
        """Copies of the x of some workers. `sole`: nobody else of this machine reads theirs, so nobody has to wait before they go."""
        if self.size == 1:
            return [x.clone() for _ in peers]
        room = (self._row.numel() - self._wire) * self._row.itemsize
        if x.nbytes > room and self._offset(x) == self._wire:
            parts = [self._read(part, peers) for part in torch.split(x.reshape(-1), room // x.itemsize)]
            return [torch.cat(column).view(x.shape) for column in zip(*parts, strict=True)]
        place = self._stage(x)
        self.barrier(lambda: [self._at(place)])
        gathered = [self._bytes[peer][place].clone().view(x.dtype).view(x.shape).to(x.device) for peer in peers]
        if not sole:
            self._done()
        return gathered

    def _at(self, place: slice) -> list[Tensor]:
        """What lies at a place in everyone's row."""
        return [row[place] for row in self._bytes]

    def _offset(self, x: Tensor) -> int:
        """Start of x in this worker's row, or the wire's if it lies elsewhere."""
        offset = (x.data_ptr() - self._row.data_ptr()) // self._row.element_size()
        inside = x.device == self._row.device and x.dtype == self._row.dtype and x.is_contiguous() and 0 <= offset < self._wire
        return offset if inside else self._wire

    def _place(self, x: Tensor) -> slice:
        """Where x lies, or is to be put, in everyone's row, in bytes."""
        start = self._offset(x) * self._row.itemsize
        if start + x.nbytes > self._row.nbytes:
            raise ValueError(f"a vector of {x.numel()} numbers does not fit a wire of {self._row.numel() - self._wire}")
        return slice(start, start + x.nbytes)

    def _elsewhere(self, x: Tensor, place: slice) -> bool:
        """Whether x lies where others can't read it, and its place holds a copy."""
        return x.is_cuda or place.start == self._wire * self._row.itemsize

    def _stage(self, x: Tensor) -> slice:
        """Make x readable by the others."""
        place = self._place(x)
        if self._elsewhere(x, place):
            flat = x.detach().contiguous().view(-1).view(torch.uint8)
            if self._pinned is not None:
                flat = self._pinned[: len(flat)].copy_(flat)
            self._bytes[self.rank][place].copy_(flat)
        return place

    def _unstage(self, x: Tensor, place: slice, source: int) -> None:
        """Bring back what now lies at x's place in the row of `source`."""
        if source == self.rank and not self._elsewhere(x, place):
            return
        flat = self._bytes[source][place]
        if self._pinned is not None:
            flat = self._pinned[: len(flat)].copy_(flat)
        x.copy_(flat.view(x.dtype).view(x.shape))


def bytes_by_rank(words: NDArray[Any]) -> list[Tensor]:
    """What each worker has in an array of 8-byte words whose first index is the rank."""
    own = [torch.from_numpy(words[rank : rank + 1]) for rank in range(len(words))]
    return [one.as_strided((one.numel(),), (1,)).view(torch.uint8) for one in own]
