"""Read and append to files that another program may have put there: regular files only, without ever waiting for a pipe."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for a pipe, a device or a folder."""
    return open(_descriptor(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> int:
    """Open a descriptor that appends to a regular file, which is created if missing. Raises OSError, also for a link."""
    return _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)


def read_regular(path: Path) -> bytes:
    """Read a regular file; see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises OSError, and ValueError like `parse_json`."""
    return parse_json(read_regular(path))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} if there is no readable one."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError if the text is not JSON, or is nested too deep for the parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _descriptor(path: Path, access: int) -> int:
    """Open a file, and check that it is a regular one."""
    descriptor = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code) if code == errno.EISDIR else "is a pipe or a device", str(path))
    return descriptor
