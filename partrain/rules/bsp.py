"""Bulk-synchronous gradient averaging, as in data-parallel training."""

from __future__ import annotations

from typing import ClassVar, Literal

from partrain.protocols import Group, Rule, State, Worker


class Bsp(Rule):
    """Every iteration, gradients are averaged before each worker's optimizer applies them: one big batch.

        g <- sum_i w_i g_i(x) / sum_i w_i        (w_i: items of worker i's batch, or 1)
        x <- optimizer step with g

    A round is `iterations` such steps. Replicas stay equal, except where devices or machines differ and round differently: then
    all workers take over worker 0's parameters at the end of a round.

    Source: Valiant. A Bridging Model for Parallel Computation. 1990. doi:10.1145/79173.79181
    Source: Li et al. PyTorch Distributed: Experiences on Accelerating Data Parallel Training. 2020. arXiv:2006.15704
    """

    rule: Literal["bsp"]
    averages_gradients: ClassVar[bool] = True

    @property
    def syncs_every_iteration(self) -> bool:
        return True

    def round(self, worker: Worker, group: Group, state: State) -> None:
        for _ in range(worker.iterations):
            before = worker.items
            gradient = worker.gradient()
            group.all_reduce_mean(gradient, weight=self.weight(worker.items - before))
            worker.apply(gradient)
