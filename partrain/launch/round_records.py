"""What the workers record of each round, read from the arena's ring: told as events, and kept as rows of the history."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from partrain.comm.arena import RECORD, RING, Arena
from partrain.train.stop import Progress

EventSink = Callable[[dict[str, Any]], None]
"""Takes an event, see `record`."""


class RoundRecords:
    """The rounds that all workers have finished."""

    def __init__(self, arena: Arena, progress: Progress, elapsed: float, judge: str, judge_every: int, hear: EventSink) -> None:
        """`progress` is kept up to date; `elapsed`: training seconds before; `judge`: who is judged, each `judge_every` rounds."""
        self._arena, self._elapsed, self._judge, self._judge_every, self._hear = arena, elapsed, judge, judge_every, hear
        self.progress = progress
        self.newest = progress.round
        self.rows: list[tuple[float, ...]] = []
        """Of the history, not yet given to the writer: as its columns are."""
        self.seconds = elapsed
        """Training seconds up to the newest."""
        self.pace = 0.0
        """Seconds that the newest took."""
        self._items = progress.item_iterations
        arena.put("drained", self.newest)

    def drain(self) -> None:
        """Read the records of rounds that all workers have finished."""
        while True:
            number = self.newest + 1
            lines = self._arena.ring[number % RING].tolist()
            if any(line[0] != number for line in lines):
                return
            records = [dict(zip(RECORD, line, strict=True)) for line in lines]
            t = time.time()
            for rank, record in enumerate(records):
                self._tell_round(t, rank, record)
            self._close_round(t, records)
            self.newest = number
            self._arena.put("drained", number)

    def _tell_round(self, t: float, rank: int, record: dict[str, float]) -> None:
        self._items += int(record["items"])
        self._hear(
            {
                "event": "round",
                "t": t,
                "round": int(record["round"]),
                "rank": rank,
                "iterations": int(record["iterations"]),
                "items": int(record["items"]),
                "loss": finite(record["loss"]),
                "lr": record["lr"],
                "compute": record["compute"],
                "wait": record["wait"],
                "mix": record["mix"],
                "distance": finite(record["distance"]),
                "bytes": int(record["bytes"]),
                "staleness": finite(record["staleness"]),
                "seconds": self._elapsed + record["seconds"],
            }
        )

    def _close_round(self, t: float, records: list[dict[str, float]]) -> None:
        """The history's row, and the judgement if there was one."""
        first = records[0]
        trained = [record for record in records if record["items"]]  # who has not trained has no loss
        items = math.fsum(record["items"] for record in trained)
        loss = math.fsum(record["loss"] * record["items"] for record in trained) / max(items, 1)
        before, self.seconds = self.seconds, self._elapsed + first["seconds"]
        self.pace = self.seconds - before
        row = (first["round"], self._items, loss, first["lr"], first["judged_loss"], first["accuracy"])
        self.rows.append(row)
        self.progress.round, self.progress.item_iterations = int(first["round"]), self._items
        if math.isnan(first["judged_loss"]) and math.isnan(first["accuracy"]):
            return
        regular = self.progress.round % self._judge_every == 0
        best = self.progress.judge(first["judged_loss"], finite(first["accuracy"]), regular)
        metrics = {} if self.progress.accuracy is None else {"accuracy": self.progress.accuracy}
        self._hear(
            {
                "event": "judgement",
                "t": t,
                "judge": self._judge,
                "round": self.progress.round,
                "item_iterations": self._items,
                "seconds": self.seconds,
                "loss": finite(first["judged_loss"]),
                "metrics": metrics,
                "best": best,
                "regular": regular,
            }
        )


def finite(value: float) -> float | None:
    """The number, if it is one."""
    return value if math.isfinite(value) else None
