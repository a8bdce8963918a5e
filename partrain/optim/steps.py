"""One step of each optimizer over tensors that are treated alike: torch's own functions, without the bookkeeping around them."""

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
class Tensors:
    """Parameters with one weight decay, and what the optimizer keeps of each."""

    params: list[Tensor]
    moments: list[list[Tensor]]
    """Of each row, the part that belongs to each parameter."""
    count: Tensor
    """(n,): the number of steps, as torch's functions want it; `counts` are its numbers."""
    counts: list[Tensor]
    decay: float

    @classmethod
    def of(cls, params: list[Tensor], moments: list[list[Tensor]], device: torch.device) -> Tensors:
        """All parameters of a network; `device`: where the number of steps is kept."""
        count = torch.zeros(len(params), device=device)
        return cls(params, moments, count, list(count.unbind()), 0.0)

    def part(self, indices: Sequence[int], decay: float | None = None) -> Tensors:
        """Some of them."""
        rows = [[row[index] for index in indices] for row in self.moments]
        counts = [self.counts[index] for index in indices]
        decay = self.decay if decay is None else decay
        return Tensors([self.params[index] for index in indices], rows, self.count, counts, decay)


Step = Callable[[Any, Tensors, list[Tensor], int, float], None]
"""Of a section, over tensors and their gradients; how many steps there are with this one; learning rate."""


def step_of(section: AnyOptimizer, shape: tuple[int, ...]) -> tuple[Step, float]:
    """How a parameter of this shape is stepped, and its weight decay."""
    decaying = getattr(section, "decay", "all") == "all" or len(shape) > 1
    step = _beside_muon if isinstance(section, Muon) and len(shape) != 2 else _STEPS[type(section)]
    return step, getattr(section, "weight_decay", 0.0) if decaying else 0.0


def _sgd(section: Sgd, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    torch._fused_sgd_(
        of.params,
        gradients,
        of.moments[0] if of.moments else [],
        weight_decay=of.decay,
        momentum=section.momentum,
        lr=lr,
        dampening=section.dampening,
        nesterov=section.nesterov,
        maximize=False,
        is_first_step=steps == 1 and section.dampening > 0,  # otherwise zeros are as good
    )


def _adam(section: Adam, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    fused = torch._fused_adamw_ if isinstance(section, AdamW) else torch._fused_adam_
    _fused(fused, of, gradients, steps, lr, section.betas, section.eps, section.amsgrad)


def _beside_muon(section: Muon, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    own = lr if section.adamw_lr is None else lr * (section.adamw_lr / section.lr)
    _fused(torch._fused_adamw_, of, gradients, steps, own, section.adamw_betas, section.adamw_eps, amsgrad=False)


def _fused(
    fused: Callable[..., None],
    of: Tensors,
    gradients: list[Tensor],
    steps: int,
    lr: float,
    betas: Sequence[float],
    eps: float,
    amsgrad: bool,
) -> None:
    of.count.fill_(steps)
    fused(
        of.params,
        gradients,
        of.moments[0],
        of.moments[1],
        of.moments[2] if amsgrad else [],
        of.counts,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=of.decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=False,
    )


def _nadam(section: NAdam, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    of.count.fill_(steps - 1)
    product = _product(section.betas[0], section.momentum_decay, steps - 1)
    nadam(
        of.params,
        gradients,
        of.moments[0],
        of.moments[1],
        list(torch.full((len(of.params),), product).unbind()),
        of.counts,
        section.decoupled_weight_decay,
        beta1=section.betas[0],
        beta2=section.betas[1],
        lr=lr,
        weight_decay=of.decay,
        momentum_decay=section.momentum_decay,
        eps=section.eps,
    )


_PRODUCTS: dict[tuple[float, float], list[float]] = {}


def _product(beta: float, psi: float, steps: int) -> float:
    """Product of NAdam's momenta of so many steps, rounded to float32 after each, as torch keeps it with each tensor."""
    products = _PRODUCTS.setdefault((beta, psi), [1.0])
    while len(products) <= steps and products[-1]:
        momentum = beta * (1.0 - 0.5 * (0.96 ** (len(products) * psi)))
        products.append(float(torch.tensor(products[-1]).mul_(momentum)))
    return products[min(steps, len(products) - 1)]


def _radam(section: RAdam, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    of.count.fill_(steps - 1)  # these functions count on by themselves
    radam(
        of.params,
        gradients,
        of.moments[0],
        of.moments[1],
        of.counts,
        section.decoupled_weight_decay,
        beta1=section.betas[0],
        beta2=section.betas[1],
        lr=lr,
        weight_decay=of.decay,
        eps=section.eps,
    )


def _adamax(section: Adamax, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    of.count.fill_(steps - 1)
    adamax(
        of.params,
        gradients,
        of.moments[0],
        of.moments[1],
        of.counts,
        eps=section.eps,
        beta1=section.betas[0],
        beta2=section.betas[1],
        lr=lr,
        weight_decay=of.decay,
    )


def _rmsprop(section: RmsProp, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    rows = dict(zip(section.moments, of.moments, strict=True))
    rmsprop(
        of.params,
        gradients,
        rows["square_avg"],
        rows.get("grad_avg", []),
        rows.get("momentum", []),
        of.counts,
        lr=lr,
        alpha=section.alpha,
        eps=section.eps,
        weight_decay=of.decay,
        momentum=section.momentum,
        centered=section.centered,
    )


def _adagrad(section: Adagrad, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    of.count.fill_(steps - 1)
    adagrad(
        of.params,
        gradients,
        of.moments[0],
        of.counts,
        lr=lr,
        weight_decay=of.decay,
        lr_decay=section.lr_decay,
        eps=section.eps,
        maximize=False,
    )


def _rprop(section: Rprop, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    (smaller, larger), (least, most) = section.etas, section.step_sizes
    rprop(
        of.params,
        gradients,
        of.moments[0],
        of.moments[1],
        of.counts,
        step_size_min=least,
        step_size_max=most,
        etaminus=smaller,
        etaplus=larger,
    )


def _muon(section: Muon, of: Tensors, gradients: list[Tensor], steps: int, lr: float) -> None:
    a, b, c = section.ns_coefficients
    muon(
        of.params,
        gradients,
        of.moments[0],
        lr=lr,
        weight_decay=of.decay,
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
