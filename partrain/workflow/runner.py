"""The runner: starts steps in their order, several at once as far as cores and GPUs allow, and records how each ended."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, BadJob, Diverged, Failure
from partrain.launch.signals import Signals
from partrain.record.file_names import CHECKPOINT
from partrain.system.environment import boot_seconds
from partrain.workflow.executor import Executor, RunningStep, StepLost, StepTask, failure_reason
from partrain.workflow.plan import Decision, Selection, decide, failed_assertions
from partrain.workflow.record import DONE, FAILED, RUNNING, STOPPED, StepRecord, clear
from partrain.workflow.results import Results
from partrain.workflow.state import StepState
from partrain.workflow.step import Step, Workflow

MOST_LOSSES = 10
"""Times that a step starts again because the process that starts steps was killed."""
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
    cluster: str | None = None
    """Address of the Dask scheduler that starts the steps, instead of this machine; "slurm": one of its own, whose workers SLURM starts."""


class Runner:
    """One run of a workflow."""

    def __init__(
        self,
        workflow: Workflow,
        results: Results,
        options: Options,
        executor: Executor,
        base: Path,
        changed: Callable[[dict[str, StepState]], None] = lambda states: None,
        refresh: Callable[[dict[str, StepState]], None] = lambda states: None,
    ) -> None:
        """Make a runner.

        Args:
            workflow: The workflow.
            results: The results in its folder.
            options: Options of the command line.
            executor: Starts the steps.
            base: The folder where programs run.
            changed: Called after each change of a step's state.
            refresh: Called a few times a second while steps run.
        """
        self.workflow, self._results, self._options = workflow, results, options
        self._executor, self._base, self._changed, self._refresh = executor, base, changed, refresh
        self._running: dict[str, tuple[RunningStep, StepRecord]] = {}
        self._lost = Counter[str]()
        """Losses of the process that starts steps, by step."""
        self._ending: set[str] = set()
        """Running steps that end before their time."""
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
            if bad := [other for other in others if other.status in ("failed", "skipped", "blocked", "stopped")]:
                self._settle(state, "skipped" if bad[0].status == "skipped" else "blocked", f"needs {bad[0].name}")
            elif not all(other.settled for other in others) or not self._begin(step, state):
                continue
            moved = True
        return moved

    def _begin(self, step: Step, state: StepState) -> bool:
        """Settle a step that need not run, or start it if there is room; return whether its state changed."""
        if self._options.jobs is not None and len(self._running) >= self._options.jobs:
            return False
        if not self._executor.fits(step.action.resources):
            return False
        try:
            if step.when and not step.when.holds({}, self._results.resolve):
                self._settle(state, "skipped", f"{step.when.text} does not hold")
                return True
            decision = decide(step, self._results, self._rerun)
            if not decision.reason:
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
        """Start a step: in its old folder if it goes on, else in an empty one."""
        record = StepRecord(RUNNING, decision.settings, decision.inputs, started=time.time())
        if step.action.process == "none":
            try:
                step.action.perform(self._results.of_step(step.name))
            except (BadJob, Diverged) as failure:
                record.status, record.code, record.message = FAILED, failure.code, failure.message
                self._results.store(step.name, record)
                self._fail(state, failure.code, failure.message)
                return
            record.code = OK
            self._finish(step, record)
            return
        before = self._results.record(step.name)
        if decision.continuing and before:
            record.seconds = before.seconds
        self._launch(step, record, continuing=decision.continuing)
        state.note, state.continuing = decision.reason, decision.continuing
        self._changed(self.states)

    def _launch(self, step: Step, record: StepRecord, *, continuing: bool) -> None:
        """Start a step's process, which goes on from a checkpoint if there is one."""
        action, folder = step.action, self._results.of_step(step.name).absolute()
        resume = action.resume_arguments(folder)
        if continuing and resume and (folder / CHECKPOINT).exists():
            record.command = resume
        else:
            clear(folder)
            record.command = action.arguments(folder, self._results.resolve)
        record.attempts += 1
        self._results.store(step.name, record)
        is_program = action.process == "program"
        task = StepTask(step.name, record.command, is_program, folder, self._base, action.resources, resume)
        self._running[step.name] = self._executor.start(task), record
        self.states[step.name].begin(action.resources)

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
                self._end(self.workflow.steps[name], process, record)
        for name, (process, _) in self._running.items():
            self.states[name].look()
            self.states[name].where = process.where
            if name not in self._ending and self._ends_early(name):
                process.signal(signal.SIGINT)
        self._refresh(self.states)

    def _ends_early(self, name: str) -> bool:
        """Return whether a running step is to end before its time."""
        state = self.states[name]
        reason = self.workflow.steps[name].action.ends_early(self._results.of_step(name), state.judgements)
        if reason:
            self._ending.add(name)
            state.note = reason
        return bool(reason)

    def _end(self, step: Step, process: RunningStep, record: StepRecord) -> None:
        """Record the end of a step."""
        del self._running[step.name]
        self._executor.ended(step.name)
        state, folder = self.states[step.name], self._results.of_step(step.name)
        state.look()
        record.seconds += boot_seconds() - state.started
        record.summary = step.action.summary(folder)
        try:
            code = process.exit_code()
        except Failure as failure:
            if isinstance(failure, StepLost) and self._lost[step.name] < MOST_LOSSES:
                self._lost[step.name] += 1
            self._failed(step, record, failure.code, str(failure))
            return
        early = step.name in self._ending or (code == OK and self._ends_early(step.name))
        record.code = code = OK if early and code in STOPPING_CODES else code
        if self.signals.count and code in STOPPING_CODES:
            record.status = STOPPED
            self._results.store(step.name, record)
            self._settle(state, "stopped", "goes on with the same command")
        elif code != OK and code not in step.action.tolerated:
            self._failed(step, record, code, failure_reason(code, folder))
        else:
            self._finish(step, record)

    def _finish(self, step: Step, record: StepRecord) -> None:
        """Record a step that has done its work, if it kept its promises."""
        state, folder = self.states[step.name], self._results.of_step(step.name)
        record.summary = step.action.summary(folder)
        outputs = step.action.outputs(folder, self._results.resolve)
        record.outputs = self._results.digests(outputs)
        missing = [path for path, digest in record.outputs.items() if digest is None]
        broken = f"it did not write {missing[0]}" if missing else step.action.broken_promise(folder)
        if broken and record.code == OK:
            self._failed(step, record, NOT_REACHED, broken)
            return
        record.status, record.message = DONE, ""
        self._results.store(step.name, record)
        if not self._assert(step, record, state):
            self._settle(state, "done", state.note if step.name in self._ending else "")

    def _failed(self, step: Step, record: StepRecord, code: int, message: str) -> None:
        """Record a failure, or try again."""
        record.status, record.message = FAILED, message
        self._results.store(step.name, record)
        state = self.states[step.name]
        if record.attempts <= self._options.retries + self._lost[step.name] and not self.signals.count:
            record.status, record.started = RUNNING, time.time()
            self._launch(step, record, continuing=True)
            state.note = f"again: {message}"
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
