"""Iterations by speed: how a slow worker's visits take no longer than a fast one's (`paced` of the rule `async`)."""

from __future__ import annotations

from dataclasses import dataclass

from partrain.protocols import Group, Worker


@dataclass
class Speed:
    """The state of a paced worker: measured times, which no replay would give again, end here."""

    speed: float
    """v_i: local iterations a second in the round before; 0 before the first."""

    def iterations(self, worker: Worker, group: Group) -> int:
        """H_i = max(1, floor(H v_i / max v)), by what all workers did in the round before."""
        speeds = [speed for (speed,) in group.scores(self.speed)]
        relative = self.speed / max(speeds) if self.speed else 1.0
        return max(1, int(worker.iterations * relative + 1e-4))  # equal speeds differ in the last digits

    def note(self, worker: Worker) -> None:
        """The round is over; a worker that did nothing in it keeps its speed."""
        if worker.done:
            self.speed = float(f"{worker.done / worker.seconds:.6g}")  # further digits are noise of the clock
