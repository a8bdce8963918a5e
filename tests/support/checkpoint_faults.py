"""An `os` whose N-th file operation fails, and a run that commits one round with it.

As a script: `checkpoint_faults.py ROOT`. For N = 1, 2, ... a child commits in ROOT/<N>-before and another in ROOT/<N>-after, and
is killed just before or just after its N-th file operation, until a child completes. Prints the calls hit. Needs no h5py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from partrain.checkpoint import files, link_latest, prune, round_path, write
from partrain.system import atomic_file

CALLS = {"open", "write", "fsync", "close", "rename", "link", "unlink", "posix_fallocate", "listdir", "fstat"}

Fault = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class FaultyOs:
    """A replacement of `os` in the modules that write. `fired` names the calls that failed."""

    def __init__(self, at: int, fault: Fault, lasting: bool = False, only: str = "") -> None:
        self.at, self.fault, self.lasting, self.only = at, fault, lasting, only
        self.count = 0
        self.fired: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ({self.only} if self.only else CALLS):
            return real

        def call(*args: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.count == self.at or (self.lasting and self.count > self.at):
                self.fired.append(name)
                return self.fault(name, real, args, keywords)
            return real(*args, **keywords)

        return call


def replace_os(faulty: FaultyOs, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Replace `os` in the modules that write a checkpoint."""
    for module in (files, atomic_file):
        patch(module, "os", faulty)


def fail(number: int) -> Fault:
    """Make a fault that raises. A failing close still closes, a failing write has written a part."""

    def fault(name: str, real: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> NoReturn:
        if name == "close":
            real(*args)
        if name == "write":
            real(args[0], args[1][: len(args[1]) // 2])
        raise OSError(number, os.strerror(number))

    return fault


def kill(after: bool) -> Fault:
    """Make a fault that kills the process before or after the call; in the middle of a write."""

    def fault(name: str, real: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> NoReturn:
        if after:
            with suppress(OSError):  # such as removing a file that is gone already
                real(*args, **keywords)
        elif name == "write":
            real(args[0], args[1][: len(args[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    return fault


def prepare(run: Path, old: bytes) -> None:
    """Make a run that has committed round 1."""
    (run / "checkpoints").mkdir(parents=True)
    write(round_path(run, 1), old)
    link_latest(run, round_path(run, 1))


def commit(run: Path, new: bytes) -> None:
    """Commit round 2, as a run does."""
    write(round_path(run, 2), new)
    link_latest(run, round_path(run, 2))
    prune(run / "checkpoints", 2, keep=1)


def killed(run: Path, at: int, after: bool, new: bytes) -> str:
    """Commit in a child that dies at its `at`-th call. Return the name of the call, empty if the child completed."""
    log = run / "fired"
    child = os.fork()
    if child == 0:
        fault = kill(after)

        def noting(name: str, *rest: Any) -> NoReturn:
            log.write_text(name)
            return fault(name, *rest)

        replace_os(FaultyOs(at, noting))
        commit(run, new)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (-signal.SIGKILL if log.exists() else 0), status
    return log.read_text() if log.exists() else ""


def main(root: Path) -> None:
    old, new = (root / "old").read_bytes(), (root / "new").read_bytes()
    for at in range(1, 1000):
        hit = ""
        for when in ("before", "after"):
            run = root / f"{at:03d}-{when}"
            prepare(run, old)
            hit = killed(run, at, when == "after", new)
        if not hit:
            return
        print(hit)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
