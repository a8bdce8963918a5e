"""Jobs for array files: .npz, .npy and HDF5."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path

from partrain.config.overrides import toml_value
from partrain.data.arrays.files import ARRAYS, ArraySource, arrays_of, npy
from partrain.errors import InputMissing
from partrain.models.interface import channels_last
from partrain.templates.assemble import Asked, Draft, assemble

PAIRS = (
    ("inputs", "targets"), ("x_train", "y_train"), ("X_train", "y_train"), ("train_x", "train_y"), ("x", "y"), ("X", "y"),
    ("X", "Y"), ("data", "target"), ("data", "targets"), ("data", "labels"), ("images", "labels"), ("features", "labels"),
)  # fmt: skip
"""Usual names of inputs and targets."""
TESTS = {"inputs": ("test_inputs", "x_test", "X_test", "test_x"), "targets": ("test_targets", "y_test", "test_y")}
"""Usual names of test inputs and test targets."""
SMALLEST_IMAGE = 8
"""Smallest side in pixels for which bytes of two or three axes are images."""


def propose(path: Path, shown: str, asked: Asked, folder: Path) -> Draft | None:
    """Write a job for a file of arrays; see `DataForm.proposal`. Raises InputMissing if the inputs or targets are not clear.

    The requested target is the array of the targets; for a .npy file of inputs, the .npy file of the targets.
    """
    if not (kind := ARRAYS.get(path.suffix.lower())):
        return None
    target = asked.targets[0] if asked.targets else None
    if kind == "npy":
        if target is None or not target.lower().endswith(".npy"):
            raise InputMissing(f"{path}: name the file of the targets: --target FILE.npy")
        arrays = {"inputs": npy(path), "targets": npy(Path(target))}
        inputs, targets = "inputs", "targets"
        named = [f"inputs = {toml_value(shown)}", f"targets = {toml_value(os.path.relpath(target, folder))}"]
    else:
        arrays = {name: array for name, array in arrays_of(path, kind).items() if array.shape}
        inputs, targets = _chosen(path, arrays, target)
        named = [f"path = {toml_value(shown)}", f"inputs = {toml_value(inputs)}", f"targets = {toml_value(targets)}"]
    items = arrays[inputs].shape[0]
    answer = arrays[targets]
    if items < 20:
        raise InputMissing(f"{path}: {items} items in `{inputs}` are too few to train on")
    if answer.shape[0] != items:
        raise InputMissing(f"{path}: `{targets}` holds {answer.shape[0]:,} targets for {items:,} inputs in `{inputs}`")
    for role, array in ("inputs", arrays[inputs]), ("targets", answer):
        if unfit := array.why_unusable(role):
            raise InputMissing(f"{array.where}: holds {unfit}, and arrays of numbers are needed")
    classes = answer.texts is not None or (answer.kind in "iub" and (answer.shape[1:] in ((), (1,)) or len(answer.shape) == 3))
    form, model = _network(arrays[inputs].where, arrays[inputs].shape, arrays[inputs].dtype, items)
    tests = _tests(arrays, items)
    dataset = [
        f'kind = "{kind}"',
        *named[:-1],
        f"{named[-1]}           # {'labels: a class for each' if classes else 'numbers: a regression'}",
        *(f"{role} = {toml_value(name)}" for role, name in tests.items()),
    ]
    if arrays[inputs].dtype != "|u1":
        dataset.append("standardise = true           # each number minus its mean, divided by its standard deviation")
    if not classes:
        dataset.append("standardise_target = true    # losses are in standard deviations of the target")
    share = 0 if tests else 0.15
    dataset += [] if tests else ["test_share = 0.15"]
    held = max(items * 15 // 100, 1)
    dataset.append(f"validation = {held}")
    what = f"{'Predict the class' if classes else 'Predict the numbers'} `{targets}` from {form} of {path.name}: {items:,} items."
    notes = [
        f"the targets `{targets}` are {'classes' if classes else 'numbers'}; the items are {form} {arrays[inputs].shape[1:]} (`[model]`)"
    ]
    if _one_hot(answer):
        notes.append(
            f"the targets `{targets}` are one-hot, a 1 for the class of each item: save `argmax(axis=1)` of them to train classes"
        )
    return Draft(assemble(path, what, model, dataset, int(items * (1 - share)) - held), notes)


def _chosen(path: Path, arrays: Mapping[str, ArraySource], target: str | None) -> tuple[str, str]:
    """Choose inputs and targets: by their usual names, or the only other array with as many items as `target`."""
    shapes = (
        ", ".join(f"{name} {array.unsupported or array.dtype[1:]} {array.shape}" for name, array in arrays.items()) or "no array"
    )
    if target is not None and target not in arrays:
        raise InputMissing(f"{path}: no array `{target}`; it holds {shapes}")
    for inputs, targets in PAIRS:
        if inputs in arrays and targets in arrays and target in (None, targets):
            return inputs, targets
    if target is None:
        raise InputMissing(f"{path}: name the array to predict: --target NAME; it holds {shapes}")
    usable = {name: array for name, array in arrays.items() if name != target and not array.why_unusable("inputs")}
    others = [name for name, array in usable.items() if array.shape[0] == arrays[target].shape[0]]
    others.sort(key=lambda name: prod(arrays[name].shape), reverse=True)
    if not others or (len(others) > 1 and prod(arrays[others[0]].shape) == prod(arrays[others[1]].shape)):
        what = "several arrays have" if others else "no other array has"
        raise InputMissing(f"{path}: {what} as many items as `{target}`, so the inputs are not clear; it holds {shapes}")
    return others[0], target


def _one_hot(targets: ArraySource) -> bool:
    """Return whether each item has a single 1 among zeros."""
    if targets.unsupported or targets.texts is not None or len(targets.shape) != 2 or targets.shape[1] < 2:
        return False
    numbers = targets.values()
    return bool(((numbers == 0) | (numbers == 1)).all() and (numbers.sum(axis=1) == 1).all())


def _tests(arrays: Mapping[str, ArraySource], items: int) -> dict[str, str]:
    """Find test arrays by their usual names: both or none."""
    chosen = {f"test_{role}": next((name for name in names if name in arrays), None) for role, names in TESTS.items()}
    return {role: name for role, name in chosen.items() if name} if all(chosen.values()) else {}


def memory_job(shape: tuple[int, ...], dtype: str, targets: tuple[int, ...], kind: str) -> str:
    """Write a job for arrays in memory: `shape` and `dtype` of the inputs, shape and numpy's type letter of the `targets`."""
    items = shape[0] if shape else 0
    if len(shape) < 2 or items < 20 or not targets or targets[0] != items:
        raise InputMissing(f"inputs {shape} and targets {targets}: expected 20 items or more, with a target for each")
    classes = kind in "iubUSO" and len(targets) == 1
    form, model = _network("inputs", shape, dtype, items)
    dataset = ["standardise = true"] * (dtype != "|u1") + ["standardise_target = true"] * (not classes)
    held = max(items * 15 // 100, 1)
    dataset += ["test_share = 0.15", f"validation = {held}"]
    what = f"Predict the {'class' if classes else 'numbers'} from {form}: {items:,} items."
    task = [] if classes else ['metrics = ["r2", "mae"]']
    return assemble(Path("arrays"), what, model, dataset, int(items * 0.85) - held, task=task)


def _network(where: str, shape: tuple[int, ...], dtype: str, items: int) -> tuple[str, list[str]]:
    """Choose a network for the items' shape, and describe the items. Raises InputMissing for images with the channels last."""
    axes = shape[1:]
    if min(axes[:2]) >= SMALLEST_IMAGE and (problem := channels_last(axes)):
        raise InputMissing(f"{where}: {problem}")
    image = len(axes) == 3 or (len(axes) == 2 and dtype == "|u1")
    if image and min(axes[-2:]) >= SMALLEST_IMAGE:
        stages = [16, 32, 64] if min(axes[-2:]) >= 24 else [16, 32]
        return "images", ['name = "cnn"', f"channels = {toml_value(stages)}", "batch_norm = true"]
    if len(axes) == 2 and not image:
        return "series", ['name = "gru"', "hidden = 64"]
    hidden = [32] if items < 500 else [64, 32] if items < 5000 else [128, 64]
    return f"{prod(axes)} numbers", ['name = "mlp"', f"hidden = {toml_value(hidden)}"]
