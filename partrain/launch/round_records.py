"""The workers' records of each round, read from the arena's ring: emitted as events, kept as rows of the history."""

from __future__ import annotations

import math
import time

from partrain.comm.arena import RING, Arena
from partrain.display.events import JudgementEvent, RoundEvent
from partrain.launch.context import RunContext
from partrain.records import RoundRecord, finite
from partrain.training.stop import Progress


class RoundRecords:
    """The rounds that all workers have finished."""

    def __init__(
        self, arena: Arena, progress: Progress, elapsed: float, judge: str, judge_every: int, context: RunContext
    ) -> None:
        """Read the ring of an arena.

        Args:
            arena: The arena, which holds the ring of records.
            progress: The run's progress, which this object keeps up to date.
            elapsed: Training seconds before this session.
            judge: "mixed" or "any-worker".
            judge_every: Rounds between two regular evaluations.
            context: Gets the events.
        """
        self._arena, self._elapsed, self._judge, self._judge_every = arena, elapsed, judge, judge_every
        self._context = context
        self.progress = progress
        self.newest = progress.round
        self.rows: list[tuple[float, ...]] = []
        """Rows of the history that the checkpoint writer does not have yet."""
        self.seconds = elapsed
        """Training seconds up to the newest round."""
        self.pace = 0.0
        """Seconds of the newest round."""
        self._items = progress.item_iterations
        arena.put("drained", self.newest)

    def drain(self) -> None:
        """Read the records of rounds that all workers have finished."""
        while True:
            number = self.newest + 1
            rows = self._arena.ring[number % RING].tolist()
            if any(row[0] != number for row in rows):
                return
            records, t = [RoundRecord.of(row) for row in rows], time.time()
            for rank, record in enumerate(records):
                record.seconds += self._elapsed
                self._items += record.items
                self._context.emit(RoundEvent(t=t, rank=rank, record=record))
            self._close_round(t, records)
            self.newest = number
            self._arena.put("drained", number)

    def _close_round(self, t: float, records: list[RoundRecord]) -> None:
        """Add a row to the history, and emit the judgement if there was one."""
        first = records[0]
        trained = [record for record in records if record.items]  # an idle worker has no loss
        items = math.fsum(record.items for record in trained)
        loss = math.fsum(record.loss * record.items for record in trained) / max(items, 1)
        before, self.seconds = self.seconds, first.seconds
        self.pace = self.seconds - before
        self.rows.append((first.round, self._items, loss, first.lr, first.judged_loss, first.accuracy))
        self.progress.round, self.progress.item_iterations = first.round, self._items
        if math.isnan(first.judged_loss) and math.isnan(first.accuracy):
            return
        regular = self.progress.round % self._judge_every == 0
        best = self.progress.judge(first.judged_loss, finite(first.accuracy), regular)
        metrics = {} if self.progress.accuracy is None else {"accuracy": self.progress.accuracy}
        self._context.emit(
            JudgementEvent(
                t=t,
                judge=self._judge,
                round=self.progress.round,
                item_iterations=self._items,
                seconds=self.seconds,
                loss=finite(first.judged_loss),
                metrics=metrics,
                best=best,
                regular=regular,
            )
        )
