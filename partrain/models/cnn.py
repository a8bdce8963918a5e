"""The convolutional networks behind `[model] name = "lenet"` and `"cnn"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from partrain.models.activations import ACTIVATIONS, MONOTONE
from partrain.models.image_sections import LeNet

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.image_sections import Cnn

_POOLINGS: dict[str, type[nn.MaxPool2d | nn.AvgPool2d]] = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}


def build(section: LeNet | Cnn, interface: Interface) -> nn.Module:
    """Build a network: images (batch, channels, height, width) -> (batch, outputs)."""
    return _lenet(section, interface) if isinstance(section, LeNet) else _cnn(section, interface)


def _lenet(section: LeNet, interface: Interface) -> nn.Module:
    """Build convolutions of 6 and 16 channels, each with pooling, then layers of 120 and 84 units."""
    channels, *sides = interface.item
    missing = [max(0, 32 - side) for side in sides]
    border = [part for side in reversed(missing) for part in (side // 2, side - side // 2)]
    height, width = (((side + lack - 4) // 2 - 4) // 2 for side, lack in zip(sides, missing, strict=True))
    activation = ACTIVATIONS[section.activation]
    return nn.Sequential(
        nn.ZeroPad2d((border[0], border[1], border[2], border[3])) if any(border) else nn.Identity(),
        nn.Conv2d(channels, 6, 5), *_activation_and_pooling(section, 2),
        nn.Conv2d(6, 16, 5), *_activation_and_pooling(section, 2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120), activation(),
        nn.Linear(120, 84), activation(),
        nn.Linear(84, interface.answer[-1]),
    )  # fmt: skip


def _cnn(section: Cnn, interface: Interface) -> nn.Module:
    """Build stages of convolutions, then dense layers."""
    channels, height, width = interface.item
    activation = ACTIVATIONS[section.activation]
    layers: list[nn.Module] = []
    for outputs in section.channels:
        for number in range(section.convolutions):
            layers.append(nn.Conv2d(channels, outputs, section.kernel, padding=section.kernel // 2))
            if section.batch_norm:
                layers.append(nn.BatchNorm2d(outputs))
            channels = outputs
            layers += [activation()] if number + 1 < section.convolutions else _activation_and_pooling(section, section.pool)
        height, width = height // section.pool, width // section.pool
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if section.global_pool else [nn.Flatten()]
    units = channels * (1 if section.global_pool else height * width)
    for outputs in section.dense:
        layers += [*_dropout(section), nn.Linear(units, outputs), activation()]
        units = outputs
    return nn.Sequential(*layers, *_dropout(section), nn.Linear(units, interface.answer[-1]))


def _activation_and_pooling(section: LeNet | Cnn, size: int) -> list[nn.Module]:
    """Build an activation and pooling; the pooling comes first if that changes no number."""
    parts = [ACTIVATIONS[section.activation](), *([_POOLINGS[section.pooling](size)] if size > 1 else [])]
    return parts[::-1] if section.pooling == "max" and section.activation in MONOTONE else parts


def _dropout(section: Cnn) -> list[nn.Module]:
    return [nn.Dropout(section.dropout)] if section.dropout else []
