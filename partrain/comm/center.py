"""What belongs to all workers under an asynchronous rule: the center variable, the round's visits, messages under way.

A visit to the center is exclusive, slice by slice, and whoever pushes also does the server's work there: the rule's `merge`.
So the center needs no process of its own on one machine, and nobody waits for one. `comm.remote` is for several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from partrain.comm.arena import Arena
from partrain.protocols_async import Center, Update

CLAIMS, INBOX, SLICE = 0, 1, 1 << 12
"""Places to be alone at: the round's visits, the inbox of a worker, a slice of the center."""
LEFT = 1 << 32
"""More visits than a round has: so many are those of a worker that has none left, and by so many counters go on with each round."""

Merge = Callable[[Center, Update], None]


class Turns(Protocol):
    """How workers take turns at what belongs to all."""

    def alone(self, place: int) -> AbstractContextManager[None]:
        """While this lasts, no other worker is alone at this place."""

    def until_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds, which other workers bring about."""

    def message(self) -> None:
        """A message goes to the center or to another worker, or comes from there: it takes its time."""


class CenterClient:
    """One worker's access to `vectors` (m, d) and the counters beside them, and to where messages to each worker add up."""

    def __init__(
        self,
        arena: Arena,
        rank: int,
        vectors: Tensor,
        waiting: Turns,
        merge: Merge | None = None,
        slices: int = 1,
        inboxes: Sequence[Tensor] = (),
    ) -> None:
        """`inboxes`: by rank, as long as a message at least."""
        self.vectors = vectors
        self.staleness: list[int] = []
        """Of this round's updates."""
        self._arena, self._rank, self._waiting, self._merge, self._inboxes = arena, rank, waiting, merge, inboxes
        d = vectors.shape[1]
        self._slices = [slice(d * number // slices, d * (number + 1) // slices) for number in range(slices)]
        self._seen = [0] * slices
        self._rounds = -1
        self._numbers = torch.from_numpy(arena.numbers)

    def tensors(self) -> dict[str, Tensor]:
        """What of it belongs in a checkpoint, by name; nothing where the rule has no center."""
        if not len(self.vectors):
            return {}
        versions = torch.from_numpy(self._arena.versions)
        return {"center": self.vectors, "versions": versions, "numbers": self._numbers}

    def of_slice(self, number: int) -> list[Tensor]:
        """The same of one slice: its vectors (d',), its version (1,), the rule's numbers (8,)."""
        versions = torch.from_numpy(self._arena.versions)
        return [*self.vectors[:, self._slices[number]], versions[number : number + 1], self._numbers[number]]

    def publish(self) -> None:
        """What worker 0 has put into `tensors` counts, from the next meeting of all on."""

    def fetch(self) -> None:
        """Let worker 0 find in `tensors` what counts; at a meeting of all."""

    def leave(self) -> None:
        """This worker needs it no longer."""

    def begin(self) -> None:
        """A round begins. Counters run on from round to round, so that none is ever set back while another looks."""
        self._rounds += 1
        self.staleness = []
        self._arena.visits[self._rank] = self._rounds * LEFT

    def claim(self, visits: int) -> bool:
        """Take one of the round's visits."""
        self._waiting.message()
        with self._waiting.alone(CLAIMS):
            taken = max(int(self._arena.claims[0]), self._rounds * LEFT)
            granted = taken < self._rounds * LEFT + visits
            self._arena.claims[0] = taken + granted
        if granted:
            self._arena.visits[self._rank] += 1
        else:
            self._arena.visits[self._rank] = (self._rounds + 1) * LEFT
        return granted

    def keep_step(self, fresh: int) -> None:
        """Wait until no worker with visits left has claimed so many fewer than this one."""
        visits = self._arena.visits
        mine = int(visits[self._rank])
        self._waiting.until_peers(lambda: mine - int(visits.min()) <= fresh, "slower workers")

    def pull(self) -> Tensor:
        """A copy of the center, and a note of its version."""
        self._waiting.message()
        copy = torch.empty_like(self.vectors[0])
        for number, part in enumerate(self._slices):
            with self._waiting.alone(SLICE + number):
                copy[part] = self.vectors[0, part]
                self._seen[number] = int(self._arena.versions[number])
        return copy

    def push(self, delta: Tensor, base: Tensor | None, lr: float) -> int:
        """Merge an update into the center, each worker beginning with another slice; the largest staleness."""
        assert self._merge is not None
        self._waiting.message()
        stale, count, versions = 0, len(self._slices), self._arena.versions
        for turn in range(count):
            number = (self._rank + turn) % count
            part = self._slices[number]
            with self._waiting.alone(SLICE + number):
                version = int(versions[number])
                behind = version - self._seen[number]
                center = Center(self.vectors[:, part], self._numbers[number], version, self._arena.size)
                self._merge(center, Update(delta[part], None if base is None else base[part], lr, behind))
                versions[number] = center.version
            stale = max(stale, behind)
        self.staleness.append(stale)
        return stale

    def send(self, x: Tensor, share: float, peer: int) -> None:
        """Add share * x to what waits for a worker: messages add up, so an inbox never overflows."""
        self._waiting.message()
        with self._waiting.alone(INBOX + peer):
            waiting = self._inboxes[peer][: len(x)]
            if self._arena.shares[peer] == 0:
                torch.mul(x, share, out=waiting)
            else:
                waiting.add_(x, alpha=share)
            self._arena.shares[peer] += share

    def receive(self) -> tuple[Tensor, float]:
        """Sum of share * x of what has come, and of the shares."""
        inbox = self._inboxes[self._rank]
        with self._waiting.alone(INBOX + self._rank):
            share = float(self._arena.shares[self._rank])
            total = inbox.clone() if share else inbox[:0].clone()
            self._arena.shares[self._rank] = 0
        return total, share
