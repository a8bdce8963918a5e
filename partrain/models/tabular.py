"""The network behind `[model] name = "tabular"`: embeddings of categories and of numbers, then residual blocks.

Gorishniy, Rubachev, Khrulkov, Babenko. Revisiting Deep Learning Models for Tabular Data. 2021. arXiv:2106.11959 (the blocks).
Gorishniy, Rubachev, Babenko. On Embeddings for Numerical Features in Tabular Deep Learning. 2022. arXiv:2203.05556 (the embeddings).
Gorishniy, Kotelnikov, Babenko. TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling. 2024. arXiv:2410.24210 (the members).

Symbols: b items of a batch; n numbers of an item; c of them codes; w width of an embedding; k outputs; m members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.models import Interface
    from partrain.models.sections import TabularNetwork


DRAWS = 1 << 16
"""Number of different draws that decide whether to drop a unit."""


class PeriodicEmbedding(nn.Module):
    """Numbers (b, n) -> (b, n * w): sines and cosines of learned frequencies, mixed by one linear layer for all numbers."""

    def __init__(self, numbers: int, frequencies: int, width: int, sigma: float) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.empty(numbers, frequencies))
        nn.init.trunc_normal_(self.frequencies, 0.0, sigma, -3 * sigma, 3 * sigma)
        self.mix = nn.Linear(2 * frequencies, width)

    def forward(self, numbers: Tensor) -> Tensor:
        angles = 2 * math.pi * self.frequencies * numbers.unsqueeze(-1)
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        return self.mix(waves).relu().flatten(1)  # type: ignore[no-any-return]


class ItemDropout(nn.Module):
    """Dropout of an item's units (b, width), the same for all members (b, m, width). 16 random bits decide per unit: drawing is slow."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.limit = min(round(share * DRAWS), DRAWS - 1)
        """Number of draws, out of `DRAWS`, that drop a unit."""

    def draw(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Draw from [-DRAWS / 2, DRAWS / 2) for each unit; draws below limit - DRAWS / 2 drop it."""
        units = math.prod(shape)
        words = torch.empty((units + 3) // 4, dtype=torch.int64, device=device)
        return words.random_(-(2**63), None).view(torch.int16)[:units].view(*shape)

    def forward(self, features: Tensor) -> Tensor:
        if not self.training or not self.limit:
            return features
        units = features[:, :1] if features.dim() > 2 else features
        kept = self.draw(units.shape, features.device) >= self.limit - DRAWS // 2
        return features * (kept.to(features.dtype) * (DRAWS / (DRAWS - self.limit)))


class TabularBlock(nn.Module):
    """Residual block: (b, width) or (b, m, width) -> the same."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, hidden),
            nn.ReLU(),
            ItemDropout(dropout),
            nn.Linear(hidden, width),
            ItemDropout(dropout / 2),
        )

    def forward(self, features: Tensor) -> Tensor:
        return features + self.layers(features)  # type: ignore[no-any-return]


class Heads(nn.Module):
    """Features (b, m, width) -> answers (b, m, k): a linear layer for each member."""

    def __init__(self, members: int, width: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, width, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs))
        with torch.no_grad():  # no torch.stack: on the device `meta` it imports torch's compiler, which takes a second
            for weight, bias in zip(self.weight, self.bias, strict=True):
                layer = nn.Linear(width, outputs)
                weight.copy_(layer.weight.T)
                bias[0].copy_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, features.transpose(0, 1), self.weight).transpose(0, 1)


