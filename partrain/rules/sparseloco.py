"""SparseLoCo: local training with sparse, coarsely quantised updates; error feedback stands in for outer momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, Worker
from partrain.rules.compression import Precision, TopK
from partrain.rules.error_feedback import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sparseloco(Rule):
    """Each worker trains alone for a while, then sends the largest entries of a decaying sum of its updates, two bits each.

        x_i <- H local steps from x                 (in parallel)
        e_i <- beta e_i + x - x_i
        q_i <- Q(TopK(e_i))
        e_i <- e_i - q_i
        x   <- x - alpha sum_i w_i q_i / sum_i w_i

    H is `iterations`, beta the decay of the error memory e_i, alpha the outer learning rate; TopK keeps the largest entries of
    each chunk, Q maps them to four levels. The paper's w_i are equal; here they are those of `average`. The authors' code differs:
    it divides each entry by the number of workers that have sent it, chunks are squares of 64 x 64, levels each tensor's own.

    Source: Sarfi et al. Communication Efficient LLM Pre-training with SparseLoCo. 2025. arXiv:2508.15706
    """

    rule: Literal["sparseloco"]
    density: float = Field(0.02, gt=0, le=1)
    """Share of the entries that are sent: 1 to 3 in a hundred in the paper."""
    beta: float = Field(0.95, ge=0, le=1)
    """Decay of the error memory: it acts as a momentum of entries that have not been sent."""
    outer_lr: float = Field(1.0, gt=0)
    """alpha: how far x follows the mean update."""
    chunk: int = Field(4096, ge=0)
    """Entries among which the largest are chosen, so that no part of the network is left out; 0 = the whole vector."""
    values: Precision = "2bit"
    """Precision of what is sent of each entry."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """What happens to momentum and moments: each worker's own, as in the paper."""

    def remarks(self, workers: int) -> Iterator[Remark]:
        if self.outer_lr >= 2:
            message = f"{self.outer_lr} overshoots: x ends farther from the replicas' mean than it was"
            yield Remark("outer_lr", message, "the paper has 1", "warning")
        if self.beta == 1:
            yield Remark("beta", "the error memory never fades", "the paper has 0.95", "warning")

    def init(self, worker: Worker, group: Group) -> Memory:
        return Memory(worker.params.new_zeros(len(worker.params)))

    def round(self, worker: Worker, group: Group, state: Memory) -> None:
        anchor = worker.params.clone()
        worker.train()
        state.error.mul_(self.beta).add_(anchor - worker.params)
        compressor = TopK(kind="topk", density=self.density, values=self.values, chunk=self.chunk)
        message, sent = compressor.compress(state.error)
        state.error -= sent
        mean = group.reduce_messages(message, compressor.read, len(anchor), self.weight(worker.items))
        worker.params.copy_(anchor - self.outer_lr * mean)
