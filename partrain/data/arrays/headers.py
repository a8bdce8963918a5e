"""Find the arrays of a data set by their headers, and derive type and shape of each role. Without numpy, except for `classes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from partrain.byte_layout import of_unequal_lengths
from partrain.data.arrays.classes import select_classes
from partrain.data.arrays.files import ArraySource, choose_array, hdf5, npy, npz
from partrain.data.arrays.idx import CLASSES, embedded, idx
from partrain.data.arrays.sections import ArraySection, FilePerArray, Hdf5, Idx, Mnist, NamedArrays, Npy, Npz
from partrain.data.base import WEIGHTS, ArrayField, DatasetSpec, WrongSetting
from partrain.data.fetch import local_path
from partrain.errors import InputMissing
from partrain.tasks import Kind
from partrain.tasks.kinds import CLASSIFICATION, KINDS, LANGUAGE, REGRESSION, SEGMENTATION

ROLES = ("inputs", "targets", "test_inputs", "test_targets")
ArraySources = Mapping[str, ArraySource]
"""Arrays in files, by role."""


@dataclass(frozen=True)
class Forms:
    """Types and shapes of the arrays read from files."""

    slots: dict[str, ArrayField]
    """Each array by role; its offset is not yet set."""
    task: Kind
    """Task of the data set."""
    tests: int
    """Number of items that are split off as test items."""


def read_spec(section: ArraySection, folder: Path) -> DatasetSpec:
    """Read the headers of the files; see `data.read_spec`."""
    spec = spec_of(section, find_arrays(section, folder))
    return replace(spec, outputs=CLASSES) if isinstance(section, Mnist) and not section.classes else spec


def find_arrays(section: ArraySection, folder: Path) -> dict[str, ArraySource]:
    """Find the arrays of a data set by role; InputMissing if a file or an array is missing."""
    return select_classes(_all_items(section, folder), section.classes)


def _all_items(section: ArraySection, folder: Path) -> dict[str, ArraySource]:
    match section:
        case Mnist():
            return embedded(section.name)
        case Idx():
            return {role: idx(path, images=role.endswith("inputs")) for role, path in _paths(section, folder)}
        case Npy():
            return {role: npy(path) for role, path in _paths(section, folder)}
        case Npz() | Hdf5():
            path = local_path(section.path, folder)
            held = npz(path) if isinstance(section, Npz) else hdf5(path)
            default = not {"test_inputs", "test_targets"} & section.model_fields_set
            tests = section.test_names
            absent = not {section.test_targets, *(tests if isinstance(tests, list) else [tests])} & held.keys()
            roles: tuple[str, ...] = ROLES[:2] if default and absent else ROLES
            roles = (*roles, *([WEIGHTS] if section.sample_weight else []))
            if isinstance(section.inputs, list) or section.offsets:
                return _packed(section, held, path, roles)
            return {role: choose_array(held, getattr(section, role), path, role) for role in roles}
    raise TypeError(section)


def _packed(section: NamedArrays, held: dict[str, ArraySource], path: Path, roles: Sequence[str]) -> dict[str, ArraySource]:
    """Find arrays of several inputs, or of sequences of unequal length."""
    from partrain.data.arrays.packed import longest, named_inputs, padded, padded_targets

    names = {"inputs": section.inputs, "test_inputs": section.test_names}
    if isinstance(section.inputs, list):
        tokens = section.tokens if isinstance(section.tokens, list) else []
        return {
            role: named_inputs(held, list(names[role]), path, role, tokens)
            if role in names
            else choose_array(held, getattr(section, role), path, role)
            for role in roles
        }
    chosen = {role: choose_array(held, getattr(section, role), path, role) for role in roles}
    offset_names = {"": section.offsets or "", "test_": section.test_offsets or f"test_{section.offsets}"}
    prefixes = [role.removesuffix("inputs") for role in roles if role.endswith("inputs")]
    offsets = {prefix: choose_array(held, offset_names[prefix], path, f"{prefix}offsets") for prefix in prefixes}
    most = max(longest(chosen[f"{prefix}inputs"], starts) for prefix, starts in offsets.items())
    for prefix, starts in offsets.items():
        values, targets = chosen[f"{prefix}inputs"], chosen[f"{prefix}targets"]
        chosen[f"{prefix}inputs"] = padded(values, starts, tokens=bool(section.tokens), longest=most)
        if section.tokens and targets.kind in "iu" and targets.shape == values.shape != (starts.shape[0] - 1,):
            chosen[f"{prefix}targets"] = padded_targets(targets, starts, chosen[f"{prefix}inputs"])
    return chosen


def _paths(section: FilePerArray, folder: Path) -> Iterator[tuple[str, Path]]:
    yield from ((role, local_path(path, folder)) for role in ROLES if (path := getattr(section, role)))


def spec_of(section: ArraySection, arrays: ArraySources) -> DatasetSpec:
    """Derive the spec of a data set from its arrays."""
    forms = forms_of(section, arrays)
    slots, tests = forms.slots, forms.tests
    width = (
        slots["targets"].shape[1] if KINDS[forms.task].targets == "numbers" else len(section.classes) if section.classes else None
    )
    test_items = slots["test_inputs"].shape[0] if "test_inputs" in slots else tests
    parts = arrays["inputs"].parts
    shape = parts[0].shape if of_unequal_lengths(parts) else slots["inputs"].shape[1:]
    return DatasetSpec(
        slots["inputs"].shape[0] - tests,
        test_items,
        shape,
        forms.task,
        width,
        section.tokens is True,
        parts=parts,
        classes=tuple(section.classes or ()),
        standardised=section.standardises("targets", forms.task),
        weighted=WEIGHTS in slots,
    )


def forms_of(section: ArraySection, arrays: ArraySources) -> Forms:
    """Decide types, shapes and task.

    Raises:
        InputMissing: the arrays do not fit together.
        WrongSetting: a setting of the section does not fit them.
    """
    slots, task = _slots_and_task(arrays, tokens=section.tokens is True, numbers=section.target_kind == "number")
    inputs = arrays["inputs"]
    if section.split_key and "test_inputs" in arrays:
        problem = f"`{section.split_key}` splits test items off, but there are some already: {arrays['test_inputs'].where}"
        raise WrongSetting(section.split_key, problem, "remove it")
    if section.standardise is True and slots["inputs"].dtype == "uint8":
        problem = f"`standardise` does not apply to bytes, which are scaled to [0, 1]: {inputs.where}"
        raise WrongSetting("standardise", problem, 'remove it, set standardise = "channel" for images, or write them as float32')
    if section.standardise_target and "standardise_target" in section.model_fields_set and KINDS[task].targets != "numbers":
        problem = f"`standardise_target` is for numbers, but these targets are for {task}: {arrays['targets'].where}"
        raise WrongSetting("standardise_target", problem, "remove it")
    items = slots["inputs"].shape[0]
    return Forms(slots, task, section.count_test_items(items, inputs.where, "items") if section.split_key else 0)


def _slots_and_task(arrays: ArraySources, *, tokens: bool, numbers: bool) -> tuple[dict[str, ArrayField], Kind]:
    """Derive the task and the slot of each array; its offset is not yet set. `numbers`: whole numbers (n,) are no labels."""
    slots = {}
    for role, array in arrays.items():
        if not array.shape or not prod(array.shape):
            raise InputMissing(f"{array.where}: holds no numbers: its shape is {array.shape}")
        if unfit := array.why_unusable(role):
            raise InputMissing(f"{array.where}: holds {unfit}; arrays of numbers can be used")
        if role.endswith("inputs"):
            slots[role] = _inputs(array, tokens=tokens)
            continue
        slots[role] = _weights(array) if role == WEIGHTS else _targets(array, tokens=tokens, numbers=numbers)
        items, noun = (
            arrays["test_inputs" if role == "test_targets" else "inputs"].shape[0],
            "weights" if role == WEIGHTS else "targets",
        )
        if array.shape[0] != items:
            raise InputMissing(f"{array.where}: holds {array.shape[0]} {noun} for {items} inputs")
    for role, slot in slots.items():
        first = slots[role.removeprefix("test_")]
        if (slot.dtype == "uint8") != (first.dtype == "uint8") or slot.shape[1:] != first.shape[1:]:
            now, before = f"{slot.dtype} {slot.shape[1:]}", f"{first.dtype} {first.shape[1:]}"
            raise InputMissing(f"{arrays[role].where}: its items are {now}, those for training {before}")
        if (arrays[role].texts is None) != (arrays[role.removeprefix("test_")].texts is None):
            raise InputMissing(f"{arrays[role].where}: only one of training and test labels are texts")
    targets = slots["targets"]
    if len(targets.shape) == 3:
        if slots["inputs"].shape[-2:] != targets.shape[1:]:
            what = f"label maps {targets.shape} for images {slots['inputs'].shape}: one label for each pixel"
            raise InputMissing(f"{arrays['targets'].where}: {what}")
        return slots, SEGMENTATION
    if targets.dtype != "int64":
        return slots, REGRESSION
    if len(targets.shape) == 1:
        return slots, CLASSIFICATION
    parts = arrays["inputs"].parts
    if targets.shape[1:] != (parts[0].shape if parts else slots["inputs"].shape[1:]):
        raise InputMissing(f"{arrays['targets'].where}: tokens {targets.shape} for inputs {slots['inputs'].shape}: one for each")
    return slots, LANGUAGE


def _inputs(array: ArraySource, *, tokens: bool) -> ArrayField:
    items, *axes = array.shape
    if tokens and not array.parts:
        if array.kind not in "iu" or len(axes) != 1:
            raise InputMissing(f"{array.where}: is {array.dtype} {array.shape}; tokens are whole numbers (n, length)")
        return ArrayField("", "int64", array.shape, 0)
    if array.dtype == "|u1":
        return ArrayField("", "uint8", (items, *([1] if len(axes) in (0, 2) else []), *axes), 0)
    wide = array.dtype == "<f8" and array.offset is not None
    return ArrayField("", "float64" if wide else "float32", (items, *(axes or [1])), 0)


def _weights(array: ArraySource) -> ArrayField:
    if array.shape[1:] not in ((), (1,)):
        raise InputMissing(f"{array.where}: weights of shape {array.shape}; expected one for each item, (n,)")
    return ArrayField("", "float32", array.shape[:1], 0)


def _targets(array: ArraySource, *, tokens: bool, numbers: bool) -> ArrayField:
    items, *axes = array.shape
    if numbers and (array.texts is not None or len(axes) > 1):
        what = "names of classes" if array.texts is not None else f"{array.dtype} {array.shape}"
        problem = f'`target_kind = "number"` is for numbers (n,) or (n, k), and these targets are {what}: {array.where}'
        raise WrongSetting("target_kind", problem, "remove it")
    if numbers:
        return ArrayField("", "float32", (items, *(axes or [1])), 0)
    if array.texts is not None:
        if axes not in ([], [1]):
            what = "tokens are whole numbers (n, length)" if tokens else "names of classes have one axis"
            raise InputMissing(f"{array.where}: texts of shape {array.shape}; {what}")
        return ArrayField("", "int64", (items,), 0)
    if array.kind in "iub" and len(axes) == 2 and not tokens:
        return ArrayField("", "uint8" if array.dtype in ("|u1", "|b1") else "int64", array.shape, 0)
    if array.kind in "iub" and len(axes) == 1 and axes != [1] and not tokens:
        return ArrayField("", "float32", array.shape, 0)
    if array.kind in "iub":
        if axes not in ([], [1]) and not (tokens and len(axes) == 1):
            raise InputMissing(f"{array.where}: whole numbers of shape {array.shape}; class labels have one axis")
        return ArrayField("", "int64", array.shape if tokens and axes not in ([], [1]) else (items,), 0)
    if len(axes) > 1:
        raise InputMissing(f"{array.where}: targets are {array.dtype} {array.shape}; expected labels (n,) or numbers (n, k)")
    return ArrayField("", "float32", (items, *(axes or [1])), 0)
