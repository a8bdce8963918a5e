"""The runner: starts steps in order, several at once as far as cores and GPUs allow, and records how each ended."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path

from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, BadJob, Diverged, Failure
from partrain.launch.folder.run_folder import stage_file
from partrain.launch.signals import Signals
from partrain.record.file_names import ATTEMPT_LOG, BEST, CHECKPOINT, LOG
from partrain.system.environment import boot_seconds
from partrain.workflow.actions import Prepared, matching
from partrain.workflow.cache import Cache, NoCache, key_of
from partrain.workflow.executor import Executor, RunningStep, StepLost, StepTask, failure_reason
from partrain.workflow.plan import NEW, Decision, Protected, Selection, decide, failed_assertions
from partrain.workflow.record import DONE, FAILED, RUNNING, STOPPED, StepRecord, clear
from partrain.workflow.results import BASE, Results
from partrain.workflow.state import StepState
from partrain.workflow.step import Step, Workflow

MOST_LOSSES = 10
"""Maximum number of restarts of a step because the process that starts steps was killed."""
POLL_S = 0.25
"""Seconds between two checks of the progress of running steps."""
GRACE_S = 60
"""Seconds between a step's `timeout` and killing it."""
BLOCKING = ("failed", "skipped", "blocked", "stopped")
STOPPING_CODES = (INTERRUPTED, TERMINATED, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)


@dataclass(frozen=True)
class Options:
    """The options of a workflow's run."""

    selection: Selection = field(default_factory=Selection)
    jobs: int | None = None
    """Maximum number of steps at once; default: as many as fit."""
    keep_going: bool = False
    """After a failure, run all steps that do not need the failed step."""
    retries: int = 0
    """Number of retries of a failed step."""
    cluster: str | None = None
    """Address of the Dask scheduler that starts the steps, instead of this machine; "slurm": a separate one, whose workers SLURM
    starts."""
    cache: str | None = None
    """Path or address of a shared store of results."""
    log: tuple[str, ...] = ()
    """Hooks for each step that trains."""

    def environment(self, workflow: Workflow, folder: Path) -> dict[str, str]:
        """Return the variables that make hooks show the runs of a workflow as one group, unless they are set."""
        own = {
            "WANDB_RUN_GROUP": workflow.name,
            "MLFLOW_EXPERIMENT_NAME": workflow.name,
            "MLFLOW_TRACKING_URI": (folder / "mlruns").absolute().as_uri(),
        }
        return {name: value for name, value in own.items() if self.log and name not in os.environ}


@dataclass
class _StepAttempt:
    """An attempt at a step."""

    record: StepRecord
    prepared: Prepared


@dataclass
class _Running(_StepAttempt):
    """A step that runs, or waits for a worker of a cluster."""

    process: RunningStep
    has_begun: bool = False
    signals_sent: int = 0
    """Number of signals sent because the step takes too long."""


