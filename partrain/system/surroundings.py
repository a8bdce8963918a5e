"""Faults of a process's surroundings: no working directory, no /proc, too few open files, a TMPDIR too long for sockets."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

from partrain.errors import Failure, InputMissing, InputOutputFailed


def surroundings_failure(error: OSError) -> Failure | None:
    """Return the failure that tells a user what an error comes from; None if the surroundings are in order."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return InputOutputFailed(f"too many open files: {raise_open_files()}")
    if "AF_UNIX path too long" in str(error):
        folder = os.environ.get("TMPDIR", "")
        return InputOutputFailed(f"TMPDIR={folder[:40]}...: its path is too long for the sockets of processes: set a shorter one")
    if not Path("/proc/self/stat").exists():
        return InputMissing("/proc is not mounted, and what processes do is read there: mount it")
    try:
        Path.cwd()
    except FileNotFoundError:
        return InputMissing("the working directory is gone: change to one that exists")
    return None


def raise_open_files() -> str:
    """Return advice to raise the limit of open files, with the limit."""
    return f"raise their limit, which is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} (ulimit -n)"
