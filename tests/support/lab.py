"""Trainings for tests: workers without a coordinator, in threads that take turns or in processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partrain.comm.arena import Arena
from partrain.comm.center import CenterClient
from partrain.comm.group import ArenaGroup, Transport
from partrain.comm.shared import SharedTransport
from partrain.comm.simulated import Pace, SimulatedTransport
from partrain.comm.transport import Abandoned
from partrain.comm.turns import TurnScheduler
from partrain.launch import forkserver
from partrain.optim import AnyOptimizer, Sgd
from partrain.protocols import Rule
from partrain.record.round_record import RoundRecord
from partrain.rules.average import Average
from partrain.seeds import derive, generator
from partrain.tasks.task import Classification, Regression, Task
from partrain.training.batches import Batches, Samples
from partrain.training.evaluate import Evaluator
from partrain.training.faults import Faults
from partrain.training.feed import Batch, Feed, Piece
from partrain.training.loop import Ending, LoopConfig, Signal, WorkerRun
from partrain.training.replica import Replica, RowLayout, row_layout
from partrain.training.round_plan import RoundPlan
from partrain.training.section import Engine
from partrain.training.snapshot import restore, save, slot_map
from partrain.training.stop import Progress, Stop
from partrain.training.worker import LocalWorker

Result = TypeVar("Result")
Program = Callable[[ArenaGroup, Tensor], Result]
"""The program of one worker, given its group and its row."""


# Groups


@dataclass(frozen=True)
class Common:
    """The vectors (m, d) that the workers of an asynchronous rule share."""

    rule: Rule = field(default_factory=Average)
    d: int = 0


NOTHING = Common()


def simulate(
    size: int,
    program: Program[Result],
    numbers: int = 64,
    wire: int = 0,
    dtype: torch.dtype = torch.float32,
    common: Common = NOTHING,
    paces: Sequence[Pace] = (),
    exact: bool = True,
) -> list[Result]:
    """Run N threads over one arena, one at a time: each worker's result. Raises the first failure."""
    scheduler, results, failures = TurnScheduler(range(size)), [None] * size, []

    def member(rank: int) -> BaseException | None:
        try:
            waiting = SimulatedTransport(scheduler, rank, paces[rank] if paces else None)
            results[rank] = program(*join(arena, rank, waiting, numbers, wire, dtype, common, exact=exact))
        except Abandoned as abandoned:
            failures.append(abandoned.__cause__)
        except BaseException as error:
            failures.insert(0, error)
            return error
        return None

    arena = Arena.create(size)
    scheduler.run(member)
    os.close(arena.descriptor)
    if failures:
        raise failures[0]
    return results


