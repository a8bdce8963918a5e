"""A trained network as one module, preceded by the conversion of raw values and followed by the conversion of answers.

    raw values -> [fill in, one-hot, codes, parts of dates, differences, scale, standardize] -> network
               -> [softmax or sigmoid, label | units of the targets, sums of differences | error]

A graph cannot refuse an item. So it gives NaN answers, and the label -1, for an item with an unfilled missing value, a number
beyond the network's type, an unknown token or an answer that is not finite. `predict` refuses the same items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from partrain.inference.preprocessing import Preprocessing, padded_name, scaled_bytes
from partrain.tasks.kinds import answered, finite

_NAMES = {"probability": "probabilities", "label": "label", "answer": "answers", "error": "error"}
"""Names of the outputs, by the names of `predict`'s columns."""


class Preprocessed(nn.Module):
    """Raw values in, answers in the form of `predict` out."""

    def __init__(self, recipe: Preprocessing) -> None:
        super().__init__()
        self.recipe, self.network = recipe, recipe.network.module
        self.dtype = torch.float64 if recipe.network.dtype == torch.float64 else torch.float32

    def forward(
        self,
        inputs: Any = None,
        numbers: Tensor | None = None,
        dates: Tensor | None = None,
        codes: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Compute the outputs (n, ...) by name. `inputs`: a tensor, or a dict of tensors if there are several."""
        record = self.recipe.network.record
        if record.parts:
            items, fine = self._several(inputs)
        elif record.vocabulary is not None:
            items, fine = _tokens(inputs, record.vocabulary)
        else:
            raw = {"inputs": inputs, "numbers": numbers, "dates": dates, "codes": codes}
            items, fine_part = self.recipe.items(torch, raw)
            items = items.to(self.dtype)
            fine = finite(items).flatten(1).all(1)
            fine = fine if fine_part is None else fine & fine_part
        if self.recipe.continues:
            fine = fine & finite(inputs).flatten(1).all(1)
        return self._outputs(self.network(items), fine, items, inputs)

    def _outputs(self, answers: Tensor, fine: Tensor, items: Any, raw: Any) -> Mapping[str, Tensor]:
        """Convert the network's answers. `fine` (n,): mask of items that the network can take."""
        network, codec = self.recipe.network, self.recipe.codec
        newest = None
        if self.recipe.continues:
            newest = raw[:, -sum(codec.lags) :, [self.recipe.columns.index(name) for name in codec.targets]].double()
        reduced = network.kind.reduce(network.task, answers, items, probabilities=True)
        columns = network.kind.columns(network.task, reduced, newest, codec.restore_units, probabilities=True)
        fine = fine & answered(columns)
        named = {_NAMES[name]: column for name, column in columns.items()}
        return {name: _masked(named[name], fine, -1 if name == "label" else math.nan) for name in self.recipe.outputs}

    def _several(self, raw: Mapping[str, Tensor]) -> tuple[Any, Tensor]:
        """Convert several raw inputs; return the network's call argument, and a mask (n,) of the items that get answers."""
        inputs: dict[str, Tensor] = {}
        fine: list[Tensor] = []
        parts = dict(zip(self.recipe.names, self.recipe.network.record.parts, strict=True))
        for name, part in parts.items():
            if part.vocabulary is not None:
                inputs[name], fine_part = _tokens(raw[name], part.vocabulary)
            elif part.dtype == "int64":
                longest = parts[padded_name(name)].shape[0]
                fine_part = (raw[name] >= 1) & (raw[name] <= longest)
                inputs[name] = raw[name].clamp(1, longest)
            else:
                inputs[name] = scaled_bytes(torch, raw[name]).float().to(self.dtype)
                fine_part = finite(inputs[name]).flatten(1).all(1)
            fine.append(fine_part)
        named = next(iter(parts.values())).name
        return inputs if named else tuple(inputs.values()), torch.stack(fine).all(0)


def _tokens(raw: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return tokens (n, ...) clipped to the vocabulary, and a mask (n,) of the items whose tokens are all in it."""
    fine = ((raw >= 0) & (raw < vocabulary)).flatten(1).all(1)
    return raw.clamp(0, vocabulary - 1), fine


def _masked(answers: Tensor, fine: Tensor, other: float) -> Tensor:
    """Replace the answers (n, ...) of items that get no answer."""
    answered = fine.reshape(-1, *[1] * (answers.dim() - 1))
    return torch.where(answered, answers, torch.full_like(answers, other))
