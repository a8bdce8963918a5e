"""Small networks by name, for every kind of item and task, and items to train them on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from support.lab import Trial
from torch import nn

from partrain.models import AnyModel, Interface, build
from partrain.tasks import make
from partrain.training.batches import Samples

SECTIONS: TypeAdapter[Any] = TypeAdapter(AnyModel)

NUMBERS = Interface((5,), 3, "classification")
CURVE = Interface((5,), 2, "regression")
IMAGES = Interface((2, 9, 8), 3, "classification")
SERIES = Interface((6, 2), 4, "forecast")
TEXT = Interface((7,), 11, "language", 11)
WORDS = Interface((7,), 3, "classification", 11)
BACK = Interface((5,), 3, "autoencoder")
ROWS = Interface((4,), 3, "classification", categories=(0, 5, 0, 3))
PICTURES = Interface((2, 9, 8), 3, "autoencoder")


@dataclass(frozen=True)
class Case:
    """A `[model]` table and the interface of its network."""

    interface: Interface
    settings: dict[str, Any]

    def build(self, **more: Any) -> nn.Module:
        """Build the network; torch's default generator draws its parameters."""
        return build(SECTIONS.validate_python(self.settings | more), Path(), self.interface)

    def items(self, count: int) -> Samples:
        """Return random items and targets of the right shapes, the same at each call."""
        generator, interface = torch.Generator().manual_seed(5), self.interface
        if interface.vocabulary is None:
            inputs = torch.randn(count, *interface.item, generator=generator)
            for at, codes in enumerate(interface.categories):
                if codes:
                    inputs[:, at] = torch.randint(codes, (count,), generator=generator)
        else:
            inputs = torch.randint(interface.vocabulary, (count, *interface.item), generator=generator)
        if interface.task == "language":
            targets = torch.randint(interface.outputs, (count, *interface.item), generator=generator)
        elif interface.task in ("regression", "forecast"):
            targets = torch.randn(count, interface.outputs, generator=generator)
        else:
            targets = torch.randint(interface.outputs, (count,), generator=generator)
        return Samples(inputs, targets, 1.0)


CASES = {
    "linear": Case(NUMBERS, {"name": "linear"}),
    "linear, pictures": Case(PICTURES, {"name": "linear"}),
    "mlp": Case(CURVE, {"name": "mlp", "hidden": [8], "activation": "silu"}),
    "mlp, restless": Case(IMAGES, {"name": "mlp", "hidden": [8, 6], "batch_norm": True, "dropout": 0.25}),
    "mlp, back": Case(BACK, {"name": "mlp", "hidden": [4], "output_activation": "tanh"}),
    "tabular": Case(
        ROWS, {"name": "tabular", "width": 8, "hidden": 6, "blocks": 1, "dropout": 0.25, "periodic": 2, "frequencies": 3}
    ),
    "tabular, members": Case(
        ROWS, {"name": "tabular", "width": 8, "hidden": 6, "members": 3, "periodic": 2, "linear": True, "dropout": 0.2}
    ),
    "tabular, numbers": Case(CURVE, {"name": "tabular", "width": 6, "hidden": 6, "blocks": 2, "dropout": 0, "periodic": 0}),
    "autoencoder": Case(BACK, {"name": "autoencoder", "hidden": [6], "code": 2, "noise": 0.3, "batch_norm": True}),
    "autoencoder, convolutions": Case(
        PICTURES, {"name": "autoencoder", "channels": [4, 6], "hidden": [], "code": 3, "batch_norm": True, "activation": "elu"}
    ),
    "lenet": Case(IMAGES, {"name": "lenet"}),
    "cnn": Case(
        IMAGES, {"name": "cnn", "channels": [4, 6], "convolutions": 2, "dense": [8], "batch_norm": True, "dropout": 0.25}
    ),
    "cnn, frozen": Case(IMAGES, {"name": "cnn", "channels": [4], "global_pool": True, "freeze": ["0.*", "*.bias"]}),
    "resnet": Case(IMAGES, {"name": "resnet"}),
    "resnet, groups": Case(IMAGES, {"name": "resnet", "norm": "group", "groups": 4}),
    "rnn": Case(WORDS, {"name": "rnn", "hidden": 6, "embedding": 4, "nonlinearity": "relu", "bidirectional": True}),
    "lstm, text": Case(TEXT, {"name": "lstm", "hidden": 6, "embedding": 4, "layers": 2, "dropout": 0.25}),
    "lstm, series": Case(SERIES, {"name": "lstm", "hidden": 6, "layers": 2, "bidirectional": True, "dropout": 0.25}),
    "gru": Case(SERIES, {"name": "gru", "hidden": 6}),
    "gru, frozen": Case(TEXT, {"name": "gru", "hidden": 6, "embedding": 4, "freeze": ["embedding.*"]}),
    "bag": Case(WORDS, {"name": "bag", "embedding": 6, "hidden": [5], "dropout": 0.25}),
    "transformer": Case(WORDS, {"name": "transformer", "width": 8, "layers": 2, "heads": 2, "dropout": 0.25}),
    "transformer, tied": Case(TEXT, {"name": "transformer", "width": 8, "layers": 2, "heads": 2, "tied": True}),
    "transformer, series": Case(SERIES, {"name": "transformer", "width": 8, "layers": 1, "heads": 1}),
}


def lesson(case: Case, count: int = 24, **more: Any) -> Trial:
    """Return a trial of two workers that train the network of a case."""
    parts = range(count // 2 - 1), range(count // 2 - 1, count)
    task = make(None, case.interface.task, Path())
    return Trial(**{"network": case.build, "items": case.items(count), "partitions": parts, "task": task} | more)


def answers(case: Case, count: int = 4) -> tuple[int, ...]:
    """Return the shape of the answers to `count` items."""
    return (count, *case.interface.answer)


def size(module: nn.Module) -> int:
    """Count the numbers of all parameters, those of tied ones once."""
    return sum(math.prod(parameter.shape) for parameter in module.parameters())
