"""Jobs for array files: .npz, .npy and HDF5."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from partrain.config.overrides import toml_value
from partrain.data.arrays.files import ARRAYS, ArraySource, arrays_of, npy
from partrain.data.base import RENUMBER, remark_on_gaps
from partrain.errors import InputMissing
from partrain.models.interface import channels_last
from partrain.preprocess.cells import are_classes
from partrain.templates.assemble import Asked, Draft, assemble, listed
from partrain.templates.targets import LABELS_TASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIRS = (
    ("inputs", "targets"), ("x_train", "y_train"), ("X_train", "y_train"), ("train_x", "train_y"), ("x", "y"), ("X", "y"),
    ("X", "Y"), ("data", "target"), ("data", "targets"), ("data", "labels"), ("images", "labels"), ("features", "labels"),
)  # fmt: skip
"""Usual names of inputs and targets."""
TESTS = {"inputs": ("test_inputs", "x_test", "X_test", "test_x"), "targets": ("test_targets", "y_test", "test_y")}
"""Usual names of test inputs and test targets."""
OFFSETS = "offsets"
"""Usual name of the array that says where each sequence begins."""
SERIES_MODEL = ['name = "gru"', "hidden = 64"]
"""The lines of `[model]` for series and for sequences of unequal length."""
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
    answer = arrays[targets]
    unequal = _unequal(arrays, answer)
    items = answer.shape[0] if unequal else arrays[inputs].shape[0]
    if items < 20:
        raise InputMissing(f"{path}: {items} items in `{inputs}` are too few to train on")
    if answer.shape[0] != items:
        raise InputMissing(f"{path}: `{targets}` holds {answer.shape[0]:,} targets for {items:,} inputs in `{inputs}`")
    for role, array in ("inputs", arrays[inputs]), ("targets", answer):
        if unfit := array.why_unusable(role):
            raise InputMissing(f"{array.where}: holds {unfit}, and arrays of numbers are needed")
    answers = ArrayTargets(targets, answer.values() if answer.texts is None else None)
    if fault := answers.fault:
        raise InputMissing(f"{answer.where}: {fault}")
    tests = _tests(arrays, items)
    if unequal:
        form, model = "sequences of unequal length", SERIES_MODEL
        tests = tests if f"test_{OFFSETS}" in arrays else {}
    else:
        form, model = _network(arrays[inputs].where, arrays[inputs].shape, arrays[inputs].dtype, items)
    dataset = [
        f'kind = "{kind}"',
        *named[:-1],
        f"{named[-1]}           # {answers.comment}",
        *(f"{role} = {toml_value(name)}" for role, name in tests.items()),
    ]
    if unequal:
        dataset.append(f'offsets = "{OFFSETS}"          # item i: `{inputs}[offsets[i]:offsets[i + 1]]`')
        tokens = arrays[inputs].kind in "iu" and len(arrays[inputs].shape) == 1
        dataset += ["tokens = true                # whole numbers stand for words"] * tokens
    elif arrays[inputs].dtype != "|u1":
        dataset.append("standardise = true           # each number minus its mean, divided by its standard deviation")
    dataset += answers.dataset_lines()
    share = 0 if tests else 0.15
    dataset += [] if tests else ["test_share = 0.15"]
    held = max(items * 15 // 100, 1)
    dataset.append(f"validation = {held}")
    what = f"Predict the {answers.noun} `{targets}` from {form} of {path.name}: {items:,} items."
    shape = f"(`{OFFSETS}`)" if unequal else f"{arrays[inputs].shape[1:]} (`[model]`)"
    notes = [f"the targets `{targets}` are {answers.described}; the items are {form} {shape}"]
    notes += [answers.hint] if answers.hint else []
    return Draft(assemble(path, what, model, dataset, int(items * (1 - share)) - held, task=answers.task), notes)


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
        what = f"several arrays have ({', '.join(others)})" if others else "no other array has"
        advice = "write `inputs` and `targets` into [dataset] by hand, as docs/arrays.md shows"
        raise InputMissing(
            f"{path}: {what} as many items as `{target}`, so the inputs are not clear: {advice}; it holds {shapes}"
        )
    return others[0], target


class ArrayTargets:
    """The targets of arrays: what they are, and the lines of a job for them."""

    def __init__(self, name: str, values: NDArray[Any] | None, *, named: bool = False) -> None:
        """Examine the targets `values` (n, ...); None: names of classes. `named`: any whole numbers can name classes, as in Python."""
        import numpy as np

        self._name, self._named = name, named
        self._values = np.empty(0, "U1") if values is None else values
        self._single = self._values.shape[1:] in ((), (1,))
        kind = self._values.dtype.kind
        counted = self._single and kind in "iuf"
        self._different: NDArray[Any] = np.empty(0)
        rows: NDArray[Any] = np.zeros(1)
        if counted:
            self._different, rows = np.unique(self._values, return_counts=True)
        self._few = counted and are_classes(len(self._different), int(rows.min()))
        self._one_hot = self._binary and bool((self._values.sum(axis=1) == 1).all())
        self.kind: Literal["class", "label", "number"] = "number"
        """Classes, labels 0 or 1 in any combination, or numbers."""
        if self._single and (kind in "USOb" or (kind in "iu" and self._few)):
            self.kind = "class"
        elif self._binary and not self._one_hot:
            self.kind = "label"

    @property
    def _binary(self) -> bool:
        """True if there are several numbers for each item, all 0 or 1."""
        several = self._values.ndim == 2 and not self._single and self._values.dtype.kind in "iubf"
        return several and bool(((self._values == 0) | (self._values == 1)).all())

    @property
    def _whole(self) -> bool:
        """True for whole numbers that are the targets of a regression."""
        return self.kind == "number" and self._single and self._values.dtype.kind in "iu"

    @property
    def noun(self) -> str:
        return {"class": "class", "label": "labels", "number": "numbers"}[self.kind]

    @property
    def described(self) -> str:
        """The sentence's end after `the targets are`."""
        if self._whole:
            return f"numbers, {len(self._different):,} different ones, too many for classes (`target_kind`)"
        return {"class": "classes", "label": "labels, each 0 or 1 (`[task]`)", "number": "numbers"}[self.kind]

    @property
    def comment(self) -> str:
        return {
            "class": "labels: a class for each",
            "label": "labels: each is 0 or 1",
            "number": "numbers: a regression",
        }[self.kind]

    @property
    def fault(self) -> str:
        """The reason why no job can be written for these targets, and what to do; empty if one can."""
        if self._values.ndim == 3 and self._values.dtype.kind in "iub":
            advice = "write a job with a network of your own, as docs/tasks-and-metrics.md shows under Segmentation"
            return f"the targets are a label for each pixel, for which partrain has no network: {advice}"
        if self._values.ndim > 2:
            return f"the targets have the shape {self._values.shape}, and partrain takes labels (n,) or numbers (n, k)"
        if self._named or self.kind != "class" or not len(self._different) or self._different[0] >= 0:
            return ""
        labels = listed(map(str, self._different.tolist()))
        return f"the labels are {labels}, and partrain takes 0, 1, ...: renumber them, as {RENUMBER}"

    @property
    def hint(self) -> str:
        """Advice, if the user may have meant other targets; empty otherwise."""
        if self._one_hot:
            return f"the targets `{self._name}` are one-hot, a 1 for the class of each item: save `argmax(axis=1)` of them to train classes"
        if self.kind == "number" and self._few and bool((self._different == self._different.round()).all()):
            count = f"only {len(self._different):,} different whole numbers, of a floating-point type"
            return f"the targets `{self._name}` are {count}: save `astype(int)` of them to train classes"
        if self.kind == "class" and len(self._different) and not self._named:
            labels = self._different.tolist()
            remark = remark_on_gaps(labels, labels[-1] + 1)
            return f"the targets `{self._name}`: {remark}" if remark else ""
        return ""

    def dataset_lines(self) -> list[str]:
        """Return the lines of `[dataset]` on the targets."""
        if self.kind == "label":
            return ["standardise_target = false   # the labels stay 0 and 1"]
        lines = ['target_kind = "number"       # whole numbers would be classes'] if self._whole else []
        scaled = "standardise_target = true    # losses are in standard deviations of the target"
        return [*lines, scaled] if self.kind == "number" else []

    @property
    def task(self) -> list[str]:
        """The lines of `[task]`."""
        return LABELS_TASK if self.kind == "label" else []


