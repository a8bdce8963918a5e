"""The record of a step: `step.json` in its folder, rewritten as a whole each time the step's state changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any

from partrain.errors import CannotCreate
from partrain.record.file_names import STEP
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_object

VERSION = "partrain"
"""Key in a step's settings: the version that made the results. They stay valid under other versions."""
SHOWN = 40
"""Maximum number of characters of a value in a reason."""
DONE, FAILED, RUNNING, STOPPED, SKIPPED = "done", "failed", "running", "stopped", "skipped"


@dataclass
class StepRecord:
    """The last run of a step."""

    status: str
    """`done`, `failed`, `stopped` (by a signal; it can continue), `running` (also after the runner was killed)."""
    settings: dict[str, Any]
    """All settings that change the result, in addition to files."""
    inputs: dict[str, str | None] = field(default_factory=dict)
    """Digests of the step's inputs, in order. The paths are for messages: a file may have moved."""
    sources: dict[str, str | None] = field(default_factory=dict)
    """Digests of the user code files that the step imported and opened, beyond those that the job names."""
    outputs: dict[str, str | None] = field(default_factory=dict)
    """Digests of the step's outputs, by path relative to the workflow's folder."""
    summary: dict[str, Any] = field(default_factory=dict)
    """The numbers that the step recorded."""
    command: list[str] = field(default_factory=list)
    """The words of the step's command line."""
    code: int | None = None
    """The exit code."""
    message: str = ""
    """The reason of a failure."""
    started: float = 0.0
    """Unix time."""
    seconds: float = 0.0
    """Duration of all attempts with these settings."""
    attempts: int = 0

    @classmethod
    def read(cls, folder: Path) -> StepRecord | None:
        """Read the record of a step's folder; None if there is no readable one."""
        content, names = read_object(folder / STEP), {field.name for field in fields(cls)}
        try:
            return cls(**{name: value for name, value in content.items() if name in names})
        except TypeError:
            return None

    def write(self, folder: Path) -> None:
        """Write the record. Raises `CannotCreate`."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / STEP) as descriptor:
                os.write(descriptor, json.dumps(asdict(self), indent=1, default=str).encode())
        except OSError as error:
            raise CannotCreate(f"{folder / STEP}: {error.strerror}") from error


def difference(
    record: StepRecord, settings: dict[str, Any], inputs: dict[str, str | None], shown: Callable[[str], str] = str
) -> str:
    """Describe the first change since a record, other than partrain's version; "" if nothing changed.

    `shown` formats the name of an input for people.
    """
    before, now = (plain({key: value for key, value in table.items() if key != VERSION}) for table in (record.settings, settings))
    for key in sorted(now.keys() | before.keys()):
        if now.get(key) != before.get(key):
            return f"`{key}` {_changed(before.get(key), now.get(key))}"
    if list(inputs.values()) == list(record.inputs.values()):
        return ""
    for path, digest in inputs.items():
        if path not in record.inputs and len(inputs) != len(record.inputs):
            return f"reads {shown(path)} now"
        if record.inputs.get(path) != digest:
            return f"{shown(path)} changed"
    gone = [path for path in record.inputs if path not in inputs]
    return f"reads {shown(gone[0])} no more" if gone else "reads its inputs in another order"


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON would return them."""
    content: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return dict(sorted(content.items()))


def _changed(before: Any, now: Any) -> str:
    """Show two values; of long values, the part in which they differ."""
    texts = ["unset" if value is None else value if isinstance(value, str) else json.dumps(value) for value in (before, now)]
    texts = [text.removeprefix("sha256:")[:8] if text.startswith("sha256:") else text for text in texts]
    same = next((number for number, pair in enumerate(zip(*texts, strict=False)) if len(set(pair)) > 1), min(map(len, texts)))
    start = max(0, same - 10) if max(map(len, texts)) > SHOWN else 0
    parts = [("…" if start else "") + text[start : start + SHOWN] + "…" * (len(text) > start + SHOWN) for text in texts]
    return " → ".join(parts)


def free_place(folder: Path) -> Path:
    """Return the first free name for a finished run next to the folder that another run takes: STEP.1, STEP.2, ..."""
    return next(place for number in count(1) if not (place := folder.with_name(f"{folder.name}.{number}")).exists())


def clear(folder: Path, keep: str = "") -> None:
    """Empty or create the folder of a step. Files that match the pattern `keep`, and the runs of an earlier sweep, stay.

    Raises `CannotCreate` for a folder that does not belong to a step.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        entries = list(folder.iterdir())
        if entries and StepRecord.read(folder) is None:
            raise CannotCreate(f"{folder} holds files that are not of a step; remove it, or give --out another folder")
        for entry in sorted(
            (entry for entry in entries if not (entry.match(keep or STEP + "?") or (entry / STEP).exists())),
            key=lambda entry: entry.name == STEP,
        ):  # the record last: after a kill it is still a step's folder
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}") from None
