"""Parameter averaging, also known as local SGD or federated averaging."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, State, Worker
from partrain.rules.average_schedules import SETTINGS, Losses, Overhead, Rate


class Average(Rule):
    """Each worker trains alone for a while, then all replicas are replaced by their weighted mean.

        x_i <- K_i local steps from x            (in parallel)
        x   <- sum_i w_i x_i / sum_i w_i

    K_i is `iterations`, w_i the worker's item-iterations of the round (`weights = "items"`) or 1 (`"equal"`). A `schedule` makes K
    of the `iterations` K_0 of [sync], round by round, and gives each worker the same share of its own (lr: the learning rate):

        post-local   K = 1, from `switch_round` on K_0: one big batch first
        qsr          K = max(K_0, floor((alpha / lr)^2)): rarer as the learning rate falls; K_0 in the first round and while it rises
        adacomm      K = ceil(K_0 sqrt(F / F_0) sqrt(lr_0 / lr)): more often as the training loss F falls; every `every` rounds,
                     and if the loss makes it no smaller, half of what it was
        overhead     K grows by ceil(K overhead / `target`) where waiting and mixing take more than this share of the computing,
                     and shrinks by one where they take less than half of it; timed, so no two runs are alike

    Source: McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. 2017. arXiv:1602.05629
    Source: Stich. Local SGD Converges Fast and Communicates Little. 2019. arXiv:1805.09767
    Source: Lin, Stich, Patel, Jaggi. Don't Use Large Mini-Batches, Use Local SGD. 2020. arXiv:1808.07217
    Source: Gu, Lyu, Arora, Zhang, Huang. A Quadratic Synchronization Rule for Distributed Deep Learning. 2024. arXiv:2310.14423
    Source: Wang, Joshi. Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD. 2019.
        arXiv:1810.08313
    """

    rule: Literal["average"] = "average"
    schedule: Literal["constant", "post-local", "qsr", "adacomm", "overhead"] = "constant"
    """How the number of local iterations changes from round to round."""
    switch_round: int | None = Field(None, ge=2)
    """post-local: first round of `iterations` local iterations."""
    alpha: float | None = Field(None, gt=0)
    """qsr: the learning rate below which a round is longer than `iterations` is this one over their square root."""
    every: int = Field(20, ge=1)
    """adacomm: rounds of a window, over which the training loss is taken."""
    target: float = Field(0.1, gt=0)
    """overhead: share of waiting and mixing, of the seconds spent computing, that it is kept under."""
    most: int = Field(200, ge=1)
    """qsr, adacomm, overhead: most local iterations that the schedule makes of `iterations`."""
    in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers", "switch_round", "every")

    def remarks(self, workers: int) -> Iterator[Remark]:
        own = SETTINGS.get(self.schedule, [])
        for key in {key: None for keys in SETTINGS.values() for key in keys if key in self.model_fields_set and key not in own}:
            yield Remark(key, f'`{key}` has no meaning under schedule = "{self.schedule}"', "remove it")
        if self.schedule == "constant":
            return
        for key in ("switch_round", "alpha"):
            if key in own and getattr(self, key) is None:
                yield Remark("schedule", f'schedule = "{self.schedule}" needs `{key}`')
        if self.iterations is None:
            message = f'schedule = "{self.schedule}" changes a number of iterations, and [sync] has none'
            yield Remark("schedule", message, "give `iterations`, instead of `passes` if there are any")
        elif "most" in own and self.most < self.iterations:
            yield Remark("most", f"`most` {self.most} is less than `iterations` {self.iterations}")

    def init(self, worker: Worker, group: Group) -> State:
        match self.schedule:
            case "qsr":
                return Rate(0.0)
            case "overhead":
                return Overhead(self.iterations or 1)
            case "adacomm":
                return Losses(self.iterations or 1, 0.0, 0.0, 0, 0.0)
        return None

    def round(self, worker: Worker, group: Group, state: State) -> None:
        began = worker.clock()
        worker.train(self.local_iterations(worker, state))
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        if isinstance(state, Overhead):
            spent = worker.clock() - began - worker.seconds
            state.adapt(self.target, self.most, group.scores(worker.seconds, spent))
        if isinstance(state, Losses):
            state.add(group.scores(worker.items, worker.loss() if worker.items else 0.0))
            if worker.round % self.every == 0:
                state.close(self.iterations or 1)

    def local_iterations(self, worker: Worker, state: State) -> int:
        """K_i: the worker's cap, as many times as the schedule's K is K_0."""
        base = self.iterations or 1
        match self.schedule:
            case "post-local":
                count = 1 if worker.round < (self.switch_round or 0) else base
            case "qsr":
                count = state.iterations(base, self.alpha or 0.0, self.most, worker.lr)
            case "adacomm":
                count = state.iterations(self.most, worker.lr)
            case "overhead":
                count = state.period
            case _:
                return worker.iterations
        return max(1, round(worker.iterations * count / base))
