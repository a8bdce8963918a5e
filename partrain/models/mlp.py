"""The fully connected network behind `[model] name = "mlp"`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from partrain.models import Mlp

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


def build(section: Mlp, item_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Items of any shape, flattened -> (batch, outputs)."""
    layers: list[nn.Module] = [nn.Flatten()] if len(item_shape) > 1 else []
    width = math.prod(item_shape)
    for units in section.hidden:
        layers.append(nn.Linear(width, units))
        if section.batch_norm:
            layers.append(nn.BatchNorm1d(units))
        layers.append(_ACTIVATIONS[section.activation]())
        if section.dropout:
            layers.append(nn.Dropout(section.dropout))
        width = units
    layers.append(nn.Linear(width, outputs))
    if section.output_activation != "none":
        layers.append(_ACTIVATIONS[section.output_activation]())
    module = nn.Sequential(*layers)
    if section.init_range is not None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.uniform_(-section.init_range, section.init_range)
    return module
