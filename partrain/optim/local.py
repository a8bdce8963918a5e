"""One worker's local optimizer: torch's step functions, with moments in rows next to the parameters.

The numbers equal those of torch.optim to the bit: for SGD, Adam and AdamW with `fused=True`, for the others with `foreach=False`
(tests compare them; L-BFGS up to rounding). Without `fused=True` torch rounds the first three differently: in float32 by a relative
2e-6 after 200 steps. The code omits torch's bookkeeping, which takes a tenth of a small network's step.
`benchmarks/optim_steps.py` compares it with torch's classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from partrain.flat import Layout
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.groups import ParamRate
from partrain.optim.lbfgs import LbfgsStepper
from partrain.optim.sections import Lbfgs
from partrain.optim.steps import ParamGroup, Step, counts_steps_itself, select_step


def moment_names(section: AnyOptimizer) -> tuple[str, ...]:
    """Return the names of the vectors (d,) that this optimizer keeps."""
    return tuple(section.moments)


class OptimizedTensor(NamedTuple):
    """A parameter, and everything else that its step needs."""

    param: Tensor
    moments: Sequence[Tensor]
    steps: Tensor
    """(): steps so far."""
    peak: float
    """Peak learning rate."""
    decay: float
    """Weight decay."""


class LocalOptimizer:
    """Steps of one replica. `moment_names` names the rows of `moments` (m, d). Gaps between tensors are zero."""

    def __init__(
        self, section: AnyOptimizer, params: Tensor, moments: Tensor, layout: Layout, rates: Sequence[ParamRate] = ()
    ) -> None:
        """Prepare steps of the tensors of `params` (d,). `rates`: one for each tensor; if empty, all have the section's."""
        self.section = section
        self.moments = moments
        self.counts_steps = section.counts_steps
        """True if a step depends on the number of steps before it, such as Adam's bias correction."""
        counts_itself = counts_steps_itself(section)
        # torch's functions read the number of steps on the CPU, its fused kernels on the device of the parameters.
        on_cpu = counts_itself or isinstance(section, Sgd)
        self.counts = torch.zeros(len(layout.fields), device="cpu" if on_cpu else params.device)
        """(p,): steps of each tensor since the last reset. As in torch a tensor without a gradient takes no step."""
        self._increment = None if counts_itself or not self.counts_steps else torch.ones_like(self.counts)
        self._params = layout.views(params)
        self._moments = [layout.views(row) for row in moments]
        self._clips = section.clip_norm is not None or section.clip_value is not None
        self._lbfgs = LbfgsStepper(section, params, moments, layout) if isinstance(section, Lbfgs) else None
        self._groups = [] if self._lbfgs else self._group(rates)
        """Parameter groups with equal steps: indices of the parameters, step function, peak learning rate, tensors."""
        self.reset()

    def step(self, gradients: Sequence[Tensor | None], lr: float) -> None:
        """Take one step with these gradients. A tensor without a gradient does not change, as in torch."""
        with torch.no_grad():
            if self._increment is not None:
                self.counts.add_(self._increment)
            if self._clips:
                gradients = self._clip(gradients)
            if self._lbfgs:
                self._lbfgs.step(gradients, lr)
            for indices, step, peak, tensors in self._groups:
                chosen = gradients if len(self._groups) == 1 else [gradients[index] for index in indices]
                # The fused kernels ignore strides, and autograd may return a transposed or expanded gradient.
                dense = [gradient.contiguous() for gradient in chosen if gradient is not None]
                if len(dense) < len(chosen):
                    if self._increment is not None:
                        self.counts[[index for index in indices if gradients[index] is None]] -= 1
                    tensors = tensors.part([index for index, gradient in enumerate(chosen) if gradient is not None])
                if dense:
                    step(self.section, tensors, dense, self._rate(peak, lr))

    def bind(self, gradients: list[Tensor]) -> Callable[[float], None]:
        """Return `step` without its checks, for gradients in these tensors: contiguous and without a graph."""
        if self._clips or self._lbfgs:
            return partial(self.step, gradients)
        groups = [([gradients[index] for index in indices], step, peak, tensors) for indices, step, peak, tensors in self._groups]

        def step_all(lr: float) -> None:
            if self._increment is not None:
                self.counts.add_(self._increment)
            for chosen, step, peak, tensors in groups:
                step(self.section, tensors, chosen, self._rate(peak, lr))

        return step_all

    def tensors(self) -> list[OptimizedTensor]:
        """Return everything that the step of each parameter needs, in the order of the parameters."""
        by_index: dict[int, OptimizedTensor] = {}
        for indices, _, peak, group in self._groups:
            columns = zip(*group.moments, strict=True) if group.moments else [()] * len(indices)
            for index, param, moments, count in zip(indices, group.params, columns, group.counts, strict=True):
                by_index[index] = OptimizedTensor(param, moments, count, peak, group.decay)
        return [by_index[index] for index in sorted(by_index)]

    def reset(self) -> None:
        """Set all moments to their initial values."""
        self.counts.zero_()
        self.moments.zero_()
        for views, first in zip(self._moments, self.section.moments.values(), strict=True):
            for view in views if first else ():
                view.fill_(first)

    def _rate(self, peak: float, lr: float) -> float:
        """Return a group's learning rate while the section's is `lr`."""
        return lr if peak == self.section.lr else peak * (lr / self.section.lr)

    def _group(self, rates: Sequence[ParamRate]) -> list[tuple[list[int], Step, float, ParamGroup]]:
        section = self.section
        peaks = [rate.lr for rate in rates] or [section.lr] * len(self._params)
        decays: list[float | None] = [rate.decay for rate in rates] or [None] * len(self._params)
        choices = [
            (*select_step(section, tuple(param.shape), decay), peak)
            for param, decay, peak in zip(self._params, decays, peaks, strict=True)
        ]
        whole = ParamGroup(self._params, self._moments, list(self.counts.unbind()))
        groups = []
        for choice in dict.fromkeys(choices):
            step, decay, peak = choice
            indices = [index for index, other in enumerate(choices) if other == choice]
            groups.append((indices, step, peak, whole.part(indices, decay)))
        return groups

    def _clip(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return clipped copies of the gradients, equal to torch.nn.utils.clip_grad_value_ and clip_grad_norm_."""
        section, clipped = self.section, [gradient for gradient in gradients if gradient is not None]
        if section.clip_value is not None:
            clipped = [gradient.clamp(-section.clip_value, section.clip_value) for gradient in clipped]
        if section.clip_norm is not None and clipped:
            norm = torch.nn.utils.get_total_norm(clipped)
            clipped = list(torch._foreach_mul(clipped, (section.clip_norm / (norm + 1e-6)).clamp(max=1.0)))
        remaining = iter(clipped)
        return [None if gradient is None else next(remaining) for gradient in gradients]
