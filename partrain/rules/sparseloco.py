"""SparseLoCo: local training with sparse, coarsely quantised updates, and error feedback instead of outer momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, Worker
from partrain.rules.compression import Precision, TopK
from partrain.rules.error_feedback import ErrorFeedbackState
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Sparseloco(Rule):
    """Each worker trains alone for a while, then sends the largest entries of a decaying sum of its updates, two bits each.

        x_i <- H local steps from x                 (in parallel)
        e_i <- beta e_i + x - x_i
        q_i <- Q(TopK(e_i))
        e_i <- e_i - q_i
        x   <- x - alpha sum_i w_i q_i / sum_i w_i

    H is `iterations`, beta the decay of the error memory e_i, alpha the outer learning rate; TopK keeps the largest entries of
    each chunk, Q maps them to four levels. The paper's w_i are equal; here they are as in `average`. The authors' code differs:
    it divides each entry by the number of workers that sent it, its chunks are squares of 64 x 64, and each tensor has its own
    levels.

    Source: Sarfi et al. Communication Efficient LLM Pre-training with SparseLoCo. 2025. arXiv:2508.15706
    """

    round_vectors: ClassVar[int] = 6

    rule: Literal["sparseloco"]
    density: float = Field(0.02, gt=0, le=1)
    """Share of the entries that each worker sends: 0.01 to 0.03 in the paper."""
    beta: float = Field(0.95, ge=0, le=1)
    """beta: decay of the error memory in a round. The memory acts as a momentum of unsent entries."""
    outer_lr: float = Field(1.0, gt=0)
    """alpha: factor of the mean update."""
    chunk: int = Field(4096, ge=0)
    """Length of the chunks from each of which the largest entries are chosen, so that every part of the network sends; 0: one
    chunk for all."""
    values: Precision = "2bit"
    """Number type of the entries that are sent; `2bit` has four levels."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker, as in the paper."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        if self.outer_lr >= 2:
            message = f"{self.outer_lr} overshoots: x ends farther from the replicas' mean than it was"
            yield warning("outer_lr", message, "the paper has 1")
        if self.beta == 1:
            yield warning("beta", "the error memory never fades", "the paper has 0.95")

    @property
    def still_moves(self) -> str:
        return "updates that messages left out"

    @property
    def keeps_worker_state(self) -> bool:
        return True

    def init(self, worker: Worker, group: Group) -> ErrorFeedbackState:
        return ErrorFeedbackState(worker.params.new_zeros(len(worker.params)))

    def round(self, worker: Worker, group: Group, state: ErrorFeedbackState) -> None:
        anchor = worker.params.clone()
        worker.train()
        state.error.mul_(self.beta).add_(anchor - worker.params)
        compressor = TopK(kind="topk", density=self.density, values=self.values, chunk=self.chunk)
        message, sent = compressor.compress(state.error, worker.parameters)
        weight = self.weight(worker.items)
        if weight:  # a message of weight 0 does not count as sent
            state.error -= sent
        mean = group.reduce_messages(message, compressor.read, len(anchor), weight)
        worker.params.copy_(anchor - self.outer_lr * mean)
