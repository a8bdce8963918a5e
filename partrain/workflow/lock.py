"""The lock of a workflow's folder: one runner at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partrain.errors import CannotCreate
from partrain.system.regular_file import read_json


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a workflow's folder for one runner. Raises `CannotCreate`, which names the runner that holds it."""
    owner = folder / "runner.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out another folder") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotCreate(
                f"{folder} is in use{_describe_owner(owner)}; wait for its end, or give --out another folder"
            ) from None
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}))
        yield
        with suppress(OSError):
            owner.unlink()
    finally:
        os.close(descriptor)


def _describe_owner(path: Path) -> str:
    try:
        owner = read_json(path)
        since = time.strftime("%H:%M:%S", time.localtime(owner["started"]))
        return f" by process {owner['pid']} on {owner['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
