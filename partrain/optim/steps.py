"""One step of each optimizer over a parameter group, through torch's functional API, without torch's bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim._muon import muon
from torch.optim.adagrad import adagrad
from torch.optim.adamax import adamax
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop
from torch.optim.rprop import rprop

from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import Adagrad, Adam, Adamax, AdamW, Muon, NAdam, RAdam, RmsProp, Rprop


@dataclass(frozen=True)
class ParamGroup:
    """Parameters with equal weight decay and learning rate, and their moments."""

    params: list[Tensor]
    moments: list[list[Tensor]]
    """Parts of each row of moments, by parameter."""
    counts: list[Tensor]
    """Steps of each parameter, () each, as torch's functions expect them: a step without its gradient does not count."""
    decay: float = 0.0

    def part(self, indices: Sequence[int], decay: float | None = None) -> ParamGroup:
        """Make a group of some of the parameters."""
        rows = [[row[index] for index in indices] for row in self.moments]
        counts = [self.counts[index] for index in indices]
        decay = self.decay if decay is None else decay
        return ParamGroup([self.params[index] for index in indices], rows, counts, decay)


Step = Callable[[Any, ParamGroup, list[Tensor], float], None]
"""Step function: (section, group, gradients, learning rate)."""


def counts_steps_itself(section: AnyOptimizer) -> bool:
    """Return whether the step function adds 1 to the group's counts, as torch's public functions do and its fused kernels do not."""
    return not isinstance(section, Sgd | Adam | Muon)


def select_step(section: AnyOptimizer, shape: tuple[int, ...], decay: float | None = None) -> tuple[Step, float]:
    """Return the step function and the weight decay of a parameter of this shape. `decay`: its group's weight decay."""
    decaying = getattr(section, "decay", "all") == "all" or len(shape) > 1
    step = _muon_adamw if isinstance(section, Muon) and len(shape) != 2 else _STEPS[type(section)]
    decay = getattr(section, "weight_decay", 0.0) if decay is None else decay
    return step, decay if decaying else 0.0


def _sgd(section: Sgd, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    first = [int(count) == 1 for count in group.counts] if section.dampening else []
    if any(first) and not all(first):  # the kernel takes one answer for all tensors
        for chosen in (True, False):
            indices = [index for index, is_first in enumerate(first) if is_first == chosen]
            _sgd(section, group.part(indices), [gradients[index] for index in indices], lr)
        return
    torch._fused_sgd_(
        group.params,
        gradients,
        group.moments[0] if group.moments else [],
        weight_decay=group.decay,
        momentum=section.momentum,
        lr=lr,
        dampening=section.dampening,
        nesterov=section.nesterov,
        maximize=False,
        is_first_step=any(first),  # without dampening a momentum of zeros gives the same step
    )


def _adam(section: Adam, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    fused = torch._fused_adamw_ if isinstance(section, AdamW) else torch._fused_adam_
    _fused(fused, group, gradients, lr, section.betas, section.eps, amsgrad=section.amsgrad)


def _muon_adamw(section: Muon, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    adamw_lr = lr if section.adamw_lr is None else lr * (section.adamw_lr / section.lr)
    _fused(torch._fused_adamw_, group, gradients, adamw_lr, section.adamw_betas, section.adamw_eps, amsgrad=False)


def _fused(
    fused: Callable[..., None],
    group: ParamGroup,
    gradients: list[Tensor],
    lr: float,
    betas: Sequence[float],
    eps: float,
    *,
    amsgrad: bool,
) -> None:
    fused(
        group.params,
        gradients,
        group.moments[0],
        group.moments[1],
        group.moments[2] if amsgrad else [],
        group.counts,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=group.decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=False,
    )


def _nadam(section: NAdam, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    nadam(
        group.params,
        gradients,
        group.moments[0],
        group.moments[1],
        [torch.tensor(_product(section.betas[0], section.momentum_decay, int(count))) for count in group.counts],
        group.counts,
        section.decoupled_weight_decay,
        beta1=section.betas[0],
        beta2=section.betas[1],
        lr=lr,
        weight_decay=group.decay,
        momentum_decay=section.momentum_decay,
        eps=section.eps,
    )


_PRODUCTS: dict[tuple[float, float], list[float]] = {}


def _product(beta: float, psi: float, steps: int) -> float:
    """Return the product of NAdam's momenta over `steps` steps, rounded to float32 after each, as torch does."""
    products = _PRODUCTS.setdefault((beta, psi), [1.0])
    while len(products) <= steps and products[-1]:
        momentum = beta * (1.0 - 0.5 * (0.96 ** (len(products) * psi)))
        products.append(float(torch.tensor(products[-1]).mul_(momentum)))
    return products[min(steps, len(products) - 1)]


def _radam(section: RAdam, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    radam(
        group.params,
        gradients,
        group.moments[0],
        group.moments[1],
        group.counts,
        section.decoupled_weight_decay,
        beta1=section.betas[0],
        beta2=section.betas[1],
        lr=lr,
        weight_decay=group.decay,
        eps=section.eps,
    )


def _adamax(section: Adamax, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    adamax(
        group.params,
        gradients,
        group.moments[0],
        group.moments[1],
        group.counts,
        eps=section.eps,
        beta1=section.betas[0],
        beta2=section.betas[1],
        lr=lr,
        weight_decay=group.decay,
    )


def _rmsprop(section: RmsProp, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    rows = dict(zip(section.moments, group.moments, strict=True))
    rmsprop(
        group.params,
        gradients,
        rows["square_avg"],
        rows.get("grad_avg", []),
        rows.get("momentum", []),
        group.counts,
        lr=lr,
        alpha=section.alpha,
        eps=section.eps,
        weight_decay=group.decay,
        momentum=section.momentum,
        centered=section.centered,
    )


def _adagrad(section: Adagrad, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    adagrad(
        group.params,
        gradients,
        group.moments[0],
        group.counts,
        lr=lr,
        weight_decay=group.decay,
        lr_decay=section.lr_decay,
        eps=section.eps,
        maximize=False,
    )


def _rprop(section: Rprop, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    (smaller, larger), (minimum, maximum) = section.etas, section.step_sizes
    rprop(
        group.params,
        gradients,
        group.moments[0],
        group.moments[1],
        group.counts,
        step_size_min=minimum,
        step_size_max=maximum,
        etaminus=smaller,
        etaplus=larger,
    )


def _muon(section: Muon, group: ParamGroup, gradients: list[Tensor], lr: float) -> None:
    a, b, c = section.ns_coefficients
    muon(
        group.params,
        gradients,
        group.moments[0],
        lr=lr,
        weight_decay=group.decay,
        momentum=section.momentum,
        nesterov=section.nesterov,
        ns_coefficients=(a, b, c),
        ns_steps=section.ns_steps,
        eps=section.eps,
        adjust_lr_fn=section.adjust_lr_fn,
        has_complex=False,
    )


_STEPS: dict[type, Step] = {
    Sgd: _sgd,
    Adam: _adam,
    AdamW: _adam,
    NAdam: _nadam,
    RAdam: _radam,
    Adamax: _adamax,
    RmsProp: _rmsprop,
    Adagrad: _adagrad,
    Rprop: _rprop,
    Muon: _muon,
}