def _unequal(arrays: Mapping[str, ArraySource], targets: ArraySource) -> bool:
    """Return whether offsets say where each item of these targets begins: its sequences have unequal lengths."""
    offsets = arrays.get(OFFSETS)
    return offsets is not None and offsets.kind in "iu" and offsets.shape == (targets.shape[0] + 1,)


def _tests(arrays: Mapping[str, ArraySource], items: int) -> dict[str, str]:
    """Find test arrays by their usual names: both or none."""
    chosen = {f"test_{role}": next((name for name in names if name in arrays), None) for role, names in TESTS.items()}
    return {role: name for role, name in chosen.items() if name} if all(chosen.values()) else {}


def memory_job(shape: tuple[int, ...], dtype: str, targets: NDArray[Any]) -> Draft:
    """Write a job for arrays in memory: `shape` and `dtype` of the inputs, and the `targets`."""
    items = shape[0] if shape else 0
    if len(shape) < 2 or items < 20 or targets.shape[:1] != (items,):
        raise InputMissing(f"inputs {shape} and targets {targets.shape}: expected 20 items or more, with a target for each")
    answers = ArrayTargets("targets", targets, named=True)
    if fault := answers.fault:
        raise InputMissing(f"targets: {fault}")
    form, model = _network("inputs", shape, dtype, items)
    dataset = [*["standardise = true"] * (dtype != "|u1"), *answers.dataset_lines()]
    held = max(items * 15 // 100, 1)
    dataset += ["test_share = 0.15", f"validation = {held}"]
    what = f"Predict the {answers.noun} from {form}: {items:,} items."
    task = ['metrics = ["r2", "mae"]'] if answers.kind == "number" else answers.task
    notes = [answers.hint] if answers.hint else []
    return Draft(assemble(Path("arrays"), what, model, dataset, int(items * 0.85) - held, task=task), notes)


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
        return "series", SERIES_MODEL
    hidden = [32] if items < 500 else [64, 32] if items < 5000 else [128, 64]
    return f"{prod(axes)} numbers", ['name = "mlp"', f"hidden = {toml_value(hidden)}"]
