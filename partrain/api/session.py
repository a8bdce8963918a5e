"""One training after another in this process: the forkserver, the environment, and the end of a run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from partrain.config.python_objects import PythonObjects, standing_for_tables
from partrain.display.display import make_display
from partrain.display.notebook import NotebookDisplay, runs_in_kernel
from partrain.errors import INTERRUPTED, TERMINATED, Failure
from partrain.hooks.select import find_hooks
from partrain.launch import forkserver
from partrain.launch.context import RunContext
from partrain.launch.folder.outcome import Outcome
from partrain.launch.hook_process import HookProcess
from partrain.record.run_state import RunState
from partrain.system.stdio import visible

KEPT_S = 60.0
"""Seconds that the forkserver waits for another training: importing torch again takes seconds."""
Warn = Callable[[str], None]
"""Shows the user one line."""

_alone = threading.Lock()
"""Threads of a script train one after another: they share the process's forkserver and environment."""


_environment: dict[str, str] = {}
"""The environment of the last training."""


def warn(text: str) -> None:
    """Show a warning on stderr, if it is still open."""
    with suppress(OSError, ValueError):
        print(visible(f"partrain: {text}" if not text.startswith("partrain:") else text), file=sys.stderr)


@contextmanager
def alone(objects: PythonObjects) -> Iterator[None]:
    """Read and train one job at a time, with its objects.

    The traceback of a failure shows details, such as the lines of the job.
    """
    with _alone, standing_for_tables(objects):
        try:
            yield
        except Failure as failure:
            if failure.detail and failure.detail not in getattr(failure, "__notes__", ()):
                failure.add_note(failure.detail)
            raise


def perform(work: Callable[[HookProcess], Outcome], log: Sequence[str], objects: PythonObjects) -> tuple[Outcome, Path]:
    """Train, and return the outcome and the newest checkpoint.

    Raises:
        Failure: The run failed.
        KeyboardInterrupt: A signal ended it.
    """
    hooks = HookProcess(find_hooks(log))
    with _forkserver():
        outcome = work(hooks)
    if outcome.failure:
        raise outcome.failure
    if outcome.checkpoint is None:
        raise KeyboardInterrupt("stopped before the first round")
    if outcome.code in (INTERRUPTED, TERMINATED):
        how = f"partrain resume {outcome.folder}"
        if objects.pickled or objects.data is not None:
            how = f'partrain.load("{outcome.folder}", model=..., dataset=...).resume()'
        raise KeyboardInterrupt(f"stopped; to continue: {how}")
    return outcome, outcome.checkpoint


def context(folder: Path, started: float, *, show: bool, hooks: HookProcess, made: Path | None, warn: Warn = warn) -> RunContext:
    """Make the context of a run. `started`: the start of `boot_seconds`; `made`: see `RunContext`."""
    display: Any = NotebookDisplay(RunState()) if show and runs_in_kernel() else make_display(sys.stdout, quiet=not show)
    return RunContext(folder, display, warn, started, note=warn, hooks=hooks, made=made)


@contextmanager
def _forkserver() -> Iterator[None]:
    """Keep the forkserver for a while after a training, for the next one in the same environment."""
    global _environment
    before = dict(os.environ)
    if _environment != before:  # workers inherit the forkserver's
        forkserver.stop()
    _environment = before
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)  # the forkserver's thread settings are not for the caller
        forkserver.stop_later(KEPT_S)
