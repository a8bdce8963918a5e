"""The lock on a workflow's folder, for one runner at a time, and the record of that runner."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partrain.errors import CannotCreate
from partrain.launch.folder.run_folder import locked, stage_file
from partrain.record.file_names import RUNNER
from partrain.system.regular_file import read_object


@contextmanager
def held(folder: Path, command: Mapping[str, Any]) -> Iterator[None]:
    """Lock a workflow's folder for one runner, which runs a command.

    Raises `CannotCreate`, which names the runner that holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out another folder") from None
    with locked(folder, _described(runner_of(folder))):
        runner = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time(), **command}
        stage_file(folder / RUNNER, json.dumps(runner))
        yield


def runner_of(folder: Path) -> dict[str, Any]:
    """Return the record of the newest runner of a workflow's folder; {} if the folder does not belong to a workflow."""
    return read_object(folder / RUNNER)


def _described(runner: Mapping[str, Any]) -> str:
    try:
        since = time.strftime("%H:%M:%S", time.localtime(runner["started"]))
        return f"by process {runner['pid']} on {runner['host']} since {since}; wait for its end, or give --out another folder"
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "by another process; wait for its end, or give --out another folder"
