"""Faults of a process's surroundings: no working directory, no /proc, too few open files or processes, too little memory, a TMPDIR too
long for sockets."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partrain.errors import Failure, InputMissing, InputOutputFailed


def surroundings_failure(error: BaseException, *, starting: bool = False) -> Failure | None:
    """Return the failure that explains an error to the user; None if the surroundings are in order.

    `starting`: the error came at the start of a process. Elsewhere its number may mean something else.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return InputOutputFailed(f"too many open files: {raise_open_files()}")
    if starting and (number == errno.EAGAIN or "can't start new thread" in str(error)):
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        limit = (
            "its container (pids.max)" if most == resource.RLIM_INFINITY else f"this user, {most:,} (ulimit -u), or the container"
        )
        return InputOutputFailed(f"no more processes can be started: raise the limit of {limit}, or end other processes")
    lacking = isinstance(error, MemoryError) or number == errno.ENOMEM or "failed to map segment" in str(error)
    if lacking and (limited := memory_limit()):
        return InputOutputFailed(f"out of memory: raise {limited}")
    if not isinstance(error, OSError):
        return None
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


def memory_limit() -> str:
    """Describe the limit of this process's address space, which its children inherit; "" if there is none."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if most == resource.RLIM_INFINITY else f"the limit of each process, {most:,} bytes (ulimit -v)"


@contextmanager
def starting_process() -> Iterator[None]:
    """Raise the Failure that explains why a process cannot be started, if the surroundings forbid it."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if failure := surroundings_failure(error, starting=True):
            raise failure from None
        raise
