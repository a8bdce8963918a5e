"""The lock of a workflow's folder, one runner at a time, and the command that runs the workflow."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partrain.errors import CannotCreate, Failure
from partrain.launch.run_folder import stage_file
from partrain.record.file_names import RUNNER
from partrain.system.regular_file import read_object


class NotRunning(Failure):
    """No process of this machine runs the workflow."""

    code, name = 69, "not-running"


@contextmanager
def held(folder: Path, command: Mapping[str, Any]) -> Iterator[None]:
    """Hold a workflow's folder for one runner, which runs a command. Raises `CannotCreate`, which names the runner that holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out another folder") from None
    try:
        if not _taken(descriptor):
            owner = runner_of(folder)
            since = time.strftime("%H:%M:%S", time.localtime(owner.get("started")))
            by = f" by process {owner['pid']} on {owner['host']} since {since}" if "pid" in owner else ""
            raise CannotCreate(f"{folder} is in use{by}; wait for its end, or give --out another folder")
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time(), **command}
        stage_file(folder / RUNNER, json.dumps(owner))
        yield
    finally:
        os.close(descriptor)


def runner_of(folder: Path) -> dict[str, Any]:
    """Return what the newest runner of a workflow's folder wrote; {} if the folder is not of a workflow."""
    return read_object(folder / RUNNER)


def is_running(folder: Path) -> bool:
    """Return whether a process runs the workflow of a folder now."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(runner_of(folder)) and not _taken(descriptor)
    finally:
        os.close(descriptor)


def ask_to_stop(folder: Path) -> int:
    """Ask the runner of a folder to stop, as Ctrl-C does. Return its process id. Raises `NotRunning` if it runs on another machine."""
    owner = runner_of(folder)
    if owner.get("host") != socket.gethostname():
        raise NotRunning(f"{folder}: process {owner.get('pid')} on {owner.get('host')} runs this workflow; ask there")
    try:
        os.kill(owner["pid"], signal.SIGINT)
    except ProcessLookupError:  # it has ended just now
        pass
    except OSError as error:
        raise NotRunning(f"{folder}: process {owner['pid']} runs this workflow: {error.strerror}") from None
    return int(owner["pid"])


def _taken(descriptor: int) -> bool:
    """Take the lock of a folder until the descriptor is closed; return whether it was free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
