"""The events of a run: one class per kind of line in `events.jsonl`.

The fields of a class are the keys of its line, in their order, except in `RoundEvent`, whose line holds the fields of its record.

A line is `{"event": KIND, "t": ...}`, one JSON object. `t` is Unix time by the clock setting at the start of the command;
durations are in seconds. Numbers that are not finite are null, because JSON has no NaN. Files of earlier versions may lack the
fields with a default.

Rounds may take milliseconds. So the classes are not frozen: frozen classes take three times as long to construct. They have no
slots, so `vars` returns the fields without a loop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NotRequired, TypedDict, get_args

from pydantic_core import PydanticSerializationError, from_json, to_json

from partrain.number_format import number
from partrain.record.privacy import NoisyMean
from partrain.record.round_record import RoundRecord, number_of, without_nan
from partrain.system.regular_file import parse_json

MOST_SHOWN = 8
"""Workers that a line names."""
COMMIT_MARK = b'"event":"commit"'
"""Bytes in the line of every commit."""


class CountsBefore(TypedDict):
    """The work of one worker in another folder, from which the run was resumed."""

    iterations: int
    """Local iterations."""
    item_iterations: int
    """Items that went through a backward pass."""


class WorkerSkew(TypedDict, total=False):
    """The label skew of a worker's partition, if measured: total variation distance to all items, 0 to 1."""

    unevenness: float
    """Total variation distance between the class shares of the partition and of all items, 0 to 1."""


class WorkerPlace(TypedDict, total=False):
    """Cores that a worker is bound to."""

    cpus: list[int]
    """Cores that the worker is bound to; absent if the kernel chooses."""


class WorkerBefore(TypedDict, total=False):
    """The work before this session, if the run was resumed."""

    before: CountsBefore
    """Counts of the earlier folder."""


class WorkerHere(TypedDict):
    """The process of a worker in the `start` event."""

    pid: int | None
    """Process id on this machine, if the worker runs here."""
    compiled: bool | None
    """The network, or its recurrent layers, train in compiled code (`[engine] compiled`); null if the worker does not run here."""


class StartedWorker(WorkerSkew, WorkerPlace, WorkerBefore, WorkerHere):
    """A worker in the `start` event."""

    rank: int
    """Number of the worker, from 0."""
    device: str
    """Device: `cpu`, or a GPU such as `cuda:0`."""
    threads: int
    """CPU threads (torch's intra-op threads)."""
    partition: int | None
    """Number of items in the worker's partition, or in its shard of a stream; null if the stream does not know."""
    iterations: int
    """Local iterations per round."""
    passes: int | None
    """Passes over the partition per round, if the job has `passes` instead of `iterations`."""
    batch_size: int
    """Number of items of a batch."""


class TakenClients(TypedDict):
    """The clients that workers take in turn (`[partition] clients`)."""

    count: int
    """Number of clients."""
    smallest: int
    """Number of items of the smallest client."""
    largest: int
    """Number of items of the largest client."""
    unevenness: NotRequired[float]
    """Mean label skew of the clients, if measured: total variation distance to all items, 0 to 1."""


class EndSeconds(TypedDict, total=False):
    """The seconds of the whole run, with all sessions."""

    startup: float
    """Seconds from the command to the first local iteration."""
    train: float
    """Seconds from the first local iteration to the last judgement."""
    total: float
    """Seconds of the whole command."""


@dataclass(kw_only=True)
class StartEvent:
    """A session begins: a run starts or resumes."""

    kind: ClassVar = "start"
    t: float
    version: str = ""
    """Version of partrain."""
    name: str
    """Name of the job."""
    run_id: str = ""
    """Digest of job, data and versions."""
    rule: str
    """Name of the sync rule."""
    resumed_from: int | None
    """Round of the checkpoint that the run resumed from; null for a new run."""
    parameters: int = 0
    """Number of the network's parameters."""
    held_out: int = 0
    """Number of held-out items."""
    judge_every: int = 1
    """Number of rounds from one regular judgement to the next."""
    cores: int = 0
    """Number of CPU cores of this machine that the process may use."""
    workers: list[StartedWorker]
    """All workers, by rank."""
    stop: dict[str, Any]
    """The `[stop]` table."""
    lower_is_better: bool = True
    """The number of `patience_by` is better if it is lower."""
    start_file: str | None = None
    """SHA-256 of the file that the network started from (`[model] from`), if there was one."""
    code: dict[str, str] = field(default_factory=dict)
    """Digests by name of user code, its modules and the files that it opens while it builds the network."""
    accepted: list[str] = field(default_factory=list)
    """Changes of user code since the checkpoint that the user accepted (`resume --accept-changes`), in words."""
    privacy: NoisyMean | None = None
    """The noisy mean of every round, if the job has `[sync] noise`."""
    clients: TakenClients | None = None
    """The clients, if workers take them in turn."""


