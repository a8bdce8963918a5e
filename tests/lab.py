"""What the tests train: workers without a coordinator, in threads that take turns or in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partrain.comm.arena import Arena
from partrain.comm.group import ArenaGroup, Waiting
from partrain.comm.shared import Shared
from partrain.comm.simulated import Abandoned, Baton, Simulated
from partrain.launch import prefork
from partrain.loop import Ending, Terms, run
from partrain.optim import AnyOptimizer, Sgd
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.seeds import derive
from partrain.state import restore, save, slot_map
from partrain.stop import Progress, Stop
from partrain.worker import Batches, Items, LocalWorker, Spans, spans_of

Result = TypeVar("Result")
Program = Callable[[ArenaGroup, Tensor], Result]
"""What one worker does, given its group and its row."""


# Groups


def simulate(
    size: int, program: Program[Result], numbers: int = 64, wire: int = 0, dtype: torch.dtype = torch.float32
) -> list[Result]:
    """Each worker's result: N threads over one arena, one running at a time; the first failure is raised here."""
    baton, results, failures = Baton(size), [None] * size, []

    def member(rank: int) -> None:
        failure: BaseException | None = None
        try:
            baton.wait(rank, lambda: True, "the start")
            results[rank] = program(*_join(arena, rank, Simulated(baton, rank), numbers, wire, dtype))
        except Abandoned as abandoned:
            failures.append(abandoned.__cause__)
        except BaseException as error:
            failure = error
            failures.insert(0, error)
        finally:
            baton.leave(rank, failure)

    arena = Arena.create(size)
    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    baton.start()
    for thread in threads:
        thread.join()
    os.close(arena.descriptor)
    if failures:
        raise failures[0]
    return results


def in_processes(
    size: int, program: Program[Result], numbers: int = 64, wire: int = 0, dtype: torch.dtype = torch.float32
) -> list[Result]:
    """Each worker's result: N processes over one arena. The program is a function of a module, its result can be pickled."""
    context = prefork.start()
    arena = Arena.create(size)
    file = f"/proc/{os.getpid()}/fd/{arena.descriptor}"
    members, pipes = [], []
    for rank in range(size):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        members.append(context.Process(target=_member, args=(file, rank, size, program, numbers, wire, dtype, theirs)))
        with prefork.without_main():
            members[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        return _collect(pipes)
    finally:
        for member, pipe in zip(members, pipes, strict=True):
            member.kill()
            member.join()
            member.close()
            pipe.close()
        os.close(arena.descriptor)


TRANSPORTS = {"simulated": simulate, "shared": in_processes}


def _collect(pipes: list[Connection]) -> list[Any]:
    """What each process sends; the first failure is raised at once."""
    results: dict[Connection, Any] = {}
    while len(results) < len(pipes):
        for pipe in wait([pipe for pipe in pipes if pipe not in results]):
            results[pipe] = pipe.recv()
            if isinstance(results[pipe], BaseException):
                raise results[pipe]
    return [results[pipe] for pipe in pipes]


def _member(
    file: str, rank: int, size: int, program: Program[Any], numbers: int, wire: int, dtype: torch.dtype, pipe: Connection
) -> None:
    arena = Arena(os.open(file, os.O_RDWR | os.O_CLOEXEC), size)
    try:
        pipe.send(program(*_join(arena, rank, Shared(arena, rank), numbers, wire, dtype)))
    except BaseException as error:
        pipe.send(error)


def _join(arena: Arena, rank: int, waiting: Waiting, numbers: int, wire: int, dtype: torch.dtype) -> tuple[ArenaGroup, Tensor]:
    spans, _ = arena.map_rows(numbers * dtype.itemsize, 0)
    rows = [torch.frombuffer(span, dtype=dtype) for span in spans]
    return ArenaGroup(arena, rank, rows[rank], rows, wire, waiting), rows[rank]


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
        d = len(start)
        self.params, self.grads = row[:d], row[d : 2 * d]
        self.params.copy_(torch.tensor(start))
        self._target, self._lr = torch.tensor(target), lr

    def train(self, iterations: int | None = None) -> None:
        for _ in range(self.iterations if iterations is None else iterations):
            self.apply(self.gradient())

    def gradient(self, full: bool = False) -> Tensor:
        self.items += 1
        return torch.sub(self.params, self._target, out=self.grads)

    def apply(self, gradient: Tensor) -> None:
        self.params -= self._lr * gradient


def descend(
    rule: Rule,
    start: Sequence[float],
    targets: Sequence[Sequence[float]],
    rounds: int = 1,
    caps: Sequence[int] | None = None,
    lr: float = 0.5,
) -> list[list[list[float]]]:
    """For each round, the parameters of every `Quadratic` worker."""

    def program(group: ArenaGroup, row: Tensor) -> list[list[float]]:
        cap = caps[group.rank] if caps else rule.iterations or 1
        worker = Quadratic(group, row, start, targets[group.rank], cap, lr)
        state, seen = rule.init(worker, group), []
        for _ in range(rounds):
            worker.items = 0
            rule.round(worker, group, state)
            seen.append(worker.params.tolist())
        return seen

    courses = simulate(len(targets), program, numbers=4 * len(start), wire=2 * len(start))
    return [list(replicas) for replicas in zip(*courses, strict=True)]


# Real workers, through the real loop

AVERAGE, PLAIN, FOREVER = Average(iterations=3), Sgd(lr=0.1, batch_size=4), Stop()


def blobs(count: int = 48, features: int = 5, classes: int = 3, dtype: torch.dtype = torch.float32) -> Items:
    """Items to classify: Gaussian clouds, always the same."""
    centers, drawn = np.random.default_rng(7).normal(size=(classes, features)), np.random.default_rng(8)
    labels = drawn.integers(0, classes, count)
    inputs = centers[labels] + 0.5 * drawn.normal(size=(count, features))
    return Items(torch.tensor(inputs, dtype=dtype), torch.tensor(labels), 1.0, dtype)


def line(inputs: Sequence[float], targets: Sequence[float]) -> Items:
    """Items to fit: one number each."""
    return Items(torch.tensor(inputs)[:, None], torch.tensor(targets)[:, None], 1.0)


class OneWeight(nn.Module):
    """y = w x: the loss of one item is (w x - y)^2, its gradient 2 x (w x - y)."""

    def __init__(self, w: float = 16.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w]))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


