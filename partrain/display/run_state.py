"""The state of a run, built event by event, behind the live table, the plain lines and the summary.

A `RunState` takes the lines of `events.jsonl` in their order, live or read back later. Its size does not grow with the run. All
times are in seconds: `t` and `now` are Unix time, `seconds` are training time by the workers' clocks, which may be simulated. A run
may have several sessions: each resume is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from partrain.display.stop_conditions import Standing, StopCondition, conditions_of

Event = Mapping[str, Any]
"""One line of `events.jsonl`."""

COMPLETED = ("reached", "finished", "not-reached")
"""Statuses of a run that a stop condition ended."""
WINDOW_S = 4.0
"""Seconds over which rates are averaged; three rounds if those take longer."""
MARK_S = 0.5
"""Seconds between two marks of the window: rounds may take milliseconds, and memory is bounded."""
SMOOTHING = 5
"""Rounds over which a worker's training loss is smoothed."""
CELLS = 16
"""Values of a worker's loss history."""


class Curve:
    """A history of any length as at most 2 x CELLS means, each over the same number of values."""

    __slots__ = ("_count", "_stride", "_sum", "means")

    def __init__(self) -> None:
        self.means: list[float] = []
        self._stride, self._count, self._sum = 1, 0, 0.0

    def add(self, value: float) -> None:
        """Append a value; if the list is full, merge neighbours."""
        self._sum += value
        self._count += 1
        if self._count == self._stride:
            self.means.append(self._sum / self._count)
            self._count, self._sum = 0, 0.0
            if len(self.means) == 2 * CELLS:
                self.means = [(one + other) / 2 for one, other in zip(self.means[::2], self.means[1::2], strict=True)]
                self._stride *= 2

    def resampled(self) -> list[float]:
        """Return at most CELLS means over the whole history."""
        means, size = self.means, len(self.means)
        if size <= CELLS:
            return list(means)
        cuts = [cell * size // CELLS for cell in range(CELLS + 1)]
        return [sum(means[first:last]) / (last - first) for first, last in pairwise(cuts)]


class Totals(NamedTuple):
    """A worker's totals at one moment."""

    seconds: float
    rounds: int
    items: int
    compute: float
    wait: float
    mix: float


@dataclass(slots=True)
class WorkerState:
    """One worker: totals of the whole run, and its recent rates."""

    rank: int
    device: str = "?"
    round: int = 0
    """The newest round that the worker finished."""
    rounds: int = 0
    """Rounds in this folder's events."""
    iterations: int = 0
    item_iterations: int = 0
    elsewhere: int = 0
    """Item-iterations in another folder, whose seconds are unknown here."""
    compute: float = 0.0
    wait: float = 0.0
    mix: float = 0.0
    """Seconds computing, waiting for others, and mixing."""
    round_items: int = 0
    round_loss: float | None = None
    """Item-iterations and mean training loss of the newest round."""
    loss: float | None = None
    """Training loss, smoothed."""
    distance: float | None = None
    """RMS distance to the mean, when last measured."""
    unevenness: float | None = None
    """Label skew of the partition against all items, from 0 to 1, if measured."""
    lost: bool = False
    curve: Curve = field(default_factory=Curve)
    marks: deque[Totals] = field(default_factory=deque)
    t: float = 0.0
    seconds: float = 0.0

    def begin(self, described: Event, round_: int) -> None:
        """Begin a session after this round; `before` holds the worker's totals in another folder."""
        before = described.get("before")
        if before and not self.rounds:
            self.iterations, self.item_iterations = before["iterations"], before["item_iterations"]
            self.elsewhere = self.item_iterations
        self.device, self.round, self.lost = described["device"], round_, False
        self.unevenness = described.get("unevenness")
        self.marks.clear()

    def count(self, event: Event, seconds: float) -> None:
        """Add a round that ended after `seconds` of training."""
        items, loss = event["items"], event["loss"]
        compute, wait, mix = event["compute"], event["wait"], event["mix"]
        if not self.marks:
            self.marks.append(self._mark(seconds - compute - wait - mix))
        self.t, self.seconds, self.round, self.lost = event["t"], seconds, event["round"], False
        self.rounds += 1
        self.iterations += event["iterations"]
        self.item_iterations += items
        self.compute += compute
        self.wait += wait
        self.mix += mix
        self.round_items, self.round_loss = items, loss
        if loss is not None:
            self.loss = loss if self.loss is None else self.loss + (loss - self.loss) / min(self.rounds, SMOOTHING)
            self.curve.add(loss)
        if event["distance"] is not None:
            self.distance = event["distance"]
        if seconds - self.marks[-1].seconds >= MARK_S:
            self._remember(seconds)

    def recent(self) -> Totals | None:
        """Return the totals of the window as differences; `seconds` is its length. None before the first round."""
        if not self.marks or self.seconds <= self.marks[0].seconds:
            return None
        return Totals._make(now - then for now, then in zip(self._mark(self.seconds), self.marks[0], strict=True))

    def rate(self) -> float:
        """Item-iterations per second lately."""
        recent = self.recent()
        return recent.items / recent.seconds if recent else 0.0

    def _mark(self, seconds: float) -> Totals:
        return Totals(seconds, self.rounds, self.item_iterations, self.compute, self.wait, self.mix)

    def _remember(self, seconds: float) -> None:
        self.marks.append(self._mark(seconds))
        while len(self.marks) > 4 and self.marks[1].seconds <= seconds - WINDOW_S:
            self.marks.popleft()


class Clock:
    """Seconds of the run up to the newest event, earlier sessions included.

    Training time is that of the workers' clocks. A killed session counts from its start line to its last line.
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

    def round(self, t: float, lasted: float, seconds: float) -> None:
        """Record a worker's round that took `lasted` seconds and ended after `seconds` of training."""
        if self._session and not self._trains:
            self.startup += max(0.0, t - lasted - self._session[0])
        self._trains, self.train = True, seconds

    def pass_to(self, t: float) -> None:
        """Advance the total time within a session."""
        if self._session:
            self.total = self._session[1] + t - self._session[0]

    def stop(self) -> None:
        """End the session. Later events do not count until the next `start`."""
        self._session = None

    def end(self, seconds: Mapping[str, float]) -> None:
        """Take the coordinator's figures for the whole run, if it gives them."""
        self.startup = seconds.get("startup", self.startup)
        self.train = seconds.get("train", self.train)
        self.total = seconds.get("total", self.total)
        self.stop()


class Judgement(NamedTuple):
    """The judged network: mean loss and metrics on held-out items."""

    t: float
    round: int
    loss: float | None
    metrics: dict[str, float]


class Commit(NamedTuple):
    """A checkpoint on disk."""

    round: int
    file: str
    bytes: int
    seconds: float


class RunState:
    """The state of a run. `apply` costs the same for each event."""

    def __init__(self) -> None:
        self.t = 0.0
        """Time of the newest event."""
        self.name = self.rule = self.run_id = ""
        self.stop: dict[str, Any] = {}
        """The `[stop]` table."""
        self.workers: dict[int, WorkerState] = {}
        self.clock = Clock()
        self.round = 0
        """The newest round that every worker has finished."""
        self.item_iterations = 0
        self.judged: Judgement | None = None
        self.best: Judgement | None = None
        self.misses = 0
        """Judgements since the best one."""
        self.commit: Commit | None = None
        self.faults = 0
        self.fault = ""
        """The newest fault."""
        self.status: str | None = None
        """Status at the end of the run; None while it runs, or if it was killed."""
        self.reason: str | None = None
        self._behind = 0
        self._pace: tuple[float, Standing] | None = None

    def apply(self, event: Event) -> None:
        """Apply the next event. Unknown kinds are skipped: a newer partrain wrote them."""
        self.t = t = event["t"]
        match event["event"]:
            case "round":
                self._round(event)
            case "start":
                self._start(event)
            case "judgement":
                self._judgement(event)
            case "commit":
                self.commit = Commit(event["round"], event["file"], event["bytes"], event["seconds"])
            case "fault":
                self._fault(event)
            case "end":
                self.status, self.reason, self.round = event["status"], event["reason"], event["round"]
                self.clock.pass_to(t)
                self.clock.end(event.get("seconds") or {})
                return
        self.clock.pass_to(t)

    def rate(self) -> float:
        """Item-iterations per second of all workers lately."""
        return sum(worker.rate() for worker in self.workers.values())

    def loss(self) -> float | None:
        """Return the mean training loss of each worker's newest round, weighted by items."""
        known = [(worker.round_items, worker.round_loss) for worker in self.workers.values() if worker.round_loss is not None]
        items = sum(items for items, _ in known)
        return sum(items * loss for items, loss in known) / items if items else None

    def state(self, worker: WorkerState) -> str:
        """Return `starting`, `done`, `stopped` (before the end), `lost`, or the recent main activity: `training`, `waiting`, `mixing`."""
        if worker.lost:
            return "lost"
        if self.status is not None:
            return "stopped" if self.status in ("stopped", "diverged", "failed") else "done"
        recent = worker.recent()
        if recent is None:
            return "starting"
        return max((recent.compute, "training"), (recent.wait, "waiting"), (recent.mix, "mixing"))[1]

    def slowdowns(self) -> dict[int, float]:
        """Map ranks to computing time per round lately, over that of the fastest worker; empty before three rounds."""
        recents = {rank: worker.recent() for rank, worker in self.workers.items() if not worker.lost}
        times = {rank: recent.compute / recent.rounds for rank, recent in recents.items() if recent and recent.rounds >= 3}
        fastest = min(times.values(), default=0.0)
        return {rank: time / fastest for rank, time in times.items()} if fastest > 0 else {}

    def standing(self) -> Standing:
        """Return the numbers that stop conditions compare with their goals."""
        loss, metrics = (self.judged.loss, self.judged.metrics) if self.judged else (None, {})
        return Standing(self.round, self.item_iterations, self.clock.train, loss, metrics.get("accuracy"), self.misses)

    def conditions(self) -> list[StopCondition]:
        """Return the stop conditions that are set."""
        return conditions_of(self.stop)

    def fraction(self) -> float | None:
        """Return the progress towards the limit that will come first, 0 to 1."""
        at = self.standing()
        return max((min(1.0, (each.now(at) or 0) / each.goal) for each in self.conditions() if not each.judged), default=None)

    def eta(self, now: float) -> float | None:
        """Return the seconds until the first limit, at this session's pace without its first round; None while unknown."""
        if self._pace is None or self.status is not None:
            return None
        t, then = self._pace
        at = self.standing()
        elapsed = max((worker.t for worker in self.workers.values()), default=t) - t
        steady = [(each.goal, each.now(at) or 0, each.now(then) or 0) for each in self.conditions() if not each.judged]
        left = [(goal - value) * elapsed / (value - before) for goal, value, before in steady if value > before]
        return max(0.0, min(left) - max(0.0, now - t - elapsed)) if left else None

    def _start(self, event: Event) -> None:
        self.clock.start(event["t"])
        self.name, self.rule, self.run_id = event["name"], event["rule"], event.get("run_id", "")
        self.stop = dict(event["stop"])
        self.round = event["resumed_from"] or 0
        self.status = self.reason = self._pace = None
        for described in event["workers"]:
            self._worker(described["rank"]).begin(described, self.round)
        self.item_iterations = sum(worker.item_iterations for worker in self.workers.values())
        self._behind = len(self.workers)

    def _round(self, event: Event) -> None:
        worker = self._worker(event["rank"])
        before = worker.round
        seconds = event.get("seconds", self.clock.train)  # earlier versions wrote `seconds` in judgements only
        worker.count(event, seconds)
        self.item_iterations += event["items"]
        self.clock.round(event["t"], event["compute"] + event["wait"] + event["mix"], seconds)
        if before == self.round:
            self._behind -= 1
            if self._behind <= 0:
                self._advance()

    def _advance(self) -> None:
        """Find the round all workers have finished: once per round, so that a round's line stays cheap."""
        rounds = [worker.round for worker in self.workers.values() if not worker.lost]
        if not rounds:
            return
        self.round = min(rounds)
        self._behind = rounds.count(self.round)
        if self._pace is None:
            self._pace = (self.t, self.standing())

    def _judgement(self, event: Event) -> None:
        metrics = {name: value for name, value in (event.get("metrics") or {}).items() if value is not None}
        self.judged = Judgement(event["t"], event["round"], event["loss"], metrics)
        self.best, self.misses = (self.judged, 0) if event["best"] else (self.best, self.misses + event.get("regular", True))
        self.clock.train = event["seconds"]

    def _fault(self, event: Event) -> None:
        self.faults += 1
        self.fault = event["what"]
        if event["rank"] in self.workers:
            self.workers[event["rank"]].lost = True
            self._advance()

    def _worker(self, rank: int) -> WorkerState:
        worker = self.workers.get(rank)
        if worker is None:
            worker = self.workers[rank] = WorkerState(rank)
        return worker
