"""The workers' records of each round, read from the arena's ring, emitted as events and kept as rows of the history."""

from __future__ import annotations

import math
from collections.abc import Sequence

from partrain.comm.arena import RING, Arena
from partrain.job.plan import Plan
from partrain.job.schema import Job
from partrain.launch.context import RunContext
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.repeated_rounds import MeasuredCaps, RepeatedRounds
from partrain.record.events import ExclusionEvent, JudgementEvent, RoundEvent
from partrain.record.round_record import FIELDS, NOT_FINITE, RoundRecord, finite
from partrain.record.stop_conditions import numbers_of
from partrain.record.stragglers import Stragglers
from partrain.tasks import Kind


class RoundRecords:
    """The rounds that all workers have finished."""

    def __init__(
        self,
        arena: Arena,
        point: ResumePoint,
        job: Job,
        plan: Plan,
        kind: Kind,
        context: RunContext,
        *,
        hooked: bool = False,
        recorded: Sequence[tuple[int, list[float]]] = (),
    ) -> None:
        """Read the ring of an arena.

        Args:
            arena: The arena, which holds the ring of records.
            point: The state that the run continues from.
            job: The job, which names its metrics.
            plan: The job's workers, and the rounds between two regular evaluations.
            kind: Kind of the data set's items.
            context: Gets the events.
            hooked: True if a user function may add numbers to each judgement: the round then waits for the message with them.
            recorded: Numbers of the following rounds, as recorded by an earlier session.
        """
        self._arena, self._elapsed, self._judge_every = arena, point.elapsed, plan.judge_every
        self._metrics = tuple(job.metrics(kind))
        self._context, self._hooked = context, hooked
        self._deciding = numbers_of(vars(job.stop))
        """Judged numbers that `[stop]` names."""
        self._undefined = set[str]()
        """Judged numbers that a warning has named, because they were undefined in a judgement."""
        self._added: dict[int, dict[str, float]] = {}
        """Numbers that the user's function adds to judgements, by round."""
        self.newest = point.progress.round
        """The newest emitted round."""
        self._drained = self.newest
        """The newest read round; after a replay, some rounds are read again."""
        self._repeated = RepeatedRounds(recorded, context)
        self.rows: list[tuple[float, ...]] = []
        """Rows of the history that the checkpoint writer does not yet have."""
        self.seconds = point.elapsed
        """Training seconds up to the newest round."""
        self.pace = 0.0
        """Seconds of the newest round."""
        self._items = point.progress.item_iterations
        specs = [share.spec for share in plan.shares]
        self._stragglers = Stragglers([(spec.device.partition(":")[0], spec.threads) for spec in specs])
        self._capped = job.caps_rounds
        self.caps = MeasuredCaps([share.iterations for share in plan.shares], balances=job.partition.balance == "rate")
        arena.put("drained", self.newest)

    def add(self, round_number: int, numbers: dict[str, float]) -> None:
        """Take the numbers that the user's function adds to a round's judgement."""
        self._added[round_number] = numbers

    def drain(self) -> None:
        """Read the records of rounds that all workers have finished."""
        while True:
            number = self._drained + 1
            rows = self._arena.ring[number % RING].tolist()
            if any(row[0] != number for row in rows):
                return
            records = [RoundRecord.of(row[: len(FIELDS)]) for row in rows]
            self._repeated.compare(number, records)
            if number > self.newest:
                if self._hooked and _judged(records[0]) and number not in self._added:
                    return  # the message is on its way
                self._emit(number, records, dict(zip(self._metrics, rows[0][len(FIELDS) :], strict=True)))
            self._drained = number
            self._arena.put("drained", number)

    def rewind(self, point: ResumePoint, *, repeats: bool) -> None:
        """Read the records of a new attempt, which continues from `point`. If it `repeats` emitted rounds, do not emit them again."""
        progress = point.progress
        self._drained, self._elapsed, self._added = progress.round, point.elapsed, {}
        self._arena.put("drained", self._drained)
        if not repeats:
            self._repeated.forget()
            self.newest, self.seconds = progress.round, point.elapsed
            self._items = progress.item_iterations
            self.caps.forget()
            self._stragglers.rewind(self.newest)
            self.rows = [row for row in self.rows if row[0] <= progress.round]

    def _emit(self, number: int, records: Sequence[RoundRecord], metrics: dict[str, float]) -> None:
        t = self._context.now()
        for rank, record in enumerate(records):
            record.seconds += self._elapsed
            self._items += record.items
            self._context.emit(RoundEvent(t=t, rank=rank, record=record))
            if record.excluded:
                what, discarded = NOT_FINITE[record.excluded], record.discarded
                self._context.emit(ExclusionEvent(t=t, round=number, rank=rank, what=what, discarded=discarded))
        self._close_round(t, records, metrics)
        for event in self._stragglers.add(t, records):
            self._context.emit(event)
        self._repeated.add(number, records)
        self.newest = number

    def _close_round(self, t: float, records: Sequence[RoundRecord], metrics: dict[str, float]) -> None:
        """Add a row to the history, and emit the judgement, if any, with its metrics."""
        first = records[0]
        trained = [record for record in records if record.items]  # an idle worker has no loss
        items = math.fsum(record.items for record in trained)
        loss = math.fsum(record.loss * record.items for record in trained) / max(items, 1)
        before, self.seconds = self.seconds, first.seconds
        self.pace = self.seconds - before
        caps = [record.cap for record in records] if self._capped else []
        if self._capped and (changed := self.caps.add(t, first.round, records)):
            self._context.emit(changed)
        self.rows.append((first.round, self._items, loss, first.lr, first.judged_loss, first.accuracy, *metrics.values(), *caps))
        if not _judged(first):
            return
        numbers = {"accuracy": first.accuracy, **metrics}
        event = JudgementEvent(
            t=t,
            round=first.round,
            item_iterations=self._items,
            seconds=self.seconds,
            loss=finite(first.judged_loss),
            metrics={name: value for name, value in numbers.items() if math.isfinite(value)} | self._added.pop(first.round, {}),
            best=bool(first.best),
            regular=first.round % self._judge_every == 0,
        )
        self._context.emit(event)
        for name in dict.fromkeys((*self._deciding, *metrics)):
            if name in self._undefined or event.scores.get(name) is not None:
                continue
            self._undefined.add(name)
            where = f"is no number in the judgement of round {event.round}"
            if name in self._deciding:
                advice = "such a judgement is neither the best nor a miss, and meets no target"
                self._context.warn(f"`{name}`, which [stop] names, {where}: {advice}")
            else:
                self._context.warn(f"the metric `{name}` {where}, which leaves it out")


def _judged(record: RoundRecord) -> bool:
    """Return whether the network was judged after the round."""
    return not (math.isnan(record.judged_loss) and math.isnan(record.accuracy))
