"""The autoencoders behind `[model] name = "autoencoder"`."""

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
"""Settings of each convolution: a side of s becomes one of ceil(s / 2)."""


class AutoencoderNetwork(nn.Module):
    """Items (b, *item) -> codes (b, code) -> items."""

    def __init__(self, encoder: nn.Sequential, decoder: nn.Sequential, noise: float) -> None:
        super().__init__()
        self.encoder, self.decoder, self.noise = encoder, decoder, noise

    def encode(self, items: Tensor) -> Tensor:
        """Encode items (b, *item) as codes (b, code)."""
        codes: Tensor = self.encoder(items)
        return codes

    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes (b, code) into items (b, *item)."""
        items: Tensor = self.decoder(codes)
        return items

    def forward(self, items: Tensor) -> Tensor:
        if self.training and self.noise:
            items = items + self.noise * torch.randn_like(items)
        return self.decode(self.encode(items))


def build(section: Autoencoder, interface: Interface) -> AutoencoderNetwork:
    """Build convolutions, linear layers and the code, then their mirror image."""
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
    outward = [_transposed(before, after) for before, after in pairwise(reversed(shapes))]
    encoder = _with_activations(section, [*inward, *flatten, *squeeze])
    decoder = _with_activations(section, [*stretch, *unflatten, *outward])
    return AutoencoderNetwork(
        nn.Sequential(*encoder), nn.Sequential(*decoder, ACTIVATIONS[section.output_activation]()), section.noise
    )


def _transposed(before: tuple[int, ...], after: tuple[int, ...]) -> nn.Module:
    """Return the mirror image of a convolution: a side of s becomes 2 s, or 2 s - 1 if the original side was odd."""
    extra = [1 - side % STRIDE for side in after[1:]]
    return nn.ConvTranspose2d(before[0], after[0], KERNEL, STRIDE, PADDING, (extra[0], extra[1]))


def _with_activations(section: Autoencoder, layers: list[nn.Module]) -> list[nn.Module]:
    """Add an activation, after BatchNorm if the section asks for it, after each layer with weights but the last."""
    *activated, _ = [layer for layer in layers if not isinstance(layer, nn.Flatten | nn.Unflatten)]
    result: list[nn.Module] = []
    for layer in layers:
        result.append(layer)
        if any(layer is other for other in activated):
            if section.batch_norm:
                result.append(_norm(layer))
            result.append(ACTIVATIONS[section.activation]())
    return result


def _norm(layer: nn.Module) -> nn.Module:
    """Return a BatchNorm for the output of a layer."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        return nn.BatchNorm2d(layer.out_channels)
    assert isinstance(layer, nn.Linear)
    return nn.BatchNorm1d(layer.out_features)
