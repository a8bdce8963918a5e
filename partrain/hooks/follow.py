"""The process of the hooks: it reads `events.jsonl` as the file grows and calls each hook with each event.

The coordinator starts it, with a pipe for warnings. Once the coordinator has sent an empty message, or has died, the process reads
the rest of the file, closes the hooks and exits.
"""

from __future__ import annotations

import hashlib
import os
import time
import traceback
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

from partrain.config.toml_source import TomlSource
from partrain.hooks import GROUP, FollowedRun, Hook
from partrain.record.events import StartEvent, UnknownEvent, decode, is_sound
from partrain.record.file_names import EVENTS, JOB
from partrain.record.run_state import RunState
from partrain.record.tail import Tail

POLL_S = 0.5
"""Seconds between two checks of the file."""


class Follower:
    """Feeds the events of a run to its hooks."""

    def __init__(self, folder: Path, points: list[tuple[str, str]], before: int, metrics: int | None, pipe: Connection):
        """Import the hooks.

        `points` are names and values of entry points, `before` the size of `events.jsonl` at the beginning of this session,
        `metrics` the descriptor of a listening socket for Prometheus.
        """
        self._folder, self._before, self._pipe = folder, before, pipe
        self._state, self._lock = RunState(), Lock()
        self._tail, self._read = Tail(folder / EVENTS), 0
        self._hooks: dict[str, Hook] = {}
        if metrics is not None:
            self._guard("prometheus", self._serve, metrics)
        self._factories: dict[str, Any] = {}
        for name, value in points:
            self._guard(
                name, lambda name, value: self._factories.update({name: EntryPoint(name, value, GROUP).load()}), name, value
            )

    def feed(self) -> None:
        """Pass the events since the last call to the hooks."""
        for line, earlier in self._lines():
            try:
                event = decode(line)
            except ValueError:
                continue
            if isinstance(event, UnknownEvent) or not is_sound(event):
                continue
            with self._lock:
                self._state.apply(event)
            if isinstance(event, StartEvent) and self._factories:
                self._open(event)
            for name, hook in list(self._hooks.items()):
                if not earlier or getattr(hook, "replay", False):
                    self._guard(name, hook.event, event, self._state)

    def close(self) -> None:
        """Close the hooks."""
        for name, hook in list(self._hooks.items()):
            self._guard(name, hook.close)

    def _serve(self, metrics: int) -> None:
        from partrain.hooks.prometheus import PrometheusHook

        self._hooks["prometheus"] = PrometheusHook(metrics, self._state, self._lock)

    def _open(self, first: StartEvent) -> None:
        """Make the hooks, at the first event of the run."""
        digest = hashlib.sha256(f"{first.run_id} {first.t!r}".encode()).hexdigest()
        job = TomlSource.read(self._folder / JOB).data
        run = FollowedRun(self._folder, job, digest[:16], first.t)
        factories, self._factories = self._factories, {}
        for name, factory in factories.items():
            self._guard(name, lambda name, factory: self._hooks.update({name: factory(run)}), name, factory)

    def _guard(self, name: str, call: Any, *arguments: Any) -> None:
        """Call a hook; drop it if that fails."""
        try:
            call(*arguments)
        except Exception as error:
            self._hooks.pop(name, None)
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {name}:", traceback.format_exc(), sep="\n", flush=True)
            problem = (str(error).strip() or "no message").splitlines()[0]
            self._warn(f"the hook `{name}` failed and gets no more events: {type(error).__name__}: {problem}")

    def _warn(self, text: str) -> None:
        try:
            self._pipe.send_bytes(text.encode())
        except OSError:  # the coordinator has died
            print(text, flush=True)

    def _lines(self) -> Iterator[tuple[bytes, bool]]:
        """Yield new complete lines, and whether each belongs to an earlier session."""
        at_end = False
        while not at_end:
            restarted, lines = self._tail.read()
            if restarted:  # removed rounds run again: the rest is known
                self._read, self._before = 0, self._tail.size
                with self._lock:
                    vars(self._state).update(vars(RunState()))
            at_end = self._tail.at_end
            for line in lines:
                earlier = self._read < self._before
                self._read += len(line) + 1
                yield line, earlier


def main(pipe: Connection, folder: Path, points: list[tuple[str, str]], before: int, metrics: int | None = None) -> None:
    """Follow a run until the coordinator reports through the pipe that it is over. See `Follower`."""
    warnings.simplefilter("ignore")
    os.nice(5)  # the workers come first; an even lower priority would starve this process on a busy machine until the run is over
    with pipe:
        follower = Follower(folder, points, before, metrics, pipe)
        ending = False
        while not ending:
            ending = pipe.poll(POLL_S)
            follower.feed()
        follower.close()
