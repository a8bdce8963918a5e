"""A run, as one worker sees it: rounds of training and mixing until a stop condition holds.

Everything decided here is decided from numbers that all workers see alike, so synchronous workers never disagree; what
only a clock or the user can say (time is up, Ctrl-C, a snapshot is welcome) is said by a worker to whom it was told, and read by all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, Protocol

from partrain.comm.group import ArenaGroup
from partrain.errors import Diverged
from partrain.protocols import Rule
from partrain.train.batches import Samples
from partrain.train.buffers import pool as pool_buffers
from partrain.train.buffers import recalibrate, shared_buffers
from partrain.train.stop import Progress, Stop
from partrain.train.worker import LocalWorker

RUN, STOP, LATE, WELCOME = 0, 1, 2, 4
"""Bits of worker 0's word: the user wants the run to end; the time is up; a snapshot is welcome and a slot is free."""


class RunHooks(Protocol):
    """The way to the coordinator."""

    def began(self) -> None:
        """The first local iteration is about to run."""

    def over(self) -> None:
        """Training is over: what is left is the test."""

    def word(self, seconds: float) -> int:
        """What the user says now; to worker 0 also what clock and writer say, after this many seconds of training."""

    def record(self, progress: Progress, worker: LocalWorker, times: dict[str, float]) -> None:
        """This worker's line about the round."""

    def snapshot(self, progress: Progress, worker: LocalWorker, state: Any, wait: bool) -> None:
        """Copy this worker's part of the state to a slot and offer it; `wait` until it is on disk."""


@dataclass(frozen=True)
class LoopConfig:
    """What the loop needs of a job."""

    stop: Stop
    judge_every: int
    shares: Sequence[int]
    """Planned item-iterations of each worker: judging is shared out alike."""
    snapshot_every: int
    wait_for_files: bool


@dataclass
class Ending:
    """How training ended."""

    reason: str
    """`target`, a limit of the stop table, or `asked`."""
    reached: bool
    seconds: float
    """From the first local iteration to the final judged mixed network."""
    test: tuple[float, float | None] | None
    """Loss and accuracy on the test set."""


def run(
    worker: LocalWorker,
    group: ArenaGroup,
    rule: Rule,
    state: Any,
    terms: LoopConfig,
    progress: Progress,
    held_out: Samples | None,
    test: Samples | None,
    desk: RunHooks,
) -> Ending:
    """Train until a stop condition holds; the last round is judged and offered as a snapshot."""
    group.barrier()
    began = worker.clock()
    desk.began()
    while True:
        progress.round += 1
        due = held_out is not None and progress.round % terms.judge_every == 0
        times = _round(worker, group, rule, state, progress, measure=due)
        waited = group.waited
        seen, word = _exchange(worker, group, desk, terms, began)
        times["wait"] += group.waited - waited  # the first meeting, where the rule has had none
        progress.item_iterations += sum(int(items) for items, _ in seen)
        asked = bool(word & STOP)
        limit = terms.stop.limit(progress, bool(word & LATE))
        best = False
        if terms.stop.judge == "any-worker":
            best = progress.judge(min(loss for items, loss in seen if items), None)
        elif held_out is not None and (due or limit):  # not when asked to stop: a resumed run would have one judgement more
            best = progress.judge(*evaluate(worker, group, rule, state, terms, held_out), regular=due)
            limit = limit or terms.stop.limit(progress, False)
        if progress.judged_round == progress.round and not math.isfinite(progress.loss or 0.0):
            raise Diverged(
                f"round {progress.round}: the judged loss is {progress.loss}, though all parameters are finite numbers"
            )
        reached = progress.judged_round == progress.round and terms.stop.reached(progress)
        seconds = worker.clock() - began
        desk.record(progress, worker, times | {"seconds": seconds})
        ending = "target" if reached else limit or ("asked" if asked else None)
        regular = progress.round % terms.snapshot_every == 0 and (terms.wait_for_files or word & WELCOME)
        if ending or best or regular:
            with group.waiting.free(), mixed(worker, group, rule, state):
                desk.snapshot(progress, worker, state, wait=terms.wait_for_files)
        if ending:
            desk.over()
            score = evaluate(worker, group, rule, state, terms, test) if test else None
            return Ending(ending, reached, seconds, score)


