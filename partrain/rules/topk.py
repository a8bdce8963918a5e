"""Averaging by compressed differences, with the memory of what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, Worker
from partrain.rules.compression import AnyCompressor, TopK
from partrain.rules.error_feedback import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator


class Topk(Rule):
    """Each worker trains alone for a while, then sends a compressed form of how far it went; what it leaves out it sends later.

        x_i <- K_i local steps from x           (in parallel)
        q_i <- C(e_i + x - x_i)
        e_i <- e_i + x - x_i - q_i
        x   <- x - sum_i w_i q_i / sum_i w_i

    K_i is `iterations`, C the compressor, e_i the error memory, w_i as in `average`, which this is where nothing is lost
    (`compressor = { kind = "identity" }`). `{ kind = "fp16" }` halves an average's bytes.

    Source: Stich, Cordonnier, Jaggi. Sparsified SGD with Memory. 2018. arXiv:1809.07599
    Source: Lin et al. Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training. 2018.
        arXiv:1712.01887. Without its momentum correction and its sparsity warm-up
    """

    rule: Literal["topk"]
    compressor: AnyCompressor = Field(default_factory=lambda: TopK(kind="topk"))
    """C: `kind` is "topk" (with `density`, `values`, `chunk`), "fp32", "fp16", "bf16", "2bit" or "identity"."""
    error_feedback: bool = True
    """Send later what was left out; if not, it is lost."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """What happens to momentum and moments: each worker's own, for averaging them would cost what the messages save."""

    def remarks(self, workers: int) -> Iterator[Remark]:
        if self.compressor.kind in ("topk", "2bit") and not self.error_feedback:
            message = f'without error feedback, "{self.compressor.kind}" loses most of every update'
            yield Remark("error_feedback", message, "set it to true", "warning")

    def init(self, worker: Worker, group: Group) -> Memory | None:
        return Memory(worker.params.new_zeros(len(worker.params))) if self.error_feedback else None

    def round(self, worker: Worker, group: Group, state: Memory | None) -> None:
        anchor = worker.params.clone()
        worker.train()
        wanted = anchor - worker.params
        if state:
            wanted += state.error
        message, sent = self.compressor.compress(wanted)
        if state:
            state.error.copy_(wanted - sent)
        mean = group.reduce_messages(message, self.compressor.read, len(anchor), self.weight(worker.items))
        worker.params.copy_(anchor - mean)
