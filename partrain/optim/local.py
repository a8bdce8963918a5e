"""The local optimizer of one worker: torch's own steps, its moments being rows beside the parameters.

The numbers are those of torch.optim (tests compare bits); what is left out is the bookkeeping that costs a small network
a tenth of its step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from partrain.flat import Layout
from partrain.optim import AnyOptimizer
from partrain.optim.lbfgs import Curvature
from partrain.optim.sections import Adam, Lbfgs, Muon
from partrain.optim.steps import Step, Tensors, step_of


def moments_of(section: AnyOptimizer) -> tuple[str, ...]:
    """Names of the vectors (d,) this optimizer keeps."""
    return tuple(section.moments)


class LocalOptimizer:
    """Steps of one replica. Rows of `moments` (m, d) are named by `moments_of`; the numbers between tensors are zero."""

    def __init__(self, section: AnyOptimizer, params: Tensor, moments: Tensor, layout: Layout) -> None:
        self.section = section
        self.moments = moments
        self.counts = section.counts
        """Whether the number of steps decides what a step does, as Adam's bias correction."""
        self._params = layout.views(params)
        self._moments = [layout.views(row) for row in moments]
        self._limited = section.clip_norm is not None or section.clip_value is not None
        self._curvature = Curvature(section, params, moments, layout) if isinstance(section, Lbfgs) else None
        self._groups = [] if self._curvature else self._group(params.device)
        """Tensors that are treated alike: which, how, what is kept of them."""
        self.reset()

    def step(self, gradients: Sequence[Tensor | None], lr: float) -> None:
        """x <- x - lr * (what the optimizer makes of g). A tensor without a gradient stays as it is, as in torch."""
        self.steps += 1
        with torch.no_grad():
            if self._limited:
                gradients = self._limit(gradients)
            if self._curvature:
                self._curvature.step(gradients, lr)
            for indices, step, tensors in self._groups:
                own = gradients if len(self._groups) == 1 else [gradients[index] for index in indices]
                # The fused kernels read memory in order, whatever strides say; autograd may give a transposed or expanded gradient.
                dense = [gradient.contiguous() for gradient in own if gradient is not None]
                if len(dense) < len(own):
                    tensors = tensors.part([index for index, gradient in enumerate(own) if gradient is not None])
                if dense:
                    step(self.section, tensors, dense, self.steps, lr)

    def reset(self) -> None:
        """Forget all moments: they are what they were at first."""
        self.steps = 0
        """Steps taken since."""
        self.moments.zero_()
        for views, first in zip(self._moments, self.section.moments.values(), strict=True):
            for view in views if first else ():
                view.fill_(first)

    def _group(self, device: torch.device) -> list[tuple[list[int], Step, Tensors]]:
        ways = [step_of(self.section, tuple(param.shape)) for param in self._params]
        fused = isinstance(self.section, Adam | Muon)  # torch's other functions want to read the number of steps at once
        whole = Tensors.of(self._params, self._moments, device if fused else torch.device("cpu"))
        groups = []
        for step, decay in dict.fromkeys(ways):
            indices = [index for index, way in enumerate(ways) if way == (step, decay)]
            groups.append((indices, step, whole.part(indices, decay)))
        return groups

    def _limit(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Copies within the limits of value and norm, as torch.nn.utils.clip_grad_value_ and clip_grad_norm_ make them."""
        section, there = self.section, [gradient for gradient in gradients if gradient is not None]
        if section.clip_value is not None:
            there = [gradient.clamp(-section.clip_value, section.clip_value) for gradient in there]
        if section.clip_norm is not None and there:
            norm = torch.nn.utils.get_total_norm(there)
            there = list(torch._foreach_mul(there, (section.clip_norm / (norm + 1e-6)).clamp(max=1.0)))
        limited = iter(there)
        return [None if gradient is None else next(limited) for gradient in gradients]