def in_processes(
    size: int,
    program: Program[Result],
    numbers: int = 64,
    wire: int = 0,
    dtype: torch.dtype = torch.float32,
    common: Common = NOTHING,
) -> list[Result]:
    """Run N processes over one arena: each worker's result. The program is a module's function; its result can be pickled."""
    context = forkserver.start()
    arena = Arena.create(size)
    file = f"/proc/{os.getpid()}/fd/{arena.descriptor}"
    members, pipes = [], []
    for rank in range(size):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        members.append(context.Process(target=_member, args=(file, rank, size, program, numbers, wire, dtype, common, theirs)))
        with forkserver.without_main():
            members[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        return collect(pipes)
    finally:
        for member, pipe in zip(members, pipes, strict=True):
            member.kill()
            member.join()
            member.close()
            pipe.close()
        os.close(arena.descriptor)


TRANSPORTS = {"simulated": simulate, "shared": in_processes}


def collect(pipes: list[Connection]) -> list[Any]:
    """Receive the result of each process. Raises the first failure at once."""
    results: dict[Connection, Any] = {}
    while len(results) < len(pipes):
        for pipe in wait([pipe for pipe in pipes if pipe not in results]):
            results[pipe] = pipe.recv()
            if isinstance(results[pipe], BaseException):
                raise results[pipe]
    return [results[pipe] for pipe in pipes]


def _member(
    file: str,
    rank: int,
    size: int,
    program: Program[Any],
    numbers: int,
    wire: int,
    dtype: torch.dtype,
    common: Common,
    pipe: Connection,
) -> None:
    arena = Arena(os.open(file, os.O_RDWR | os.O_CLOEXEC), size)
    try:
        pipe.send(program(*join(arena, rank, SharedTransport(arena, rank), numbers, wire, dtype, common)))
    except BaseException as error:
        pipe.send(error)


def join(
    arena: Arena,
    rank: int,
    waiting: Transport,
    numbers: int,
    wire: int,
    dtype: torch.dtype,
    common: Common,
    members: range | None = None,
    exact: bool = True,
) -> tuple[ArenaGroup, Tensor]:
    """Make a worker's group and row over an arena."""
    rule = common.rule
    lines, shared, _ = arena.map_rows(numbers * dtype.itemsize, rule.shared_vectors * common.d * dtype.itemsize)
    rows = list(torch.from_numpy(lines).view(dtype))
    vectors = torch.frombuffer(shared, dtype=dtype).view(-1, common.d) if len(shared) else torch.zeros(0, 0, dtype=dtype)
    commons = CenterClient(arena, rank, vectors, waiting, rule.merge, rule.slices, [one[wire:] for one in rows])
    return ArenaGroup(arena, rank, rows[rank], rows, wire, waiting, commons, members, exact=exact), rows[rank]


def take(feed: Feed, count: int) -> Iterator[Batch]:
    """Yield the next mini-batches of a feed, converted."""
    for piece in feed.pieces(count):
        if piece.numbers is not None:
            piece = Piece(piece.sizes, *feed.samples.batch(feed.samples.index(piece.numbers)))
        yield from piece.batches()


# The smallest worker


class Quadratic:
    """A `protocols.Worker` whose loss is f_i(x) = |x - t_i|^2 / 2: each plain step goes the share `lr` of the way to t_i."""

    def __init__(
        self,
        group: ArenaGroup,
        row: Tensor,
        start: Sequence[float],
        target: Sequence[float],
        iterations: int = 1,
        lr: float = 0.5,
    ) -> None:
        self.rank, self.size, self.iterations, self.items = group.rank, group.size, iterations, 0
        self.round, self.done, self.lr, self.active, self.participants = 0, 0, lr, True, range(group.size)
        self.seconds, self.partition_size, self._total = 0.0, 1, 0
        self._waiting, self.clock = group.transport, group.transport.clock
        d = self.parameters = len(start)
        self.params, self.grads = row[:d], row[d : 2 * d]
        self.params.copy_(torch.tensor(start))
        self._target = torch.tensor(target)

    def begin(self) -> None:
        """Begin the next round."""
        self.round, self.items, self.done, self.seconds = self.round + 1, 0, 0, 0.0

    def train(self, iterations: int | None = None) -> None:
        for _ in range(self.iterations if iterations is None else iterations):
            self.apply(self.gradient())

    def gradient(self, full: bool = False) -> Tensor:
        self.items, self.done = self.items + 1, self.done + 1
        began = self._waiting.clock()
        self._waiting.advance_clock(self._total, 1)
        self._total += 1
        self.seconds += self._waiting.clock() - began
        return torch.sub(self.params, self._target, out=self.grads)

    def apply(self, gradient: Tensor) -> None:
        self.params -= self.lr * gradient

    def loss(self) -> float:
        return float((self.params - self._target).square().sum() / 2)

    def draw(self, *purpose: str | int, common: bool = False) -> np.random.Generator:
        return generator(0, "rule", *purpose, self.round, -1 if common else self.rank)


def descend(
    rule: Rule,
    start: Sequence[float],
    targets: Sequence[Sequence[float]],
    rounds: int = 1,
    caps: Sequence[int] | None = None,
    lr: float = 0.5,
    paces: Sequence[Pace] = (),
) -> list[list[list[float]]]:
    """Train `Quadratic` workers: for each round, the parameters of every worker."""

    def program(group: ArenaGroup, row: Tensor) -> list[list[float]]:
        cap = caps[group.rank] if caps else rule.iterations or 1
        worker = Quadratic(group, row, start, targets[group.rank], cap, lr)
        state, seen = rule.init(worker, group), []
        for _ in range(rounds):
            worker.begin()
            group.begin(measure=False)
            rule.round(worker, group, state)
            seen.append(worker.params.tolist())
            group.barrier()
        return seen

    d = len(start)
    courses = simulate(len(targets), program, 4 * d + 64, 2 * d, common=Common(rule, d), paces=paces)
    return [list(replicas) for replicas in zip(*courses, strict=True)]


# Real workers, through the real loop

AVERAGE, PLAIN, FOREVER = Average(iterations=3), Sgd(lr=0.1, batch_size=4), Stop()


def blobs(count: int = 48, features: int = 5, classes: int = 3, dtype: torch.dtype = torch.float32) -> Samples:
    """Make items to classify: Gaussian clouds, always the same."""
    centers, drawn = np.random.default_rng(7).normal(size=(classes, features)), np.random.default_rng(8)
    labels = drawn.integers(0, classes, count)
    inputs = centers[labels] + 0.5 * drawn.normal(size=(count, features))
    return Samples(torch.tensor(inputs, dtype=dtype), torch.tensor(labels), 1.0, dtype)


def line(inputs: Sequence[float], targets: Sequence[float]) -> Samples:
    """Make items to fit: one number each."""
    return Samples(torch.tensor(inputs)[:, None], torch.tensor(targets)[:, None], 1.0)


class OneWeight(nn.Module):
    """y = w x: the loss of one item is (w x - y)^2, its gradient 2 x (w x - y)."""

    def __init__(self, w: float = 16.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w]))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


