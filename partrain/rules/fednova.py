"""Normalised averaging: unequal work without a bias towards workers that do more of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, State, Worker
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Fednova(Rule):
    """Averaging, after each worker's movement is rescaled to the mean amount of work.

        x_i <- K_i local steps from a            (in parallel)
        tau <- sum_i p_i a_i
        a   <- a - tau sum_i p_i d_i,            d_i = (a - x_i) / a_i

    a: the params at the round's start; p_i: the worker's share of all items (`weights = "items"`), or 1/N (`"equal"`); a_i: its
    amount of work. That is K_i, or for an optimizer with momentum rho (K_i - rho (1 - rho^K_i) / (1 - rho)) / (1 - rho), also
    with Nesterov's, as in the authors' code. The server momentum and proximal term of that code are left out. Plain averaging
    weights the workers' losses by w_i K_i, where w_i are the weights of the mean; this rule weights them by p_i.

    With momentum this holds for rho = `local_momentum` and `optimizer_state = "reset"`. At low learning rates it also holds for
    "local" with rho = 0, because a momentum that is never reset moves equally far at each iteration. It does not hold for Adam
    and other adaptive optimizers.

    Written here as the mean of a + (tau / a_i) (x_i - a). With equal work this is averaging, to the bit.

    Source: Wang, Liu, Liang, Joshi, Poor. Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization.
        2020. arXiv:2007.07481
    """

    round_vectors: ClassVar[int] = 2
    mixes_once: ClassVar[bool] = True

    rule: Literal["fednova"]
    weights: Literal["items", "equal"] = "items"
    """Weight p_i of each worker: the items of its partition, not of its work in the round (`items`), or the same for all
    (`equal`)."""
    local_momentum: float = Field(0.0, ge=0, lt=1)
    """rho: momentum of the local optimizer, if it begins each round at zero (`optimizer_state = "reset"`)."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        if self.local_momentum and self.optimizer_state != "reset":
            message = "`local_momentum` assumes a momentum that begins each round at zero"
            yield warning("local_momentum", message, 'add optimizer_state = "reset"')
        if (optimizer := context.optimizer) is None:
            return
        momentum = optimizer.momentum if "momentum" in type(optimizer).model_fields else 0.0
        if self.local_momentum not in (0.0, momentum):
            message = f"the local optimizer has another momentum, {momentum:g}: the work of unequal workers is computed wrongly"
            yield warning("local_momentum", message, "use the same in both, or leave it out here")
        elif not self.unequal_work(context):
            return
        elif optimizer.moments and optimizer.name != "sgd":
            message = (
                f'the amount of unequal work is computed as for "sgd": with "{optimizer.name}" the bias towards more work stays'
            )
            yield warning(("optimizer", "name"), message, 'use "sgd", or equal work')
        elif momentum and not self.local_momentum and self.optimizer_state != "local":
            message = (
                f"the optimizer's momentum, {momentum:g}, is left out of the amount of work: the bias towards more work stays"
            )
            yield warning("local_momentum", message, f'set local_momentum = {momentum:g} and optimizer_state = "reset"')

    def unequal_work(self, context: JobContext) -> bool:
        """Return whether some workers run more local iterations than others."""
        own = [(table.iterations, table.passes) for table in context.worker_tables]
        caps = [cap if any(cap) else (self.iterations, self.passes) for cap in own]
        sized = any(passes and table.partition_size for (_, passes), table in zip(caps, context.worker_tables, strict=True))
        return len(set(caps)) > 1 or sized or context.capped

    @property
    def needs_partition_sizes(self) -> bool:
        return self.weights == "items"

    def round(self, worker: Worker, group: Group, state: State) -> None:
        anchor = worker.params.clone()
        worker.train()
        share, work = self.weight(worker.partition_size if worker.done else 0), self.work(worker.done)
        scores = group.scores(share, work)
        total = sum(share for share, _ in scores)
        if worker.done:
            mean_work = sum(share * work for share, work in scores) / total
            worker.params.copy_(anchor.lerp(worker.params, mean_work / work))
        group.all_reduce_mean(worker.params, weight=share)

    def work(self, iterations: int) -> float:
        """Compute a_i: the distance that K_i iterations cover, in steps of the learning rate."""
        rho = self.local_momentum
        return (iterations - rho * (1 - rho**iterations) / (1 - rho)) / (1 - rho)
