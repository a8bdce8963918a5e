"""The processes of steps on this machine: commands of partrain are forked from the forkserver, which has imported torch."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from partrain.errors import INTERRUPTED, TERMINATED
from partrain.launch import forkserver
from partrain.launch.signals import COMMITTING, STOPPING
from partrain.record.file_names import LOG
from partrain.system.child_process import ChildProcess
from partrain.system.cores import usable_cores
from partrain.system.memory import memory_limits
from partrain.system.parent_death import die_with_parent
from partrain.system.regular_file import open_to_append
from partrain.system.surroundings import surroundings_failure
from partrain.workflow.executor import OUTPUT, CannotStart, StepLost, StepTask, program_environment
from partrain.workflow.resources import FreeResources, Resources


class StepProcess:
    """A step that runs on this machine."""

    where = ""
    has_begun = True

    def __init__(self, child: ChildProcess) -> None:
        self._child, self.waitable, self.signal = child, child.sentinel, child.signal

    def exit_code(self) -> int:
        """Wait for the end, and return the exit code: -N for signal N. Raises StepLost."""
        self._child.stop(None)
        if self._child.exit_code is None:
            raise StepLost("the process that starts steps was killed, and the step ended with it")
        return self._child.exit_code


class LocalExecutor:
    """Starts steps on this machine, as far as cores and GPUs allow."""

    def __init__(self, invoke: Callable[[], None]) -> None:
        """Make an executor. `invoke` is the command line's main function."""
        self._invoke = invoke
        self._free = FreeResources(usable_cores(), memory_limits().ceiling)

    def fits(self, wanted: Resources) -> bool:
        """Return whether a step can start now."""
        return self._free.fits(wanted)

    def start(self, task: StepTask) -> StepProcess:
        """Start a step. Raises `CannotStart`, `WorkersLost`."""
        task.note(task.words)
        if task.is_program:
            child = _start_program(task)
        else:
            forkserver.start()
            arguments = task, self._invoke, forkserver.shared()
            child = forkserver.start_process(f"step {task.folder.name}", _run_command, *arguments)
        self._free.take(task.name, task.resources)
        return StepProcess(child)

    def ended(self, name: str) -> None:
        """Free what a step used."""
        self._free.give_back(name)

    def close(self) -> None:
        """Do nothing: all running steps have already ended."""


def _start_program(task: StepTask) -> ChildProcess:
    """Start a program in a separate session; its output goes to the step's log. Raises `CannotStart`."""
    runner = os.getpid()
    with open(open_to_append(task.folder / LOG), "ab") as log:
        try:
            return ChildProcess.program(
                task.words, cwd=task.base, stdout=log, stderr=log, env=program_environment(task),
                start_new_session=True, preexec_fn=lambda: die_with_parent(runner),
            )  # fmt: skip
        except OSError as error:
            failure = surroundings_failure(error, starting=True)
            raise CannotStart(f"{task.words[0]}: {failure.message if failure else error.strerror}") from None


def _run_command(pipe: Connection, task: StepTask, invoke: Callable[[], None], shared: forkserver.SharedForkserver) -> None:
    """Run a command of partrain in a new process. `invoke` is the command line's main function: it reads `sys.argv`."""
    pipe.close()
    os.setsid()  # the terminal's Ctrl-C is for the runner, which passes it on
    for number in STOPPING:
        signal.signal(number, _exit_on_signal)
    signal.signal(COMMITTING, signal.SIG_DFL)  # the forkserver ignores it, a command that trains does not
    forkserver.adopt(shared)
    os.environ.update(task.environment)
    log = os.open(task.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if "--json" in task.words:
        output = os.open(task.folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(output, 1)
        os.close(output)
    sys.argv = ["partrain", *task.words]
    invoke()


def _exit_on_signal(number: int, frame: object) -> None:
    """Exit before there is a run to end."""
    os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
