"""State that all workers share under an asynchronous rule: the center variable, the round's visits, messages in transit.

A worker locks one slice of the center at a time. A worker that pushes also does the server's work there: the rule's `merge`.
So on one machine the center needs no process of its own. `comm.center_server` is for several machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from partrain.comm.arena import Arena
from partrain.protocols.asynchronous import Center, Update

CLAIMS, INBOX, SLICE = 0, 1, 1 << 12
"""Indices of locks: the round's visits; + rank: the inbox of a worker; + number: a slice of the center."""
LEFT = 1 << 32
"""More visits than a round has. Each round counts its visits from the next multiple; a worker without visits left is set to it."""

Merge = Callable[[Center, Update], None]


class Locks(Protocol):
    """Mutual exclusion between workers."""

    def lock(self, index: int) -> AbstractContextManager[None]:
        """Hold the lock of this index."""

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds. Other workers make it true."""

    def message(self, size: int = 0, *, central: bool = True) -> None:
        """Account for one message of `size` bytes to or from the center, or another worker. It may take simulated time."""


class CenterClient:
    """One worker's access to the center, `vectors` (m, d) with their counters, and to the workers' inboxes, which add up messages."""

    def __init__(
        self,
        arena: Arena,
        rank: int,
        vectors: Tensor,
        waiting: Locks,
        merge: Merge | None = None,
        slices: int = 1,
        inboxes: Sequence[Tensor] = (),
    ) -> None:
        """Open the center of this arena. `inboxes`: by rank, each at least as long as a message."""
        self.vectors = vectors
        self.staleness: list[int] = []
        """Staleness of this round's updates."""
        self._arena, self._rank, self._transport, self._merge, self._inboxes = arena, rank, waiting, merge, inboxes
        d = vectors.shape[1]
        self._slices = [slice(d * number // slices, d * (number + 1) // slices) for number in range(slices)]
        self._seen = [0] * slices
        self._rounds = -1
        self._numbers = torch.from_numpy(arena.numbers)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors for a checkpoint, by name; none if the rule has no center."""
        if not len(self.vectors):
            return {}
        versions = torch.from_numpy(self._arena.versions)
        return {"center": self.vectors, "versions": versions, "numbers": self._numbers}

    def of_slice(self, number: int) -> list[Tensor]:
        """Return the tensors of one slice: its vectors (d',), its version (1,), the rule's numbers (8,)."""
        versions = torch.from_numpy(self._arena.versions)
        return [*self.vectors[:, self._slices[number]], versions[number : number + 1], self._numbers[number]]

    def push_state(self) -> None:
        """Publish the `tensors` of worker 0 as the center's state. It holds after the next barrier."""

    def pull_state(self) -> None:
        """Fill the `tensors` of worker 0 with the center's state. All workers are between two barriers."""

    def leave(self) -> None:
        """End this worker's access."""

    def begin(self) -> None:
        """Begin a round. Counters only grow, so a worker never sees a counter fall."""
        self._rounds += 1
        self.staleness = []
        self._arena.visits[self._rank] = self._rounds * LEFT

    def claim(self, visits: int) -> bool:
        """Take one of the round's visits; False if none is left."""
        self._transport.message()
        with self._transport.lock(CLAIMS):
            taken = max(int(self._arena.claims[0]), self._rounds * LEFT)
            granted = taken < self._rounds * LEFT + visits
            self._arena.claims[0] = taken + granted
        if granted:
            self._arena.visits[self._rank] += 1
        else:
            self._arena.visits[self._rank] = (self._rounds + 1) * LEFT
        return granted

    def wait_for_slowest(self, fresh: int) -> None:
        """Wait until this worker is at most `fresh` visits ahead of every worker that still has visits."""
        visits = self._arena.visits
        mine = int(visits[self._rank])
        self._transport.wait_for_peers(lambda: mine - int(visits.min()) <= fresh, "slower workers")

    def pull(self) -> Tensor:
        """Copy the center and remember its version."""
        self._transport.message(self.vectors[0].nbytes)
        copy = torch.empty_like(self.vectors[0])
        for number, part in enumerate(self._slices):
            with self._transport.lock(SLICE + number):
                copy[part] = self.vectors[0, part]
                self._seen[number] = int(self._arena.versions[number])
        return copy

    def push(self, delta: Tensor, base: Tensor | None, lr: float) -> int:
        """Merge an update into the center and return its largest staleness. Each worker starts at another slice."""
        assert self._merge is not None
        self._transport.message(delta.nbytes + (0 if base is None else base.nbytes))
        stale, count, versions = 0, len(self._slices), self._arena.versions
        for offset in range(count):
            number = (self._rank + offset) % count
            part = self._slices[number]
            with self._transport.lock(SLICE + number):
                version = int(versions[number])
                behind = version - self._seen[number]
                center = Center(self.vectors[:, part], self._numbers[number], version, self._arena.size)
                self._merge(center, Update(delta[part], None if base is None else base[part], lr, behind))
                versions[number] = center.version
            stale = max(stale, behind)
        self.staleness.append(stale)
        return stale

    def send(self, x: Tensor, share: float, peer: int) -> None:
        """Add share * x to a worker's inbox. Messages add up, so an inbox never overflows."""
        self._transport.message(x.nbytes, central=False)
        with self._transport.lock(INBOX + peer):
            inbox = self._inboxes[peer][: len(x)]
            if self._arena.shares[peer] == 0:
                torch.mul(x, share, out=inbox)
            else:
                inbox.add_(x, alpha=share)
            self._arena.shares[peer] += share

    def receive(self) -> tuple[Tensor, float]:
        """Empty this worker's inbox. Return the sum of share * x over its messages and the sum of the shares."""
        inbox = self._inboxes[self._rank]
        with self._transport.lock(INBOX + self._rank):
            share = float(self._arena.shares[self._rank])
            total = inbox.clone() if share else inbox[:0].clone()
            self._arena.shares[self._rank] = 0
        return total, share
