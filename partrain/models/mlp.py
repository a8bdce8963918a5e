"""The fully connected networks behind `[model] name = "linear"` and `"mlp"`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from partrain.models.activations import ACTIVATIONS
from partrain.models.sections import Mlp

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.sections import Linear


def build(section: Linear | Mlp, interface: Interface) -> nn.Module:
    """Build a network: items of any shape, flattened -> (batch, outputs), or the items' shape for an autoencoder."""
    settings = section if isinstance(section, Mlp) else Mlp(name="mlp", hidden=[])
    layers: list[nn.Module] = [nn.Flatten()] if len(interface.item) > 1 else []
    width = math.prod(interface.item)
    for units in settings.hidden:
        layers.append(nn.Linear(width, units))
        if settings.batch_norm:
            layers.append(nn.BatchNorm1d(units))
        layers.append(ACTIVATIONS[settings.activation]())
        if settings.dropout:
            layers.append(nn.Dropout(settings.dropout))
        width = units
    layers.append(nn.Linear(width, math.prod(interface.answer)))
    if settings.output_activation != "none":
        layers.append(ACTIVATIONS[settings.output_activation]())
    if len(interface.answer) > 1:
        layers.append(nn.Unflatten(1, interface.answer))
    module = nn.Sequential(*layers)
    if settings.init_range is not None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.uniform_(-settings.init_range, settings.init_range)
    return module
