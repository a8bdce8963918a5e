"""The vocabulary of partrain: a rule sees one `Worker`, one `Group` and its own `State`, nothing else.

Symbols: N workers; d numbers in the network; x_i the parameters of worker i; g_i its gradient. Tensors carry their shape,
`(d,)` being one flat vector of which the network's own tensors are views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pydantic import Field

from partrain.section import Section

if TYPE_CHECKING:
    from torch import Tensor

State = Any
"""What a rule changes from round to round: a dataclass of tensors and numbers, or None."""


class Worker(Protocol):
    """One replica of the network on one device."""

    params: Tensor
    """x_i (d,), flat, on the worker's device."""
    rank: int
    size: int
    """N."""
    items: int
    """Item-iterations since the round began."""
    iterations: int
    """This worker's cap on local iterations for this round."""

    def train(self, iterations: int | None = None) -> None:
        """Run local iterations (default: the cap): x_i <- optimizer step on each next mini-batch."""

    def gradient(self, full: bool = False) -> Tensor:
        """g_i(x_i) (d,) on the next mini-batch, or on the whole partition; x_i stays as it is."""

    def apply(self, gradient: Tensor) -> None:
        """One step of the local optimizer with this gradient (d,)."""


class Group(Protocol):
    """The workers together. Every verb is called by all workers, in the same order."""

    def all_reduce_mean(self, x: Tensor, weight: float = 1.0) -> None:
        """x <- sum_i w_i x_i / sum_i w_i, in place, summed in rank order in float64, rounded once."""

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """The x of every worker, by rank."""

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        """x <- x of worker `source`, in place."""

    def barrier(self) -> None:
        """Wait until every worker has come here."""


class Rule(Section):
    """A sync rule: a frozen model that owns one round. Its fields are its `[sync]` table, these the base keys of all."""

    synchronous: ClassVar[bool] = True
    """All workers run the same rounds, and the same job gives the same bits."""

    iterations: int | None = Field(None, ge=1)
    """Cap on local iterations (optimizer steps) per worker and round."""
    passes: int | None = Field(None, ge=1)
    """Instead: passes over the partition per worker and round."""
    weights: Literal["items", "equal"] = "items"
    """Weight of each replica in the mean: its item-iterations of the round, or the same for all."""
    optimizer_state: Literal["average", "local", "reset"] = "average"
    """What happens to momentum and moments when replicas are mixed."""
    buffers: Literal["average", "recalibrate", "local"] = "average"
    """BatchNorm statistics: pooled as mean and variance, recomputed for the mixed network, or each worker's own."""
    lr_scale: Literal["none", "linear", "sqrt"] = "none"
    """Learning rate times N, or times its square root: averaging N replicas lowers noise, not the step."""
    warmup_rounds: int = Field(0, ge=0)
    """Rounds over which the scaled learning rate is approached from the unscaled one."""

    def weight(self, items: int) -> float:
        """A replica's weight in the mean, given its item-iterations."""
        return float(items) if self.weights == "items" else 1.0

    def init(self, worker: Worker, group: Group) -> State:
        """The rule's state before the first round."""
        return None

    def round(self, worker: Worker, group: Group, state: State) -> None:
        """One round of one worker: the paper's pseudo-code."""
        raise NotImplementedError

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        """The network this rule hands back (d,): the same on every worker."""
        return worker.params
