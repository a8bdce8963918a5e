"""The state of a run, built event by event, behind the live table, the plain lines and the summary.

A `RunState` takes the lines of `events.jsonl` in their order, live or read back later. Its size does not grow with the run. All
times are in seconds. `t` and `now` are Unix time. `seconds` are training time by the workers' clocks, which may be simulated; only
`CommitEvent` (duration of a write) and `EndEvent` (figures of the coordinator) differ. A run may have several sessions: each resume
is one.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from partrain.record.events import (
    BalanceEvent,
    CommitEvent,
    EndEvent,
    EndSeconds,
    Event,
    ExclusionEvent,
    FaultEvent,
    JudgementEvent,
    ReplayEvent,
    RoundEvent,
    SlowEvent,
    SpikeEvent,
    StartEvent,
)
from partrain.record.loss_band import LossBand
from partrain.record.numbers import Merge, Merged
from partrain.record.result import decides
from partrain.record.round_record import ACTIVITIES, NUMBERS
from partrain.record.stop_conditions import Standing, StopCondition, conditions_of, numbers_of
from partrain.record.worker_state import Curve, WorkerState

CURVE_CELLS = 100
"""Number of values in the history of judged losses."""
COMPLETED = ("reached", "finished", "not-reached")
"""Statuses of a run that a stop condition ended."""


class Clock:
    """Seconds of the run up to the newest event, including earlier sessions.

    Training time comes from the workers' clocks. A killed session counts from its start line to its last line.
    """

    def __init__(self) -> None:
        self.startup = self.train = self.total = 0.0
        self._trains = False
        self._session: tuple[float, float] | None = None

    @property
    def running(self) -> bool:
        """True between the start and the end of a session."""
        return self._session is not None

    def start(self, t: float) -> None:
        """Begin a session."""
        self._trains, self._session = False, (t, self.total)

    def round(self, t: float, seconds: float) -> None:
        """Record a worker's round that ended after `seconds` of training."""
        if self._session and not self._trains:
            self.startup += max(0.0, t - max(0.0, seconds - self.train) - self._session[0])
        self._trains, self.train = True, seconds

    def pass_to(self, t: float) -> None:
        """Advance the total time within a session."""
        if self._session:
            self.total = self._session[1] + t - self._session[0]

    def stop(self) -> None:
        """End the session. Later events do not count until the next `start`."""
        self._session = None

    def end(self, seconds: EndSeconds) -> None:
        """Take over the coordinator's figures for the whole run, if there are any."""
        self.startup = seconds.get("startup", self.startup)
        self.train = seconds.get("train", self.train)
        self.total = seconds.get("total", self.total)
        self.stop()


@dataclass(slots=True)
class Tally:
    """A count of events of one kind, and the newest event."""

    count: int = 0
    newest: str = ""
    """The newest event in words."""
    items: int = 0
    """Item-iterations that these events undid."""

    def add(self, what: str, items: int = 0) -> None:
        """Count one more event."""
        self.count += 1
        self.newest = what
        self.items += items


