"""The coordinator's side of the hook process: started with the run, read for warnings, closed at the end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path

from partrain.launch.signals import handled
from partrain.record.file_names import EVENTS
from partrain.system.child_process import ChildProcess
from partrain.system.regular_file import open_to_append

ANNOUNCED_S = 3.0
"""Seconds of waiting for the hooks after which the user is informed."""
CLOSING_S = 60.0
"""Seconds for the hooks to write the rest after the run: a hook may wait for a server."""


class HookProcess:
    """The process that feeds a run's events to hooks; without hooks there is no process. It can harm only itself."""

    def __init__(self, points: Sequence[EntryPoint] = (), metrics: socket.socket | None = None) -> None:
        """Choose the hooks, and a listening socket for Prometheus."""
        self._points, self._metrics = points, metrics
        self._warn: Callable[[str], None] = lambda text: None
        self._note: Callable[[str], None] = self._warn
        self._child: ChildProcess | None = None
        self._log = Path()

    def start(self, folder: Path, warn: Callable[[str], None], note: Callable[[str], None]) -> None:
        """Start the process. `events.jsonl` holds only events of earlier sessions."""
        if not self._points and self._metrics is None:
            return
        self._warn, self._note, self._log = warn, note, folder / "hooks.log"
        points = [(point.name, point.value) for point in self._points]
        metrics = [self._metrics.fileno()] if self._metrics else []
        arguments = folder.absolute(), points, (folder / EVENTS).stat().st_size, *metrics
        try:
            with open(open_to_append(self._log), "ab") as log:
                # Its own process group: Ctrl-C is for the coordinator, and a hook's helpers end with it.
                self._child = ChildProcess.python(
                    "partrain.hooks.follow",
                    *arguments,
                    outlives=True,
                    descriptors=metrics,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
        except OSError as error:
            warn(f"the hooks cannot be started: {error.strerror}")
        if self._metrics:
            self._metrics.close()  # the process has the port now

    def poll(self) -> None:
        """Show new warnings."""
        while self._child and self._child.pipe.poll():
            try:
                text = self._child.pipe.recv_bytes().decode(errors="replace")
            except (EOFError, OSError):
                self._reap()
            else:
                self._warn(f"{text}; {self._log} has more")

    def close(self) -> None:
        """Let the hooks write the rest; end them at once after a second signal or too long a wait."""
        if self._child:
            stopped: list[int] = []
            with handled(lambda number, frame: stopped.append(number)):
                with suppress(OSError):
                    self._child.pipe.send_bytes(b"")
                began, announced = time.monotonic(), False
                while self._child:
                    self.poll()
                    waited = time.monotonic() - began
                    if waited > ANNOUNCED_S and not announced:
                        self._note("the run is over; its hooks write the rest; Ctrl-C leaves that out")
                        announced = True
                    if self._child and (stopped or waited > CLOSING_S):
                        self._warn(f"the hooks were ended after {waited:.0f} s, before they had written everything")
                        self._child.stop()
                        self._child = None
                    time.sleep(0.01)
        if self._metrics:
            self._metrics.close()

    def _reap(self) -> None:
        """Record that the process ended."""
        assert self._child
        if self._child.stop(None) and self._child.exit_code:
            self._warn(f"the process of the hooks {self._child.end_in_words()}; {self._log} says why")
        self._child = None
        with suppress(OSError):
            if not self._log.stat().st_size:
                self._log.unlink()
