"""Items of a script for a trained network, as a file: the readers of the command line then treat both alike."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.api import objects
from partrain.data.python.frames import NAME, Frames, is_frame
from partrain.data.python.load import needs_names, to_array
from partrain.errors import BadJob, Failure, InputMissing
from partrain.inference.codec import Codec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork


@contextmanager
def as_file(network: TrainedNetwork, items: Any, targets: Any = None, labeled: bool = False) -> Iterator[Path]:
    """Write items to a private temporary file, which the readers of the command line take; a path stays as it is.

    Messages name `X` instead of the file.
    """
    codec = Codec(network.codec)
    if isinstance(items, str | os.PathLike):
        if targets is not None:
            raise BadJob(f"evaluate: {items} holds inputs and targets: leave y out")
        yield Path(items)
        return
    if not is_frame(items) and hasattr(items, "__getitem__") and not (hasattr(items, "__array__") or isinstance(items, list)):
        items, targets = _from_dataset(items, targets)
    if labeled and targets is None and network.kind != "autoencoder" and not (is_frame(items) and codec.is_table):
        raise BadJob("evaluate: X has no targets: give y, too")
    if is_frame(items) and codec.is_table:
        if targets is not None:
            items = objects.with_target(items, targets, codec.targets[0])
        folder: Any = Frames(items)
        context: Any = nullcontext(str(folder.path))
    else:
        context = tempfile.TemporaryDirectory(prefix="partrain-")
    with context as name:
        path = Path(name) / NAME
        if not path.exists():
            path = Path(name) / "X.npz"
            np.savez(path, allow_pickle=False, **_arrays(codec, items, targets, labeled))
        try:
            yield path
        except Failure as failure:
            failure.message = failure.message.replace(str(path), "X")
            failure.args = (failure.message,)
            raise


def _from_dataset(items: Any, targets: Any) -> tuple[Any, Any]:
    """Return inputs and targets of a torch Dataset."""
    if targets is not None:
        raise BadJob(f"evaluate: `{type(items).__name__}` gives inputs and targets: leave y out")
    arrays = objects.arrays_of(items)
    return arrays["inputs"], arrays["targets"]


def _arrays(codec: Codec, items: Any, targets: Any, labeled: bool) -> dict[str, NDArray[Any]]:
    """Return the arrays of an NPZ file. Class labels of other kinds than 0, 1, ... are written as texts."""
    arrays = {"inputs": to_array(items, "X")}
    if labeled and targets is not None:
        answers = to_array(targets, "y")
        if codec.classes and (needs_names(answers) or answers.dtype.kind in "iu"):
            answers = answers.astype(str)
        arrays["targets"] = answers
    for name, array in arrays.items():
        if array.dtype.kind == "O":
            raise InputMissing(f"{'X' if name == 'inputs' else 'y'}: holds objects, not numbers or words")
    return arrays
