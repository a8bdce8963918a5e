"""Commands as forks of a process that has imported torch: the import takes 1.7 s of CPU time in each new process.

A command is a process of its own, in a session of its own. Its forkserver is a fork of it. Both run the code that a new interpreter
would run, except for the imports that are done. Tests of start-up itself use new interpreters.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from multiprocessing import util
from typing import Any, NoReturn

AT_START = ("PYTHON", "OMP", "MKL", "OPENBLAS", "ATEN", "ONEDNN", "LD_", "CUDA")
"""Beginnings of environment variables that an interpreter or a library reads once, when it starts or first needs them."""


PR_SET_CHILD_SUBREAPER = 36


class WarmProcess:
    """A command that is a fork, with the methods of subprocess.Popen."""

    def __init__(self, server: Server, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + (timeout or float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(["partrain"], timeout or 0)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """The process that forks commands, as its client sees it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        with theirs:
            words = [sys.executable, __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=os.environ | threads, start_new_session=True
            )
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()

    def start(
        self,
        words: Sequence[str],
        folder: str,
        environment: dict[str, str],
        ignored: Sequence[int],
        files: Sequence[int],
        launcher: Sequence[str] = (),
    ) -> WarmProcess:
        """Start a command, with these files as stdout and stderr. A launcher is a program that starts `-m partrain` anew."""
        request = {
            "words": list(words), "folder": folder, "environment": environment, "ignored": list(ignored), "launcher": list(launcher),
        }  # fmt: skip
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(files))
            while "started" not in (reply := self._receive()):
                pass
        return WarmProcess(self, reply["started"])

    def status(self, pid: int) -> int | None:
        """The exit code of a command that has ended."""
        with self._lock:
            while select.select([self._socket], [], [], 0)[0]:
                self._receive()
            return self._codes.get(pid)

    def close(self) -> None:
        self._socket.close()
        self.process.wait()

    def _receive(self) -> dict[str, Any]:
        reply = self._socket.recv(1 << 16)
        if not reply:
            raise RuntimeError("the process that forks commands has died")
        told: dict[str, Any] = json.loads(reply)
        if "ended" in told:
            self._codes[told["ended"]] = told["code"]
        return told


@cache
def server() -> Server:
    """The one of this process of pytest. It ends with it."""
    one = Server()
    atexit.register(one.close)
    return one


def running() -> set[int | None]:
    """The process id of the server, if there is one."""
    return {server().process.pid} if server.cache_info().currsize else set()


# In the other process


def serve(channel: socket.socket) -> dict[str, Any]:
    """Fork a command at each request until the client is gone. In a fork, return the request.

    Orphans of commands become children of this process: it reaps them, and the process tree shows them.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([channel, wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 1 << 10)
            while (ended := _reap()) is not None:
                channel.send(json.dumps({"ended": ended[0], "code": os.waitstatus_to_exitcode(ended[1])}).encode())
        if channel in ready:
            message, files, _, _ = socket.recv_fds(channel, 1 << 20, 2)
            if not message:
                os._exit(0)
            if pid := os.fork():
                for file in files:
                    os.close(file)
                channel.send(json.dumps({"started": pid}).encode())
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(files[0], 1)
            os.dup2(files[1], 2)
            os.closerange(3, 1 << 12)
            channel.detach()
            return dict(json.loads(message))


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def become(request: dict[str, Any]) -> None:
    """Make a fork what a new interpreter would be: session, folder, environment, signals, words."""
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # the folder of TMPDIR once it was looked for
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else usual)
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.path[0] = request["folder"]
    sys.argv = ["partrain", *request["words"]]
    util.spawnv_passfds = fork_interpreter  # multiprocessing starts its forkserver and its resource tracker by this


def fork_interpreter(path: object, words: Sequence[Any], files: Sequence[int]) -> int:
    """Fork in the place of a new interpreter with the words `-c CODE`, which keeps these files open."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.write(comm := os.open("/proc/self/comm", os.O_WRONLY), b"forkserver" if "forkserver" in words[-1] else b"tracker")
        os.close(comm)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        first = 3
        for file in [*sorted(files), 1 << 12]:
            os.closerange(first, file)
            first = file + 1
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for file in files:
            os.set_inheritable(file, True)
        exec(words[-1], {"__name__": "__main__"})
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    finally:
        os._exit(code)


def main() -> NoReturn:
    import gc
    import runpy

    gc.disable()  # see partrain/launch/worker/preload.py
    import torch.distributed  # noqa: F401

    import partrain.launch.worker.process  # noqa: F401

    gc.freeze()
    gc.enable()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    become(request)
    if launcher := request["launcher"]:
        os.execvp(launcher[0], [*launcher, "-m", "partrain", *request["words"]])
    runpy.run_module("partrain", run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main()
