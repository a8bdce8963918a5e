"""Averaging of compressed differences, with error feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, Worker
from partrain.rules.compression import AnyCompressor, TopK
from partrain.rules.error_feedback import ErrorFeedbackState
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Topk(Rule):
    """Each worker trains alone for a while, then sends its compressed movement. The rest stays in its memory until a later
    message.

        x_i <- K_i local steps from x           (in parallel)
        q_i <- C(e_i + x - x_i)
        e_i <- e_i + x - x_i - q_i
        x   <- x - sum_i w_i q_i / sum_i w_i

    K_i is `iterations`, C the compressor, e_i the error memory, w_i as in `average`. Lossless, this is `average`
    (`compressor = { kind = "identity" }`). `{ kind = "fp16" }` halves an average's bytes.

    Source: Stich, Cordonnier, Jaggi. Sparsified SGD with Memory. 2018. arXiv:1809.07599
    Source: Lin et al. Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training. 2018.
        arXiv:1712.01887. Without its momentum correction and its sparsity warm-up
    """

    round_vectors: ClassVar[int] = 6

    rule: Literal["topk"]
    compressor: AnyCompressor = Field(default_factory=lambda: TopK(kind="topk"))
    """C, the compression of messages: `kind` is "topk" (with `density`, `values`, `chunk`), "fp32", "fp16", "bf16", "2bit" or
    "identity" (none). Default: "topk"."""
    error_feedback: bool = True
    """true: a worker adds what a message left out to its next one. false: that part is lost."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker. Averaging it would cost the bytes that the messages save."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        if self.compressor.kind in ("topk", "2bit") and not self.error_feedback:
            message = f'without error feedback, "{self.compressor.kind}" loses most of every update'
            yield warning("error_feedback", message, "set it to true")

    @property
    def still_moves(self) -> str:
        return "updates that messages left out" if self.error_feedback and self.compressor.kind != "identity" else ""

    @property
    def keeps_worker_state(self) -> bool:
        return self.error_feedback

    def init(self, worker: Worker, group: Group) -> ErrorFeedbackState | None:
        return ErrorFeedbackState(worker.params.new_zeros(len(worker.params))) if self.error_feedback else None

    def round(self, worker: Worker, group: Group, state: ErrorFeedbackState | None) -> None:
        anchor = worker.params.clone()
        worker.train()
        delta = anchor - worker.params
        if state:
            delta += state.error
        message, sent = self.compressor.compress(delta, worker.parameters)
        weight = self.weight(worker.items)
        if state and weight:  # a message of weight 0 does not count as sent
            state.error.copy_(delta - sent)
        mean = group.reduce_messages(message, self.compressor.read, len(anchor), weight)
        worker.params.copy_(anchor - mean)
