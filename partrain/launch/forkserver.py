"""The forkserver of worker processes, started first: it imports torch while the coordinator reads job and data.

Workers are processes of the standard library's multiprocessing. `torch.multiprocessing` is the same module plus reductions for
tensors; it has no forkserver, and the coordinator would pay an import of torch (1.5 to 3 s) to use its context.
In the workers, which import torch, both are the same. multiprocessing hides its forkserver; only this module uses its private names:
`forkserver._forkserver` (process id, address, stop), the default context, the temporary folder in a process's `_config`, and the options
of its processes.

The forkserver's socket has a name in that folder, which a killed process would leave behind. So the name is removed as soon as the
forkserver runs, and clients reach the socket by a descriptor of the process that started it. (A socket without a file, in the abstract
namespace, would accept requests of every user.)
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe, context, forkserver, get_context, process, resource_tracker, util
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import ModuleType
from typing import Any

from partrain.errors import Failure, WorkersLost
from partrain.system.child_process import ChildProcess
from partrain.system.children import COMMAND_SIGNALS, FIXED_HASHES, SAFE_PATH
from partrain.system.parent_death import PARENT, die_with_parent, memory_hint, orphans_ended
from partrain.system.startup import STARTUP_LIMIT_S
from partrain.system.surroundings import raise_open_files, starting_process, surroundings_failure

_server: Any = forkserver._forkserver
_default_context: Any = context._default_context
_util: Any = util
_ours = 0
"""Process id of the forkserver that `start` started; a script may have started its own before."""
_socket = -1
"""Descriptor of the socket of the forkserver that `start` started."""
_adopted = False
"""True if the forkserver is the workflow runner's, which started this process."""

OTHER_EXIT_S = 0.3
"""Longest time from a killed process's closing of its connections to its exit."""
UNKNOWN_EXIT = 255
"""Exit code of a process that the forkserver could not wait for, among others."""
AFTER_CHILDREN = -1
"""Priority of multiprocessing's work at the end of a process, after the wait for its children."""

_lock = threading.RLock()
"""Held while the forkserver is started or stopped."""
_pending: threading.Timer | None = None
"""The pending stop, see `stop_later`."""

SharedForkserver = dict[str, Any]
"""The facts by which another process can use this process's forkserver."""


def start() -> ForkServerContext:
    """Start the forkserver if it is not running, and cancel a pending stop.

    Return the multiprocessing context whose processes it forks. Raises a Failure if the surroundings prevent the start.
    """
    with starting_process():
        return _started()


def _started() -> ForkServerContext:
    # One thread each, regardless of the environment: each worker sets the `threads` of its job.
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    context = get_context("forkserver")
    if _adopted:
        return context
    context.set_forkserver_preload(["partrain.launch.worker.preload"])
    with _lock, _child_settings():
        # The resource tracker unblocks signals as it starts. Started by the forkserver, it would leave the forkserver unshielded.
        # Signals that it does not unblock stay blocked.
        with _undisturbed():
            resource_tracker.ensure_running()
        # A signal that arrives before the forkserver ignores it would end it with a traceback. So it stays blocked until then.
        with _undisturbed(), without_main():
            _cancel()
            if not pid() or died(0.0):
                _start_without_files()
    return context


@contextmanager
def _child_settings() -> Iterator[None]:
    """Set the options and environment for multiprocessing to start its resource tracker and forkserver."""
    root, path = Path(__file__).parents[2], os.environ.get("PYTHONPATH")
    settings = FIXED_HASHES | {PARENT: str(os.getpid())}  # this process may die before the forkserver can ask
    if root == Path.cwd():  # a checkout, which the forkserver would not find
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), path)))
    before, flags = {name: os.environ.get(name) for name in settings}, _util._args_from_interpreter_flags
    _util._args_from_interpreter_flags = lambda: [*flags(), *SAFE_PATH]
    os.environ.update(settings)
    try:
        yield
    finally:
        _util._args_from_interpreter_flags = flags
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _start_without_files() -> None:
    """Start the forkserver with its socket in a folder, and remove the folder once it runs."""
    global _ours, _socket
    config = vars(process.current_process())["_config"]
    before = config.get("tempdir")
    with tempfile.TemporaryDirectory(prefix="partrain-") as config["tempdir"]:
        try:
            forkserver.ensure_running()
            if not _ours:
                util.Finalize(None, stop, exitpriority=AFTER_CHILDREN)
            _ours = pid()
            _close_socket()
            _socket = os.open(_server._forkserver_address, os.O_PATH | os.O_CLOEXEC)
            _server._forkserver_address = f"/proc/{os.getpid()}/fd/{_socket}"
        finally:
            config["tempdir"] = before


def _close_socket() -> None:
    global _socket
    if _socket >= 0:
        os.close(_socket)
        _socket = -1


def pid() -> int:
    """Return the process id of the forkserver, the parent of every worker; 0 without one."""
    return _server._forkserver_pid or 0


def shared() -> SharedForkserver:
    """Return the facts that let a process, forked by the forkserver, fork its own children there: see `adopt`."""
    names = "_forkserver_address", "_forkserver_pid", "_forkserver_authkey"  # the key since Python 3.14
    return {name: getattr(_server, name) for name in names if hasattr(_server, name)}


def adopt(shared: SharedForkserver) -> None:
    """Use the forkserver that forked this process also for its children, which saves them an import of torch.

    Multiprocessing supports this except for the address: it would start another forkserver. Both processes end with the forkserver.
    """
    global _adopted
    for name, value in shared.items():
        setattr(_server, name, value)
    _server.ensure_running = lambda: None
    _adopted = True


