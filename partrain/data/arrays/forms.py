"""What arrays found in files become: the dtype and shape of each role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from partrain.data.arrays.files import ArraySource
from partrain.data.base import ArrayField
from partrain.errors import InputMissing
from partrain.tasks import Kind

ROLES = ("inputs", "targets", "test_inputs", "test_targets")


@dataclass(frozen=True)
class Forms:
    """What the arrays of files become."""

    slots: dict[str, ArrayField]
    """Each array by role, its place left open."""
    task: Kind
    """What the items are made for."""
    tests: int
    """How many items are split off as test items."""


def _forms(found: Mapping[str, ArraySource], tokens: bool) -> tuple[dict[str, ArrayField], Kind]:
    """What each array becomes, its place left open, and what the items are made for."""
    slots = {}
    for role, array in found.items():
        if not array.shape or not prod(array.shape):
            raise InputMissing(f"{array.where}: holds no numbers: its shape is {array.shape}")
        if unfit := array.unfit(role):
            raise InputMissing(f"{array.where}: holds {unfit}; arrays of numbers can be used")
        if role.endswith("inputs"):
            slots[role] = _inputs(array, tokens)
            continue
        slots[role] = _targets(array, tokens)
        items = found[role.removesuffix("targets") + "inputs"].shape[0]
        if array.shape[0] != items:
            raise InputMissing(f"{array.where}: holds {array.shape[0]} targets for {items} inputs")
    for role, slot in slots.items():
        first = slots[role.removeprefix("test_")]
        if (slot.dtype == "uint8") != (first.dtype == "uint8") or slot.shape[1:] != first.shape[1:]:
            now, before = f"{slot.dtype} {slot.shape[1:]}", f"{first.dtype} {first.shape[1:]}"
            raise InputMissing(f"{found[role].where}: its items are {now}, those for training {before}")
        if (found[role].texts is None) != (found[role.removeprefix("test_")].texts is None):
            raise InputMissing(f"{found[role].where}: of texts and numbers, its labels are one and those for training the other")
    targets = slots["targets"]
    if targets.dtype != "int64":
        return slots, "regression"
    if len(targets.shape) == 1:
        return slots, "classification"
    if targets.shape != slots["inputs"].shape:
        raise InputMissing(f"{found['targets'].where}: tokens {targets.shape} for inputs {slots['inputs'].shape}: one for each")
    return slots, "language"


def _inputs(array: ArraySource, tokens: bool) -> ArrayField:
    items, *axes = array.shape
    if tokens:
        if array.kind not in "iu" or len(axes) != 1:
            raise InputMissing(f"{array.where}: is {array.dtype} {array.shape}; tokens are whole numbers (n, length)")
        return ArrayField("", "int64", array.shape, 0)
    if array.dtype == "|u1":
        return ArrayField("", "uint8", (items, *([1] if len(axes) in (0, 2) else []), *axes), 0)
    wide = array.dtype == "<f8" and array.offset is not None
    return ArrayField("", "float64" if wide else "float32", (items, *(axes or [1])), 0)


def _targets(array: ArraySource, tokens: bool) -> ArrayField:
    items, *axes = array.shape
    if array.texts is not None:
        if axes not in ([], [1]) or tokens:
            what = "tokens are whole numbers (n, length)" if tokens else "names of classes have one axis"
            raise InputMissing(f"{array.where}: texts of shape {array.shape}; {what}")
        return ArrayField("", "int64", (items,), 0)
    if array.kind in "iu":
        if axes not in ([], [1]) and not (tokens and len(axes) == 1):
            raise InputMissing(f"{array.where}: whole numbers of shape {array.shape}; class labels have one axis")
        return ArrayField("", "int64", array.shape if tokens and axes not in ([], [1]) else (items,), 0)
    if len(axes) > 1 or array.kind == "b":
        raise InputMissing(f"{array.where}: targets are {array.dtype} {array.shape}; expected labels (n,) or numbers (n, k)")
    return ArrayField("", "float32", (items, *(axes or [1])), 0)
