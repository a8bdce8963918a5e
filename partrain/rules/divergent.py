"""The base of rules under which replicas differ at the end of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from partrain.protocols import Group, Rule, State, Worker

if TYPE_CHECKING:
    from torch import Tensor


class DivergentReplicas(Rule):
    """A rule that keeps a replica per worker, and defines which network counts."""

    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker, as the parameters do."""
    buffers: Literal["average", "recalibrate", "local"] = "recalibrate"
    """BatchNorm statistics of the judged network: pool means and variances (`average`), recompute them, because no worker has
    trained that network (`recalibrate`), or keep each worker's (`local`)."""

    @property
    def keeps_replicas_equal(self) -> bool:
        return False

    @property
    def no_exclusion_reason(self) -> str:
        return "each worker keeps a network of its own, and there is no mean to leave a worker out of"

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        """Return the network that counts (d,): by default the mean of all replicas."""
        mean = worker.params.clone()
        group.all_reduce_mean(mean)
        return mean