class RunState:
    """The state of a run. The cost per event does not grow with the run."""

    def __init__(self) -> None:
        self.t = 0.0
        """Time of the newest event."""
        self.start = StartEvent(t=0.0, name="", rule="", resumed_from=None, workers=[], stop={})
        """The start of the newest session; without a name before the first session."""
        self.workers: dict[int, WorkerState] = {}
        self.clock = Clock()
        self.round = 0
        """The newest round that every worker has finished."""
        self.item_iterations = 0
        self.judged: JudgementEvent | None = None
        self._set_aside: tuple[int | None, JudgementEvent | None, JudgementEvent | None, int] | None = None
        """Round, best and misses when the user accepted changed code in the newest session."""
        self.best: JudgementEvent | None = None
        self.judged_losses = Curve(CURVE_CELLS)
        self.misses = 0
        """Regular judgements since the best one. One only because the run ended, or without the deciding number, does not count."""
        self.judgements = 0
        self.undefined: Counter[str] = Counter()
        """Judgements in which a number that `[stop]` names was undefined, by its name."""
        self.commit: CommitEvent | None = None
        self.saved_best: JudgementEvent | None = None
        """The best judgement whose network is on disk: `best.h5`. The checkpoint of the best one may not be written yet, or never."""
        self._unsaved = dict[int, JudgementEvent]()
        """Best judgements by round, the newest last, until their checkpoint is written."""
        self.tallies = {kind: Tally() for kind in ("replay", "exclusion", "spike", "balance", "fault")}
        """Events of these kinds."""
        self.clipped_updates = 0
        """Rounds of workers whose update was scaled down to `max_update_norm`."""
        self.leap: SpikeEvent | None = None
        """The spike in the newest event, if there is one: `RunContext` emits it."""
        self._band = LossBand()
        self.status: str | None = None
        """Status at the end of the run; None while it runs, or if it was killed."""
        self.reason: str | None = None
        self.end: EndEvent | None = None
        """The end of the newest session, if it has ended."""
        self._behind = 0
        self._paces: list[tuple[float, Standing]] = []
        """Time and standing at the start and, once it is over, the end of the session's first round."""

    def apply(self, event: Event) -> None:
        """Apply the next event. Unknown kinds are skipped: a newer partrain wrote them."""
        self.t, self.leap = event.t, None
        match event:
            case RoundEvent():
                self._round(event)
            case JudgementEvent():
                self._judgement(event)
            case StartEvent():
                self._start(event)
            case CommitEvent():
                self.commit = event
                if event.round in self._unsaved:
                    self.saved_best = self._unsaved[event.round]
                    self._unsaved = {number: best for number, best in self._unsaved.items() if number > event.round}
            case FaultEvent():
                self._fault(event)
            case ReplayEvent():
                self.tallies[event.kind].add(event.describe(), sum(event.discarded))
            case ExclusionEvent():
                self.tallies[event.kind].add(event.describe(), event.discarded)
            case SpikeEvent() | BalanceEvent():
                self.tallies[event.kind].add(event.describe())
            case SlowEvent():
                if event.rank in self.workers:
                    self.workers[event.rank].slow = None if event.recovered else event
            case EndEvent():
                self.status, self.reason, self.round, self.end = event.status, event.reason, event.round, event
                self.clock.pass_to(event.t)
                self.clock.end(event.seconds)
                return
        self.clock.pass_to(event.t)

    def rate(self) -> float:
        """Item-iterations per second of all workers lately."""
        return sum(worker.rate() for worker in self.workers.values())

    @property
    def item_iterations_elsewhere(self) -> int:
        """Item-iterations in the folder from which this one continues."""
        return sum(worker.elsewhere for worker in self.workers.values())

    def mean_rate(self) -> float | None:
        """Return the item-iterations per training second in this folder; None before there is a time."""
        done = self.item_iterations - self.item_iterations_elsewhere
        return done / self.clock.train if self.clock.train > 0 else None

    def merged(self, name: str) -> float | None:
        """Merge a number of a round over the workers: sums and means of all rounds so far, else of each worker's newest round."""
        every, number = Merged(), NUMBERS[name]
        for worker in self.workers.values():
            weight = worker.items if number.rounds is Merge.MEAN else worker.round_items
            if name in worker.numbers.values:
                every.add(worker.numbers.values, [(name, number.workers)], weight)
        return every.get(name)

    def bytes_per_round(self) -> float | None:
        """Return the bytes that a worker sends in a round, on average; None before the first round."""
        rounds = sum(worker.rounds for worker in self.workers.values())
        return (self.merged("bytes") or 0.0) / rounds if rounds else None

    def activity(self, worker: WorkerState) -> str:
        """Return `starting`, `done`, `stopped` (before the end), `lost`, `left`, or the longest of the ACTIVITIES lately."""
        if worker.lost:
            return "lost"
        if worker.left:
            return "left"
        if self.status is not None:
            return "stopped" if self.status in ("stopped", "diverged", "failed", "killed") else "done"
        recent = worker.recent()
        if recent is None:
            return "starting"
        return max(zip(recent.spent, ACTIVITIES.values(), strict=True))[1]

    def slowdowns(self) -> dict[int, float]:
        """Map the ranks of slow workers to their factors, as last reported."""
        present = (worker for worker in self.workers.values() if not worker.lost and not worker.left)
        return {worker.rank: worker.slow.factor for worker in present if worker.slow}

    def standing(self) -> Standing:
        """Return the numbers that stop conditions compare with their goals."""
        loss, metrics = (self.judged.loss, self.judged.metrics) if self.judged else (None, {})
        return Standing(self.round, self.item_iterations, self.clock.train, loss, metrics.get("accuracy"), self.misses, metrics)

    def conditions(self) -> list[StopCondition]:
        """Return the stop conditions that are set."""
        return conditions_of(self.start.stop)

    def fraction(self) -> float | None:
        """Return the progress towards the limit that the run will reach first, 0 to 1."""
        at = self.standing()
        return max(
            (min(1.0, (condition.now(at) or 0) / condition.goal) for condition in self.conditions() if not condition.judged),
            default=None,
        )

    def eta(self, now: float) -> float | None:
        """Return the seconds until the first limit, at this session's pace. From its second round on, the first does not count."""
        at = self.standing()
        paces = [(t, then) for t, then in self._paces if then.rounds < at.rounds]
        if not paces or self.status is not None:
            return None
        t, then = paces[-1]
        elapsed = max((worker.t for worker in self.workers.values()), default=t) - t
        steady = [
            (condition.goal, condition.now(at) or 0, condition.now(then) or 0)
            for condition in self.conditions()
            if not condition.judged
        ]
        left = [(goal - value) * elapsed / (value - before) for goal, value, before in steady if value > before]
        return max(0.0, min(left) - max(0.0, now - t - elapsed)) if left else None

    def _start(self, event: StartEvent) -> None:
        self.clock.start(event.t)
        self.start = event
        self.round = event.resumed_from or 0
        self.status = self.reason = self.end = None
        if self._set_aside and event.resumed_from == self._set_aside[0]:  # the session that accepted changes trained no round
            _, self.best, self.saved_best, self.misses = self._set_aside
        self._set_aside = (event.resumed_from, self.best, self.saved_best, self.misses) if event.accepted else None
        if event.accepted:  # as `Progress.without_best`
            self.best, self.saved_best, self.misses = None, None, 0
            self._unsaved.clear()
        for described in event.workers:
            self._worker(described["rank"]).begin(
                described["device"], self.round, described.get("before"), described.get("unevenness")
            )
        self.item_iterations = sum(worker.items for worker in self.workers.values())
        ranks = {described["rank"] for described in event.workers}
        for rank, worker in self.workers.items():
            worker.left = rank not in ranks
        self._behind = len(ranks)
        self._paces = [(event.t, self.standing())]

    def _round(self, event: RoundEvent) -> None:
        worker, record = self._worker(event.rank), event.record
        before, seconds = worker.round, record.seconds
        if math.isnan(seconds):  # earlier versions wrote `seconds` in judgements only
            seconds = self.clock.train
        worker.count(event.t, record, seconds)
        self.clipped_updates += not math.isnan(record.clipped_norm)
        if not self.start.clients:  # otherwise a worker has the loss of another client each round
            self._watch(worker.band, event.t, record.round, event.rank, record.loss)
        self.item_iterations += record.items
        self.clock.round(event.t, seconds)
        if before == self.round:
            self._behind -= 1
            if self._behind <= 0:
                self._advance()

    def _advance(self) -> None:
        """Find the round that all workers have finished, once per round, so a round's line stays cheap."""
        rounds = [worker.round for worker in self.workers.values() if not worker.lost and not worker.left]
        if not rounds:
            return
        self.round = min(rounds)
        self._behind = rounds.count(self.round)
        if len(self._paces) == 1 and self.round > self._paces[0][1].rounds:
            (_, then), at = self._paces[0], self.standing()
            self._paces = [(self.t - (at.seconds - then.seconds), then), (self.t, at)]

    def _judgement(self, event: JudgementEvent) -> None:
        self.judged = event
        if event.loss is not None:
            self.judged_losses.add(event.loss)
            self._watch(self._band, event.t, event.round, None, event.loss)
        undefined = [name for name in numbers_of(self.start.stop) if event.scores.get(name) is None]
        self.judgements += 1
        self.undefined.update(undefined)
        missed = event.regular and self.start.stop.get("patience_by") not in undefined
        by = self.start.stop.get("patience_by") or decides(event.scores)
        higher = event.best and (self.best is None or event.scores.get(by) != self.best.scores.get(by))  # a tie is a miss
        self.misses = 0 if higher else self.misses + missed
        if event.best:
            self.best = self._unsaved[event.round] = event
        self.clock.train = event.seconds

    def _watch(self, band: LossBand, t: float, round_number: int, rank: int | None, loss: float) -> None:
        """Add a loss to its band. A worker that did not train has no loss."""
        if math.isfinite(loss) and (spike := band.add(loss)):
            self.leap = SpikeEvent(
                t=t, round=round_number, rank=rank, loss=spike.loss, usual=list(spike.usual), bound=spike.bound
            )

    def _fault(self, event: FaultEvent) -> None:
        self.tallies[event.kind].add(event.what)
        if event.rank in self.workers:
            self.workers[event.rank].lost = True
            self._advance()

    def _worker(self, rank: int) -> WorkerState:
        worker = self.workers.get(rank)
        if worker is None:
            worker = self.workers[rank] = WorkerState(rank)
        return worker
