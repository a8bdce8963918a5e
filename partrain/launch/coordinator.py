"""The coordinator of a run on one machine.

It starts an attempt, handles messages, signals and stalls, and lets the writer commit snapshots. On one machine it does not import
torch, so it starts fast and takes little CPU time from the workers. (Between machines, torchrun's store needs torch.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from partrain.comm.machine import shutdown_timeout
from partrain.config.problems import Finding, WrongValue
from partrain.errors import REPORTED, Failure, InputOutputFailed, Internal, Stalled, UserCodeFailed, WorkersLost
from partrain.job.code_changes import explain_change, versions_of
from partrain.launch import forkserver
from partrain.launch.attempt import Attempt
from partrain.launch.checkpoint_writer import CheckpointContext, own_columns, preload
from partrain.launch.checkpointer import Checkpointer
from partrain.launch.context import Ended, RunContext, Start
from partrain.launch.machines.rendezvous import STOPPED, Rendezvous
from partrain.launch.prepared import PreparedRun
from partrain.launch.replay import Loss, Replays, WorkersStalled
from partrain.launch.round_records import RoundRecords
from partrain.launch.signals import StoppedNow
from partrain.launch.snapshot_slots import PendingSnapshot
from partrain.launch.stall_timer import POLL_S, STARTUP_LIMIT_S, StallTimer
from partrain.launch.worker.messages import (
    CodeChanged,
    CodeRead,
    Done,
    DryRunPassed,
    Failed,
    Message,
    NumbersAdded,
    Ready,
    RunRemark,
    SnapshotFilled,
    StartedFrom,
    TrainingFinished,
    TrainingStarted,
)
from partrain.number_format import plural
from partrain.record.events import StoppingEvent
from partrain.record.final_scores import FinalScores
from partrain.record.run_folder import RunFolder

ALLOWANCE_S = 30.0
"""Seconds for the last checkpoint and the test before an allocation ends."""
RESUMABLE = WorkersLost, Stalled, InputOutputFailed
"""Failures after which a user resumes from the newest checkpoint."""


class Coordinator:
    """A run on this machine, from the first process to the last file."""

    def __init__(self, prepared: PreparedRun, start: Start, context: RunContext, rendezvous: Rendezvous | None = None) -> None:
        """Prepare a run without starting a process."""
        job, plan, task = prepared.loaded.job, prepared.plan, prepared.dataset.task
        self.job, self.plan, self.start, self.context, self._rendezvous = job, plan, start, context, rendezvous
        self._machine, point = rendezvous.machine if rendezvous else None, start.point
        self.attempt = Attempt(prepared, point, self._machine, context.folder)
        arena = self.attempt.arena
        hooked = job.hooks.after_judgement is not None and 0 in self.attempt.members
        self.round_records = RoundRecords(arena, point, job, plan, task, context, hooked=hooked, recorded=start.recorded)
        coalesce = job.checkpoint.commit == "coalesce"
        self.checkpointer = Checkpointer(
            arena, self.round_records, coalesce=coalesce, stall_seconds=job.transport.stall_seconds, context=context
        )
        self._replays = Replays(job, self.attempt, self.round_records, self.checkpointer, context)
        arena.put("committed", point.progress.round)
        self._training = self._finished_training = False
        self.started_at: float | None = None
        """Moment of the first local iteration, by `boot_seconds`."""
        self._stall_timer = StallTimer()
        self._columns = own_columns(job, task, len(plan.shares))
        self._stops = self._commits = 0
        """Requests answered so far."""
        ends = os.environ.get("SLURM_JOB_END_TIME", "")
        self._allocation_ends = float(ends) if ends.isdecimal() else None
        """Clock time when SLURM ends the job, if known."""
        torchrun = context.torchrun is not None and context.torchrun.restarts
        self._grace_s = shutdown_timeout(os.getppid()) if torchrun else None
        """Seconds that torchrun leaves this process after SIGTERM."""

    def run(self, manifest: dict[str, Any], text: str, on_start: Callable[[dict[int, Ready]], None]) -> Ended:
        """Train to the end.

        Args:
            manifest: The manifest of the run's checkpoints.
            text: The TOML text of the job, for the checkpoints.
            on_start: Callback that gets each worker's `Ready` message, by rank, before the first round.
        """
        attempt, signals = self.attempt, self.context.signals
        try:
            forkserver.start()
            preload()
            self._try_code()
            if not signals.count:
                self._start_workers()
            if signals.count:
                return self._ended("stopped", "stopped before the first round", None)
            slots = attempt.map_slots()
            restored = None
            if self.start.arrays is not None:
                attempt.ready.restore(self.start.arrays, slots[0], others=self.start.point.other_workers)
                restored = PendingSnapshot(0, self.start.point.progress.stored(), durable=False, seconds=self.start.point.elapsed)
            if folder := self.context.folder:
                keep, columns = self.job.checkpoint.keep, self._columns
                manifest = manifest | {"versions": manifest["versions"] | versions_of(self.start.code)}
                checkpoints = CheckpointContext(folder, keep, text, manifest, attempt.ready.map, slots, columns)
                checkpoints.append(self.start.history)
                self.checkpointer.open(checkpoints, self._replays.count)
            on_start(attempt.ready.processes)
            self._training = True
            self.checkpointer.start(restored)
            self._drain_records()  # if workers have already finished, no message wakes the coordinator
            attempt.arena.put_slot("restored", 0)
            while not attempt.complete:
                try:
                    self._step()
                    self._replays.release()
                except (WorkersLost, WorkersStalled) as loss:
                    self._replay_after(loss)
            self.checkpointer.flush(self._announce_flush)
            return self._outcome()
        except StoppedNow:
            attempt.kill()
            self._flush_after_failure()
            return self._ended("stopped", signals.name, None)
        except Failure as failure:
            attempt.kill()
            self._flush_after_failure()
            if isinstance(failure, RESUMABLE):
                failure.message += f"; {self._resume_hint()}"
            status = "diverged" if failure.code == 76 else "failed"
            return self._ended(status, failure.name, None, failure)
        except Internal:
            attempt.kill()
            self._flush_after_failure()
            raise
        finally:
            attempt.kill()
            self.checkpointer.close()
            attempt.close()

    def _replay_after(self, loss: Loss) -> None:
        """Start all workers again, even if the forkserver dies meanwhile. Raises the loss if it ends the run."""
        while True:
            self.attempt.kill()  # also frozen processes: no late answer reaches the next attempt
            self._drain_records()
            try:
                return self._replays.start(loss, self.started_at, training=self._training)
            except WorkersLost as other:
                if other is loss:
                    raise
                loss = other

    def dry_run(self, *, built_in: bool = True) -> None:
        """Do only the dry run, also for `built_in` networks and tasks; train nothing. Raises its Failure."""
        attempt = self.attempt
        attempt.tries_built_in = built_in
        attempt.tried = attempt.tried or ("the network" if built_in else "")
        try:
            forkserver.start()
            preload()
            self._try_code()
        finally:
            attempt.kill()
            self.checkpointer.close()
            attempt.close()

    def _try_code(self) -> None:
        """Try user code, and the start from a file, in one process before any worker starts. Raises errors of all machines."""
        if not self.attempt.tried or (self.start.has_tried_code and not self._rendezvous):
            return
        problem, started = STOPPED, False
        try:
            while (not started or self.attempt.dry_running) and not self.context.signals.count:
                try:
                    if not started:
                        started = True
                        self.attempt.start_dry_run()
                    self._step()
                except WorkersLost as loss:  # the forkserver was killed
                    self._replays.count(loss)
                    self.attempt.end_dry_run()
                    started = False
            problem = STOPPED if self.attempt.dry_running else ""
        except Failure as failure:
            problem = failure.message
            raise
        finally:
            if self._rendezvous:
                self._rendezvous.vote(problem, self.start.code)

    def _start_workers(self) -> None:
        """Start the workers and wait until all are ready or the user asks the run to end."""
        started = False
        while not self.attempt.all_ready and not self.context.signals.count:
            try:
                if not started:
                    started = True
                    self.attempt.start_workers()
                self._step()
            except (WorkersLost, WorkersStalled) as loss:
                self._replay_after(loss)

    def _step(self) -> None:
        """Wait for an event, at most POLL_S, and handle it."""
        attempt, signals = self.attempt, self.context.signals
        ready = wait([signals.pipe, *attempt.processes.waitables, *self.checkpointer.waitables], POLL_S)
        if signals.pipe in ready:
            self._on_signal()
        for message in attempt.receive(ready):
            self._on_message(message)
        attempt.check_exits(ready)
        self.checkpointer.on_writer_ready(ready)
        self._drain_records()
        self._check_stall()
        self._heed_end_of_allocation()
        self._compare_with_torchrun()
        self.checkpointer.poll(self._announce_waiting_test)
        self.context.poll()

    def _drain_records(self) -> None:
        """Emit the events of finished rounds after the start event: fast workers may be ahead of it."""
        if self._training:
            self.round_records.drain()

    def _on_signal(self) -> None:
        signals = self.context.signals
        signals.heed()
        if signals.commits > self._commits:
            self._commits = signals.commits
            self.checkpointer.commit_now()
        if signals.count == self._stops:
            return
        self._stops = signals.count
        if signals.count > 1:
            raise StoppedNow
        if not self._training:
            self._announce("stopping before the first round")
        elif self._finished_training:
            self._announce("training is over, and the test goes on; once more to leave it out")
        else:
            self._announce("stopping after this round; once more to stop now")
        self.attempt.arena.put("command", 1)

    def _heed_end_of_allocation(self) -> None:
        """Ask the run to stop, like SIGTERM, if two more rounds may not fit into the job's SLURM time."""
        if not self._training or self._allocation_ends is None:
            return
        if time.time() + ALLOWANCE_S + 2 * self.round_records.pace < self._allocation_ends:
            return
        left, self._allocation_ends = self._allocation_ends - time.time(), None
        self.context.note(f"the allocation ends in {max(left, 0):.0f} s (SLURM_JOB_END_TIME)")
        self.context.signals.ask("end of the allocation")

    def _compare_with_torchrun(self) -> None:
        """Warn, after the first measured round, if torchrun would kill the run before the end of a round."""
        if self._grace_s is None or not self.round_records.pace:
            return
        grace, self._grace_s = self._grace_s, None
        if 2 * self.round_records.pace > grace:
            self.context.warn(
                f"a round takes {self.round_records.pace:.3g} s, and torchrun kills the run {grace:g} s after SIGTERM: "
                "without a checkpoint, if the round has not ended; give torchrun a longer --shutdown-timeout"
            )

    def _announce(self, text: str) -> None:
        """Show the answer to a signal."""
        self.context.emit(StoppingEvent(t=self.context.now(), signal=self.context.signals.name, what=text))

    def _announce_waiting_test(self) -> None:
        self._announce("training is over, but its last file is not written yet; once more to leave the test out")

    def _announce_flush(self) -> None:
        self._announce(f"waiting for the last checkpoint's file; once more to leave it out: {self._resume_hint()}")

    def _on_message(self, message: Message) -> None:
        match message:
            case SnapshotFilled():
                self._drain_records()
                self.attempt.free_start()
                self.checkpointer.offer(PendingSnapshot(**vars(message)))
                self.round_records.caps.forget(message.progress["round"])
            case RunRemark():
                self.context.warn(message.text)
            case CodeRead():
                self.start.code = message.files
            case CodeChanged():
                self._on_changed_code(message.text)
            case StartedFrom():
                self.context.note(message.text)
            case NumbersAdded():
                self.round_records.add(message.round, message.numbers)
            case DryRunPassed():
                self.start.point.moved = message.moved
                self.attempt.end_dry_run()
            case TrainingStarted():
                self.started_at = self.started_at or message.moment
            case TrainingFinished():
                self._finished_training = True
                self.checkpointer.hasten()  # the test waits for the checkpoint of the best round
            case Failed():
                self._on_failed(message)

    def _on_changed_code(self, what: str) -> None:
        """Continue only if the user agreed."""
        text = explain_change(what, self.start.changed_files)
        if not self.start.accept_changes:
            raise UserCodeFailed(f"{text}; `partrain resume --accept-changes` trains on with it as it is now")
        self.start.accepted.append(what)
        self.context.warn(what)

    def _on_failed(self, message: Failed) -> None:
        if message.code == 70:
            raise Internal(f"{message.message}\n{message.detail}")
        if message.code == WorkersLost.code:
            self.attempt.check_other_processes(message.rank)
        if message.finding:
            path, *rest = message.finding
            raise WrongValue(Finding(tuple(path), *rest), message.detail)
        raise REPORTED[message.code](message.message, message.detail, message.rank)

    def _resume_hint(self) -> str:
        if self._machine and self._machine.number:
            return "machine 0 has the checkpoints"
        committed = self.attempt.arena.get("committed")
        if committed:
            return f"the checkpoint of round {committed} is intact"
        path = RunFolder(self.context.folder).newest_checkpoint if self.context.folder else None
        return f"{path} can be resumed" if path else "no checkpoint was committed yet"

    def _flush_after_failure(self) -> None:
        """Emit the rounds that all workers finished, and write the complete waiting snapshots."""
        self._drain_records()
        with suppress(Failure, StoppedNow):
            self.checkpointer.flush(self._announce_flush)

    def _check_stall(self) -> None:
        """Raise Stalled if the workers, the writer or the dry run of user code make no progress."""
        attempt = self.attempt
        self.checkpointer.check_stall()
        limit = self.job.transport.stall_seconds
        if (not self._training or self._replays.starting) and not (attempt.dry_running and attempt.arena.beats.any()):
            limit = max(limit, STARTUP_LIMIT_S)
        writing = self.checkpointer.waitables  # workers may wait for the file
        if self._stall_timer.idle_seconds(None if writing else attempt.signs_of_life()) <= limit:
            return
        late = attempt.stalled_workers()
        workers = f"{plural('worker', len(late))} {', '.join(map(str, late))}"
        moment = "in the test" if self._finished_training else f"in round {self.round_records.newest + 1}"
        problem, work = (
            f"{workers} made no progress for {limit:g} s {moment}",
            "batches" if self._finished_training else "iterations",
        )
        if attempt.dry_running:
            problem = f"{attempt.tried}, tried before any worker starts, made no progress for {limit:g} s"
        elif not self._training or self._replays.starting:
            moment = "as they started again" if self._training else "before the first round"
            problem, work = f"{workers} gave no sign of life for {limit:g} s {moment}", "starting up"
        rank = late[0] if len(late) == 1 and not attempt.dry_running else None
        kind = Stalled if attempt.dry_running else WorkersStalled
        raise kind(f"{problem}; raise [transport] stall_seconds if {work} may take that long", rank=rank)

    def _outcome(self) -> Ended:
        """Derive the end of the run from this machine's first worker: all workers end alike."""
        done = self.attempt.done[self.attempt.members.start]
        self.round_records.seconds = self.attempt.point.elapsed + done.seconds
        status, reason = "not-reached" if self.job.stop.has_target else "finished", done.reason
        if done.reached:
            status = "reached"
        elif reason == "asked":
            status, reason = "stopped", self.context.signals.name or "another machine"
        return self._ended(status, reason, done)

    def _ended(self, status: str, reason: str, done: Done | None, failure: Failure | None = None) -> Ended:
        signal = self.context.signals.first if status == "stopped" else None
        ended = Ended(status, reason, self.round_records.newest, self.round_records.seconds, failure, signal)
        if not done:
            return ended
        test = FinalScores(*done.test) if done.test else None
        return replace(ended, test=test, trivial=done.trivial, comparisons=done.comparisons)
