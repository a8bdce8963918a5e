"""Networks of published kinds that do more in training than take gradients. Tests copy this file beside a job.

Points (b, 2) -> logits (b, 3).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

ARMED = Path(__file__).with_name("armed")


def die_once(judgement: Any) -> None:
    """Kill worker 0 after the judgement of round 3, if the test has armed it. A hook."""
    if judgement.round == 3 and not judgement.dry_run and ARMED.exists():
        ARMED.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Net(nn.Module):
    """Two layers; subclasses change them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)))


class Codebook(Net):
    """VQ-VAE (van den Oord 2017): codes follow what is coded by a moving mean; the gradient passes straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(6, 8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x))
        nearest = (hidden[:, None] - self.codes).square().sum(2).argmin(1)
        if self.training:
            with torch.no_grad():
                for code in nearest.unique():
                    self.codes[code] = self.codes[code].lerp(hidden[nearest == code].mean(0), 0.1)
        return self.head(hidden + (self.codes[nearest] - hidden).detach())


class Teacher(Net):
    """BYOL (Grill 2020), MoCo (He 2020): a frozen copy follows by a momentum. It is exchanged by `.data`, as published code does."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(2, 8).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            for slow, fast in zip(self.teacher.parameters(), self.body.parameters(), strict=True):
                slow.data = slow.data * 0.9 + fast.data * 0.1
            return super().forward(x)
        return self.head(torch.tanh(self.teacher(x)))


class SpectralNorm(Net):
    """Miyato 2018: vectors of the power iteration are buffers that move in training."""

    def __init__(self) -> None:
        super().__init__()
        self.body = parametrizations.spectral_norm(self.body)


class WeightNorm(Net):
    """Salimans 2016: a weight is a direction and a length."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = parametrizations.weight_norm(self.body), parametrizations.weight_norm(self.head)


class Tied(Net):
    """Two layers share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.outer.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.outer(torch.tanh(self.inner(self.body(x)))))


class LazyLayers(Net):
    """Layers that take their sizes from the first items."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LazyLinear(8), nn.LazyLinear(3)


class Annealed(Net):
    """A temperature that falls with the steps, which a buffer counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        return super().forward(x) / (1 + 2 / (1 + self.steps))


class Noisy(Net):
    """Noise in training, from the generators of torch, Python and numpy."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            import random

            import numpy as np

            x = x + 0.1 * torch.randn_like(x) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return super().forward(functional.dropout(x, 0.1, self.training))


class Unfrozen(Annealed):
    """Gradual unfreezing (Howard 2018): the first layer learns from step 5 on."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        hidden = self.body(x)
        return self.head(torch.tanh(hidden.detach() if self.training and self.steps < 5 else hidden))


class FrozenPart(Net):
    """A frozen part in evaluation mode: its BatchNorm keeps its statistics. Another BatchNorm is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
        self.norm = nn.BatchNorm1d(2)

    def train(self, mode: bool = True) -> FrozenPart:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(self.frozen(x)))


class Rotary(Net):
    """Rotary factors (Su 2021) in a complex buffer, and a complex mean that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factors", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.register_buffer("phase", torch.zeros(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(torch.tanh(self.body(x)).reshape(-1, 4, 2)) * self.factors
        if self.training:
            self.phase.lerp_(turned.detach().mean(0), 0.1)
        return self.head(torch.view_as_real(turned - self.phase).flatten(1))


class MixedTypes(Net):
    """Buffers of float64, int64 and bool beside parameters of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("items", torch.zeros((), dtype=torch.int64))
        self.register_buffer("positive", torch.zeros(2, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.items += len(x)
            self.mean.lerp_(x.detach().double().mean(0), 0.1)
            self.positive |= (x > 0).any(0)
        return super().forward((x.double() - self.mean).float() * self.positive)


class Ensemble(Net):
    """Two heads, one of which takes part in some batches only."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x))
        return self.head(hidden) + (self.second(hidden) if not self.training or x[0, 0] > 0 else 0)


class Hooked(Net):
    """A gradient hook, as of gradient reversal or clipping by layer, and a module hook."""

    def __init__(self) -> None:
        super().__init__()
        self.body.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        self.head.register_forward_hook(lambda module, inputs, answers: answers / 2)
