"""Requests to a run or a workflow of another process: stop, or commit a checkpoint."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from partrain.errors import InputMissing
from partrain.launch.signals import COMMITTING
from partrain.record.run_folder import is_locked


class NotTraining(InputMissing):
    """A run that no process of this machine trains."""


def ask_to_stop(folder: Path) -> int:
    """Ask a run or a workflow to stop, as Ctrl-C does: once = after this round, twice = now. Return the id of its process."""
    return _send(folder, signal.SIGTERM)


def ask_to_commit(folder: Path) -> int:
    """Ask a run to commit a checkpoint of its next round. Return the process id of its coordinator."""
    return _send(folder, COMMITTING)


def _send(folder: Path, number: signal.Signals) -> int:
    """Send a signal to the process that holds the lock of a folder, if it handles that. Raises NotTraining."""
    if not is_locked(folder):
        raise NotTraining(f"{folder}: no process trains this run now")
    process = next(_holders(folder), None)
    if process is None:
        raise NotTraining(
            f"{folder}: another machine, container or user trains this run, not this user on {socket.gethostname()}; ask there"
        )
    if not _handles(process, number):
        raise NotTraining(
            f"{folder}: process {process} is not ready for {number.name}: the run starts or ends, or is in a thread"
        )
    os.kill(process, number)
    return process


def _holders(folder: Path) -> Iterator[int]:
    """Yield the processes of this user that have locked a folder; their children have the same descriptor, but not its owner's number."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or one that ended just now
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    about = (process / "fdinfo" / descriptor.name).read_text() if descriptor.samefile(folder) else ""
                    if re.search(rf"FLOCK\s.*\s{process.name}\s", about):
                        yield int(process.name)


def _handles(process: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler of its own for a signal, which otherwise would kill it."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
