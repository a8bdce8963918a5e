"""User code that makes a data set, run in a separate process. It checks the items and streams them into the one buffer."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from partrain.byte_layout import InputPart, lay_out_parts, of_unequal_lengths, part_view
from partrain.data.base import (
    Allocate,
    ArrayField,
    Dataset,
    DatasetInfo,
    StreamForm,
    Training,
    count_classes,
    fingerprint_of,
    lay_out,
    views,
)
from partrain.data.parts import known_parts
from partrain.data.user.pipe import DataProcess, UnequalLengths
from partrain.data.user.section import UserData
from partrain.data.user.work import Reading
from partrain.errors import InputMissing, UserCodeFailed
from partrain.tasks.kinds import KINDS


def read_spec(section: UserData, folder: Path) -> None:
    """Return None: only running user code shows its result; see `data.read_spec`."""


def load(section: UserData, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Run user code in a process and copy its items into the buffer; see `data.load`."""
    try:
        return _load(section, folder, allocate, held=False)
    except UnequalLengths:  # number and longest length are known only at the end: the process holds the items until then
        return _load(section, folder, allocate, held=True)


def _load(section: UserData, folder: Path, allocate: Allocate, *, held: bool) -> Dataset:
    with closing(DataProcess(section, folder, Reading(held))) as process:
        reply = process.receive()
        slots = lay_out({name: (dtype, tuple(shape)) for name, (dtype, shape) in reply["arrays"].items()})
        buffer = allocate(slots[-1].end)
        places = {slot.name: buffer[slot.offset : slot.end].cast("B") for slot in slots}
        done = dict.fromkeys(places, 0)
        while name := (block := process.receive()).get("array"):
            part = places[name][done[name] : done[name] + block["bytes"]]
            process.fill(part)
            done[name] += len(part)
    arrays = views(slots, buffer)
    if "stream" in reply:
        return _of_stream(section, reply, slots, buffer)
    parts = known_parts(reply["parts"], [arrays[role] for role in ("inputs", "test_inputs") if role in arrays])
    outputs, tokens = _outputs(reply["task"], arrays, parts)
    if KINDS[reply["task"]].targets == "tokens" and parts:
        parts = (replace(parts[0], vocabulary=tokens), *parts[1:])
    scale = 1 / 255 if slots[0].dtype == "uint8" and not parts else 1.0
    codec = {"parts": [asdict(part) for part in parts]} if parts else {}
    fingerprint = fingerprint_of(slots, buffer, codec)
    return DatasetInfo(slots, reply["task"], outputs, scale, fingerprint, vocabulary=tokens, parts=parts).open(buffer)


def _outputs(task: str, arrays: dict[str, Any], parts: tuple[InputPart, ...]) -> tuple[int, int | None]:
    """Return the number of outputs, and the vocabulary if inputs are tokens."""
    inputs, targets = ([arrays[f"{prefix}{role}"] for prefix in ("", "test_") if f"{prefix}{role}" in arrays]
                       for role in ("inputs", "targets"))  # fmt: skip
    tokens = max(int(array.max()) + 1 for array in inputs) if inputs[0].dtype == "int64" else None
    if of_unequal_lengths(parts):
        tokens = parts[0].vocabulary
    form = KINDS[task].targets
    if form == "numbers":
        return targets[0].shape[1], tokens
    most = max(int(array.max()) + 1 for array in targets)
    if form == "labels":
        try:
            most = count_classes(targets, "[dataset] name: its targets")
        except InputMissing as missing:
            raise UserCodeFailed(missing.message) from None
    if form == "tokens" and tokens is not None:
        most = tokens = max(most, tokens)
    return most, tokens


def _of_stream(section: UserData, reply: dict[str, Any], slots: tuple[ArrayField, ...], buffer: memoryview) -> Dataset:
    """Open a stream whose held-out and test items are in the buffer. The user's class gives the facts that they do not show."""
    first = reply["stream"].pop("first")
    form = StreamForm(**{key: _tuples(value) for key, value in reply["stream"].items()})
    laid_out, _ = lay_out_parts([(part["name"], part["dtype"], tuple(part["shape"])) for part in reply["parts"]])
    parts = tuple(replace(part, vocabulary=most) for part, most in zip(laid_out, form.vocabulary, strict=bool(laid_out)))
    tokens = None if parts else form.vocabulary[0]
    arrays = views(slots, buffer)
    for prefix in ("", "test_"):
        if f"{prefix}inputs" in arrays:
            _check_ranges(section, form, parts, arrays[f"{prefix}inputs"], arrays[f"{prefix}targets"])
    outputs = form.classes or arrays["targets"].shape[1]
    codec = {"parts": [asdict(part) for part in parts]} if parts else {}
    scale = 1 / 255 if slots[0].dtype == "uint8" and not parts else 1.0
    arguments = json.dumps(dict(section.arguments), sort_keys=True, default=str)
    fingerprint = hashlib.sha256(f"{first} {arguments} {fingerprint_of(slots, buffer, codec)}".encode()).hexdigest()
    return DatasetInfo(slots, reply["task"], outputs, scale, fingerprint, vocabulary=tokens, parts=parts, stream=form).open(
        buffer
    )


def _check_ranges(section: UserData, form: StreamForm, parts: tuple[InputPart, ...], inputs: Any, targets: Any) -> None:
    """Raise UserCodeFailed if held-out or test items have labels or tokens beyond the declared numbers."""
    values = [part_view(inputs, part) for part in parts] or [inputs]
    for key, most, array in (
        ("classes", form.classes, targets),
        *(("vocabulary", *pair) for pair in zip(form.vocabulary, values, strict=True)),
    ):
        if most is not None and array.size and array.max() >= most:
            raise UserCodeFailed(
                f"[dataset] name: `{section.name}`: an item to hold out or to test with has {array.max()}, and `{key}` is {most}"
            )


def _tuples(value: Any) -> Any:
    """Turn lists of JSON into tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