@dataclass(kw_only=True)
class RoundEvent:
    """A worker has finished a round. The line holds the numbers of this worker in this round."""

    kind: ClassVar = "round"
    t: float
    rank: int
    """Rank of the worker."""
    record: RoundRecord


@dataclass(kw_only=True)
class JudgementEvent:
    """The network was evaluated on held-out items."""

    kind: ClassVar = "judgement"
    t: float
    round: int
    """The round that was judged."""
    item_iterations: int = 0
    """Item-iterations of all workers so far."""
    seconds: float
    """Training seconds so far."""
    loss: float | None
    """Loss on the held-out items."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Accuracy and further metrics, by name."""
    best: bool
    """True if this is the best judgement so far."""
    regular: bool = True
    """False if the network was judged only because the run ended. Such a judgement does not count for `patience`."""

    @property
    def scores(self) -> dict[str, float | None]:
        """Loss and metrics by name."""
        return {"loss": self.loss, **self.metrics}


@dataclass(kw_only=True)
class CommitEvent:
    """A checkpoint is on disk."""

    kind: ClassVar = "commit"
    t: float
    round: int
    """The round that the checkpoint holds."""
    file: str
    """Path of the file in the run folder."""
    bytes: int
    """Size of the file in bytes."""
    seconds: float
    """Seconds of the write."""
    digest: str = ""
    """SHA-256 of the file."""


@dataclass(kw_only=True)
class FaultEvent:
    """Something failed: a worker, or the run."""

    kind: ClassVar = "fault"
    t: float
    what: str
    """The fault in words."""
    rank: int | None
    """Rank of the worker that failed; null if it was not a single worker."""


@dataclass(kw_only=True)
class ReplayEvent:
    """A worker was lost, and all workers have started again from an earlier state. Or the process that writes checkpoints was lost,
    and another one has started."""

    kind: ClassVar = "replay"
    t: float
    rank: int | None
    """Rank of the lost worker; null if it was not a single worker."""
    what: str
    """The loss in words."""
    after: int
    """Round of the state from which all workers start again, or whose checkpoint another process writes."""
    discarded: list[int]
    """Item-iterations that each worker, by rank, had trained after that state; empty if no worker started again."""
    seconds: float
    """Seconds from the discovery of the loss to the next local iteration, or to the start of the next writing process."""

    def describe(self) -> str:
        """Describe in one line the loss and the rounds that run again."""
        if not self.discarded:
            return f"{self.what}: another one writes the checkpoint of round {self.after:,}"
        again = f"the rounds after {self.after:,} run again" if self.after else "all rounds run again"
        return f"{self.what}: {again} ({sum(self.discarded):,} item-iterations; restarted in {self.seconds:.2g} s)"


@dataclass(kw_only=True)
class ExclusionEvent:
    """A worker was left out of the means of a round, because its numbers were not finite."""

    kind: ClassVar = "exclusion"
    t: float
    round: int
    """The round."""
    rank: int
    """Rank of the worker."""
    what: str
    """The numbers that were not finite, in words."""
    discarded: int
    """Item-iterations of the worker that were undone."""

    def describe(self) -> str:
        """Describe in one line the excluded worker, and why."""
        why = f"non-finite numbers in {self.what}, {self.discarded:,} item-iterations taken back"
        return f"round {self.round:,}: worker {self.rank} is left out of the mean ({why})"