class TabularModule(nn.Module):
    """Items (b, n), codes of categories among them -> answers (b, k).

    Members share all layers except the factors of the features at the entrance, which start as random signs, and the last layer. In training
    mode each member answers each item (b * m, k); in evaluation mode the answers are the members' mean.
    """

    def __init__(self, section: TabularNetwork, interface: Interface) -> None:
        super().__init__()
        self.settings = section, interface
        counts = interface.categories or (0,) * interface.item[0]
        self.coded = [at for at, count in enumerate(counts) if count]
        self.plain = [at for at, count in enumerate(counts) if not count]
        sizes = [(count, min(section.embedding, count // 2 + 1)) for count in counts if count]
        self.embeddings = nn.ModuleList(nn.Embedding(*size) for size in sizes)
        for embedding, (_, size) in zip(self.embeddings, sizes, strict=True):
            nn.init.normal_(embedding.weight, 0.0, size**-0.5)  # type: ignore[arg-type]
        width = sum(size for _, size in sizes) + len(self.plain)
        self.periodic = None
        if section.periodic and self.plain:
            self.periodic = PeriodicEmbedding(len(self.plain), section.frequencies, section.periodic, section.sigma)
            width += len(self.plain) * section.periodic
        self.answers_per_item = section.members
        self.factors = None
        if section.members > 1:
            self.factors = nn.Parameter(torch.empty(section.members, width).bernoulli_(0.5).mul_(2).sub_(1))
        self.enter = nn.Linear(width, section.width)
        self.blocks = nn.Sequential(
            *(TabularBlock(section.width, section.hidden, section.dropout) for _ in range(section.blocks))
        )
        self.straight = None
        if section.linear and self.plain:
            self.straight = nn.Linear(len(self.plain), math.prod(interface.answer), bias=False)
            nn.init.zeros_(self.straight.weight)
        self.outputs = outputs = math.prod(interface.answer)
        last = nn.Linear(section.width, outputs) if self.factors is None else Heads(section.members, section.width, outputs)
        self.leave = nn.Sequential(nn.LayerNorm(section.width), nn.ReLU(), last)

    def forward(self, items: Tensor) -> Tensor:
        numbers = items[:, self.plain]
        parts = [embedding(items[:, at].round().long()) for at, embedding in zip(self.coded, self.embeddings, strict=True)]
        parts += [numbers, *([self.periodic(numbers)] if self.periodic is not None else [])]
        features = torch.cat(parts, dim=1)
        if self.factors is not None:
            features = features.unsqueeze(1) * self.factors
        answers: Tensor = self.leave(self.blocks(self.enter(features)))
        if self.straight is not None:
            straight = self.straight(numbers)
            answers = answers + (straight if self.factors is None else straight.unsqueeze(1))
        if self.factors is None:
            return answers
        return answers.flatten(0, 1) if self.training else answers.mean(1)


PENALTIES = 0.0001, 0.001, 0.01, 0.1, 1.0
"""Penalties that the ridge regression tries, per item and for numbers of deviation 1."""
NEWEST = 0.2
"""Share of the items, from the end, that choose the penalty."""


def start_from_items(module: nn.Module, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
    """Start the linear path as a ridge regression of numeric targets (n, k); it stays 0 if their mean errs less on the last items.

    `inputs` (n, features) and `targets` are the training items', in data set order. For classes (n,) the path starts at 0.
    """
    assert isinstance(module, TabularModule)
    path = module.straight
    if path is None or targets.ndim != 2 or targets.shape[1] != path.out_features:
        return
    x, y = torch.from_numpy(inputs[:, module.plain]).double(), torch.from_numpy(targets).double()
    older = len(x) - int(NEWEST * len(x))
    fits = {penalty: _ridge(x[:older], y[:older], penalty) for penalty in PENALTIES}
    newer, rest = x[older:] - x[:older].mean(0), y[older:] - y[:older].mean(0)
    errors = {penalty: float((rest - newer @ weights).square().sum()) for penalty, weights in fits.items()}
    best = min(errors, key=errors.__getitem__)
    if errors[best] < float(rest.square().sum()):
        with torch.no_grad():
            path.weight.copy_(_ridge(x, y, best).T)


def _ridge(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """Return the weights (p, k) of the ridge regression of y (n, k) on x (n, p)."""
    x, y = x - x.mean(0), y - y.mean(0)
    weights: Tensor = torch.linalg.solve(x.T @ x + penalty * len(x) * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)
    return weights


def build(section: TabularNetwork, interface: Interface) -> nn.Module:
    """Build a network: items (b, n) -> answers (b, k)."""
    return TabularModule(section, interface)
