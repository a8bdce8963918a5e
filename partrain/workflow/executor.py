"""The interface of executors, which start the steps of a workflow: on this machine, or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from partrain.comm.machine import NOT_FOR_STEPS
from partrain.errors import NOT_REACHED, Failure, WorkersLost
from partrain.record.file_names import LOG
from partrain.record.run_folder import RunFolder
from partrain.system.parent_death import describe_exit
from partrain.system.regular_file import open_to_append
from partrain.workflow.resources import Resources

OUTPUT = "output.json"
"""Stdout of a command of partrain; all other output goes to the log."""


class CannotStart(Failure):
    """A program that cannot be started."""

    code, name = 66, "no-input"


@dataclass(frozen=True)
class StepTask:
    """A step to start."""

    name: str
    words: Sequence[str]
    """The step's command line, without the leading `partrain`."""
    is_program: bool
    """The words start a program, not partrain."""
    folder: Path
    """The step's folder, absolute: log and output go there."""
    base: Path
    """The folder where a program runs."""
    resources: Resources
    resume_words: Sequence[str] = ()
    """The command line that continues from the checkpoint in the folder, if there is one."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the step's process, in addition to the runner's."""

    def note(self, words: Sequence[str]) -> None:
        """Write the command's words to the log."""
        with open(open_to_append(self.folder / LOG), "a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"$ {' '.join(words)}\n")


def program_environment(task: StepTask) -> dict[str, str]:
    """Return the environment of a program: `PARTRAIN_STEP_FOLDER` is its step's folder, and `python` the Python that runs partrain."""
    path = os.pathsep.join([str(Path(sys.executable).parent), *filter(None, [os.environ.get("PATH")])])
    own = {name: value for name, value in os.environ.items() if name not in NOT_FOR_STEPS}  # of a Dask worker under srun, say
    return own | {"PARTRAIN_STEP_FOLDER": str(task.folder), "PATH": path} | dict(task.environment)


class StepLost(WorkersLost):
    """The process that starts steps was killed, and a step ended with it."""


class RunningStep(Protocol):
    """A step that runs."""

    waitable: Any
    """An object for `multiprocessing.connection.wait`: ready when the step has ended."""

    @property
    def has_begun(self) -> bool:
        """True if the step runs; false while it waits for a worker of a cluster."""

    @property
    def where(self) -> str:
        """The host that runs the step, or the reason why it waits; "" for this machine."""

    def exit_code(self) -> int:
        """Return the exit code, once the step has ended: -N for signal N. Call once. Raises `StepLost`."""

    def signal(self, number: int) -> None:
        """Send a signal to the step's processes."""


class Executor(Protocol):
    """Starts steps somewhere."""

    def fits(self, wanted: Resources) -> bool:
        """Return whether a step can start now."""

    def start(self, task: StepTask) -> RunningStep:
        """Start a step. Raises `Failure` if that fails."""

    def ended(self, name: str) -> None:
        """Free what a step used."""

    def close(self) -> None:
        """End the executor, after all steps."""


def failure_reason(code: int, folder: Path) -> str:
    """Return the reason of a failure: the last error in the step's log, the target that a run missed, else the exit code."""
    with suppress(OSError):
        lines = (folder / LOG).read_text(errors="replace").splitlines()
        errors = [line.partition("]: ")[2] for line in lines if line.startswith("partrain: error[")]
        if errors:
            return errors[-1]
    if code == NOT_REACHED and RunFolder(folder).summary.get("status") == "not-reached":
        return f"it did not reach its target; see {folder / LOG}"
    return f"it {describe_exit(code)}" if code < 0 else f"exit code {code}; see {folder / LOG}"
