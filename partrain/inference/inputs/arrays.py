"""Arrays in files as items: NPZ, NPY, HDF5, IDX, and folders written by `save_to_disk` of Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.arrays.files import hdf5, npy, npz
from partrain.data.arrays.idx import idx
from partrain.data.arrays.saved import load_saved
from partrain.errors import InputMissing
from partrain.inference.inputs.parts import find_arrays, of_parts
from partrain.inference.inputs.sample import Sample, Wanted, of_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

    Pair = tuple[NDArray[Any], NDArray[Any] | None]
    """Inputs, and targets if the file has them."""


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read arrays as items; see `DataForm.items`."""
    if network.record.parts:
        return of_parts(network, find_arrays(network, path), path)
    inputs, targets = read_arrays(network, path, kind, labeled=wanted.targets)
    return of_array(network, inputs, path), targets


def read_arrays(network: TrainedNetwork, path: Path, kind: str, *, labeled: bool) -> Pair:
    """Read inputs, and if `labeled` the targets from the same file or folder.

    Files with several arrays name them as the job's `[dataset]` table does, or `inputs` and `targets`.
    """
    section = network.loaded.job.dataset
    if kind == "huggingface":
        names = getattr(section, "inputs", "inputs")
        return _saved(
            network, path, [names] if isinstance(names, str) else names, getattr(section, "target", "targets"), labeled=labeled
        )
    if kind in ("idx", "npy"):
        return (idx(path) if kind == "idx" else npy(path)).values(), None
    if kind not in ("npz", "hdf5"):
        raise InputMissing(f"{path}: is not an NPZ, NPY, HDF5 or IDX file, which arrays come in")
    roles = {"inputs": "inputs", "targets": "targets"}
    if getattr(section, "kind", "") in ("npz", "hdf5"):
        roles = {role: str(getattr(section, role)) for role in roles}
    sources = npz(path) if kind == "npz" else hdf5(path)
    inputs, targets = _named(sources, roles, path, labeled=labeled)
    return sources[inputs].values(), None if targets is None else sources[targets].values()


def _named(arrays: Mapping[str, Any], roles: Mapping[str, str], path: Path, *, labeled: bool) -> tuple[str, str | None]:
    """Choose inputs and targets: by the job's names, else by the usual ones."""
    chosen = {role: next((candidate for candidate in (name, role) if candidate in arrays), None) for role, name in roles.items()}
    if chosen["inputs"] is None:
        raise InputMissing(f"{path}: has no array `{roles['inputs']}`; it has: {', '.join(arrays) or 'none'}")
    return chosen["inputs"], chosen["targets"] if labeled else None


def _saved(network: TrainedNetwork, path: Path, names: Sequence[str], target: str, *, labeled: bool) -> Pair:
    """Read columns of a saved data set; images are decoded to the size of the network's items."""
    saved = load_saved(path)
    if isinstance(saved, dict):
        raise InputMissing(f"{path}: holds the splits {', '.join(saved)}: name one, as in {path / list(saved)[-1]}")
    answers = saved.arrays([target], "target").values() if labeled else None
    if answers is not None and answers.dtype.kind in "iu" and (classes := saved.classes(target)):
        answers = np.array(classes)[answers] if network.codec.classes else answers
    if not saved.is_images(names[0]):
        return saved.arrays(names, "inputs").values(), answers
    shape = tuple(network.record.input)
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InputMissing(f"{saved.where(names[0])}: this network does not take images: its items have the shape {shape}")
    pixels = np.empty((len(saved.data), *shape), np.uint8)
    saved.decode(names[0], pixels, resize=network.codec.resizes)
    return pixels, answers
