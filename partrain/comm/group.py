"""The `Group` of workers that share an arena, and `Transport`: the waiting, and the traffic between machines.

On one machine no message is sent: each worker reads the rows of the others. `bytes` counts what messages would have cost.
A vector outside its worker's row is first copied to the scratch part of the row. A worker on an accelerator copies through one pinned buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.comm.arena import Arena
from partrain.comm.center import CenterClient, Locks
from partrain.flat import first_non_finite, mean_into, share_into
from partrain.system.accelerator import Accelerator, beside_float64

if TYPE_CHECKING:
    import numpy as np

    from partrain.flat import SparseVector


class NonFinite(Exception):
    """A vector contains NaN or Inf; raised before it is mixed, or, if `mixed`, when a worker pulls the center.

    `offset` and `index` are its position in the worker's row.
    """

    def __init__(self, offset: int, index: int, *, mixed: bool = False) -> None:
        super().__init__(f"non-finite number at {index}")
        self.offset, self.index, self.mixed = offset, index, mixed


class NothingToMix(Exception):
    """All weights of a mean are zero."""


Parts = Callable[[], Sequence[Sequence[Tensor]]]
"""Function that returns pieces of shared memory: bytes by rank, of equal length for all ranks."""


class Mix(Protocol):
    """Function that mixes vectors in this machine's memory: all of them (`whole`), or this worker's share."""

    def __call__(self, *, whole: bool) -> None:
        """Mix."""


class Closing(NamedTuple):
    """Everything that a worker shares with its vector in the only mean of a round, after its last local iteration."""

    numbers: tuple[float, ...]
    state: Tensor | None
    """(m d,): state of the optimizer, averaged together with the vector."""
    weight: float
    """Weight of these moments in their mean."""


class Transport(Locks, Protocol):
    """A worker's way to wait for the others, and to send bytes to other machines.

    Processes spin and sleep; simulated workers run one at a time.
    """

    def clock(self) -> float:
        """Return the worker's time in seconds, real or simulated, without the turns of other workers of its process."""

    def run_clock(self) -> float:
        """Return the run's time in seconds, real or simulated."""

    def begin_round(self, participants: int, *, sits_out: bool) -> None:
        """Learn how many workers train in the round that begins, and whether this one sits it out."""

    def advance_clock(self, first: int, count: int) -> None:
        """Account for `count` local iterations; `first` is the number of this worker's iterations before."""

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has called this and can read the `parts` of all."""

    def start(self, parts: Parts) -> Callable[[], None]:
        """Begin to send `parts`. The function returned does what `barrier` does; until then they must not change."""

    def local_barrier(self) -> None:
        """Return when every worker of this machine has called this. It protects this machine's memory only."""

    def meet(self, parts: Parts, mix: Mix, size: int) -> None:
        """Mix vectors of `size` bytes once every worker can read the `parts` of all. Return when each share is mixed, once."""

    def replicate(self, parts: Parts) -> None:
        """Send `parts` to all other machines, with a barrier. One machine alone does nothing."""

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Overwrite these bytes with the first machine's. One machine alone does nothing."""

    def all_reduce_sum(self, x: Tensor) -> None:
        """Replace x by the sum over all machines, with a local barrier. All workers of a machine share the memory of x."""

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds. The coordinator makes it true; `what` describes it."""

    def free(self) -> AbstractContextManager[None]:
        """Stop the simulated clock meanwhile."""


class ArenaGroup:
    """Group of N workers over the rows of an arena.

    `row`: this worker's row on its own device: the arena's row on the CPU, a copy of the same layout on an accelerator.
    `scratch`: the start of the row's scratch part, for vectors from outside the row.
    """

    def __init__(
        self,
        arena: Arena,
        rank: int,
        row: Tensor,
        rows: Sequence[Tensor],
        scratch: int,
        transport: Transport,
        center: CenterClient | None = None,
        members: range | None = None,
        *,
        exact: bool = True,
    ) -> None:
        """Join the group.

        `members`: the workers of this machine; default: all. `exact`: each machine sums over all workers, not only over its own.
        """
        self.members = members or range(len(rows))
        self.uniform = False
        """True if all workers compute the same bits from the same numbers: same machine, same kind of device."""
        self._exact = exact
        self.arena = arena
        self.rank = rank
        self.size = len(rows)
        self.transport = transport
        self.waited = 0.0
        """Seconds spent waiting for other workers."""
        self.measure = False
        """Request to measure `distance` at the next mean."""
        self.distance = math.nan
        """|x - mean| of this worker's x (d,); NaN if not measured."""
        self.bytes = 0
        """Bytes of the messages this worker sent to the others, or received from the center, since the round began."""
        self._closing: Callable[[], Closing] | None = None
        self.closed: NDArray[np.float64] | None = None
        """The numbers of all workers, by rank, once the round's only mean has closed it."""
        self.center_client = center or CenterClient(arena, rank, row.new_zeros(0, 0, device="cpu"), transport)
        """This worker's access to the center and the inboxes."""
        self.center = self.center_client.vectors
        self._exchanges = 0
        self._row, self._address, self._itemsize = row, row.data_ptr(), row.itemsize
        self._rows = rows
        self._scratch = scratch
        accelerator = Accelerator.of(row.device) if self.size > 1 else None
        self._pinned = accelerator.staging(row.nbytes) if accelerator else None

    def begin(self, closing: Callable[[], Closing] | None = None, *, measure: bool) -> None:
        """Begin a round. `closing`: what this worker adds to the round's only mean."""
        self.measure, self.distance, self.bytes = measure, math.nan, 0
        self._closing, self.closed = closing, None
        self.center_client.begin()

    def barrier(self, parts: Parts | None = None) -> None:
        if self.size > 1:
            began = self.transport.clock()
            self.transport.barrier(parts)
            self.waited += self.transport.clock() - began

    def _local_barrier(self) -> None:
        """Wait until all workers of this machine have finished with its shared memory: it may change again, or be read."""
        began = self.transport.clock()
        self.transport.local_barrier()
        self.waited += self.transport.clock() - began

    def all_reduce_mean(self, x: Tensor, weight: float = 1.0) -> None:
        self._check(x)
        if self.size == 1:
            return
        if x.dtype != self._row.dtype:
            raise TypeError(f"a vector of {x.dtype} in a group of {self._row.dtype}")
        of_params = self._offset(x) == 0  # parameters, not gradients
        before = x.clone() if self.measure and of_params else None
        closing = self._closing() if self._closing and not self.measure else None
        self._closing = None  # the moments of a measured round follow in a separate mean
        vectors = [x] if closing is None or closing.state is None else [x, closing.state]
        for vector in vectors[1:]:
            self._check(vector)
        spans = [self._publish(vector) for vector in vectors]
        self.arena.weights[self.rank] = (weight, closing.weight if closing else 0.0)
        board = self._post(closing.numbers) if closing else None
        mix = self._mean_of_all if self._exact else self._mean_of_machines
        boards = [self.arena.weights] if board is None else [self.arena.weights, board]
        mix(vectors, spans, lambda: [bytes_by_rank(words) for words in boards])
        self.bytes += sum(vector.nbytes for vector in vectors)
        if closing and board is not None:
            self.closed = board[:, : len(closing.numbers)].copy()
        if before is not None:
            self.distance, self.measure = _norm(before.sub_(x)), False

    def _mean_of_all(self, vectors: list[Tensor], spans: list[slice], numbers: Parts) -> None:
        """Sum the vectors of all workers on each machine: the bits do not depend on the number of machines."""
        mixing = 0.0

        def mix(*, whole: bool) -> None:
            nonlocal mixing
            began = self.transport.clock()
            for span, weights in [(span, self._all_weights(column)) for column, span in enumerate(spans)]:
                part = self._own_part(span, whole=whole)
                mean_into(self._rows, weights, part=part)
            mixing = self.transport.clock() - began

        began = self.transport.clock()
        size = sum(vector.nbytes for vector in vectors)
        self.transport.meet(lambda: [*map(self._at, spans), *numbers()], mix, size)
        self.waited += self.transport.clock() - began - mixing
        for vector, span in zip(vectors, spans, strict=True):
            self._read_back(vector, span, self.rank)

    def _mean_of_machines(self, vectors: list[Tensor], spans: list[slice], numbers: Parts) -> None:
        """Sum the workers of each machine into its first row, in the type of the vectors, then send only these sums."""
        self.barrier(numbers)
        first, own = self.members.start, slice(self.members.start, self.members.stop)
        for column, (vector, span) in enumerate(zip(vectors, spans, strict=True)):
            part, weights = self._own_part(span), self._all_weights(column)
            share_into(self._rows[first], self._rows[own], weights[own], sum(weights), part=part)
            began = self.transport.clock()
            self.transport.all_reduce_sum(_bytes(self._rows[first])[span].view(vector.dtype))
            self.waited += self.transport.clock() - began
            self._read_back(vector, span, first)
        self._local_barrier()

    def _all_weights(self, column: int) -> list[float]:
        """Return the weights of all workers in a mean. Raise NothingToMix if all are zero."""
        return some_weight(self.arena.weights[:, column].tolist())

    def _own_part(self, span: slice, *, whole: bool = False) -> slice:
        """Return the part of a span, in numbers, that this worker sums for its machine, or the whole span."""
        start, stop = span.start // self._itemsize, span.stop // self._itemsize
        index, count = (0, 1) if whole else (self.rank - self.members.start, len(self.members))
        return slice(start + (stop - start) * index // count, start + (stop - start) * (index + 1) // count)

    def compare(self, x: Tensor) -> None:
        """Measure the distance of x from the mean of all workers. x does not change, and the bytes do not count as sent."""
        mean, sent, self.measure = x.clone(), self.bytes, False
        self.all_reduce_mean(mean)
        self.bytes = sent
        self.distance = _norm(mean.sub_(x))

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return self.exchange(x, range(self.size))

    def exchange(self, x: Tensor, peers: Sequence[int]) -> list[Tensor]:
        self.bytes += x.nbytes * sum(peer != self.rank for peer in peers)
        return self._read(x, peers)

    def start_exchange(self, x: Tensor, peers: Sequence[int]) -> Callable[[], list[Tensor]]:
        self._check(x)
        self.bytes += x.nbytes * sum(peer != self.rank for peer in peers)
        if self.size == 1:
            copies = [x.clone() for _ in peers]
            return lambda: copies
        span = self._publish(x, apart=True)
        finish = self.transport.start(lambda: [self._at(span)])

        def arrived() -> list[Tensor]:
            began = self.transport.clock()
            finish()
            self.waited += self.transport.clock() - began
            return self._copies(x, span, peers)

        return arrived

    def gather(self, message: Tensor) -> list[Tensor]:
        return self._messages(message, range(self.size))[0]

    def gather_once(self, message: Tensor, convert: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Return the converted messages (bytes,) of all workers, by rank. One worker of each process reads and converts them for all of its
        workers, which must not change them: in a process of N workers, each with copies of its own, these would be N^2."""
        lengths = self.board(message.numel())[:, 0].astype(int).tolist()
        padded = self._padded(message, max(lengths))
        capacity, read = (self._row.numel() - self._scratch) * self._itemsize // 8 * 8, self.arena.read
        whole: list[Tensor] = []
        for number, part in enumerate(torch.split(padded, capacity)):
            span = self._show(part)
            if number not in read:
                read[number] = [_bytes(row)[span].clone() for row in self._rows]
            if (number + 1) * capacity >= len(padded):
                if -1 not in read:
                    columns = zip(*(read[earlier] for earlier in range(number + 1)), strict=True)
                    read[-1] = [convert(torch.cat(column)[:length]) for column, length in zip(columns, lengths, strict=True)]
                whole = list(read[-1])
            self._local_barrier()
        read.clear()  # before the next meeting, where all arrive before any reads
        return whole

    def reduce_messages(
        self, message: Tensor, read: Callable[[Tensor, int], SparseVector], d: int, weight: float | None = None
    ) -> Tensor:
        span = slice(self._scratch, self._scratch + d)
        mine = range(self.rank - self.members.start, self.size, len(self.members))
        messages, weights = self._messages(message, mine, 1.0 if weight is None else weight, exclusive=True)
        for peer, peer_message in zip(mine, messages, strict=True):
            read(peer_message, d).put(
                self._rows[peer][span]
            )  # overwrites the message, which only this worker of the machine reads
        some_weight(weights)
        self._local_barrier()
        part = self._own_part(slice(span.start * self._itemsize, span.stop * self._itemsize))
        mean_into(self._rows, weights, 1.0 if weight is None else None, part=part)
        self._local_barrier()
        return self._rows[self.rank][span].to(self._row.device, copy=True)

    def _padded(self, message: Tensor, longest: int) -> Tensor:
        """Count a message (bytes,) as sent, and pad it to the length of the longest one."""
        self.bytes += message.numel() * (self.size > 1)
        padded = message.new_zeros(-(-longest // 8) * 8)  # a multiple of every itemsize; a message has at least 1 byte
        padded[: message.numel()] = message
        return padded

    def _messages(
        self, message: Tensor, peers: Sequence[int], weight: float = 1.0, *, exclusive: bool = False
    ) -> tuple[list[Tensor], list[float]]:
        """Return the messages of some workers, and the weights of all. `exclusive`: see `_read`."""
        headers = self.scores(message.numel(), weight)
        lengths = [int(length) for length, _ in headers]
        padded = self._padded(message, max(lengths))
        got = [row[: lengths[peer]] for peer, row in zip(peers, self._read(padded, peers, exclusive=exclusive), strict=True)]
        return got, [header for _, header in headers]

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        if self.size == 1:
            return
        self.bytes += x.nbytes if self.rank == source else 0
        span = self._publish(x) if self.rank == source else self._span(x)
        self.barrier(lambda: [self._at(span)])
        if self.rank != source:
            self._read_back(x, span, source)
        self._local_barrier()

    def scores(self, *values: float) -> list[list[float]]:
        return self.board(*values).tolist()  # type: ignore[no-any-return]

    def board(self, *values: float) -> NDArray[np.float64]:
        """Gather a few numbers of every worker (N, values), by rank, until the exchange after the next one.

        Two boards take turns, so no worker writes to one that another still reads.
        """
        board = self._post(values)
        self.barrier(lambda: [bytes_by_rank(board)])
        return board[:, : len(values)]

    def _post(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Write a few numbers of this worker to the next board (N, SCORES), which all can read after the next barrier."""
        board: NDArray[np.float64] = self.arena.scores[self._exchanges % 2]
        self._exchanges += 1
        board[self.rank, : len(values)] = values
        return board

    # Asynchronous operations

    @property
    def staleness(self) -> float:
        """Mean staleness of the updates pushed since the round began; NaN without updates."""
        stale = self.center_client.staleness
        return sum(stale) / len(stale) if stale else math.nan

    def claim(self, visits: int) -> bool:
        return self.center_client.claim(visits)

    def pull(self, fresh: int | None = None) -> Tensor:
        if fresh is not None:
            began = self.transport.clock()
            self.center_client.wait_for_slowest(fresh)
            self.waited += self.transport.clock() - began
        center = self.center_client.pull().to(self._row.device)
        self.bytes += center.nbytes
        if (bad := first_non_finite(center)) is not None:  # workers check what they push
            raise NonFinite(0, bad, mixed=True)
        return center

    def push(self, delta: Tensor, base: Tensor | None = None, lr: float = 0.0) -> int:
        self._check(delta)
        self.bytes += delta.nbytes + (0 if base is None else base.nbytes)
        return self.center_client.push(delta.cpu(), None if base is None else base.cpu(), lr)

    def send(self, x: Tensor, share: float, peer: int) -> None:
        self._check(x)
        self.bytes += x.nbytes
        self.center_client.send(x.cpu(), share, peer)

    def receive(self) -> tuple[Tensor, float]:
        total, share = self.center_client.receive()
        return total.to(self._row.device), share

    def _check(self, x: Tensor) -> None:
        """Raise NonFinite before x is mixed. Parameters were checked by the worker that trained them."""
        offset = self._offset(x)
        bad = first_non_finite(x) if offset else None
        if bad is not None:
            raise NonFinite(offset, bad)

    def _read(self, x: Tensor, peers: Sequence[int], *, exclusive: bool = False) -> list[Tensor]:
        """Copy the x of some workers. `exclusive`: no other worker of this machine reads these, so no barrier follows."""
        if self.size == 1:
            return [x.clone() for _ in peers]
        capacity = (self._row.numel() - self._scratch) * self._itemsize
        if x.nbytes > capacity and self._offset(x) == self._scratch:
            parts = [self._read(part, peers) for part in torch.split(x.reshape(-1), capacity // x.itemsize)]
            return [torch.cat(column).view(x.shape) for column in zip(*parts, strict=True)]
        return self._copies(x, self._show(x), peers, exclusive=exclusive)

    def _copies(self, x: Tensor, span: slice, peers: Sequence[int], *, exclusive: bool = False) -> list[Tensor]:
        """Copy what some workers have published of x."""
        gathered = [_bytes(self._rows[peer])[span].clone().view(x.dtype).view(x.shape).to(x.device) for peer in peers]
        if not exclusive:
            self._local_barrier()
        return gathered

    def _at(self, span: slice) -> list[Tensor]:
        """Return the bytes of a span in the rows of all workers."""
        return [_bytes(row)[span] for row in self._rows]

    def _offset(self, x: Tensor) -> int:
        """Return the start of x in this worker's row, or of the scratch part if x lies outside the row."""
        offset = (x.data_ptr() - self._address) // self._itemsize
        inside = x.device == self._row.device and x.dtype == self._row.dtype and x.is_contiguous() and 0 <= offset < self._scratch
        return offset if inside else self._scratch

    def _span(self, x: Tensor, *, apart: bool = False) -> slice:
        """Return the span of x, or of its copy in the scratch part, in bytes: the same in the rows of all workers."""
        start = (self._scratch if apart else self._offset(x)) * self._itemsize
        if start + x.nbytes > self._row.nbytes:
            raise ValueError(
                f"a vector of {x.numel()} numbers does not fit the scratch part of {self._row.numel() - self._scratch}"
            )
        return slice(start, start + x.nbytes)

    def _needs_copy(self, x: Tensor, span: slice) -> bool:
        """Return whether the span holds a copy of x because the other workers cannot read x itself."""
        return not x.is_cpu or span.start == self._scratch * self._itemsize

    def _publish(self, x: Tensor, *, apart: bool = False) -> slice:
        """Make x readable for the other workers and return its span. `apart`: copy it because x itself is about to change."""
        span = self._span(x, apart=apart)
        if self._needs_copy(x, span):
            flat = x.detach().contiguous().view(-1).view(torch.uint8)
            if self._pinned is not None:
                flat = self._pinned[: len(flat)].copy_(flat)
            _bytes(self._rows[self.rank])[span].copy_(flat)
        return span

    def _show(self, x: Tensor) -> slice:
        """Publish x, and return its span once all workers can read it."""
        span = self._publish(x)
        self.barrier(lambda: [self._at(span)])
        return span

    def _read_back(self, x: Tensor, span: slice, source: int) -> None:
        """Copy the span of x in the row of `source` into x."""
        if source == self.rank and not self._needs_copy(x, span):
            return
        flat = _bytes(self._rows[source])[span]
        if self._pinned is not None:
            flat = self._pinned[: len(flat)].copy_(flat)
        x.copy_(flat.view(x.dtype).view(x.shape))


def some_weight(weights: list[float]) -> list[float]:
    """Return the weights of a mean. Raise NothingToMix if all are zero."""
    if not any(weights):
        raise NothingToMix
    return weights


def bytes_by_rank(words: NDArray[Any]) -> list[Tensor]:
    """Split an array of 8-byte words, whose first index is the rank, into the bytes of each worker."""
    own = [torch.from_numpy(words[rank : rank + 1]) for rank in range(len(words))]
    return [tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8) for tensor in own]


def _bytes(x: Tensor) -> Tensor:
    return x.view(torch.uint8)


def _norm(x: Tensor) -> float:
    """Return the length of a vector (d,), with its squares added in float64."""
    return float(torch.linalg.vector_norm(beside_float64(x), dtype=torch.float64))
