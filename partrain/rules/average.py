"""Parameter averaging, also known as local SGD or federated averaging."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, State, Worker
from partrain.rules.average_schedules import ScheduledIterations


class Average(ScheduledIterations):
    """Each worker trains alone for a while, then all replicas are replaced by their weighted mean.

        x_i <- K_i local steps from x            (in parallel)
        x   <- sum_i w_i x_i / sum_i w_i

    K_i is `iterations`, unless a `schedule` changes it from round to round; w_i is the worker's item-iterations of the round
    (`weights = "items"`) or 1 (`"equal"`).

    With `noise` z all workers add the same draw of N(0, (z C / m)^2) to each number of the mean. C is the bound of an update
    (`[faults] max_update_norm`), m the number of workers that train in a round (`clients`): differential privacy of a client.

    Source: McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. 2017. arXiv:1602.05629
    Source: Stich. Local SGD Converges Fast and Communicates Little. 2019. arXiv:1805.09767
    Source: McMahan, Ramage, Talwar, Zhang. Learning Differentially Private Recurrent Language Models. 2018. arXiv:1710.06963 (`noise`)
    """

    mixes_once: ClassVar[bool] = True

    rule: Literal["average"] = "average"
    noise: float = Field(0.0, ge=0)
    """Noise multiplier: standard deviation of the Gaussian noise that hides a client, in units of a client's largest contribution
    to the mean. So it needs `[faults] max_update_norm`, `clients` and `weights = "equal"`. 0: no noise."""

    @property
    def noise_multiplier(self) -> float:
        return self.noise

    def round(self, worker: Worker, group: Group, state: State) -> None:
        with self.scheduled(worker, group, state) as iterations:
            worker.train(iterations)
            group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
            if self.noise:
                worker.add_noise(self.noise / self.active_workers(worker.size, worker.round))
