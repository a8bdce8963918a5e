"""The runner: starts steps in their order, several at once as far as cores and GPUs allow, and records how each ended."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, CannotCreate, Failure
from partrain.launch.signals import Signals
from partrain.system.parent_death import describe_exit
from partrain.workflow.actions import Resources
from partrain.workflow.load import Step, Workflow
from partrain.workflow.plan import Decision, Selection, decide, failed_assertions
from partrain.workflow.process import LOG, StepProcess
from partrain.workflow.record import DONE, FAILED, RUNNING, STOPPED, StepRecord
from partrain.workflow.results import Results
from partrain.workflow.state import StepState
from partrain.workflow.sweep import SweepAction

POLL_S = 0.25
"""Time between two looks at the progress of running steps."""
STOPPING_CODES = (INTERRUPTED, TERMINATED, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)


@dataclass(frozen=True)
class Options:
    """The options of a workflow's run."""

    selection: Selection = field(default_factory=Selection)
    jobs: int | None = None
    """Most steps at once; default: as many as fit."""
    keep_going: bool = False
    """After a failure, run all that does not need the failed step."""
    retries: int = 0
    """Times that a failed step is tried again."""


class FreeResources:
    """The cores and GPUs of this machine, and those in use."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._used: dict[str, Resources] = {}

    def fits(self, wanted: Resources) -> bool:
        """Tell if a step can start. One that wants more cores than there are runs alone."""
        if not self._used:
            return True
        used = sum(each.cores for each in self._used.values())
        busy = frozenset[str]().union(*(each.devices for each in self._used.values()))
        return used + wanted.cores <= self.cores and not wanted.devices & busy

    def take(self, name: str, wanted: Resources) -> None:
        """Reserve what a step uses."""
        self._used[name] = wanted

    def give_back(self, name: str) -> None:
        """Free what a step used."""
        self._used.pop(name, None)


class Runner:
    """One run of a workflow."""

    def __init__(
        self,
        workflow: Workflow,
        results: Results,
        options: Options,
        invoke: Callable[[], None],
        base: Path,
        changed: Callable[[dict[str, StepState]], None] = lambda states: None,
        refresh: Callable[[dict[str, StepState]], None] = lambda states: None,
    ) -> None:
        """Make a runner.

        Args:
            workflow: The workflow.
            results: The results in its folder.
            options: Options of the command line.
            invoke: The command line's main function, for steps that are commands of partrain.
            base: The folder where programs run.
            changed: Called after each change of a step's state.
            refresh: Called a few times a second while steps run.
        """
        self.workflow, self._results, self._options = workflow, results, options
        self._invoke, self._base, self._changed, self._refresh = invoke, base, changed, refresh
        self._free = FreeResources(len(os.sched_getaffinity(0)))
        self._running: dict[str, tuple[StepProcess, StepRecord]] = {}
        self._selected = options.selection.steps(workflow)
        self._rerun = options.selection.rerun_in(workflow)
        self._passed_on = 0
        self.signals = Signals()
        self.code = OK
        self.states = {name: StepState(name, results.of_step(name)) for name in workflow.steps}
        for name, state in self.states.items():
            if name not in self._selected:
                state.status, state.note = "given", "not asked for"

    def run(self) -> int:
        """Run all steps that have to run; return the exit code."""
        with self.signals:
            while self._advance() or self._running:
                self._wait()
        if self.signals.count:
            self.code = INTERRUPTED if self.signals.first == signal.SIGINT else TERMINATED
        return self.code

    # Starting

    def _advance(self) -> bool:
        """Settle and start what can be; return whether anything changed."""
        moved = False
        for step in self.workflow.steps.values():
            state = self.states[step.name]
            if state.status != "waiting":
                continue
            if self.signals.count or (self.code != OK and not self._options.keep_going):
                continue
            others = [self.states[name] for name in sorted(step.needs)]
            if bad := [each for each in others if each.status in ("failed", "skipped", "blocked", "stopped")]:
                self._settle(state, "skipped" if bad[0].status == "skipped" else "blocked", f"needs {bad[0].name}")
            elif not all(each.settled for each in others) or not self._begin(step, state):
                continue
            moved = True
        return moved

    def _begin(self, step: Step, state: StepState) -> bool:
        """Settle a step that need not run, or start it if there is room; return whether its state changed."""
        if self._options.jobs is not None and len(self._running) >= self._options.jobs:
            return False
        if not self._free.fits(step.action.resources):
            return False
        try:
            if step.when and not step.when.holds({}, self._results.resolve):
                self._settle(state, "skipped", f"{step.when.text} does not hold")
                return True
            decision = decide(step, self._results, self._rerun)
            if not decision.runs:
                record = self._results.record(step.name)
                assert record is not None
                if not self._assert(step, record, state):
                    self._settle(state, "unchanged", "")
                return True
            self._start(step, state, decision)
        except (Failure, ValueError) as failure:
            self._fail(state, failure.code if isinstance(failure, Failure) else NOT_REACHED, str(failure))
        return True

    def _start(self, step: Step, state: StepState, decision: Decision) -> None:
        """Start a step: in its old folder if it goes on, else in a new one."""
        folder = self._results.of_step(step.name)
        if isinstance(step.action, SweepAction):
            step.action.perform(folder)
            record = StepRecord(DONE, decision.settings, decision.inputs, started=time.time(), code=OK)
            self._finish(step, record)
            return
        before = self._results.record(step.name)
        if not decision.continuing:
            _clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        words = step.action.arguments(folder.absolute(), self._results.resolve, decision.continuing)
        record = StepRecord(RUNNING, decision.settings, decision.inputs, command=words, started=time.time())
        if decision.continuing and before:
            record.seconds = before.seconds
        self._launch(step, state, record)
        state.note = decision.reason
        state.continuing = decision.continuing
        self._changed(self.states)

    def _launch(self, step: Step, state: StepState, record: StepRecord) -> None:
        folder = self._results.of_step(step.name)
        record.attempts += 1
        self._results.store(step.name, record)
        with (folder / LOG).open("a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"$ {' '.join(record.command)}\n")
        if step.action.is_program:
            try:
                process = StepProcess.of_program(record.command, folder.absolute(), self._base)
            except OSError as error:
                raise CannotStart(f"{record.command[0]}: {error.strerror}") from None
        else:
            process = StepProcess.of_command(record.command, folder.absolute(), self._invoke)
        self._free.take(step.name, step.action.resources)
        self._running[step.name] = process, record
        state.begin(step.action.resources)

    # Waiting

    def _wait(self) -> None:
        """Wait for the end of a step, a signal, or the time to look at progress."""
        if not self._running:
            return
        ready = wait([*(process.waitable for process, _ in self._running.values()), self.signals.pipe], POLL_S)
        if self.signals.pipe in ready:
            self.signals.heed()
        while self._passed_on < self.signals.count:
            self._passed_on += 1
            for process, _ in self._running.values():
                process.signal(self.signals.first or signal.SIGINT)
        for name, (process, record) in list(self._running.items()):
            if process.waitable in ready:
                self._end(self.workflow.steps[name], process.exit_code(), record)
        for name in self._running:
            self.states[name].look()
        self._refresh(self.states)

    def _end(self, step: Step, code: int, record: StepRecord) -> None:
        """Record the end of a step."""
        del self._running[step.name]
        self._free.give_back(step.name)
        state, folder = self.states[step.name], self._results.of_step(step.name)
        state.look()
        record.code, record.seconds = code, record.seconds + time.time() - record.started
        record.summary = step.action.summary(folder)
        if self.signals.count and code in STOPPING_CODES:
            record.status = STOPPED
            self._results.store(step.name, record)
            self._settle(state, "stopped", "goes on with the same command")
            return
        tolerated = getattr(step.action, "tolerated", ())
        if code != OK and code not in tolerated:
            self._failed(step, record, code, _reason(code, folder))
            return
        self._finish(step, record)

    def _finish(self, step: Step, record: StepRecord) -> None:
        """Record a step that has done its work, if it kept its promises."""
        state, folder = self.states[step.name], self._results.of_step(step.name)
        record.summary = step.action.summary(folder)
        outputs = step.action.outputs(folder, self._results.resolve)
        record.outputs = self._results.digests(outputs)
        missing = [path for path, digest in record.outputs.items() if digest is None]
        if missing and record.code == OK:
            self._failed(step, record, NOT_REACHED, f"it did not write {missing[0]}")
            return
        record.status, record.message = DONE, ""
        self._results.store(step.name, record)
        if not self._assert(step, record, state):
            self._settle(state, "done", "")

    def _failed(self, step: Step, record: StepRecord, code: int, message: str) -> None:
        """Record a failure, or try again."""
        record.status, record.message = FAILED, message
        self._results.store(step.name, record)
        state = self.states[step.name]
        if record.attempts <= self._options.retries and not self.signals.count:
            record.status, record.started = RUNNING, time.time()
            folder = self._results.of_step(step.name)
            record.command = step.action.arguments(folder.absolute(), self._results.resolve, continuing=True)
            if "resume" not in record.command[:1]:
                _clear(folder)
                folder.mkdir()
            state.note = f"again: {message}"
            self._launch(step, state, record)
            self._changed(self.states)
            return
        self._fail(state, code if code > 0 else NOT_REACHED, message)

    def _assert(self, step: Step, record: StepRecord, state: StepState) -> bool:
        """Check the assertions of a step that is done; return whether one failed."""
        failures = failed_assertions(step, record, self._results)
        if failures:
            self._fail(state, NOT_REACHED, "; ".join(failures))
        return bool(failures)

    def _fail(self, state: StepState, code: int, message: str) -> None:
        self.code = self.code or code
        self._settle(state, "failed", message)

    def _settle(self, state: StepState, status: str, note: str) -> None:
        state.end(status, note)
        self._changed(self.states)


class CannotStart(Failure):
    """A program that cannot be started."""

    code, name = 66, "no-input"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a workflow's folder for one runner. Raises `CannotCreate`, which names the runner that holds it."""
    owner = folder / "runner.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out another folder") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotCreate(
                f"{folder} is in use{_describe_owner(owner)}; wait for its end, or give --out another folder"
            ) from None
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}))
        yield
        with suppress(OSError):
            owner.unlink()
    finally:
        os.close(descriptor)


def _describe_owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        since = time.strftime("%H:%M:%S", time.localtime(owner["started"]))
        return f" by process {owner['pid']} on {owner['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _clear(folder: Path) -> None:
    """Remove what a former run of a step left in its folder. Raises `CannotCreate` for a folder that is not of a step."""
    if not folder.exists():
        return
    if any(folder.iterdir()) and StepRecord.read(folder) is None:
        raise CannotCreate(f"{folder} holds files that are not of a step; remove it, or give --out another folder")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}") from None


def _reason(code: int, folder: Path) -> str:
    """Return the reason of a failure: the last error in the step's log, else the exit code."""
    with suppress(OSError):
        lines = (folder / LOG).read_text(errors="replace").splitlines()
        errors = [line.partition("]: ")[2] for line in lines if line.startswith("partrain: error[")]
        if errors:
            return errors[-1]
        if code == NOT_REACHED and not errors:
            return f"exit code 1; see {folder / LOG}"
    return f"it {describe_exit(code)}" if code < 0 else f"exit code {code}; see {folder / LOG}"
