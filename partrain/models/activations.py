"""Activations of the built-in networks, by name."""

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "none": nn.Identity,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}
MONOTONE = ("none", "relu", "leaky_relu", "elu", "tanh", "sigmoid")
"""Activations that commute with a maximum: after maximum pooling they give the same numbers with less work."""
