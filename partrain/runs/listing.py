"""The runs below a folder, each with a few facts.

Only `summary.json` is read, and of `events.jsonl` the ends and the newest start, so hundreds are listed at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from partrain.config.overrides import flatten
from partrain.errors import InputMissing
from partrain.record.file_names import CHECKPOINTS
from partrain.record.result import RunResult, best_judgement
from partrain.record.run_folder import START_MARK, RunFolder, chosen_run, run_folders, status_of
from partrain.runs.tags import read_tags

COLUMNS = ("name", "when", "rule", "workers", "status", "rounds", "loss", "accuracy", "seconds", "size", "tags")
"""Facts of every run; None if unknown. `when` is Unix time, `size` bytes on disk, `loss` and `accuracy` are of the run's network."""


@dataclass(frozen=True)
class ListedRun:
    """A run folder and the facts in its files."""

    folder: Path
    columns: dict[str, Any]
    """Values of `COLUMNS`."""
    summary: dict[str, Any]
    """The content of `summary.json`; {} during training, and after the run was killed."""
    start: dict[str, Any]
    """The first `start` event; {} if the run ended before it began to train."""
    devices: list[str]
    """The device of each worker, by rank; of a resumed run, those of its newest session."""
    result: RunResult
    """The run's network and its numbers; without a summary, the network judged last."""

    @property
    def name(self) -> str:
        return str(self.columns["name"])

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """Numbers and words of the summary by dotted name.

        Numbers of the run's network, by bare name, and columns override them.
        """
        return numbers_in(self.summary) | self.result.numbers | self.columns

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The job; {} if it cannot be read."""
        return RunFolder(self.folder).job

    def value(self, key: str) -> Any:
        """Return a column, a number of the summary or a key of the job; None if it is missing."""
        return self.numbers[key] if key in self.numbers else dict(flatten(self.settings)).get(key)


def runs_below(folder: Path) -> list[ListedRun]:
    """Return the runs at and below a folder, the newest first."""
    rows = [read_run(run) for run in run_folders(folder)]
    return sorted(rows, key=lambda run: run.columns["when"] or 0, reverse=True)


def run_at(path: Path) -> ListedRun:
    """Return the run at a path: a run folder, a file in it, the best of a sweep, or the newest below a folder.

    Raises `InputMissing`.
    """
    for folder in (path, path.parent, path.parent.parent):
        if RunFolder(folder).exists and (folder == path or path.is_file() or path.name == CHECKPOINTS):
            return read_run(folder)
    if not path.is_dir():
        raise InputMissing(f"no such run: {path}; partrain runs lists them")
    if not (rows := runs_below(path)):
        raise InputMissing(f"{path} holds no run")
    chosen = chosen_run(path, [row.folder for row in rows]).path
    return next(row for row in rows if row.folder == chosen)


def read_run(folder: Path) -> ListedRun:
    """Read a run folder."""
    files = RunFolder(folder)
    summary, first = files.summary, list(files.first_values())
    start = next((event for event in first if event.get("event") == "start"), {})
    late = {} if summary else _late(files)
    status = status_of(summary, training=not summary and files.is_training, ended=late.get("status"))
    judged = summary or late
    newest = files.newest_values(START_MARK) or start
    result = RunResult.of(judged, None if judged.get("best") else _table(newest, "stop"))
    members = newest.get("workers")  # those of the summary also count workers of earlier sessions
    devices = [str(member.get("device")) for member in members if isinstance(member, dict)] if isinstance(members, list) else []
    began = start.get("t") or next((event["t"] for event in first if isinstance(event.get("t"), int | float)), None)
    columns = {
        "name": str(folder),
        "when": began if began is not None else _modified(files.events_file),
        "rule": start.get("rule") or _table(files.job, "sync").get("rule"),
        "workers": len(devices) or None,
        "status": status,
        "rounds": summary.get("rounds", late.get("round")),
        "loss": result.loss,
        "accuracy": result.metrics.get("accuracy"),
        "seconds": _table(summary, "seconds").get("train", late.get("seconds")),
        "size": size_of(folder),
        "tags": read_tags(folder),
    }
    return ListedRun(folder, columns, summary, start, devices, result)


def numbers_in(summary: dict[str, Any]) -> dict[str, Any]:
    """Return numbers, words and missing numbers of a summary by dotted name; list indices count from 0."""
    return dict(flatten(summary, lambda value: isinstance(value, dict | list)))


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder. A file with two names, such as the newest checkpoint, counts once."""
    return sum(dict(_sizes(folder)).values())


def _sizes(folder: str | Path) -> Iterator[tuple[int, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_ino, status.st_size
    except OSError:  # removed meanwhile
        return


def _late(files: RunFolder) -> dict[str, Any]:
    """Return round, seconds, judged numbers and status from the last events of a run without a summary, and its best judgement on disk."""
    facts: dict[str, Any] = {}
    if best := files.newest_best:
        start = files.newest_values(START_MARK)
        stop, metrics = _table(start, "stop"), _table(best, "metrics")
        lower = start.get("lower_is_better") is not False
        facts["best"] = best_judgement(best.get("round", 0), best.get("loss"), metrics, stop, lower_is_better=lower)
    for event in files.last_values():
        match event.get("event"):
            case "round":
                facts |= {"round": event.get("round"), "seconds": event.get("seconds")}
            case "judgement":
                facts |= {"loss": event.get("loss"), "metrics": event.get("metrics")}
            case "start" | "end":  # a start has no status: the session before it no longer counts
                facts["status"] = event.get("status")
    return facts


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key)
    return table if isinstance(table, dict) else {}


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()
