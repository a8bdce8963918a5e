"""The plan of a round: the workers that train in it, their local iterations and items, and the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from partrain.optim import AnyOptimizer
from partrain.protocols import Rule
from partrain.training.batches import Batches
from partrain.training.learning_rate import LearningRate
from partrain.training.participation import Participation
from partrain.training.round_caps import RoundCaps
from partrain.training.stream_batches import StreamBatches


class RoundPlan:
    """The plan of the current round, as one worker sees it. All workers derive the same one, without communication."""

    def __init__(
        self,
        rank: int,
        rule: Rule,
        optimizer: AnyOptimizer,
        batches: Batches | StreamBatches,
        planned_items: Sequence[int],
        seed: int,
        horizon: int | None = None,
        participation: Participation | None = None,
    ) -> None:
        """Plan the rounds of worker `rank`.

        Args:
            rank: The worker's rank, from 0.
            rule: The sync rule, which draws the workers of a round and scales the learning rate.
            optimizer: The `[optimizer]` table, which holds the learning rate's schedule.
            batches: The worker's partition, cut into batches in its order, or its shard of a stream.
            planned_items: Item-iterations of each worker in a full round, by rank.
            seed: The job's seed.
            horizon: Item-iterations of all workers over which the learning rate's schedule runs.
            participation: The draw of the workers that train in a round. Default: the rule's draw, by the planned items.
        """
        self.rank, self.size, self.batches = rank, len(planned_items), batches
        self.round = 0
        """Number of the round, from 1; 0 before the first."""
        self.participants: Sequence[int] = range(self.size)
        """Ranks of the workers that train in the round, ascending."""
        self.items = planned_items
        """Item-iterations of each worker in the round, by rank, if it trains."""
        self.round_caps: RoundCaps | None = None
        """The rule that caps the iterations of each round, if there is one (`round_seconds`, `balance`)."""
        self.learning_rate = LearningRate(optimizer, rule, horizon)
        self._planned_items, self._visits = planned_items, rule.visits_per_worker or 1
        self._participation = participation or Participation(rule, seed, planned_items)

    @property
    def sits_out(self) -> bool:
        """True if the worker does not train in this round, because others do (`clients`, `ramp_workers`)."""
        return self.rank not in self.participants

    @property
    def iterations(self) -> int:
        """The worker's cap on local iterations: per round, or per visit under an asynchronous rule."""
        return self.batches.iterations

    def begin(self, round_number: int, item_iterations: int, caps: Sequence[int] = ()) -> None:
        """Plan a round (from 1). `item_iterations` of all workers so far place the learning rate's schedule.

        `caps`: each worker's local iterations in this round, if `round_caps` decided them.
        """
        self.round, self.items = round_number, self._planned_items
        if self.round_caps and caps:
            self.batches.limit(caps)
            self.items = self.round_caps.items(self._planned_items, caps)
        self.participants = self._participation.of(round_number)
        self.batches.begin(round_number)
        together = [self.items[rank] for rank in self.participants]
        self.learning_rate.begin(round_number, item_iterations, together, self.iterations * self._visits)
