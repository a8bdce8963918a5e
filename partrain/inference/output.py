"""Output files of commands: written as a whole or not at all, and replacing a file only with `--force`."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partrain.errors import CannotCreate, InputOutputFailed
from partrain.record.round_record import without_nan
from partrain.system.atomic_file import atomic_file

Formats = Sequence[str]
"""Allowed file suffixes."""
ANSWERS: Formats = (".csv", ".npz", ".json")
TEXT: Formats = (".txt", ".json")

_LATER = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}
"""Disk errors while writing; all other errors mean that the file cannot be created at this path."""


def check(path: Path, *, force: bool) -> None:
    """Refuse, before any work is done, an output path that cannot be written."""
    if path.is_dir():
        raise CannotCreate(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise CannotCreate(f"{path} is a pipe or a device, which a file would replace; name a file")
    if path.exists() and not force:
        raise CannotCreate(f"{path} exists already; --force replaces it")
    if not path.absolute().parent.is_dir():
        raise CannotCreate(f"cannot create {path}: there is no folder {path.parent}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise CannotCreate(f"cannot create {path}: its folder cannot be written to")


def create(path: Path, data: bytes, *, force: bool = False) -> None:
    """Create a file in one step. CannotCreate if the path is taken or cannot be written, InputOutputFailed if the disk fails."""
    check(path, force=force)
    try:
        with atomic_file(path, exclusive=not force) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except FileExistsError:
        raise CannotCreate(f"{path} exists already; --force replaces it") from None
    except OSError as error:
        kind = InputOutputFailed if error.errno in _LATER else CannotCreate
        raise kind(f"cannot create {path}: {error.strerror}") from None


def document(content: Mapping[str, Any]) -> str:
    """Render one JSON document; numbers that are not finite become null."""
    return json.dumps(without_nan(content))
