"""Parameter averaging, also known as local SGD or federated averaging."""

from __future__ import annotations

from typing import ClassVar, Literal

from partrain.protocols import Group, State, Worker
from partrain.rules.average_schedules import ScheduledIterations


class Average(ScheduledIterations):
    """Each worker trains alone for a while, then all replicas are replaced by their weighted mean.

        x_i <- K_i local steps from x            (in parallel)
        x   <- sum_i w_i x_i / sum_i w_i

    K_i is `iterations`, unless a `schedule` changes it from round to round; w_i is the worker's item-iterations of the round
    (`weights = "items"`) or 1 (`"equal"`).

    Source: McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. 2017. arXiv:1602.05629
    Source: Stich. Local SGD Converges Fast and Communicates Little. 2019. arXiv:1805.09767
    """

    mixes_once: ClassVar[bool] = True

    rule: Literal["average"] = "average"

    def round(self, worker: Worker, group: Group, state: State) -> None:
        with self.scheduled(worker, group, state) as iterations:
            worker.train(iterations)
            group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