@dataclass(kw_only=True)
class SpikeEvent:
    """A loss rose far above the newest losses before it."""

    kind: ClassVar = "spike"
    t: float
    round: int
    """The round."""
    rank: int | None
    """Rank of the worker with this training loss; null for the judged loss."""
    loss: float
    """The high loss."""
    usual: list[float]
    """Lowest and highest of the newest losses before it."""
    bound: float
    """Loss above which partrain reports a spike."""

    def describe(self) -> str:
        """Describe in one line the loss that rose, and from where."""
        whose = "the judged loss" if self.rank is None else f"the training loss of worker {self.rank}"
        low, high = self.usual
        before = f"it was {number(low)} to {number(high)}" if high < self.loss else f"it was mostly below {number(self.bound)}"
        return f"round {self.round:,}: {whose} leapt to {number(self.loss)}; before, {before}"


@dataclass(kw_only=True)
class SlowEvent:
    """A worker has become slow compared with the others, or much slower or faster, or keeps up again."""

    kind: ClassVar = "slow"
    t: float
    round: int
    """The round."""
    rank: int
    """Rank of the worker."""
    factor: float
    """Its seconds of computing for each item-iteration, divided by the median of the others."""
    since: int
    """First round in which the worker was slow."""
    recovered: bool = False
    """True if the worker keeps up again."""

    def describe(self) -> str:
        """Describe in one line how slow the worker is."""
        if self.recovered:
            return f"worker {self.rank} keeps up again: {self.factor:.1f} times the others' seconds per item"
        return f"worker {self.rank} takes {self.factor:.1f} times as long per item as the others, since round {self.since:,}"


@dataclass(kw_only=True)
class BalanceEvent:
    """The workers' iterations follow their speed from now on (`[partition] balance`)."""

    kind: ClassVar = "balance"
    t: float
    round: int
    """First round with these iterations."""
    iterations: list[int]
    """Local iterations of each worker in a round, by rank."""

    def describe(self) -> str:
        """Describe in one line the workers' iterations."""
        shown = ", ".join(f"{count:,}" for count in self.iterations[:MOST_SHOWN]) + ", ..." * (len(self.iterations) > MOST_SHOWN)
        return f"from round {self.round:,} the workers train {shown} iterations a round, by their speed"


@dataclass(kw_only=True)
class StoppingEvent:
    """The run received a signal, or its SLURM allocation ends, and it will stop."""

    kind: ClassVar = "stopping"
    t: float
    signal: str
    """Name of the signal, such as `SIGINT`; or `end of the allocation`."""
    what: str
    """The message that the terminal shows."""


class RareAnswers(TypedDict):
    """The answers to the items of the rarer of two unequal classes."""

    name: str
    """The class."""
    items: int
    """Number of its items."""
    right: int
    """Items of this class that the network gave this class."""
    others: int
    """Items of the other class that the network gave this class."""
    average_precision: float
    """Average precision of this class; a random ranking reaches the class's share of the items."""


class BesideOptions(TypedDict, total=False):
    """Fields that only some comparisons have."""

    r2: float
    """R² of the network, in addition to `mae`."""
    rare: RareAnswers
    """The rare class, in addition to `auroc`."""


class BesideTrivial(BesideOptions):
    """Comparison of a network with an answer that needs no training."""

    by: str
    """The compared number: `mae` for numbers, `auroc` for two classes if one has less than a third of the items, else `accuracy`."""
    network: float
    """The network's number."""
    trivial: float
    """The other answer's number."""
    low: float
    """Lower end of the 95 % interval of the difference (network minus other)."""
    high: float
    """Its upper end."""
    items: int
    """Number of items."""


@dataclass(kw_only=True)
class EndEvent:
    """A session ends."""

    kind: ClassVar = "end"
    t: float
    status: str
    """The same as in `summary.json`."""
    reason: str
    """The same as in `summary.json`."""
    round: int
    """Number of the last round."""
    seconds: EndSeconds = field(default_factory=EndSeconds)
    """Seconds of the run."""
    test: dict[str, float] = field(default_factory=dict)
    """Loss and metrics of the test items, if there are any."""
    tested_round: int = 0
    """The round whose network was tested; 0 without test items."""
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    """Numbers of answers that need no training, see `summary.json`."""
    comparisons: dict[str, BesideTrivial] = field(default_factory=dict)
    """The network compared with these answers, see `summary.json`."""