def mlp() -> nn.Module:
    """Make a network of two layers."""
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def restless() -> nn.Module:
    """Make a network that tests snapshots and seeds: BatchNorm's statistics, dropout."""
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 3))


@dataclass
class Snapshot:
    """The state of a training."""

    progress: Progress
    arrays: dict[str, NDArray[Any]]

    def without(self, path: str) -> Snapshot:
        """Copy the snapshot with one array zeroed."""
        return replace(self, arrays=self.arrays | {path: np.zeros_like(self.arrays[path])})


@dataclass
class Trained:
    """One worker after a training."""

    worker: LocalWorker
    ending: Ending
    progress: Progress
    courses: list[list[float]]
    """Parameters (d,) after each round."""
    records: list[dict[str, float]]

    @property
    def params(self) -> Tensor:
        return self.worker.params


@dataclass(frozen=True)
class Trial:
    """A training in one process, without a coordinator: `WorkerRun` over `LocalWorker`s."""

    rule: Rule = AVERAGE
    optimizer: AnyOptimizer = PLAIN
    network: Callable[[], nn.Module] = mlp
    items: Samples = field(default_factory=blobs)
    partitions: Sequence[Sequence[int]] = (range(22), range(22, 48))
    """Items of each worker."""
    caps: Sequence[int] | None = None
    """Iterations of each worker per round; default: those of the rule."""
    held_out: Samples | None = None
    seed: int = 0
    horizon: int | None = None
    stop: Stop = FOREVER
    engine: Engine = field(default_factory=Engine)
    twins: bool = False
    """Every worker draws as worker 0 does."""
    paces: Sequence[Pace] = ()
    signals: Sequence[Signal] = ()
    """Signals to worker 0, one at the end of each round."""
    task: Task | None = None
    """The task; default: by the targets."""
    faults: Faults | None = None
    uniform: bool = False
    """All workers are known to compute the same bits."""

    def run(self, rounds: int = 3, since: Snapshot | None = None) -> tuple[list[Trained], Snapshot]:
        """Train until this round, from the beginning or from a snapshot: every worker, and the last snapshot."""
        with torch.random.fork_rng():
            layout, taken = self.layout, self.nothing()
            size = len(self.partitions)
            members = simulate(
                size,
                lambda group, row: self.train(group, row, rounds, taken, since),
                layout.numbers,
                layout.scratch,
                layout.params.dtype,
                Common(self.rule, layout.params.size),
                self.paces,
            )
            return members, taken

    def train(
        self,
        group: ArenaGroup,
        row: Tensor,
        rounds: int,
        taken: Snapshot,
        since: Snapshot | None = None,
    ) -> Trained:
        """Train one worker; `taken` becomes the last snapshot."""
        worker, progress = self.worker(group.rank, row, group.center[0] if self.rule.shares_params else None), Progress()
        worker.callbacks.clock = group.transport.clock
        worker.callbacks.on_iterations = lambda count: group.transport.advance_clock(worker.tally.iterations, count)
        group.uniform = self.uniform
        group.broadcast(worker.params)
        state = self.rule.init(worker, group)
        group.barrier()
        if not taken.arrays:
            slots = slot_map(worker.module, worker.replica.layout, self.rule, group.size, state, group.center_client)
            taken.arrays.update(slots.view(memoryview(bytearray(slots.size))))
        hooks = Hooks(taken, self.signals, group, worker)
        if since:
            restore(worker, since.arrays, state, group.center_client)
            progress = replace(since.progress)
        stop = self.stop.model_copy(update={"rounds": rounds})
        config = LoopConfig(stop, stop.judge_every or 1, rounds, False)
        ending = WorkerRun(worker, group, self.rule, state, config, progress, self.held_out, None, hooks).train()
        return Trained(worker, ending, progress, hooks.courses, hooks.records)

    @property
    def layout(self) -> RowLayout:
        return row_layout(self.network(), self.optimizer)

    def nothing(self) -> Snapshot:
        """Make an empty snapshot."""
        return Snapshot(Progress(), {})

    def worker(self, rank: int = 0, row: Tensor | None = None, shared: Tensor | None = None) -> LocalWorker:
        """Make a fresh worker, over the row given or a new one."""
        torch.manual_seed(derive(self.seed, "init"))
        network, layout = self.network().train(), self.layout
        row = torch.zeros(layout.numbers, dtype=layout.params.dtype) if row is None else row
        caps = self.caps or [self.cap(len(partition)) for partition in self.partitions]
        planned = [cap * self.optimizer.batch_size * (self.rule.visits_per_worker or 1) for cap in caps]
        task = self.task or (Classification() if self.items.targets.dtype == torch.int64 else Regression())
        replica = Replica(network, layout, row, self.optimizer, shared)
        plan = RoundPlan(rank, self.rule, self.optimizer, self.batches(rank, caps[rank]), planned, self.seed, self.horizon)
        evaluator = Evaluator(network, task, compiled=self.engine.compiled)
        return LocalWorker(replica, self.items, plan, evaluator, self.seed, self.engine, faults=self.faults)

    def cap(self, items: int) -> int:
        """Count the iterations of a round on a partition of `items` items."""
        return self.rule.iterations or (self.rule.passes or 1) * -(-items // self.optimizer.batch_size)

    def batches(self, rank: int, cap: int) -> Batches:
        partition = np.asarray(self.partitions[rank], dtype=np.int64)
        drawn_as = 0 if self.twins else rank
        return Batches(partition, self.optimizer.batch_size, cap, passes=self.rule.passes, seed=self.seed, rank=drawn_as)


class Hooks:
    """`loop.RunHooks` without a coordinator."""

    def __init__(self, taken: Snapshot, signals: Sequence[Signal], group: ArenaGroup, worker: LocalWorker) -> None:
        self.courses: list[list[float]] = []
        self.records: list[dict[str, float]] = []
        self._taken, self._signals, self._group, self._worker = taken, list(signals), group, worker

    def training_started(self) -> None:
        pass

    def training_finished(self) -> None:
        pass

    def poll(self, seconds: float) -> Signal:
        return self._signals.pop(0) if self._signals else Signal(0)

    def record(self, progress: Progress, record: RoundRecord) -> None:
        self.courses.append(self._worker.params.tolist())
        self.records.append(asdict(record))

    def snapshot(
        self, progress: Progress, worker: LocalWorker, state: Any, seconds: float, durable: bool, reason: str | None
    ) -> None:
        save(worker, self._taken.arrays, state, self._group.center_client)
        self._taken.progress = replace(progress)


def same(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots hold the same bits."""
    assert one.arrays.keys() == other.arrays.keys()
    return all(one.arrays[path].tobytes() == other.arrays[path].tobytes() for path in one.arrays)
