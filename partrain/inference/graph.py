"""A trained network with the conversion of raw values in front of it and that of answers behind it, as one module.

    raw values -> [fill in, one-hot, codes, parts of dates, differences, scale, standardize] -> network
               -> [softmax or sigmoid, label | units of the targets, sums of differences | error]

A graph cannot refuse an item. So an item with a missing value that is not filled in, a number beyond the network's type, or an unknown
token gets NaN as its answers, and -1 as its label. `predict` refuses the same items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from partrain.byte_layout import LENGTHS, InputPart
from partrain.data.tables.differences import integrate
from partrain.inference.preprocess import GraphRecipe
from partrain.inference.table_graph import TableFeatures
from partrain.tasks.answers import labels_of, probabilities_of, reconstruction_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Preprocessed(nn.Module):
    """Raw values in, answers as `predict` gives them out."""

    mean: Tensor
    std: Tensor
    target_mean: Tensor
    target_std: Tensor

    def __init__(self, recipe: GraphRecipe) -> None:
        super().__init__()
        codec, record = recipe.codec, recipe.network.record
        self.network = recipe.network.module
        self.kind, self.lags, self.continues = recipe.network.kind, codec.lags, recipe.continues
        self.dtype = torch.float64 if recipe.network.dtype == torch.float64 else torch.float32
        self.table = TableFeatures(recipe.table, codec.stored["fill"]) if recipe.table else None
        self.standardizes, self.restores = codec.scale is not None, codec.target_scale is not None
        self.parts = dict(zip(recipe.names, record.parts, strict=True))
        self.vocabulary, self.task = record.vocabulary, recipe.network.task
        if codec.scale is not None:
            mean, std = recipe.scale(1 + len(record.input))
            self._keep(mean=mean, std=std)
        if self.lags:
            self.columns = [recipe.columns.index(name) for name in codec.columns]
        if self.continues:
            self.targets = [recipe.columns.index(name) for name in codec.targets]
        if codec.target_scale is not None:
            mean, std = (np.tile(one, record.outputs // len(one)) for one in codec.target_scale)
            self._keep(target_mean=mean, target_std=std)

    def _keep(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)))

    def forward(
        self,
        inputs: Any = None,
        numbers: Tensor | None = None,
        dates: Tensor | None = None,
        codes: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Compute the outputs (n, ...) by name. `inputs`: a tensor, or a dict of tensors if there are several."""
        if self.parts:
            items, fine = self._several(inputs)
            return self._outputs(self.network(items), fine, items, None)
        raw, known = self.table(numbers, dates, codes) if self.table else (inputs, None)
        if self.vocabulary is not None:
            items, fine = _tokens(raw, self.vocabulary)
        else:
            items = self._items(raw)
            fine = torch.isfinite(items).flatten(1).all(1)
        if self.continues:
            fine = fine & torch.isfinite(raw).flatten(1).all(1)
        if known is not None:
            fine = fine & known
        return self._outputs(self.network(items), fine, items, raw)

    def _outputs(self, answers: Tensor, fine: Tensor, items: Any, raw: Any) -> Mapping[str, Tensor]:
        """Convert the network's answers. `fine` (n,): items that are answered."""
        if self.kind in ("classification", "multi-label", "segmentation"):
            probabilities, labels = probabilities_of(self.kind, answers), labels_of(self.task, answers).long()
            return {"probabilities": _masked(probabilities, fine), "label": _masked(labels, fine, -1)}
        if self.kind == "autoencoder":
            return {"error": _masked(reconstruction_errors(answers, items), fine)}
        answers = self.task.predicted(answers).flatten(1)
        if self.restores:
            answers = answers.double() * self.target_std + self.target_mean
        if self.continues:
            newest = raw[:, -sum(self.lags) :, self.targets].double()
            steps = torch.unflatten(answers.double(), 1, (-1, len(self.targets)))
            answers = integrate(steps, newest, self.lags).flatten(1)
        return {"answers": _masked(answers, fine)}

    def _items(self, raw: Tensor) -> Tensor:
        """Convert raw numbers to what the network saw in training."""
        raw = _scaled(raw)
        if self.lags:
            raw = raw.double()
            for lag in self.lags:
                raw = raw[:, lag:] - raw[:, :-lag]
            raw = raw[:, :, self.columns]
        if self.standardizes:
            raw = (raw.double() - self.mean) / self.std
        if self.table:
            raw = raw.float()  # rows of tables are stored in single precision
        return raw.to(self.dtype)

    def _several(self, raw: Mapping[str, Tensor]) -> tuple[Any, Tensor]:
        """Convert several raw inputs; return them as the network is called with them, and the items (n,) that are answered."""
        found: dict[str, Tensor] = {}
        fine: list[Tensor] = []
        for name, part in self.parts.items():
            if part.vocabulary is not None:
                found[name], known = _tokens(raw[name], part.vocabulary)
            elif part.dtype == "int64":
                longest = self._longest(name)
                known = (raw[name] >= 1) & (raw[name] <= longest)
                found[name] = raw[name].clamp(1, longest)
            else:
                found[name] = _scaled(raw[name]).float().to(self.dtype)
                known = torch.isfinite(found[name]).flatten(1).all(1)
            fine.append(known)
        named = next(iter(self.parts.values())).name
        return found if named else tuple(found.values()), torch.stack(fine).all(0)

    def _longest(self, name: str) -> int:
        """Return the number of elements of a padded input, whose lengths have this name."""
        padded: InputPart = self.parts["inputs" if name == LENGTHS else name.removesuffix(f"_{LENGTHS}")]
        return padded.shape[0]


def _scaled(raw: Tensor) -> Tensor:
    """Scale bytes to [0, 1]; other numbers stay."""
    return raw.float() * float(np.float32(1 / 255)) if raw.dtype == torch.uint8 else raw


def _tokens(raw: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return tokens (n, ...) within the vocabulary, and the items (n,) whose tokens all are."""
    known = ((raw >= 0) & (raw < vocabulary)).flatten(1).all(1)
    return raw.clamp(0, vocabulary - 1), known


def _masked(answers: Tensor, fine: Tensor, other: float = float("nan")) -> Tensor:
    """Replace the answers (n, ...) of items that are not answered."""
    answered = fine.reshape(-1, *[1] * (answers.dim() - 1))
    return torch.where(answered, answers, torch.full_like(answers, other))
