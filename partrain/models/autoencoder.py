"""The networks that give items back: `[model] name = "autoencoder"`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from partrain.models.activations import ACTIVATIONS

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.sections import Autoencoder

KERNEL, STRIDE, PADDING = 3, 2, 1
"""Of each convolution: a side of s becomes one of ceil(s / 2)."""


class Recoder(nn.Module):
    """Items (b, *item) -> codes (b, code) -> items."""

    def __init__(self, encoder: nn.Sequential, decoder: nn.Sequential, noise: float) -> None:
        super().__init__()
        self.encoder, self.decoder, self.noise = encoder, decoder, noise

    def encode(self, items: Tensor) -> Tensor:
        """Items (b, *item) -> codes (b, code)."""
        codes: Tensor = self.encoder(items)
        return codes

    def decode(self, codes: Tensor) -> Tensor:
        """Codes (b, code) -> items (b, *item)."""
        items: Tensor = self.decoder(codes)
        return items

    def forward(self, items: Tensor) -> Tensor:
        if self.training and self.noise:
            items = items + self.noise * torch.randn_like(items)
        return self.decode(self.encode(items))


def build(section: Autoencoder, interface: Interface) -> Recoder:
    """Convolutions, linear layers, code; and their mirror image."""
    shapes = [interface.item]
    for channels in section.channels:
        shapes.append((channels, *(-(-side // STRIDE) for side in shapes[-1][1:])))
    widths = [math.prod(shapes[-1]), *section.hidden, section.code]
    flat = len(shapes[-1]) == 1
    inward = [nn.Conv2d(before[0], after[0], KERNEL, STRIDE, PADDING) for before, after in pairwise(shapes)]
    flatten = [] if flat else [nn.Flatten()]
    squeeze = [nn.Linear(before, after) for before, after in pairwise(widths)]
    stretch = [nn.Linear(before, after) for before, after in pairwise(reversed(widths))]
    unflatten = [] if flat else [nn.Unflatten(1, shapes[-1])]
    outward = [_grow(before, after) for before, after in pairwise(reversed(shapes))]
    encoder = _connected(section, [*inward, *flatten, *squeeze])
    decoder = _connected(section, [*stretch, *unflatten, *outward])
    return Recoder(nn.Sequential(*encoder), nn.Sequential(*decoder, ACTIVATIONS[section.output_activation]()), section.noise)


def _grow(before: tuple[int, ...], after: tuple[int, ...]) -> nn.Module:
    """The mirror image of a convolution: a side of s becomes 2 s, or 2 s - 1 where the original was odd."""
    extra = [1 - side % STRIDE for side in after[1:]]
    return nn.ConvTranspose2d(before[0], after[0], KERNEL, STRIDE, PADDING, (extra[0], extra[1]))


def _connected(section: Autoencoder, layers: list[nn.Module]) -> list[nn.Module]:
    """Layers, each but the last that has weights followed by BatchNorm, if wanted, and activation."""
    *weighty, _ = [layer for layer in layers if not isinstance(layer, nn.Flatten | nn.Unflatten)]
    connected: list[nn.Module] = []
    for layer in layers:
        connected.append(layer)
        if any(layer is one for one in weighty):
            if section.batch_norm:
                connected.append(_norm(layer))
            connected.append(ACTIVATIONS[section.activation]())
    return connected


def _norm(layer: nn.Module) -> nn.Module:
    """BatchNorm of what a layer gives."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        return nn.BatchNorm2d(layer.out_channels)
    assert isinstance(layer, nn.Linear)
    return nn.BatchNorm1d(layer.out_features)
