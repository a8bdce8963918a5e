"""Build a data set from arrays in files: map or read them, number class names, standardize, split off test items.

Randomly drawn test items are scattered among the others. Taking either out of a mapped file would copy the file. So the few
test items are copied, and `rows` in the buffer lists the others. Test items from the end need no copy.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.byte_layout import InputPart, of_unequal_lengths
from partrain.data.arrays.files import ArraySource
from partrain.data.arrays.headers import ArraySources, Forms, find_arrays, forms_of
from partrain.data.arrays.sections import ArraySection
from partrain.data.base import (
    WEIGHTS,
    WIDTHS,
    Allocate,
    ArrayField,
    Dataset,
    DatasetInfo,
    MappedFile,
    Numbers,
    Training,
    check_finite,
    check_weights,
    count_classes,
    fingerprint_of,
    lay_out,
    views,
)
from partrain.data.parts import known_parts
from partrain.data.standardize import feature_axis, moments, standardize
from partrain.data.tables.labels import named_classes, remap_labels
from partrain.errors import InputMissing
from partrain.tasks.kinds import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    """Arrays by role."""

_SAMPLES, _SAMPLE = 64, 1 << 20
"""Number and size of the blocks of a large mapped file that are hashed."""
UNLABELED = 255
"""Label of pixels that do not count, unless `[task] ignore_index` names another."""
_BLOCK = 1 << 24
"""Bytes copied at a time."""


def load(section: ArraySection, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Map or read the arrays of files; see `data.load`."""
    return load_arrays(section, find_arrays(section, folder), allocate, training)


