"""Answers of a network to drawn items, which show whether a rebuilt network is the trained one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from partrain.models.several import zeros
from partrain.seeds import derive, seeded

if TYPE_CHECKING:
    from partrain.models.interface import Interface

PROBED = 2
"""Number of items in a probe."""
PROBE = 64
"""Largest number of numbers kept of a probe."""
CHANGED = "the network built now gives other answers than the one that was trained"
"""Message of a command that builds a network from a checkpoint and finds another probe."""
ROUNDING = 1e-3
"""Largest difference of two probes that another processor or device explains, relative to the largest number (at least 1)."""


def random_items(interface: Interface, count: int, dtype: torch.dtype, seed: int) -> Any:
    """Draw inputs of `count` items of the right shapes and types, with normal numbers. If lengths differ, the first item is full."""
    draw = torch.Generator().manual_seed(seed)
    if not interface.parts:
        if interface.vocabulary is not None:
            return torch.randint(interface.vocabulary, (count, *interface.item), generator=draw)
        numbers = torch.randn((count, *interface.item), generator=draw, dtype=torch.float64)
        for feature, codes in enumerate(interface.categories):
            if codes:
                numbers[:, feature] = torch.randint(codes, (count,), generator=draw).double()
        return numbers.to(dtype)
    items = zeros(interface, count, dtype)
    for part, tensor in zip(interface.parts, items.values() if isinstance(items, dict) else items, strict=True):
        if part.vocabulary is not None:
            tensor.copy_(torch.randint(part.vocabulary, tensor.shape, generator=draw))
        elif part.counts_lengths:
            tensor[1:] = torch.randint(1, int(tensor[0]) + 1, (count - 1,), generator=draw)
        elif part.dtype != "int64":
            tensor.copy_(torch.rand(tensor.shape, generator=draw))
    return items


def answers_to(module: nn.Module, items: Any, draws: int = 0) -> list[Tensor]:
    """Return the tensors of a network's answer to a batch, in evaluation mode. `draws` seeds its random draws."""
    training = module.training
    module.eval()
    try:
        with seeded(derive(draws, "answers")), torch.no_grad():
            answers = module(items)
    finally:
        module.train(training)
    return [leaf.detach() for leaf in tree_leaves(answers) if isinstance(leaf, Tensor)]


def probe(module: nn.Module, interface: Interface) -> Tensor:
    """Return up to PROBE numbers (n,), float64, of a network's answers to drawn items; none if its answer is not a tensor.

    Raises the network's own exceptions for such items.
    """
    first = next(module.parameters())
    items = random_items(interface, PROBED, first.dtype, derive(0, "probe"))
    if first.device.type != "cpu":
        items = torch.utils._pytree.tree_map(lambda tensor: tensor.to(first.device), items)
    numbers = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in answers_to(module, items)]
    flat = torch.cat([leaf.reshape(-1).double().cpu() for leaf in numbers]) if numbers else torch.empty(0, dtype=torch.float64)
    return flat[torch.linspace(0, len(flat) - 1, min(PROBE, len(flat))).long()]


def agree(probes: Tensor, others: Tensor, rounding: float = ROUNDING) -> bool:
    """Return whether two probes, from any devices, come from the same network."""
    finite = others[others.isfinite()].abs()
    scale = max(1.0, float(finite.max())) if len(finite) else 1.0
    return probes.shape == others.shape and torch.allclose(probes, others, rtol=0.0, atol=rounding * scale, equal_nan=True)
