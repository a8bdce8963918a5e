"""Items of a script for a trained network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.api import objects
from partrain.byte_layout import LENGTHS, input_names
from partrain.data.arrays.files import in_memory
from partrain.data.documents import numbered
from partrain.data.python.convert import to_array
from partrain.data.python.frames import as_frame, is_frame, to_polars
from partrain.data.python.load import needs_names
from partrain.data.python.several import Ragged, unequal
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.typed_files import FrameTable
from partrain.data.user.packed import PackedItems
from partrain.errors import BadJob, InputMissing, UnlikeTraining
from partrain.inference.inputs.documents import COLUMN
from partrain.inference.inputs.parts import of_parts
from partrain.inference.inputs.read import read
from partrain.inference.inputs.sample import Sample, of_array, with_targets
from partrain.inference.inputs.tables import of_table
from partrain.preprocess.texts import words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork


_X = Path("X")
"""Name of the items in messages."""


def remarked(sample: Sample, stacklevel: int = 4) -> Sample:
    """Warn of values unlike the training values; `stacklevel`: as in `warnings.warn`."""
    for remark in sample.remarks:
        warnings.warn(remark, UnlikeTraining, stacklevel)
    return sample


def sample_of(
    network: TrainedNetwork, items: Any, targets: Any = None, *, labeled: bool = False, group: str | None = None
) -> Sample:
    """Return items of a script, or of the file at a path, in the network's form; if `labeled`, with their targets.

    `group`: the column of a table that names the group of each item, if groups are requested.
    """
    if isinstance(items, str | os.PathLike):
        if targets is not None:
            raise BadJob(f"evaluate: {items} holds inputs and targets: leave y out")
        return read(network, Path(items), labeled=labeled, group=group)
    codec = network.codec
    if codec.is_documents or not network.record.parts:
        items = as_frame(items)
    if _is_dataset(items):
        items, targets = _from_dataset(network, items, targets)
    if codec.is_documents:
        return _texts(network, items, targets, labeled=labeled)
    wanted, from_frame = labeled and bool(network.kind.targets), is_frame(items) and (codec.is_table or codec.is_series)
    if group and not from_frame:
        raise BadJob(f"evaluate: by_group needs X with the column `{group}`: give a DataFrame, or the path of a table")
    if wanted and targets is None and not from_frame:
        raise BadJob("evaluate: X has no targets: also give y")
    answers = _answers(network, targets) if labeled and targets is not None and not from_frame else None
    if from_frame:
        if targets is not None:
            if codec.is_series:
                raise BadJob("evaluate: a series holds what follows each window: leave y out")
            items = objects.with_column(items, targets, codec.targets[0])
        nulls = Dialect.of(network.loaded.job.dataset).null_values
        others = {codec.stored.get("time"), codec.stored.get("group"), group}
        used = {*codec.stored.get("inputs", ()), *codec.columns, *codec.targets, *others}
        frame = to_polars(items, {str(name) for name in items.columns} - used)
        sample, answers = of_table(network, FrameTable(frame, _X.name, "", nulls), labeled=wanted, group=group)
    elif network.record.parts:
        arrays = _several_arrays(network, items) | ({} if answers is None else {"targets": answers})
        held = {name: in_memory(array, f"X: array `{name}`", _X) for name, array in arrays.items()}
        sample, answers = of_parts(network, held, _X)
    else:
        sample = of_array(network, to_array(items, "X"), _X)
    return with_targets(network, sample, answers, _X) if labeled else sample


def _texts(network: TrainedNetwork, items: Any, targets: Any, *, labeled: bool) -> Sample:
    """Return texts, a list of them or the column of a DataFrame, in the network's form."""
    stored = network.codec.stored
    if is_frame(items):
        targets = items[stored["target"]] if labeled and targets is None and stored["target"] in items.columns else targets
        items = items[stored["text"] or COLUMN]
    texts = list(items)
    if wrong := next((type(text).__name__ for text in texts if not isinstance(text, str)), ""):
        raise BadJob(f"X: expected texts, got an item of type `{wrong}`")
    if labeled and targets is None:
        raise BadJob("evaluate: X has no targets: also give y")
    rows = numbered(list(map(words_of, texts)), stored["vocabulary"], network.record.parts)
    sample = Sample(torch.from_numpy(rows), None, list(map(str, range(len(rows)))))
    return with_targets(network, sample, np.array(list(map(str, targets))), _X) if labeled else sample


def _is_dataset(items: Any) -> bool:
    """Return whether a value gives items by index or by iteration, such as a torch Dataset."""
    if is_frame(items) or isinstance(items, Mapping | list | tuple) or hasattr(items, "__array__") or hasattr(items, "to_numpy"):
        return False
    return hasattr(items, "__getitem__") or hasattr(items, "__iter__")


def _from_dataset(network: TrainedNetwork, items: Any, targets: Any) -> tuple[Any, Any]:
    """Return inputs and targets of a torch Dataset."""
    name = type(items).__name__
    if targets is not None:
        raise BadJob(f"evaluate: `{name}` gives inputs and targets: leave y out")
    if not network.record.parts and hasattr(items, "__len__") and hasattr(items, "__getitem__"):
        arrays = objects.arrays_of(items)
        return arrays["inputs"], arrays["targets"]
    packed = PackedItems(items, f"`{name}`", held=True)
    read = list(packed.items())
    answers = [item.target for item in read]
    columns = [[item.inputs[position] for item in read] for position in range(len(packed.inputs))]
    inputs: Any = dict(zip(packed.names, columns, strict=True)) if packed.names and packed.names[0] else tuple(columns)
    return inputs if packed.names else columns[0], answers if unequal(answers) else np.stack(answers)


def _answers(network: TrainedNetwork, targets: Any) -> NDArray[Any]:
    """Return targets as an array. Class labels other than 0, 1, ... become texts."""
    answers = Ragged.of(targets, "y").values if unequal(targets) else to_array(targets, "y")
    if network.kind.one_class and network.codec.classes and (needs_names(answers) or answers.dtype.kind in "iu"):
        return answers.astype(str)
    return answers


def _several_arrays(network: TrainedNetwork, items: Any) -> dict[str, NDArray[Any]]:
    """Return several inputs by name, or concatenated sequences of unequal length."""
    parts = network.record.parts
    names = input_names([part.name for part in parts])
    if network.record.interface.unequal:
        ragged = Ragged.of(items if isinstance(items, list | tuple) else list(to_array(items, "X")), "X")
        return {"inputs": ragged.values, "offsets": ragged.offsets}
    shapes = dict(zip(names, (part.shape for part in parts), strict=True))
    counted = [name for name in names if f"{name}_{LENGTHS}" in names]
    wanted = [name for name in names if name not in [f"{counted_name}_{LENGTHS}" for counted_name in counted]]
    if isinstance(items, Mapping):
        named = dict(items)
    elif isinstance(items, list | tuple) and len(items) == len(wanted):
        named = dict(zip(wanted, items, strict=True))
    else:
        raise InputMissing(
            f"X: the network takes several inputs: give a dict of {', '.join(wanted)}, or a tuple of them in this order"
        )
    if lacking := [name for name in wanted if name not in named]:
        raise InputMissing(f"X: no input `{lacking[0]}`; the network takes {', '.join(wanted)}")
    arrays = {}
    for name in wanted:
        if name in counted:
            ragged = Ragged.of(list(named[name]), f"X: `{name}`")
            arrays[name], arrays[f"{name}_{LENGTHS}"] = ragged.padded(shapes[name][0], f"X: `{name}`")
        else:
            arrays[name] = to_array(named[name], f"X: `{name}`")
    return arrays
