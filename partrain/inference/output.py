"""Files that a command makes: whole or absent, and never over something else unless that was asked for."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partrain.errors import CannotCreate, InputOutputFailed
from partrain.system.atomic_file import atomic_file

Formats = Sequence[str]
"""The suffixes that a file may have."""
ANSWERS: Formats = (".csv", ".npz", ".json")
TEXT: Formats = (".txt", ".json")

_LATER = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}
"""What goes wrong while writing, rather than because of the place."""


def check(path: Path, force: bool) -> None:
    """Refuse, before any work is done, an output path that cannot be written."""
    if path.is_dir():
        raise CannotCreate(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise CannotCreate(f"{path} is a pipe or a device, and a file would take its place; name a file")
    if path.exists() and not force:
        raise CannotCreate(f"{path} is there already; --force replaces it")
    if not path.absolute().parent.is_dir():
        raise CannotCreate(f"cannot create {path}: there is no folder {path.parent}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise CannotCreate(f"cannot create {path}: its folder cannot be written to")


def create(path: Path, data: bytes, force: bool = False) -> None:
    """Put a file at `path` in one step. CannotCreate if that can't be, or something is there; InputOutputFailed if the disk fails."""
    check(path, force)
    try:
        with atomic_file(path, exclusive=not force) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except FileExistsError:
        raise CannotCreate(f"{path} is there already; --force replaces it") from None
    except OSError as error:
        kind = InputOutputFailed if error.errno in _LATER else CannotCreate
        raise kind(f"cannot create {path}: {error.strerror}") from None


def document(content: Mapping[str, Any]) -> str:
    """One JSON document; null for numbers that are not finite."""
    from partrain.display.event_log import finite  # with pydantic's core, which `--help` is not to wait for

    return json.dumps(finite(content))