def load_arrays(section: ArraySection, sources: ArraySources, allocate: Allocate, training: Training) -> Dataset:
    """Map or read the arrays that `find_arrays` returned."""
    forms = forms_of(section, sources)
    mapped = {role: array for role, array in sources.items() if _can_map(array, section, forms, role)}
    files = list(dict.fromkeys(array.path for array in mapped.values()))
    drawn = _extra_arrays(forms) if section.test_from == "shuffled" else {}
    own = lay_out({role: (form.dtype, form.shape) for role, form in forms.slots.items() if role not in mapped} | drawn)
    lying = tuple(
        replace(forms.slots[role], name=role, offset=array.offset or 0, file=1 + files.index(array.path))
        for role, array in mapped.items()
    )
    buffer = allocate(own[-1].end if own else 0)
    opened = tuple(map(MappedFile.of, files))
    arrays = views((*own, *lying), buffer, *(file.mapped() for file in opened))
    read = [role for role in sources if role not in mapped]
    for role in read:
        sources[role].read(arrays[role])
    _check(sources, arrays, mapped.keys() - _verify_checksums(mapped, dict(zip(files, opened, strict=True))))

    codec: dict[str, Any] = {}
    if sources["targets"].texts is not None:
        codec["classes"] = _encode_classes(sources, arrays)
    elif section.classes:
        codec |= {"classes": list(section.classes), "renumbered": True}
    parts = _parts(sources, arrays)
    outputs, vocabulary = _outputs(section, forms, sources, arrays, codec, parts)
    if parts and KINDS[forms.task].targets == "tokens":
        parts = (replace(parts[0], vocabulary=vocabulary), *parts[1:])
    labels = arrays["targets"] if KINDS[forms.task].one_class else None
    items = len(arrays["inputs"])
    stay, tested = section.split_off(items, forms.tests, labels) if forms.tests else (np.arange(items), np.arange(0))
    if forms.tests and labels is not None:
        section.check_classes(lambda _: sources["targets"].where, codec.get("classes"), labels[stay], labels[tested])
    if wanted := [role for role in ("inputs", "targets") if section.standardises(role, forms.task)]:
        trained = stay[training(len(stay), None if labels is None else labels[stay], section.gap)]
        codec |= _standardize(wanted, sources, arrays, trained)
    if drawn:
        arrays["rows"][:] = stay
        for role in ("inputs", "targets"):
            copies, step = arrays[f"test_{role}"], max(1, _BLOCK // arrays[role][0].nbytes)
            for first in range(0, len(tested), step):
                copies[first : first + step] = arrays[role][tested[first : first + step]]
    elif forms.tests:
        own, lying = _split_off_last(own, forms.tests), _split_off_last(lying, forms.tests)

    scale = 1 / 255 if forms.slots["inputs"].dtype == "uint8" and not parts else 1.0
    described: dict[str, Any] = {"parts": parts} if parts else {}
    prints = [digest for array in sources.values() for digest in array.digests or ()]
    if codec or forms.tests or parts or not prints:
        prints = [fingerprint_of(own, buffer, codec | described | {"slots": lying}), *map(_sampled_hash, opened)]
    fingerprint = hashlib.sha256("\n".join(prints).encode()).hexdigest()
    info = DatasetInfo(
        (*own, *lying), forms.task, outputs, scale, fingerprint, vocabulary, section.gap, codec, files=opened, parts=parts
    )
    return info.open(buffer)


def _parts(sources: ArraySources, arrays: Arrays) -> tuple[InputPart, ...]:
    """Return the inputs of an item if there are several, with the vocabulary of each token input."""
    source = sources["inputs"]
    descriptions = [vars(part) | {"tokens": part.name in source.tokens} for part in source.parts]
    return known_parts(descriptions, [arrays[role] for role in ("inputs", "test_inputs") if role in sources])


def _extra_arrays(forms: Forms) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of the arrays needed in addition to those in files, where test items are drawn."""
    if not forms.tests:
        return {}
    copies = {f"test_{role}": forms.slots[role] for role in ("inputs", "targets")}
    kept = forms.slots["inputs"].shape[0] - forms.tests
    return {"rows": ("int64", (kept,))} | {role: (field.dtype, (forms.tests, *field.shape[1:])) for role, field in copies.items()}


def _split_off_last(slots: tuple[ArrayField, ...], tests: int) -> tuple[ArrayField, ...]:
    """Split each slot in two: the items that stay, and the last items, for testing."""
    parted = []
    for slot in slots:
        stay, *axes = slot.shape[0] - tests, *slot.shape[1:]
        behind = slot.offset + stay * prod(axes) * WIDTHS[slot.dtype]
        parted += [
            replace(slot, shape=(stay, *axes)),
            replace(slot, name=f"test_{slot.name}", shape=(tests, *axes), offset=behind),
        ]
    return tuple(parted)


def _can_map(array: ArraySource, section: ArraySection, forms: Forms, role: str) -> bool:
    """Return whether the file holds the numbers in the wanted type, aligned."""
    if section.standardises(role, forms.task):
        return False
    same = {"|u1": "uint8", "<f4": "float32", "<f8": "float64", "<i8": "int64"}.get(array.dtype)
    return same == forms.slots[role].dtype and array.offset is not None and array.offset % int(array.dtype[2:]) == 0


def _verify_checksums(mapped: Mapping[str, ArraySource], files: Mapping[Path, MappedFile]) -> set[str]:
    """Verify the checksums of mapped arrays in files small enough to be read whole; return their roles.

    Raises:
        InputMissing: a checksum differs.
    """
    summed = {role for role, array in mapped.items() if array.checksum and files[array.path].size <= _SAMPLES * _SAMPLE}
    for role in summed:
        first, end, expected = mapped[role].checksum or (0, 0, 0)
        if zlib.crc32(files[mapped[role].path].mapped()[first:end]) != expected:
            raise InputMissing(f"{mapped[role].where}: damaged: its CRC-32 is not what the file says")
    return summed


def _check(sources: ArraySources, arrays: Arrays, unread: Set[str]) -> None:
    """Check numbers: labels and tokens must not be negative; all targets, and all inputs that were read, must be finite."""
    for role, array in ((role, arrays[role]) for role in sources):
        padding = -100 if array.ndim > 1 and sources["inputs"].parts else 0
        if array.dtype == np.int64 and int(array.min()) < 0 and (wrong := (array < 0) & (array != padding)).any():
            item = int(np.argwhere(wrong)[0][0])
            raise InputMissing(f"{sources[role].where}: item {item} has the label {int(array[item].min())}; labels are 0 or more")
        if (role not in unread or not role.endswith("inputs")) and not sources[role].parts:
            check_finite(array, sources[role].where)
        if role == WEIGHTS:
            check_weights(array, f"{sources[role].where}: item {{}}".format)


def _encode_classes(sources: ArraySources, arrays: Arrays) -> list[int | str]:
    """Turn codes of texts into labels in place, and return the classes. Test items have the same classes."""
    roles = [role for role in sources if role.endswith("targets")]
    where = sources["targets"].where
    names = named_classes(sources["targets"].texts or {}, where, len(arrays["targets"]))
    for role in roles:
        arrays[role][:] = remap_labels(arrays[role], sources[role].texts or {}, names, sources[role].where, f"is not in {where}")
    return list(names)


def _outputs(
    section: ArraySection,
    forms: Forms,
    sources: ArraySources,
    arrays: Arrays,
    codec: Mapping[str, Any],
    parts: tuple[InputPart, ...],
) -> tuple[int, int | None]:
    """Return the number of outputs, and the vocabulary. Classes without names count up to the largest label."""
    tokens = section.tokens is True
    several = [role for role in sources if arrays[role].ndim > 1 and not (parts and role.endswith("inputs"))]
    vocabulary = max(int(arrays[role].max()) for role in several) + 1 if tokens and several else None
    if tokens and of_unequal_lengths(parts):
        vocabulary = max(vocabulary or 0, parts[0].vocabulary or 0)
    form = KINDS[forms.task].targets
    if form == "numbers":
        return arrays["targets"].shape[-1], vocabulary
    if form == "tokens":
        return vocabulary or 0, vocabulary
    if form == "label maps":
        largest = max((_largest_label(arrays[role]), role) for role in sources if role.endswith("targets"))
        if largest[0] >= UNLABELED:
            where = sources[largest[1]].where
            raise InputMissing(
                f"{where}: a label map has the label {largest[0]}; labels are 0 to 254, and 255 for pixels that do not count"
            )
        return largest[0] + 1, vocabulary
    if "classes" in codec:
        return len(codec["classes"]), vocabulary
    return count_classes([arrays[role] for role in sources if role.endswith("targets")], sources["targets"].where), vocabulary


def _largest_label(maps: NDArray[Any]) -> int:
    """Return the largest label of label maps (n, h, w), without 255, which marks pixels that do not count."""
    return max(int(np.where(labels == UNLABELED, 0, labels).max()) for labels in maps)


def _standardize(wanted: Sequence[str], sources: ArraySources, arrays: Arrays, trained: NDArray[Any]) -> dict[str, Any]:
    """Standardize the arrays `wanted` and their test items in place by the items at `trained`, and return means and deviations as JSON."""
    codec: dict[str, Any] = {}
    for kind in wanted:
        numbers = {role: _in_double_precision(sources[role], arrays[role]) for role in (kind, f"test_{kind}") if role in sources}
        scale = moments(numbers[kind], trained, sources[kind].where)
        for role, source in numbers.items():
            standardize(arrays[role], scale, sources[role].where, source)
        prefix = "target_" if kind == "targets" else ""
        mean, std = (statistic.tolist() for statistic in scale)
        codec |= {f"{prefix}mean": mean, f"{prefix}std": std}
    if "inputs" in wanted:
        codec["axis"] = feature_axis(arrays["inputs"].ndim)
    return codec


def _in_double_precision(source: ArraySource, read: NDArray[Any]) -> Numbers:
    """Return the numbers, read again in double precision if their type is too narrow: seconds since 1970 exceed float32."""
    if read.itemsize > 4 or int(source.dtype[2:]) <= (4 if source.kind == "f" else 2):
        return read
    return _Reread(source.read_items, read.shape) if source.read_items else source.whole(np.float64).reshape(read.shape)


class _Reread:
    """Numbers (n, ...) in double precision, read from their file block by block: all at once might not fit into memory."""

    def __init__(self, read_items: Callable[[int, NDArray[Any]], None], shape: tuple[int, ...]) -> None:
        self._read_items, self.shape, self.ndim, self.size = read_items, shape, len(shape), prod(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, items: slice | NDArray[Any]) -> NDArray[Any]:
        """Read the items of a slice, or of increasing indices (k,) that are close together."""
        index = np.arange(len(self))[items] if isinstance(items, slice) else items
        first, end = int(index[0]), int(index[-1]) + 1
        block = np.empty((end - first, *self.shape[1:]))
        self._read_items(first, block)
        return block if len(index) == len(block) else block[index - first]


def _sampled_hash(file: MappedFile) -> str:
    """Hash a file's size and blocks spread evenly over it (SHA-256, hex). A small file is hashed whole."""
    content, total = file.mapped(), hashlib.sha256(str(file.size).encode())
    if file.size <= _SAMPLES * _SAMPLE:
        total.update(content)
    else:
        for index in range(_SAMPLES):
            start = index * (file.size - _SAMPLE) // (_SAMPLES - 1)
            total.update(content[start : start + _SAMPLE])
    return total.hexdigest()
