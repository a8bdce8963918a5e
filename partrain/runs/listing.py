"""The runs below a folder, each with a few facts. Only `summary.json` and the ends of `events.jsonl` are read, so hundreds are listed at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from partrain.config.toml_source import TomlSource
from partrain.errors import Failure, InputMissing
from partrain.launch.run_folder import is_training
from partrain.runs.tags import read_tags
from partrain.system.regular_file import open_regular, parse_json, read_json

EVENTS = "events.jsonl"
"""The file that makes a folder a run folder."""
TRAINING, KILLED = "training", "killed"
"""Statuses of runs without a summary."""
STATUSES = (TRAINING, KILLED, "reached", "finished", "not-reached", "stopped", "diverged", "failed")
COLUMNS = ("name", "when", "rule", "workers", "status", "rounds", "loss", "accuracy", "seconds", "size", "tags")
"""Facts of every run; None if unknown. `when` is Unix time, `size` bytes on disk."""
_DEPTH = 6
"""Most levels below a folder: `runs/WORKFLOW/STEP/TRIAL`, and some for folders of the user."""
_FIRST_LINES = 8
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class ListedRun:
    """A run folder and what its files tell."""

    folder: Path
    columns: dict[str, Any]
    """Values of `COLUMNS`."""
    summary: dict[str, Any]
    """The content of `summary.json`; {} while the run trains, and after it was killed."""
    start: dict[str, Any]
    """The first `start` event; {} if the run ended before it began to train."""

    @property
    def name(self) -> str:
        return str(self.columns["name"])

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """Numbers and words of the summary by dotted name, with the columns over them."""
        return dict(flat(self.summary)) | self.columns

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The job; {} if it cannot be read."""
        return _job(self.folder)


def find(folder: Path) -> Iterator[Path]:
    """Find the run folders at and below a folder. Links are not followed. Raises `InputMissing` if the folder cannot be read."""
    try:
        yield from _find(folder, _DEPTH)
    except OSError as error:
        raise InputMissing(f"{error.filename or folder}: {error.strerror}") from None


def _find(folder: Path, depth: int) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        inner = []
        for entry in entries:
            if entry.name == EVENTS:
                yield folder
            elif depth and entry.name != "checkpoints" and entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
    for name in sorted(inner):
        yield from _find(folder / name, depth - 1)


def runs_below(folder: Path) -> list[ListedRun]:
    """Return the runs at and below a folder, the newest first."""
    found = [read_run(each) for each in find(folder)]
    return sorted(found, key=lambda run: run.columns["when"] or 0, reverse=True)


def is_run(folder: Path) -> bool:
    """Tell if a folder is a run's."""
    return (folder / EVENTS).is_file()


def run_at(path: Path) -> ListedRun:
    """Return the run that a path stands for: a run folder, a file in it, or the newest below a folder. Raises `InputMissing`."""
    for folder in (path, path.parent, path.parent.parent):
        if is_run(folder) and (folder == path or path.is_file() or path.name == "checkpoints"):
            return read_run(folder)
    if not path.is_dir():
        raise InputMissing(f"no such run: {path}; partrain runs lists them")
    if not (found := runs_below(path)):
        raise InputMissing(f"{path} holds no run")
    return found[0]


def read_run(folder: Path) -> ListedRun:
    """Read a run folder."""
    summary, start = _summary(folder), {}
    first = _first_events(folder)
    for event in first:
        if event.get("event") == "start":
            start = event
            break
    late = {} if summary else _tail(folder)
    status = str(summary.get("status")) if summary else TRAINING if is_training(folder) else KILLED
    began = start.get("t") or next((event["t"] for event in first if isinstance(event.get("t"), int | float)), None)
    columns = {
        "name": str(folder),
        "when": began if began is not None else _modified(folder / EVENTS),
        "rule": start.get("rule") or _table(_job(folder), "sync").get("rule"),
        "workers": len(start["workers"]) if isinstance(start.get("workers"), list) else None,
        "status": status,
        "rounds": summary.get("rounds", late.get("round")),
        "loss": summary.get("loss", late.get("loss")),
        "accuracy": _table(summary or late, "metrics").get("accuracy"),
        "seconds": _table(summary, "seconds").get("train", late.get("seconds")),
        "size": size_of(folder),
        "tags": read_tags(folder),
    }
    return ListedRun(folder, columns, summary, start)


def flat(table: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield numbers, words and missing numbers of a document by dotted name; lists count from 0."""
    match table:
        case dict():
            for key, value in table.items():
                yield from flat(value, f"{prefix}{key}.")
        case list():
            for number, value in enumerate(table):
                yield from flat(value, f"{prefix}{number}.")
        case _:
            yield prefix[:-1], table


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder. A file with two names, as the newest checkpoint has, counts once."""
    return sum(dict(_sizes(folder)).values())


def _sizes(folder: str | Path) -> Iterator[tuple[int, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                else:
                    found = entry.stat(follow_symlinks=False)
                    yield found.st_ino, found.st_size
    except OSError:  # removed meanwhile
        return


def _job(folder: Path) -> dict[str, Any]:
    try:
        return TomlSource.read(folder / "job.toml").data
    except Failure:
        return {}


def _summary(folder: Path) -> dict[str, Any]:
    try:
        content = read_json(folder / "summary.json")
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}


def _first_events(folder: Path) -> list[dict[str, Any]]:
    """Return the first events, up to and with the first `start`."""
    found: list[dict[str, Any]] = []
    try:
        with open_regular(folder / EVENTS) as file:
            for line in islice(file, _FIRST_LINES):
                found += _decoded(line)
                if found and found[-1].get("event") == "start":
                    break
    except OSError:
        pass
    return found


def _tail(folder: Path) -> dict[str, Any]:
    """Return round, seconds and judged numbers from the last events of a run without a summary."""
    try:
        with open_regular(folder / EVENTS) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    found: dict[str, Any] = {}
    for line in lines:
        for event in _decoded(line):
            if event.get("event") == "round":
                found |= {"round": event.get("round"), "seconds": event.get("seconds")}
            elif event.get("event") == "judgement":
                found |= {"loss": event.get("loss"), "metrics": event.get("metrics")}
    return found


def _decoded(line: bytes) -> list[dict[str, Any]]:
    try:
        event = parse_json(line)
        return [event] if isinstance(event, dict) else []
    except ValueError:  # a line that is cut off
        return []


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()
