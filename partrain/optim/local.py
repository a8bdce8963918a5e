"""The local optimizer of one worker: torch's fused steps, its moments being rows beside the parameters.

The numbers are those of torch.optim (tests compare bits); what is left out is the bookkeeping that costs a small network
a tenth of its step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from partrain.flat import Layout
from partrain.optim import Adam, AdamW, AnyOptimizer, Sgd

_MOMENTS = {Sgd: ("momentum",), Adam: ("exp_avg", "exp_avg_sq"), AdamW: ("exp_avg", "exp_avg_sq")}


def moments_of(section: AnyOptimizer) -> tuple[str, ...]:
    """Names of the vectors (d,) this optimizer keeps."""
    return () if isinstance(section, Sgd) and section.momentum == 0 else _MOMENTS[type(section)]


class LocalOptimizer:
    """Steps of one replica. `moments` (m, d) is zero at first; rows are named by `moments_of`."""

    def __init__(self, section: AnyOptimizer, params: Tensor, moments: Tensor, layout: Layout) -> None:
        self.section = section
        self.moments = moments
        self.steps = 0
        """Steps taken since the moments were zero."""
        self.counts = not isinstance(section, Sgd)
        """Whether the number of steps decides what a step does, as Adam's bias correction."""
        self._params = layout.views(params)
        self._moments = [layout.views(row) for row in moments]
        self._count = torch.zeros((), dtype=torch.float32, device=params.device)

    def step(self, gradients: Sequence[Tensor | None], lr: float) -> None:
        """x <- x - lr * (what the optimizer makes of g). A tensor without a gradient stays as it is, as in torch."""
        self.steps += 1
        params, moments = self._params, self._moments
        # The fused kernels read memory in order, whatever strides say; autograd may give a transposed or expanded gradient.
        dense = [gradient.contiguous() for gradient in gradients if gradient is not None]
        if len(dense) < len(gradients):
            used = [index for index, gradient in enumerate(gradients) if gradient is not None]
            params, moments = [params[index] for index in used], [[row[index] for index in used] for row in moments]
        with torch.no_grad():
            if isinstance(self.section, Sgd):
                self._sgd(self.section, params, dense, moments, lr)
            else:
                self._adam(self.section, params, dense, moments, lr)

    def reset(self) -> None:
        """Forget all moments."""
        self.moments.zero_()
        self.steps = 0

    def _sgd(self, section: Sgd, params: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], lr: float) -> None:
        torch._fused_sgd_(
            params,
            gradients,
            moments[0] if moments else [],
            weight_decay=section.weight_decay,
            momentum=section.momentum,
            lr=lr,
            dampening=0.0,
            nesterov=section.nesterov,
            maximize=False,
            is_first_step=False,
        )

    def _adam(self, section: Adam, params: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], lr: float) -> None:
        self._count.fill_(float(self.steps))
        fused = torch._fused_adamw_ if isinstance(section, AdamW) else torch._fused_adam_
        fused(
            params,
            gradients,
            moments[0],
            moments[1],
            [],
            [self._count] * len(params),
            lr=lr,
            beta1=section.betas[0],
            beta2=section.betas[1],
            weight_decay=section.weight_decay,
            eps=section.eps,
            amsgrad=False,
            maximize=False,
        )
