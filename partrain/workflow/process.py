"""The processes of steps on this machine: commands of partrain are forked from the forkserver, which has imported torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.errors import INTERNAL, INTERRUPTED, TERMINATED, WorkersLost
from partrain.launch import forkserver
from partrain.launch.processes import OTHER_EXIT_S, UNKNOWN_EXIT
from partrain.launch.signals import COMMITTING, STOPPING
from partrain.system.cores import usable_cores
from partrain.system.parent_death import die_with_parent
from partrain.system.regular_file import open_to_append
from partrain.system.surroundings import surroundings_failure
from partrain.workflow.executor import LOG, OUTPUT, CannotStart, StepLost, StepTask, program_environment
from partrain.workflow.resources import FreeResources, Resources


@dataclass(frozen=True)
class StepCommand:
    """A command of partrain, for the process that runs it."""

    words: Sequence[str]
    folder: Path
    """The step's folder: log and output go there."""
    invoke: Callable[[], None]
    """The command line's main function: it reads `sys.argv`."""
    forkserver: forkserver.SharedForkserver


class StepProcess:
    """A step that runs on this machine."""

    where = ""

    def __init__(self, process: Any, waitable: Any, exit_code: Callable[[], int], pid: int) -> None:
        self.waitable = waitable
        """An object for `multiprocessing.connection.wait`: ready when the process has ended."""
        self._process, self._exit_code, self.pid = process, exit_code, pid

    @classmethod
    def of_command(cls, words: Sequence[str], folder: Path, invoke: Callable[[], None]) -> StepProcess:
        """Start a command of partrain."""
        context = forkserver.start()
        line = StepCommand(words, folder, invoke, forkserver.shared())
        process = context.Process(target=_run_command, args=(line,), name=f"step {folder.name}", daemon=False)
        try:
            with forkserver.without_main():
                process.start()
        except (EOFError, OSError) as error:
            if failure := forkserver.start_failure(error, OTHER_EXIT_S):
                raise failure from None
            raise WorkersLost(f"{folder.name}: the process that starts steps was killed ({type(error).__name__})") from None
        assert process.pid is not None

        def exit_code() -> int:
            process.join()
            code = process.exitcode
            if code == UNKNOWN_EXIT and forkserver.died(OTHER_EXIT_S):
                raise StepLost("the process that starts steps was killed, and the step ended with it")
            return INTERNAL if code is None else code

        return cls(process, process.sentinel, exit_code, process.pid)

    @classmethod
    def of_program(cls, words: Sequence[str], folder: Path, where: Path) -> StepProcess:
        """Start a program in a session of its own; its output goes to the step's log. Raises `CannotStart`."""
        environment = program_environment(folder)
        runner = os.getpid()
        with open(open_to_append(folder / LOG), "ab") as log:
            try:
                process = subprocess.Popen(
                    words, cwd=where, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment,
                    start_new_session=True, preexec_fn=lambda: die_with_parent(runner),
                )  # fmt: skip
            except OSError as error:
                failure = surroundings_failure(error, starting=True)
                raise CannotStart(f"{words[0]}: {failure.message if failure else error.strerror}") from None
        descriptor = os.pidfd_open(process.pid)

        def exit_code() -> int:
            os.close(descriptor)
            return process.wait()

        return cls(process, descriptor, exit_code, process.pid)

    def exit_code(self) -> int:
        """Wait for the end, and return the exit code: -N for signal N. Call once."""
        return self._exit_code()

    def signal(self, number: int) -> None:
        """Send a signal to the process and those of its session."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class LocalExecutor:
    """Starts steps on this machine, as far as cores and GPUs allow."""

    def __init__(self, invoke: Callable[[], None]) -> None:
        """Make an executor. `invoke` is the command line's main function."""
        self._invoke = invoke
        self._free = FreeResources(usable_cores())

    def fits(self, wanted: Resources) -> bool:
        """Tell if a step can start now."""
        return self._free.fits(wanted)

    def start(self, task: StepTask) -> StepProcess:
        """Start a step. Raises `CannotStart`, `WorkersLost`."""
        task.note(task.words)
        if task.is_program:
            process = StepProcess.of_program(task.words, task.folder, task.base)
        else:
            process = StepProcess.of_command(task.words, task.folder, self._invoke)
        self._free.take(task.name, task.resources)
        return process

    def ended(self, name: str) -> None:
        """Free what a step used."""
        self._free.give_back(name)

    def close(self) -> None:
        """Do nothing: steps that run have ended before."""


def _run_command(line: StepCommand) -> None:
    """Run a command of partrain in a new process."""
    os.setsid()  # the terminal's Ctrl-C is for the runner, which passes it on
    die_with_parent(line.forkserver["_forkserver_pid"])
    for number in STOPPING:
        signal.signal(number, _exit_on_signal)
    signal.signal(COMMITTING, signal.SIG_DFL)  # the forkserver ignores it, a command that trains does not
    forkserver.adopt(line.forkserver)
    log = os.open(line.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if "--json" in line.words:
        output = os.open(line.folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(output, 1)
        os.close(output)
    sys.argv = ["partrain", *line.words]
    line.invoke()


def _exit_on_signal(number: int, frame: object) -> None:
    """Exit before there is a run to end."""
    os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
