"""Requests to another process's run or workflow: stop, or commit a checkpoint."""

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
    """No process of this machine trains the run."""


def ask_to_stop(folder: Path) -> int:
    """Ask a run or a workflow to stop, like Ctrl-C: once = after this round, twice = now. Return its process id."""
    return _send(folder, signal.SIGTERM)


def ask_to_commit(folder: Path) -> int:
    """Ask a run to commit a checkpoint of its next round. Return its coordinator's process id."""
    return _send(folder, COMMITTING)


def _send(folder: Path, number: signal.Signals) -> int:
    """Send a signal to the process that holds a folder's lock, if it handles the signal. Raises NotTraining."""
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
    """Yield this user's processes that locked a folder. Their children share the descriptor, but not its owner's number."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or a process that just ended
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    about = (process / "fdinfo" / descriptor.name).read_text() if descriptor.samefile(folder) else ""
                    if re.search(rf"FLOCK\s.*\s{process.name}\s", about):
                        yield int(process.name)


def _handles(process: int, number: signal.Signals) -> bool:
    """Return whether a process has its own handler for a signal, which would otherwise kill it."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
