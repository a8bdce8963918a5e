"""A child process of this one: its pipe, its exit, and its forced end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe, connection
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from partrain.system.children import FIXED_HASHES, SAFE_PATH, leave_signals_to_command
from partrain.system.parent_death import describe_exit, die_with_parent

GRACE_S = 5.0
"""Seconds that a killed process has to exit."""
_PROGRAM = "import sys; sys.path[:] = {path!r}; from partrain.system.child_process import enter; enter{arguments}"


class ChildProcess:
    """A process that this one has started, whatever its work."""

    def __init__(self, pid: int, sentinel: Any, reap: Callable[[], int | None], pipe: Connection | None = None) -> None:
        """Hold a process. `reap` returns the exit code once `sentinel` is ready; None if it cannot be known."""
        self.pid = pid
        self.pipe: Any = pipe
        """The `Connection` to the process; None for a program."""
        self.sentinel = sentinel
        """An object for `multiprocessing.connection.wait`: ready when the process has ended."""
        self.exit_code: int | None = None
        """-N for signal N. None while the process runs, and if the code cannot be known."""
        self._reap, self._ended = reap, False

    @classmethod
    def fork(cls, main: Callable[[Connection], None]) -> ChildProcess:
        """Fork this process. The child calls `main(pipe)`, and ends with this process or when its end of the pipe is closed."""
        ours, theirs = Pipe()
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            ours.close()
            _run_forked(parent, main, theirs)
        theirs.close()
        return cls._own(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ours)

    @classmethod
    def python(
        cls, module: str, *arguments: Any, outlives: bool = False, descriptors: Sequence[int] = (), **options: Any
    ) -> ChildProcess:
        """Start a Python that calls `main(pipe, *arguments)` of a module. Raises OSError.

        Args:
            module: The module. It is imported there, not here.
            arguments: Picklable values.
            outlives: The process continues after the end of this one; otherwise it ends too.
            descriptors: Descriptors that the process gets under the same numbers.
            options: Options of `subprocess.Popen`.
        """
        ours, theirs = Pipe()
        words = [sys.executable, *SAFE_PATH, "-c"]
        with theirs:
            words.append(_PROGRAM.format(path=sys.path, arguments=(module, theirs.fileno(), 0 if outlives else os.getpid())))
            child = cls.program(words, pass_fds=[theirs.fileno(), *descriptors], env=os.environ | FIXED_HASHES, **options)
        child.pipe = ours
        with suppress(ConnectionError):
            ours.send(arguments)
        return child

    @classmethod
    def program(cls, words: Sequence[str], **options: Any) -> ChildProcess:
        """Start a program, without a pipe and with empty input; `options` are options of `subprocess.Popen`. Raises OSError."""
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **options)
        return cls._own(process.pid, process.wait)

    @classmethod
    def _own(cls, pid: int, reap: Callable[[], int], pipe: Connection | None = None) -> ChildProcess:
        """Hold a process that is not reaped before `reap` is called."""
        descriptor = os.pidfd_open(pid)

        def close_and_reap() -> int:
            os.close(descriptor)
            return reap()

        return cls(pid, descriptor, close_and_reap, pipe)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most this long for the end; return whether it has come."""
        if not self._ended and connection.wait([self.sentinel], seconds):
            self._ended, self.exit_code = True, self._reap()
        return self._ended

    def end_in_words(self) -> str:
        """Wait for the end, and describe it."""
        self.wait()
        return describe_exit(self.exit_code)

    def signal(self, number: int) -> None:
        """Send a signal to the process, and to its group if it leads one."""
        with suppress(ProcessLookupError, PermissionError):
            if not self._ended:
                leads = os.getpgid(self.pid) == self.pid
                (os.killpg if leads else os.kill)(self.pid, number)

    def stop(self, seconds: float | None = 0.0) -> bool:
        """Give the process this long to exit, then kill it; close the pipe.

        Returns False if the process still has not exited: it waits for the disk, or the process that reports its end is frozen.
        """
        if not self.wait(seconds):
            self.signal(signal.SIGKILL)
            self.wait(GRACE_S)
        if self.pipe:
            self.pipe.close()
        return self._ended


def enter(module: str, descriptor: int, parent: int) -> None:
    """Do the work of a Python started by `ChildProcess.python`; `parent` 0 lets it outlive its parent."""
    if parent:
        die_with_parent(parent)
    leave_signals_to_command()
    os.set_inheritable(descriptor, False)
    pipe = Connection(descriptor)
    import_module(module).main(pipe, *pipe.recv())


def _run_forked(parent: int, main: Callable[[Connection], None], pipe: Connection) -> NoReturn:
    """Do the work of a forked child, and exit without this process's exit handlers."""
    status = 1
    try:
        die_with_parent(parent)
        leave_signals_to_command()
        signal.set_wakeup_fd(-1)
        with suppress(EOFError, ConnectionError):  # the other end is closed
            main(pipe)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
