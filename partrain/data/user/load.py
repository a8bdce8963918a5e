"""User code that makes a data set, run in a process of its own. Its items are checked there and streamed into the one buffer."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from partrain.data.base import Allocate, Dataset, DatasetInfo, Training, count_classes, fingerprint_of, lay_out, views
from partrain.data.user.section import UserData
from partrain.errors import InputMissing, UserCodeFailed

_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from partrain.data.user.process import main; main()"


def read_spec(section: UserData, folder: Path) -> None:
    """Return None: only running user code tells what it returns; see `data.read_spec`."""


def load(section: UserData, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Run user code in a process and copy its items into the buffer; see `data.load`."""
    with _running(section, folder) as stream:
        told = _receive(stream)
        slots = lay_out({name: (dtype, tuple(shape)) for name, (dtype, shape) in told["arrays"].items()})
        buffer = allocate(slots[-1].end)
        places = {slot.name: buffer[slot.offset : slot.end].cast("B") for slot in slots}
        done = dict.fromkeys(places, 0)
        while name := (block := _receive(stream)).get("array"):
            part = places[name][done[name] : done[name] + block["bytes"]]
            _fill(stream, part)
            done[name] += len(part)
    outputs, tokens = _outputs(told["task"], views(slots, buffer))
    scale = 1 / 255 if slots[0].dtype == "uint8" else 1.0
    return DatasetInfo(slots, told["task"], outputs, scale, fingerprint_of(slots, buffer), vocabulary=tokens).open(buffer)


def _outputs(task: str, arrays: dict[str, Any]) -> tuple[int, int | None]:
    """Return the number of outputs, and the vocabulary where inputs are tokens."""
    inputs, targets = ([arrays[f"{prefix}{role}"] for prefix in ("", "test_") if f"{prefix}{role}" in arrays]
                       for role in ("inputs", "targets"))  # fmt: skip
    tokens = max(int(array.max()) + 1 for array in inputs) if inputs[0].dtype == "int64" else None
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
def _running(section: UserData, folder: Path) -> Iterator[IO[bytes]]:
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
        process.stdin.write(pickle.dumps((section, folder, os.getpid())))
        process.stdin.close()
        yield process.stdout
    except EOFError:
        raise UserCodeFailed(
            f"[dataset] name: `{section.name}` {_describe_exit(process.wait())} before all items were read"
        ) from None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _describe_exit(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"left its process (status {status})"


def _receive(stream: IO[bytes]) -> dict[str, Any]:
    """Receive the next message; raises the error that it reports."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    said: dict[str, Any] = json.loads(line)
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