def start_process(name: str, main: Callable[..., None], *arguments: Any) -> ChildProcess:
    """Fork a process that calls `main(pipe, *arguments)`. It ends with the forkserver: its exit code is then None.

    Raises WorkersLost if the forkserver dies or does not answer.
    """
    context = start()
    ours, theirs = Pipe()
    process = context.Process(target=_run_child, args=(pid(), main, theirs, *arguments), name=name, daemon=False)
    frozen = threading.Timer(STARTUP_LIMIT_S, kill)  # the start waits for its answer without limit
    frozen.daemon = True
    try:
        with theirs, without_main():
            frozen.start()
            process.start()
    except (EOFError, OSError, RuntimeError) as error:
        ours.close()
        if failure := _start_failure(error):
            raise failure from None
        if isinstance(error, RuntimeError):
            raise
        why = f"the process that starts workers was killed{memory_hint()}"
        if not died(OTHER_EXIT_S):
            why = f"the process that starts workers gave no answer; if it lacks open files, {raise_open_files()}"
        raise WorkersLost(f"{name} could not be started: {why} ({type(error).__name__})") from None
    finally:
        frozen.cancel()

    def reap() -> int | None:
        process.join()
        return None if process.exitcode == UNKNOWN_EXIT and died(OTHER_EXIT_S) else process.exitcode

    assert process.pid is not None
    return ChildProcess(process.pid, process.sentinel, reap, ours)


def _run_child(server: int, main: Callable[..., None], *arguments: Any) -> None:
    die_with_parent(server)
    main(*arguments)


def died(patience_s: float) -> bool:
    """Return whether the forkserver has died. Its children may exit up to `patience_s` seconds before it does."""
    until = time.monotonic() + patience_s
    while pid() and not _adopted:
        try:
            if os.waitid(os.P_PID, pid(), os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
        except ChildProcessError:  # reaped already
            break
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return not _adopted


def _start_failure(error: Exception) -> Failure | None:
    """Return the failure that kept the forkserver from starting a process; None if the surroundings are in order.

    If the failure ended the forkserver, its exit status is the error number.
    """
    failure = surroundings_failure(error, starting=True)
    if failure is None and pid() and pid() == _ours and died(OTHER_EXIT_S):
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, pid(), os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended and ended.si_code == os.CLD_EXITED:
                failure = surroundings_failure(OSError(ended.si_status, os.strerror(ended.si_status)), starting=True)
    return failure


def kill() -> None:
    """Kill this process's forkserver, even a frozen one. Its children end with it; a read of its answer gets an end of file."""
    if pid() and pid() == _ours:
        with suppress(ProcessLookupError):
            os.kill(_ours, signal.SIGKILL)


def stop() -> None:
    """Kill the forkserver at once, even while it imports torch for a failed command. Also end processes left behind by user code."""
    with _undisturbed(), _lock:
        _cancel()
        if pid() and pid() == _ours:
            with orphans_ended(_ours):
                os.kill(_ours, signal.SIGKILL)
                if _socket >= 0:
                    _server._forkserver_address = "\0"  # nothing to unlink
                _server._stop()
                _close_socket()


def stop_later(seconds: float) -> None:
    """Stop the forkserver after this time, unless it is started again or then has children: a script's own children end with it.

    The kernel kills the forkserver with the thread that started it. So outside the main thread it stops at once.
    """
    if threading.current_thread() is not threading.main_thread():
        return stop()
    global _pending
    with _undisturbed(), _lock:
        _cancel()
        _pending = threading.Timer(seconds, _stop_idle)
        _pending.daemon = True
        _pending.start()
    return None


def _cancel() -> None:
    global _pending
    if _pending:
        _pending.cancel()
        _pending = None


def _stop_idle() -> None:
    with _lock:
        if _pending is threading.current_thread() and not _has_children():  # else it was restarted meanwhile
            stop()


def _has_children() -> bool:
    """Return whether the forkserver has children; True if the kernel does not report them."""
    try:
        return bool(Path(f"/proc/{pid()}/task/{pid()}/children").read_text())
    except OSError:
        return True


def _forget() -> None:
    """Let a forked child start its own forkserver: its parent's is not its child."""
    global _lock, _ours, _pending
    if pid() and not _adopted:
        _close_socket()
        os.close(_server._forkserver_alive_fd)
        _server.__init__()
        _lock, _ours, _pending = threading.RLock(), 0, None


os.register_at_fork(after_in_child=_forget)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Block the command's signals: multiprocessing holds a lock, and their handler may call `stop`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, COMMAND_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the main module from multiprocessing, which would import it again in every child.

    Also hide a start method that a child would not know, such as `loky` in a joblib process. And hide that this process is a
    daemon, like the processes of `multiprocessing.Pool`: multiprocessing forbids daemons children, but ours end with it.
    """
    main, method = sys.modules["__main__"], _default_context._actual_context
    config = vars(process.current_process())["_config"]
    daemon, config["daemon"] = config.get("daemon", False), False
    sys.modules["__main__"] = ModuleType("__main__")
    if method is not None and method.get_start_method() not in ("fork", "spawn", "forkserver"):
        _default_context._actual_context = get_context("forkserver")
    try:
        yield
    finally:
        config["daemon"] = daemon
        sys.modules["__main__"] = main
        _default_context._actual_context = method