def _round(worker: LocalWorker, group: ArenaGroup, rule: Rule, state: Any, progress: Progress, measure: bool) -> dict[str, float]:
    """One round of the rule and of what goes with the parameters: seconds computing, waiting and mixing, bytes, distances."""
    began, waited = worker.clock(), group.waited
    group.begin(measure)
    worker.begin(progress.round, progress.item_iterations)
    rule.round(worker, group, state)
    if worker.items and not math.isfinite(worker.loss()):  # means look at what they mix; other messages would hide it
        raise Diverged(
            f"worker {worker.rank}, round {progress.round}: the training loss is {worker.loss()}; lower the learning rate"
        )
    sync_optimizer_state_and_buffers(worker, group, rule)
    if measure and not rule.keeps_replicas_equal:
        group.compare(worker.params)
    worker.close_round()
    waited = group.waited - waited
    mixing = max(0.0, worker.clock() - began - worker.seconds - waited)
    return {
        "compute": worker.seconds,
        "wait": waited,
        "mix": mixing,
        "distance": group.distance,
        "bytes": float(group.bytes),
        "staleness": group.staleness,
    }


def sync_optimizer_state_and_buffers(worker: LocalWorker, group: ArenaGroup, rule: Rule) -> None:
    """What becomes of moments and buffers when replicas are mixed: the base keys of `[sync]`."""
    weight = rule.weight(worker.items)
    optimizer = worker.optimizer
    if rule.optimizer_state == "reset":
        optimizer.reset()
    elif rule.optimizer_state == "average" and optimizer.moments.numel():
        group.all_reduce_mean(optimizer.moments.view(-1), weight)
        if optimizer.counts_steps:
            optimizer.steps = int(max(steps for (steps,) in group.scores(optimizer.steps)))
    if worker.buffered and rule.buffers != "local":
        pool_buffers(worker.module, group, weight, f"worker {worker.rank}, round {worker.round}")


def _exchange(
    worker: LocalWorker, group: ArenaGroup, desk: RunHooks, terms: LoopConfig, began: float
) -> tuple[list[tuple[float, float]], int]:
    """Items and training loss of every worker, and what all have been told."""
    word = desk.word(worker.clock() - began)
    newest = worker.batches.per_pass if terms.stop.judge == "any-worker" else 0
    seen = group.scores(worker.items, worker.loss(newest), word)
    return [(items, loss) for items, loss, _ in seen], reduce(or_, (int(word) for _, _, word in seen))


@contextmanager
def mixed(worker: LocalWorker, group: ArenaGroup, rule: Rule, state: Any) -> Iterator[None]:
    """For a while, the worker's module is the network that counts."""
    with worker.showing(rule.result(worker, group, state)):
        if rule.buffers == "recalibrate":
            recalibrate(worker, group)
        yield


def evaluate(
    worker: LocalWorker, group: ArenaGroup, rule: Rule, state: Any, terms: LoopConfig, items: Samples
) -> tuple[float, float | None]:
    """Mean loss and accuracy of the mixed network on some items, each worker judging its part."""
    count = len(items.targets)
    with mixed(worker, group, rule, state), shared_buffers(worker, group, rule):
        loss, correct = worker.evaluate(items, fractions(terms.shares, count)[worker.rank])
    sums = group.scores(loss, correct)
    accuracy = sum(correct for _, correct in sums) / count if worker.task.accuracy else None
    return sum(loss for loss, _ in sums) / count, accuracy


def fractions(counts: Sequence[int], total: int) -> list[range]:
    """Cut `total` things in proportion to counts, without gaps: consecutive ranges."""
    whole, ends, so_far = sum(counts), [0], 0
    for count in counts:
        so_far += count
        ends.append(total * so_far // whole)
    return [range(first, last) for first, last in pairwise(ends)]