def mlp() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def restless() -> nn.Module:
    """A network with all that a snapshot must hold and a seed must repeat: BatchNorm's statistics, dropout."""
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 3))


@dataclass
class Snapshot:
    """Where a training stood."""

    progress: Progress
    arrays: dict[str, NDArray[Any]]

    def without(self, path: str) -> Snapshot:
        """As if this array had been forgotten."""
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
    """A training in one process, without a coordinator: `loop.run` over `LocalWorker`s."""

    rule: Rule = AVERAGE
    optimizer: AnyOptimizer = PLAIN
    network: Callable[[], nn.Module] = mlp
    items: Items = field(default_factory=blobs)
    partitions: Sequence[Sequence[int]] = (range(22), range(22, 48))
    """Items of each worker."""
    caps: Sequence[int] | None = None
    """Iterations of each worker per round; default: those of the rule."""
    held_out: Items | None = None
    seed: int = 0
    horizon: int | None = None
    stop: Stop = FOREVER
    twins: bool = False
    """Every worker draws as worker 0 does."""
    words: Sequence[int] = ()
    """What worker 0 is told at the end of each round."""

    def run(self, rounds: int = 3, since: Snapshot | None = None) -> tuple[list[Trained], Snapshot]:
        """Train for so many rounds in all, from the beginning or from a snapshot; every worker, and the last snapshot."""
        with torch.random.fork_rng():
            spans, taken = self.spans, self.nothing()
            size = len(self.partitions)
            members = simulate(
                size,
                lambda group, row: self.train(group, row, rounds, taken, since),
                spans.numbers,
                spans.wire,
                spans.layout.dtype,
            )
            return members, taken

    def train(self, group: ArenaGroup, row: Tensor, rounds: int, taken: Snapshot, since: Snapshot | None = None) -> Trained:
        """What one worker does; `taken` becomes the last snapshot."""
        worker, progress, desk = self.worker(group.rank, row), Progress(), Desk(taken, self.words)
        if since:
            restore(worker, since.arrays)
            progress = replace(since.progress)
        stop = self.stop.model_copy(update={"rounds": rounds})
        terms = Terms(stop, stop.judge_every or 1, [1] * group.size, rounds, False)
        ending = run(worker, group, self.rule, terms, progress, self.held_out, None, desk)
        return Trained(worker, ending, progress, desk.courses, desk.records)

    @property
    def spans(self) -> Spans:
        return spans_of(self.network(), self.optimizer)

    def nothing(self) -> Snapshot:
        """A snapshot without content."""
        slots = slot_map(self.network(), self.spans, self.rule, len(self.partitions))
        return Snapshot(Progress(), slots.view(memoryview(bytearray(slots.size))))

    def worker(self, rank: int = 0, row: Tensor | None = None) -> LocalWorker:
        """A fresh worker, over a row of its own unless given one."""
        torch.manual_seed(derive(self.seed, "init"))
        network, spans = self.network().train(), self.spans
        row = torch.zeros(spans.numbers, dtype=spans.layout.dtype) if row is None else row
        caps = self.caps or [self.cap(len(partition)) for partition in self.partitions]
        planned = sum(caps) * self.optimizer.batch_size
        return LocalWorker(
            rank, len(self.partitions), network, self.items, row, spans, self.optimizer, self.rule, self.seed,
            self.batches(rank, caps[rank]), planned, self.horizon,
        )  # fmt: skip

    def cap(self, items: int) -> int:
        """Iterations of a round on a partition of so many items."""
        return self.rule.iterations or (self.rule.passes or 1) * -(-items // self.optimizer.batch_size)

    def batches(self, rank: int, cap: int) -> Batches:
        partition = np.asarray(self.partitions[rank], dtype=np.int64)
        drawn_as = 0 if self.twins else rank
        return Batches(partition, self.optimizer.batch_size, cap, self.rule.passes is not None, self.seed, drawn_as)


class Desk:
    """A `loop.Desk` without a coordinator."""

    def __init__(self, taken: Snapshot, words: Sequence[int]) -> None:
        self.courses: list[list[float]] = []
        self.records: list[dict[str, float]] = []
        self._taken, self._words = taken, list(words)

    def began(self) -> None:
        pass

    def word(self, seconds: float) -> int:
        return self._words.pop(0) if self._words else 0

    def record(self, progress: Progress, worker: LocalWorker, times: dict[str, float]) -> None:
        self.courses.append(worker.params.tolist())
        self.records.append(times | {"round": progress.round, "items": worker.items, "iterations": worker.done, "lr": worker.lr})

    def snapshot(self, progress: Progress, worker: LocalWorker, wait: bool) -> None:
        save(worker, self._taken.arrays)
        self._taken.progress = replace(progress)


def same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots hold the same bits."""
    assert one.arrays.keys() == other.arrays.keys()
    return all(one.arrays[path].tobytes() == other.arrays[path].tobytes() for path in one.arrays)
