"""Rounds that run again after a loss or in a resumed run: their caps are repeated, and their numbers compared."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from partrain.comm.arena import RING
from partrain.launch.context import RunContext
from partrain.record.events import BalanceEvent
from partrain.record.round_record import RoundRecord


class RepeatedRounds:
    """The numbers of the newest rounds, which the same rounds must have again."""

    def __init__(self, recorded: Sequence[tuple[int, list[float]]], context: RunContext) -> None:
        """Begin with the `compared` numbers of rounds that an earlier session recorded, by round."""
        self._newest: deque[tuple[int, list[float]]] = deque(recorded, maxlen=RING)
        self._context = context

    def add(self, number: int, records: Sequence[RoundRecord]) -> None:
        """Note a round that ran for the first time."""
        self._newest.append((number, compared(records)))

    def forget(self) -> None:
        """Forget all rounds: under an asynchronous rule they do not have the same numbers again."""
        self._newest.clear()

    def compare(self, number: int, records: Sequence[RoundRecord]) -> None:
        """Warn if a repeated round trains differently from before. Rounds are equal unless user code changed."""
        while self._newest and self._newest[0][0] < number:
            self._newest.popleft()
        if self._newest and self._newest[0][0] == number and _differ(self._newest[0][1], compared(records)):
            self._newest.clear()
            self._context.warn(
                f"round {number} gave other numbers when it ran again: user code keeps a value that no checkpoint holds, or draws "
                "from a generator that partrain does not seed"
            )


class MeasuredCaps:
    """The caps on each worker's iterations since the newest copy of the state, if measured seconds set any."""

    def __init__(self, iterations: Sequence[int], *, balances: bool) -> None:
        """Begin with the planned iterations of each worker. `balances`: report each change (`[partition] balance`)."""
        self._iterations, self._balances = list(iterations), balances
        self._caps: dict[int, list[int]] = {}

    def add(self, t: float, number: int, records: Sequence[RoundRecord]) -> BalanceEvent | None:
        """Note the caps of a round; return an event if they are new and reported."""
        self._caps[number] = now = [int(record.cap) for record in records]
        if not self._balances or now == self._iterations:
            return None
        self._iterations = now
        return BalanceEvent(t=t, round=number, iterations=now)

    def after(self, number: int) -> list[list[int]]:
        """Return the caps of the rounds after a round: by round, then by rank."""
        return [caps for other, caps in sorted(self._caps.items()) if other > number]

    def forget(self, number: int | None = None) -> None:
        """Forget the caps of rounds up to this one, after which a copy of the state exists; None: of all rounds."""
        self._caps = {} if number is None else {other: caps for other, caps in self._caps.items() if other > number}


def compared(records: Sequence[RoundRecord]) -> list[float]:
    """List the numbers that compare two runs of a round: items and loss of each worker, and the judged loss or NaN."""
    return [number for record in records for number in (record.items, record.loss)] + [records[0].judged_loss]


def _differ(before: Sequence[float], now: Sequence[float]) -> bool:
    """Return whether two runs of a round differ in a number that both have: the last round of a run may be judged only in that run."""
    pairs = zip(before, now, strict=True)
    return any(first != second for first, second in pairs if not math.isnan(first) and not math.isnan(second))
