"""Replay: after the loss of a worker, all workers of this machine start again from the newest copy of the training state."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from partrain.errors import Stalled, WorkersLost
from partrain.job.load import Job
from partrain.launch.attempt import Attempt
from partrain.launch.checkpoint_writer import WriterLost
from partrain.launch.checkpointer import Checkpointer
from partrain.launch.context import RunContext
from partrain.launch.round_records import RoundRecords
from partrain.launch.snapshot_slots import PendingSnapshot
from partrain.record.events import ReplayEvent
from partrain.system.environment import boot_seconds
from partrain.training.faults import REPLAY_WINDOW
from partrain.training.stop import Progress

BEFORE = " before the first round"


class WorkersStalled(Stalled):
    """Workers made no progress for `stall_seconds`."""


Loss = WorkersLost | WorkersStalled
"""A failure that a replay repairs."""


class Replays:
    """The replays of one run, at most `max_replays` within `REPLAY_WINDOW` rounds."""

    def __init__(
        self, job: Job, attempt: Attempt, records: RoundRecords, checkpointer: Checkpointer, context: RunContext
    ) -> None:
        """Prepare the replays of a run before its first attempt begins."""
        self._job, self._context = job, context
        self._first = attempt.point
        self._attempt, self._records, self._checkpointer = attempt, records, checkpointer
        self._rounds: deque[int] = deque()
        """Rounds that needed the newest replays."""
        self._stalled_round = -1
        """Round of the newest replay after a stall."""
        self._starting: ReplayEvent | None = None

    @property
    def starting(self) -> bool:
        """True while the workers of a replay start up."""
        return self._starting is not None

    def start(self, loss: Loss, started_at: float | None, *, training: bool) -> None:
        """Start all workers again, from the newest copy of the state or from the beginning.

        All processes of the last attempt have ended, and its records are drained. Raises the loss if it ends the run.

        Args:
            loss: The reason.
            started_at: Moment of the first local iteration, by `boot_seconds`; None before it.
            training: False while the workers start for the first time.
        """
        attempt, records, began = self._attempt, self._records, self._context.now()
        self.count(loss)
        self._tell_start()  # of a replay that lost a worker during its start
        state = self._checkpointer.restart()
        progress = Progress(**state.progress) if state else self._first.progress
        discarded = self._trained_since(state)
        elapsed = self._elapsed_at(state, started_at)
        repeats = self._job.sync.repeatable
        if not repeats:
            self._context.rewind(progress.round)
        begun = progress.round > self._first.progress.round
        point = replace(
            attempt.point,
            progress=progress,
            elapsed=elapsed,
            resuming=state is not None or self._first.resuming,
            other_workers=self._first.other_workers and not begun,
            caps=self._caps_after(progress.round) if repeats else [],
            known_rounds=records.newest if repeats else 0,
            ended=state.reason if state else None,
        )
        attempt.restart(point)
        records.rewind(point, repeats=repeats)
        if training:
            self._starting = ReplayEvent(
                t=began, rank=loss.rank, what=loss.message, after=progress.round, discarded=discarded, seconds=0.0
            )
        else:
            what = loss.message.partition(";")[0].removesuffix(BEFORE)
            self._context.warn(f"{what}{BEFORE}: all workers start again")

    def release(self) -> None:
        """Let the workers of a replay train after all have started."""
        if self._starting and self._attempt.all_ready:
            self._tell_start()
            if state := self._checkpointer.newest:
                self._attempt.arena.put_slot("restored", state.slot)

    def _tell_start(self) -> None:
        """Emit the event of the starting replay, if any."""
        if event := self._starting:
            self._starting = None
            now = self._context.now()
            event.t, event.seconds = now, now - event.t
            self._context.emit(event)

    def count(self, loss: Loss | WriterLost) -> None:
        """Count a loss, also of the checkpoint writer. Raises it if it ends the run: by the user's choice, after too many, or if a round stalls twice."""
        faults, rounds, round_number = self._job.faults, self._rounds, self._records.newest
        while rounds and rounds[0] <= round_number - REPLAY_WINDOW:
            rounds.popleft()
        stalled = isinstance(loss, WorkersStalled)
        drop = faults.on_loss == "drop" and loss.rank is not None  # without a rank no single worker was lost
        if drop:
            self._checkpointer.keep_newest()
        if drop or faults.on_loss == "stop" or self._context.machine or (stalled and self._stalled_round == round_number):
            raise loss
        if len(rounds) >= faults.max_replays:
            loss.message += f"; it was replay {len(rounds) + 1} within {REPLAY_WINDOW} rounds, and [faults] max_replays is {faults.max_replays}"
            raise loss
        rounds.append(round_number)
        if stalled:
            self._stalled_round = round_number

    def _caps_after(self, round_number: int) -> list[list[int]]:
        """Return the recorded caps of the rounds after a round: of this session, then of the session that it repeats."""
        ours, earlier = self._records.caps.after(round_number), self._first.caps[round_number - self._first.progress.round :]
        return ours + earlier[len(ours) :]

    def _trained_since(self, state: PendingSnapshot | None) -> list[int]:
        """Return the item-iterations of each worker since a state, or since the start."""
        trained: list[int] = self._attempt.arena.trained.tolist()
        if state is None:
            return trained
        arrays = self._attempt.ready.map.view(self._attempt.slots[state.slot])
        return [max(0, now - int(arrays[f"workers/{rank}/counts"][2])) for rank, now in enumerate(trained)]

    def _elapsed_at(self, state: PendingSnapshot | None, started_at: float | None) -> float:
        """Return the training seconds at which a replay continues: by a real clock, lost time counts."""
        copied = state.seconds if state else self._first.elapsed
        if self._job.transport.implementation().one_process or started_at is None:
            return copied
        return max(copied, self._first.elapsed + boot_seconds() - started_at)
