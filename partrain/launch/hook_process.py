"""The process of the hooks, as the coordinator sees it: started with the run, read for warnings, closed at the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path

from partrain.launch.signals import handled
from partrain.record.file_names import EVENTS
from partrain.system.children import SAFE_PATH
from partrain.system.parent_death import describe_exit
from partrain.system.regular_file import open_to_append

ANNOUNCED_S = 3.0
"""Seconds of waiting for the hooks after which the user learns of it."""
CLOSING_S = 60.0
"""The hooks have this long to write the rest after the run: one may wait for a server."""
PROGRAM = "import sys; sys.path[:] = {path!r}; from partrain.hooks.follow import main; main(sys.argv[1])"


class HookProcess:
    """The process that feeds the events of a run to hooks; without hooks there is none. It can harm nothing but itself."""

    def __init__(self, points: Sequence[EntryPoint] = (), metrics: socket.socket | None = None) -> None:
        """Choose the hooks, and a listening socket for Prometheus."""
        self._points, self._metrics = points, metrics
        self._warn: Callable[[str], None] = lambda text: None
        self._note: Callable[[str], None] = self._warn
        self._process: subprocess.Popen[bytes] | None = None
        self._warnings: socket.socket | None = None
        self._text = b""
        self._log = Path()

    def start(self, folder: Path, warn: Callable[[str], None], note: Callable[[str], None]) -> None:
        """Start the process. `events.jsonl` holds only events of earlier sessions."""
        if not self._points and self._metrics is None:
            return
        self._warn, self._note, self._log = warn, note, folder / "hooks.log"
        self._warnings, theirs = socket.socketpair()
        settings = {
            "folder": str(folder.absolute()),
            "points": [(point.name, point.value) for point in self._points],
            "before": (folder / EVENTS).stat().st_size,
            "metrics": self._metrics.fileno() if self._metrics else None,
            "warnings": theirs.fileno(),
        }
        words = [sys.executable, *SAFE_PATH, "-W", "ignore", "-c", PROGRAM.format(path=sys.path), json.dumps(settings)]
        descriptors = [one.fileno() for one in (theirs, self._metrics) if one]
        try:
            with theirs, open(open_to_append(self._log), "ab") as log:
                # A group of its own: Ctrl-C is for the coordinator, and helpers of a hook end with it.
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=descriptors, process_group=0
                )
        except OSError as error:
            warn(f"the hooks cannot be started: {error.strerror}")
        if self._metrics:
            self._metrics.close()  # the port is the process's now

    def poll(self) -> None:
        """Show new warnings."""
        while self._warnings:
            try:
                data = self._warnings.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            *lines, self._text = (self._text + data).split(b"\n")
            for line in lines:
                self._warn(f"{line.decode(errors='replace')}; {self._log} has more")
            if not data:
                self._reap()

    def close(self) -> None:
        """Have the hooks write the rest; a second signal, or too long a wait, ends them at once."""
        if self._warnings:
            stopped: list[int] = []
            with handled(lambda number, frame: stopped.append(number)):
                with suppress(OSError):
                    self._warnings.shutdown(socket.SHUT_WR)
                began, announced = time.monotonic(), False
                while self._warnings:
                    self.poll()
                    waited = time.monotonic() - began
                    if waited > ANNOUNCED_S and not announced:
                        self._note("the run is over; its hooks write the rest; Ctrl-C leaves that out")
                        announced = True
                    if self._warnings and (stopped or waited > CLOSING_S):
                        self._warn(f"the hooks were ended after {waited:.0f} s, before they had written everything")
                        self._kill()
                    time.sleep(0.01)
        if self._metrics:
            self._metrics.close()

    def _reap(self) -> None:
        """Take note of the process's end."""
        assert self._warnings is not None
        self._warnings.close()
        self._warnings = None
        if self._process and (code := self._process.wait()):
            self._warn(f"the process of the hooks {describe_exit(code)}; {self._log} tells why")
        with suppress(OSError):
            if not self._log.stat().st_size:
                self._log.unlink()

    def _kill(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