@dataclass
class UnknownEvent:
    """A line of a kind that a newer partrain wrote."""

    t: float
    round: int | None


KnownEvent = (
    StartEvent
    | RoundEvent
    | JudgementEvent
    | CommitEvent
    | FaultEvent
    | ReplayEvent
    | ExclusionEvent
    | SpikeEvent
    | SlowEvent
    | BalanceEvent
    | StoppingEvent
    | EndEvent
)
Event = KnownEvent | UnknownEvent
KINDS: dict[str, type[KnownEvent]] = {arg.kind: arg for arg in get_args(KnownEvent)}


def encode(event: KnownEvent) -> bytes:
    """Encode an event as its line with pydantic's encoder, five times faster than Python's: rounds may take milliseconds."""
    values = vars(event)
    if isinstance(event, RoundEvent):
        values = {"t": event.t, "rank": event.rank} | event.record.event_values()
    try:
        text = to_json(values, inf_nan_mode="null")
    except PydanticSerializationError:  # a file's name that is not UTF-8
        text = json.dumps(without_nan(values), separators=(",", ":"), allow_nan=False).encode()
    return b'{"event":"' + event.kind.encode() + b'",' + text[1:] + b"\n"


def decode(line: bytes | str) -> Event:
    """Decode a line. Fields that this version does not know are ignored. Raises ValueError if the line is not an event."""
    try:
        values = from_json(line)  # twice as fast as json: a run may have 100,000 rounds
    except ValueError:
        values = parse_json(line)  # also takes half a surrogate pair, for a file's name that is not UTF-8
    try:
        if not isinstance(name := values["event"], str):
            raise ValueError(name)
        kind, t = KINDS.get(name), values["t"]
        if kind is None:
            return UnknownEvent(t, values.get("round"))
        if kind is RoundEvent:
            return RoundEvent(t=t, rank=values["rank"], record=RoundRecord.of_event(values))
        if kind is JudgementEvent:
            values["metrics"] = {key: value for key, value in (values.get("metrics") or {}).items() if value is not None}
        return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def round_of(event: Event) -> int | None:
    """Return the round that an event belongs to; None if it names no round."""
    match event:
        case RoundEvent():
            return event.record.round
        case StartEvent():
            return event.resumed_from
        case FaultEvent() | ReplayEvent() | StoppingEvent():
            return None
        case _:
            return event.round


NUMBERS = {int, float, bool}
"""Types of the numbers in an event."""


def is_sound(event: Event) -> bool:
    """Return whether the texts of an event are texts and its numbers numbers: a file may be damaged."""
    try:
        if isinstance(event, RoundEvent):  # numbers that were not measured are NaN
            values = event.rank, *vars(event.record).values()
            return {*map(type, values)} <= NUMBERS and math.isfinite(event.record.round)
        texts, numbers = _values(event)
        return all(isinstance(text, str) for text in texts) and None not in map(number_of, [event.t, *numbers])
    except (TypeError, LookupError, AttributeError):
        return False


def _values(event: Event) -> tuple[Iterable[Any], Iterable[Any]]:
    """Return the texts of an event and its numbers, which must be finite."""
    match event:
        case StartEvent(stop=dict(), workers=workers):
            counts = [
                worker[key] for worker in workers for key in ("rank", "threads", "partition") if worker.get(key) is not None
            ]
            return (event.name, event.rule, *(worker["device"] for worker in workers)), counts
        case StartEvent():
            raise TypeError("`stop` is no table")
        case JudgementEvent():
            loss = () if event.loss is None else (event.loss,)
            return (), (event.round, event.item_iterations, event.seconds, *loss, *event.metrics.values())
        case FaultEvent() | StoppingEvent():
            return (event.what,), ()
        case ReplayEvent():
            return (event.what,), (event.after, event.seconds, *event.discarded)
        case ExclusionEvent():
            return (event.what,), (event.round, event.rank, event.discarded)
        case SpikeEvent():
            low, high = event.usual
            return (), (event.round, event.loss, event.bound, low, high)
        case SlowEvent():
            return (), (event.round, event.rank, event.factor, event.since)
        case CommitEvent():
            return (event.file,), (event.round, event.bytes, event.seconds)
        case EndEvent():
            return (event.status, event.reason), (event.round,)
    return (), ()
