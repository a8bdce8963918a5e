"""User code that makes a data set, run in a process of its own. Its items are checked there and streamed into the one buffer."""

from __future__ import annotations

import io
import json
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from partrain.byte_layout import InputPart, of_unequal_lengths
from partrain.data.base import Allocate, Dataset, DatasetInfo, Training, count_classes, fingerprint_of, lay_out, views
from partrain.data.parts import known_parts
from partrain.data.user.section import UserData
from partrain.errors import InputMissing, Stalled, UserCodeFailed
from partrain.system.startup import STARTUP_LIMIT_S

EXIT_S = 5.0
"""A process that has closed its stream has this long to exit."""
_limit: ContextVar[float] = ContextVar("limit", default=STARTUP_LIMIT_S)
"""Seconds that a data set may take for one item."""


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Raise Stalled if the process of a data set gives no sign of life for so long. It gives one with each item."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from partrain.data.user.process import main; main()"


def read_spec(section: UserData, folder: Path) -> None:
    """Return None: only running user code tells what it returns; see `data.read_spec`."""


def load(section: UserData, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Run user code in a process and copy its items into the buffer; see `data.load`."""
    try:
        return _load(section, folder, allocate, held=False)
    except _UnequalItems:  # their number and their longest are known only at the end: the process holds them until then
        return _load(section, folder, allocate, held=True)


class _UnequalItems(Exception):
    """Items turned out to have other lengths than the first, or no known number."""


def _load(section: UserData, folder: Path, allocate: Allocate, held: bool) -> Dataset:
    with _running(section, folder, held) as stream:
        told = _receive(stream)
        slots = lay_out({name: (dtype, tuple(shape)) for name, (dtype, shape) in told["arrays"].items()})
        buffer = allocate(slots[-1].end)
        places = {slot.name: buffer[slot.offset : slot.end].cast("B") for slot in slots}
        done = dict.fromkeys(places, 0)
        while name := (block := _receive(stream)).get("array"):
            part = places[name][done[name] : done[name] + block["bytes"]]
            _fill(stream, part)
            done[name] += len(part)
    arrays = views(slots, buffer)
    parts = known_parts(told["parts"], [arrays[role] for role in ("inputs", "test_inputs") if role in arrays])
    outputs, tokens = _outputs(told["task"], arrays, parts)
    if told["task"] == "language" and parts:
        parts = (replace(parts[0], vocabulary=tokens), *parts[1:])
    scale = 1 / 255 if slots[0].dtype == "uint8" and not parts else 1.0
    codec = {"parts": [asdict(part) for part in parts]} if parts else {}
    mark = fingerprint_of(slots, buffer, codec)
    return DatasetInfo(slots, told["task"], outputs, scale, mark, vocabulary=tokens, parts=parts).open(buffer)


def _outputs(task: str, arrays: dict[str, Any], parts: tuple[InputPart, ...]) -> tuple[int, int | None]:
    """Return the number of outputs, and the vocabulary where inputs are tokens."""
    inputs, targets = ([arrays[f"{prefix}{role}"] for prefix in ("", "test_") if f"{prefix}{role}" in arrays]
                       for role in ("inputs", "targets"))  # fmt: skip
    tokens = max(int(array.max()) + 1 for array in inputs) if inputs[0].dtype == "int64" else None
    if of_unequal_lengths(parts):
        tokens = parts[0].vocabulary
    if task == "regression":
        return targets[0].shape[1], tokens
    most = max(int(array.max()) + 1 for array in targets)
    if task == "classification":
        try:
            most = count_classes(targets, "[dataset] name: its targets")
        except InputMissing as missing:
            raise UserCodeFailed(missing.message) from None
    if task == "language" and tokens is not None:
        most = tokens = max(most, tokens)
    return most, tokens


@contextmanager
def _running(section: UserData, folder: Path, held: bool) -> Iterator[IO[bytes]]:
    """Start the process of a data set, and yield the stream of its messages."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "0"},  # sets in user code keep one order
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(pickle.dumps((section, folder, os.getpid(), held)))
        process.stdin.close()
        yield io.BufferedReader(_Patient(process.stdout.fileno(), f"[dataset] name: `{section.name}`"))
    except EOFError:
        raise UserCodeFailed(f"[dataset] name: `{section.name}` {_describe_exit(process)} before all items were read") from None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class _Patient(io.RawIOBase):
    """The reading end of a pipe. Raises Stalled, which names `what`, if nothing comes for the limit."""

    def __init__(self, descriptor: int, what: str) -> None:
        self._descriptor, self._what = descriptor, what

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        limit = _limit.get()
        if not select.select([self._descriptor], [], [], limit)[0]:
            advice = "raise [transport] stall_seconds if one item may take that long"
            raise Stalled(f"{self._what} gave no item for {limit:g} s; {advice}")
        return os.readv(self._descriptor, [buffer])


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    """Describe in words how a process ended that gives no more items. It may have closed its stream, and run on."""
    try:
        status = process.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        return "closed the stream of its items"
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"left its process (status {status})"


def _receive(stream: IO[bytes]) -> dict[str, Any]:
    """Receive the next message that is more than a sign of life; raises the error that it reports."""
    said: dict[str, Any] = {"alive": True}
    while "alive" in said:
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        said = json.loads(line)
    if "unequal" in said:
        raise _UnequalItems
    if "failed" in said:
        raise UserCodeFailed(said["failed"], said["detail"])
    return said


def _fill(stream: IO[bytes], part: memoryview) -> None:
    """Fill `part` with bytes of the stream."""
    position = 0
    while position < len(part):
        count = stream.readinto(part[position:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        position += count