class Runner:
    """One run of a workflow."""

    def __init__(
        self,
        workflow: Workflow,
        results: Results,
        options: Options,
        executor: Executor,
        changed: Callable[[dict[str, StepState]], None] = lambda states: None,
        refresh: Callable[[dict[str, StepState]], None] = lambda states: None,
    ) -> None:
        """Make a runner.

        Args:
            workflow: The workflow.
            results: The results in its folder.
            options: Options of the command line.
            executor: Starts the steps.
            changed: Called after each change of a step's state.
            refresh: Called a few times a second while steps run.
        """
        self.workflow, self._results, self._options = workflow, results, options
        self._executor, self._changed, self._refresh = executor, changed, refresh
        self._running: dict[str, _Running] = {}
        self._lost = Counter[str]()
        """Number of losses of the process that starts steps, by step."""
        self._refused: set[str] = set()
        """Steps that would replace a tagged run."""
        self._ending: set[str] = set()
        """Running steps that are being ended early."""
        self._cache = Cache(options.cache) if options.cache else None
        self._selected = options.selection.steps(workflow)
        self._rerun = options.selection.rerun_in(workflow)
        self._passed_on = 0
        self.signals = Signals()
        self.code = OK
        self._halted = False
        """No further step starts: one has failed."""
        self.states = {name: StepState(name, results.of_step(name)) for name in workflow.steps}
        for name, state in self.states.items():
            if name not in self._selected:
                state.status, state.note = "given", "not asked for"

    def run(self) -> int:
        """Run all steps that need to run; return the exit code."""
        with self.signals:
            while self._advance() or self._running:
                self._wait()
        if self.signals.count:
            self.code = INTERRUPTED if self.signals.first == signal.SIGINT else TERMINATED
        return self.code

    # Starting

    def _advance(self) -> bool:
        """Settle and start all possible steps; return whether anything changed."""
        moved = False
        for step in self.workflow.steps.values():
            state = self.states[step.name]
            if state.status != "waiting":
                continue
            if self.signals.count or self._halted or step.name in self._running:
                continue
            others = [self.states[name] for name in sorted(step.needs)]
            if bad := [other for other in others if other.status in BLOCKING and not self._does_without(step, other)]:
                self._settle(state, "skipped" if bad[0].status == "skipped" else "blocked", f"needs {bad[0].name}")
            elif not all(other.settled or other.status == "failed" for other in others) or not self._begin(step, state):
                continue
            moved = True
        return moved

    def _does_without(self, step: Step, other: StepState) -> bool:
        """Return whether a step runs although one that it needs failed: trials and rankings of sweeps use the available results.

        A trial that kept a run with earlier settings, because the run is tagged, is not available.
        """
        trial = self.workflow.steps[other.name]
        return other.status == "failed" and trial.is_trial and trial.sweep == step.sweep and other.name not in self._refused

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
                    self._settle(state, "unchanged", decision.remark)
                return True
            if decision.aside:
                self._results.of_step(step.name).rename(decision.aside)
            if not self._fetched(step, state, decision):
                self._start(step, state, decision)
        except (Failure, ValueError) as failure:
            self._refused |= {step.name} if isinstance(failure, Protected) else set()
            self._fail(state, failure.code if isinstance(failure, Failure) else NOT_REACHED, str(failure))
        return True

    def _fetched(self, step: Step, state: StepState, decision: Decision) -> bool:
        """Take the results of a step from the cache; return whether they were there."""
        if not self._cache or not step.action.shareable or step.name in self._rerun or decision.continuing:
            return False
        folder, settings = self._results.of_step(step.name), decision.prepared.settings
        clear(folder)
        self._results.store(step.name, StepRecord(RUNNING, settings, decision.inputs))
        if not self._cache.fetch(key_of(settings, decision.inputs), folder):
            return False
        record = StepRecord.read(folder)  # of a step that may have had another name
        outputs = self._outputs(folder, decision.prepared)
        if (
            not record
            or list(record.outputs.values()) != list(outputs.values())
            or record.code not in (OK, *step.action.tolerated)
            or self._results.changed_source(record)
        ):
            return False
        record = replace(record, settings=settings, inputs=decision.inputs, outputs=outputs)
        self._results.store(step.name, record)
        if not self._assert(step, record, state):
            self._settle(state, "done", "from the cache")
        return True

    def _outputs(self, folder: Path, prepared: Prepared) -> dict[str, str | None]:
        """Return the digests of a step's outputs; None for a promised file that is missing."""
        kept = [path for path in [folder / BEST] if path.exists()]
        return self._results.digests([*(path for places in prepared.outputs for path in _written(places)), *kept])

    def _start(self, step: Step, state: StepState, decision: Decision) -> None:
        """Start a step: in its old folder if it continues, else in an empty one."""
        record = StepRecord(RUNNING, decision.prepared.settings, decision.inputs, started=time.time())
        if step.action.process == "none":
            try:
                step.action.perform(self._results.of_step(step.name))
            except (BadJob, Diverged) as failure:
                record.status, record.code, record.message = FAILED, failure.code, failure.message
                self._results.store(step.name, record)
                self._fail(state, failure.code, failure.message)
                return
            record.code = OK
            self._finish(step, _StepAttempt(record, decision.prepared))
            return
        before = self._results.record(step.name)
        if decision.continuing and before:
            record.seconds = before.seconds
        self._launch(step, record, decision.prepared, continuing=decision.continuing)
        state.note, state.continuing = "" if decision.reason == NEW else decision.text, decision.continuing
        self._changed(self.states)

    def _launch(self, step: Step, record: StepRecord, prepared: Prepared, *, continuing: bool) -> None:
        """Start a step's process, which continues from a checkpoint if there is one."""
        action, folder = step.action, self._results.of_step(step.name).absolute()
        hooks = [f"--log={name}" for name in self._options.log if action.takes_hooks]
        resume = [*words, *hooks] if (words := action.resume_arguments(folder)) else []
        if continuing and resume and (folder / CHECKPOINT).exists():
            record.command = resume
        else:
            clear(folder, ATTEMPT_LOG.format("*") if record.attempts else "")
            record.command = [*prepared.words, *hooks]
        record.attempts += 1
        self._results.store(step.name, record)
        for name, text in prepared.files.items():
            stage_file(folder / name, text)
        is_program = action.process == "program"
        environment = {**action.environment, **self._options.environment(self.workflow, self._results.folder)}
        task = StepTask(step.name, record.command, is_program, folder, self.workflow.base, action.resources, resume, environment)
        self._running[step.name] = _Running(record, prepared, self._executor.start(task))
        self.states[step.name].forget()
        self._note_start(step.name)

    def _note_start(self, name: str) -> None:
        """Note that a step runs, once it does: on a cluster it may have to wait first."""
        running, state = self._running[name], self.states[name]
        former, state.where = state.where, running.process.where
        if running.has_begun and former and state.where != former:
            state.note = f"goes on at {state.where}: {former} is lost"
            self._changed(self.states)
        if running.process.has_begun and not running.has_begun:
            running.has_begun = True
            state.begin(self.workflow.steps[name].action.resources)
            self._changed(self.states)

    # Waiting

    def _wait(self) -> None:
        """Wait for the end of a step, a signal, or the time to check progress."""
        if not self._running:
            return
        ready = wait([*(running.process.waitable for running in self._running.values()), self.signals.pipe], POLL_S)
        if self.signals.pipe in ready:
            self.signals.heed()
        while self._passed_on < self.signals.count:
            self._passed_on += 1
            for running in self._running.values():
                running.process.signal(self.signals.first or signal.SIGINT)
        for name, running in list(self._running.items()):
            if running.process.waitable in ready:
                self._end(self.workflow.steps[name], running)
        for name, running in self._running.items():
            self._note_start(name)
            self.states[name].look()
            if name not in self._ending and self._ends_early(name):
                running.process.signal(signal.SIGINT)
            self._heed_timeout(name, running)
        self._refresh(self.states)

    def _heed_timeout(self, name: str, running: _Running) -> None:
        """End a step that exceeds its `timeout`: after its round if it trains, and forcibly some time later."""
        timeout, state = self.workflow.steps[name].timeout, self.states[name]
        if not timeout or not running.has_begun:
            return
        late = boot_seconds() - state.started - timeout
        if late >= 0 and running.signals_sent == 0:
            running.process.signal(signal.SIGTERM)
        elif late >= GRACE_S and running.signals_sent == 1:
            running.process.signal(signal.SIGKILL)
        else:
            return
        running.signals_sent += 1

    def _ends_early(self, name: str) -> bool:
        """Return whether a running step should end early."""
        state = self.states[name]
        reason = self.workflow.steps[name].action.ends_early(self._results.of_step(name), state.judgements)
        if reason:
            self._ending.add(name)
            state.note = reason
        return bool(reason)

    def _end(self, step: Step, running: _Running) -> None:
        """Record the end of a step."""
        self._note_start(step.name)
        del self._running[step.name]
        self._executor.ended(step.name)
        state, folder, record = self.states[step.name], self._results.of_step(step.name), running.record
        state.look()
        record.seconds += boot_seconds() - state.started if running.has_begun else 0
        record.summary = step.action.summary(folder)
        try:
            code = running.process.exit_code()
        except Failure as failure:
            if isinstance(failure, StepLost) and self._lost[step.name] < MOST_LOSSES:
                self._lost[step.name] += 1
            self._failed(step, running, failure.code, str(failure))
            return
        if code == OK and step.name not in self._ending:
            self._ends_early(step.name)  # records a poor trial, for the trials that are drawn later
        if code not in STOPPING_CODES:
            self._ending.discard(step.name)  # it ended by itself
        record.code = code = OK if step.name in self._ending else code
        if running.signals_sent and code != OK:
            self._failed(step, running, code, f"it took longer than its timeout of {step.timeout:g} s")
        elif code in STOPPING_CODES and (self.signals.count or step.action.process == "command"):
            record.status = STOPPED
            self._results.store(step.name, record)
            if not self.signals.count:  # by `partrain stop`, say
                self.code = self.code or (INTERRUPTED if abs(code) in (INTERRUPTED, signal.SIGINT) else TERMINATED)
                self._halted = True
            self._settle(state, "stopped", "goes on with the same command")
        elif code != OK and code not in step.action.tolerated:
            self._failed(step, running, code, failure_reason(code, folder))
        else:
            self._finish(step, running)

    def _finish(self, step: Step, attempt: _StepAttempt) -> None:
        """Record a step that has done its work, if it kept its promises."""
        state, folder, record, prepared = (
            self.states[step.name], self._results.of_step(step.name), attempt.record, attempt.prepared,
        )  # fmt: skip
        record.summary = step.action.summary(folder)
        record.outputs = self._outputs(folder, prepared)
        record.sources = self._results.sources(step.action.sources(folder))
        missing = [path for path, digest in record.outputs.items() if digest is None]
        broken = f"it did not write {self._results.shown(missing[0])}" if missing else step.action.broken_promise(folder)
        if broken and record.code == OK:
            self._failed(step, attempt, NOT_REACHED, broken)
            return
        record.status, record.message = DONE, ""
        self._results.store(step.name, record)
        pruned = step.name in self._ending
        note = state.note if pruned else self._shared(step, record)
        if record.code == Diverged.code:
            note = f"diverged: {failure_reason(record.code, folder)}"
        if not self._assert(step, record, state):
            self._settle(state, "pruned" if pruned else "done", note)

    def _shared(self, step: Step, record: StepRecord) -> str:
        """Put the results of a step into the cache, if all are in its folder; return the error, if any."""
        if self._cache and step.action.shareable and not any(name.startswith(BASE) for name in record.outputs):
            try:
                self._cache.store(key_of(record.settings, record.inputs), self._results.of_step(step.name))
            except NoCache as failure:
                return failure.message
        return ""

    def _failed(self, step: Step, attempt: _StepAttempt, code: int, message: str) -> None:
        """Record a failure, or retry."""
        record, state = attempt.record, self.states[step.name]
        record.status, record.message = FAILED, message
        self._results.store(step.name, record)
        retries = self._options.retries if step.retries is None else step.retries
        if record.attempts <= retries + self._lost[step.name] and not self.signals.count:
            log = self._results.of_step(step.name) / LOG
            with suppress(FileNotFoundError):
                log.rename(log.with_name(ATTEMPT_LOG.format(record.attempts)))
            record.status, record.started = RUNNING, time.time()
            self._launch(step, record, attempt.prepared, continuing=True)
            state.note = f"again: {message}"
            self._changed(self.states)
            return
        self._fail(state, code if code > 0 else NOT_REACHED, message)

    def _assert(self, step: Step, record: StepRecord, state: StepState) -> bool:
        """Check the assertions of a finished step; return whether one failed."""
        failures = failed_assertions(step, record, self._results)
        if failures:
            self._fail(state, NOT_REACHED, "; ".join(failures))
        return bool(failures)

    def _fail(self, state: StepState, code: int, message: str) -> None:
        self.code = self.code or code
        self._halted |= not self.workflow.steps[state.name].is_trial and not self._options.keep_going
        self._settle(state, "failed", message)

    def _settle(self, state: StepState, status: str, note: str) -> None:
        state.end(status, note)
        self._changed(self.states)


def _written(places: Sequence[Path]) -> list[Path]:
    """Return the files of a promise: the ones in the first place that has any; the last place if none has."""
    written = ([path for path in matching(place) if path.exists()] for place in places)
    return next(filter(None, written), [places[-1]])
