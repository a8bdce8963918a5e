"""A run as one worker sees it: rounds of training and mixing until a stop condition holds.

All decisions here follow from numbers that are the same on every worker, so synchronous workers never disagree. Worker 0 receives
time limits and snapshot requests, every worker receives requests to stop. At the end of each round they share these signals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import IntFlag
from functools import partial
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from partrain.comm.group import ArenaGroup, Closing, NothingToMix
from partrain.errors import Diverged
from partrain.protocols import Rule
from partrain.record.final_scores import FinalScores
from partrain.record.round_record import NAN, RoundRecord
from partrain.training.batches import Samples
from partrain.training.buffers import pool as pool_buffers
from partrain.training.buffers import recalibrate, shared_buffers
from partrain.training.gathering import gather
from partrain.training.stop import Criterion, Progress, Stop
from partrain.training.worker import LocalWorker


class Signal(IntFlag):
    """Signals from the coordinator to a worker, since the previous round."""

    STOP = 1
    """The user wants the run to end."""
    OUT_OF_TIME = 2
    """`[stop] seconds` are over."""
    SNAPSHOT_WANTED = 4
    """The checkpoint writer could take a snapshot, and a slot is free."""
    COPY_WANTED = 8
    """The newest copy of the state in memory is old: after the loss of a worker, much would have to run again."""
    CHECKPOINT_ASKED = 16
    """The user wants a checkpoint of this round, and a slot is free."""


class RunHooks(Protocol):
    """The worker's hooks to the coordinator."""

    def training_started(self) -> None:
        """Report that the first local iteration is about to run."""

    def training_finished(self) -> None:
        """Report the end of training. The evaluation of a test set, if there is one, follows."""

    def poll(self, seconds: float) -> Signal:
        """Ask the coordinator for signals, after this many seconds of training."""

    def after_judgement(self, progress: Progress, *, best: bool, worker: LocalWorker) -> bool:
        """Call the user's function on worker 0, whose module shows the judged network; return True if it asks all workers to stop."""

    def show_round(self, number: int, worker: LocalWorker) -> bool:
        """Let the module of every worker show the network of an earlier round, for good; False if its checkpoint is gone."""

    def record(self, progress: Progress, record: RoundRecord) -> None:
        """Hand over this worker's record of the round."""

    def snapshot(
        self, progress: Progress, worker: LocalWorker, state: Any, seconds: float, *, durable: bool, reason: str | None
    ) -> None:
        """Copy this worker's part of the state, after `seconds` of training, to a slot and offer it.

        `durable`: it will become a file. `reason`: for the end of training, if this was its last round.
        """


@dataclass(frozen=True)
class LoopConfig:
    """The parts of a job that the loop needs."""

    stop: Stop
    judge_every: int
    """Rounds between two evaluations on held-out items."""
    snapshot_every: int
    """Rounds between two snapshots."""
    wait_for_files: bool
    """Each round waits for its checkpoint."""
    ended: str | None = None
    """Reason for the end of training, if all rounds are done and only the test is left."""
    after_judgement: bool = False
    """True if the job has a user function to call after each judgement."""
    compares: bool = False
    """True if single answers of the run's network are compared with trivial answers: without a test set, on the held-out items."""
    best_by: Criterion | None = None
    """The number that decides which judgement is the best; None: accuracy, or loss without it."""


ITEMS, SIGNAL, EXCLUDED, SQUARE, FEWEST, MOST = range(6)
"""Columns of the numbers that workers exchange at a round's end, in the order of `_numbers`."""


@dataclass
class Ending:
    """The end of training."""

    reason: str
    """`target`, a limit of the stop table, `asked`, or, if the user's function asked, `after_judgement`."""
    seconds: float
    """Seconds from the start of the first round to the end of the last one, including its evaluation."""
    test: FinalScores | None = None
    """The numbers on the test set."""

    @property
    def reached(self) -> bool:
        """True if a target ended the training."""
        return self.reason == "target"


@dataclass
class WorkerRun:
    """A run as one worker sees it."""

    worker: LocalWorker
    group: ArenaGroup
    rule: Rule
    state: Any
    """The rule's state."""
    config: LoopConfig
    progress: Progress
    held_out: Samples | None
    test: Samples | None
    hooks: RunHooks
    began: float = 0.0
    """Moment of the first local iteration, by the run's clock."""

    def train(self) -> Ending:
        """Train until a stop condition holds.

        One pass of the loop is one round: train and mix, exchange signals, judge, record, snapshot (the coordinator has it written as a
        checkpoint). The last round is offered as a snapshot. It is evaluated first if a limit ended the run.
        """
        worker, group, config, progress, held_out, hooks = (
            self.worker, self.group, self.config, self.progress, self.held_out, self.hooks,
        )  # fmt: skip
        group.barrier()
        self.began = group.transport.run_clock()
        with group.transport.free():
            group.barrier()  # workers of a process take turns: none trains before all have begun
        hooks.training_started()
        if config.ended:
            return self._tested(Ending(config.ended, 0.0))
        while True:
            progress.round += 1
            evaluation_due = held_out is not None and progress.round % config.judge_every == 0
            record = self._train_and_mix(measure=evaluation_due)
            waited = group.waited
            items, signal, record.distance = self._exchange()
            if caps := worker.plan.round_caps:
                progress.caps = caps.decide(progress.round + 1, progress.caps, group.scores(worker.done, worker.seconds))
            record.wait = (
                0.0 if worker.plan.sits_out else record.wait + group.waited - waited
            )  # the first meeting, if the rule had no other
            progress.item_iterations += items
            self._update_average()
            limit = config.stop.limit(progress, out_of_time=Signal.OUT_OF_TIME in signal)
            best = reached = stopped_by_hook = False
            if held_out is not None and (evaluation_due or limit):  # not for STOP: a resumed run would have another evaluation
                loss, accuracy, metrics = self.evaluate(held_out, self.shown())
                best = progress.judge(loss, accuracy, metrics, by=config.best_by, regular=evaluation_due)
                limit = limit or config.stop.limit(progress, out_of_time=False)
                if not math.isfinite(loss):
                    raise Diverged(f"round {progress.round}: the judged loss is {loss}, though all parameters are finite numbers")
                record.judged_loss, record.accuracy, record.best = loss, NAN if accuracy is None else accuracy, int(best)
                if config.after_judgement:
                    with group.transport.free(), self.mixed():
                        stopped_by_hook = hooks.after_judgement(progress, best=best, worker=worker)
                reached = config.stop.reached(progress)
            record.seconds = seconds = group.transport.run_clock() - self.began
            hooks.record(progress, record)
            reason = "target" if reached else limit or ("asked" if Signal.STOP in signal else None)
            reason = reason or ("after_judgement" if stopped_by_hook else None)
            regular = progress.round % config.snapshot_every == 0
            regular = regular and (config.wait_for_files or Signal.SNAPSHOT_WANTED in signal)
            durable = bool(reason or best or regular or Signal.CHECKPOINT_ASKED in signal)
            if durable or Signal.COPY_WANTED in signal:
                with group.transport.free(), self.mixed():
                    hooks.snapshot(progress, worker, self.state, seconds, durable=durable, reason=reason)
            if reason:
                return self._tested(Ending(reason, seconds))

    def _tested(self, ending: Ending) -> Ending:
        """Evaluate the run's network on the test set, if there is one: the best judged round's, or the newest without judgements.

        Without a test set the network answers the held-out items once more, if its answers are compared with others.
        """
        self.hooks.training_finished()
        items = self.test or (self.held_out if self.config.compares else None)
        if items is None:
            return ending
        newest = self.progress.round
        best = self.progress.best_round or newest
        shows_best = best != newest and self.hooks.show_round(best, self.worker)
        network = nullcontext() if shows_best else self.shown()
        scores = FinalScores(best if shows_best else newest, *self.evaluate(items, network))
        return replace(ending, test=scores) if self.test else ending

    def _train_and_mix(self, *, measure: bool) -> RoundRecord:
        """Run the rule's round, then sync optimizer state and buffers. Return the record, still without judgement."""
        worker, group, rule, progress = self.worker, self.group, self.rule, self.progress
        began, waited = worker.clock(), group.waited
        closes = rule.keeps_replicas_equal and (rule.mixes_once or (worker.iterations == 1 and self._steps_alike))
        group.begin(self._closing if closes else None, measure=measure)
        worker.begin(progress.round, progress.item_iterations, progress.caps)
        group.transport.begin_round(len(worker.participants), sits_out=worker.plan.sits_out)
        try:
            rule.round(worker, group, self.state)
        except NothingToMix:
            raise worker.guard.none_left(worker.rank, worker.round) from None
        if worker.items and not math.isfinite(worker.loss()):  # averages check what they mix; other messages would hide it
            raise Diverged(
                f"worker {worker.rank}, round {progress.round}: the training loss is {worker.loss()}; lower the learning rate"
            )
        worker.guard.check_mixed(rule, progress.round)
        self._sync_optimizer_state_and_buffers()
        if measure and not rule.keeps_replicas_equal:
            group.compare(worker.params)
        worker.close_round()
        waited = group.waited - waited
        return RoundRecord(
            round=progress.round,
            iterations=worker.done,
            items=worker.items,
            loss=worker.loss(),
            lr=worker.lr,
            compute=worker.seconds,
            wait=waited,
            mix=max(0.0, worker.clock() - began - worker.seconds - waited),
            distance=NAN,
            bytes=0 if worker.plan.sits_out else group.bytes,
            staleness=group.staleness,
            seconds=NAN,
            clipped_norm=worker.guard.clipped_norm,
            excluded=worker.guard.excluded,
            discarded=worker.tally.discarded,
            cap=worker.iterations if worker.plan.round_caps else NAN,
        )

    def _sync_optimizer_state_and_buffers(self) -> None:
        """Apply `optimizer_state` and `buffers` of `[sync]` after a round; first undo differences in the rounding of equal steps."""
        worker, group, rule = self.worker, self.group, self.rule
        weight, optimizer = rule.weight(worker.items), worker.optimizer
        if rule.averages_gradients and not group.uniform:
            group.broadcast(worker.params)
        if rule.optimizer_state == "reset":
            optimizer.reset()
        elif rule.optimizer_state == "average" and optimizer.moments.numel() and not self._steps_alike:
            if group.closed is None:
                group.all_reduce_mean(optimizer.moments.view(-1), weight)
            if optimizer.counts_steps:
                _count_steps_alike(optimizer.counts, group)
        if worker.replica.has_buffers and rule.buffers != "local":
            pool_buffers(worker.module, group, weight, f"worker {worker.rank}, round {worker.round}")

    @property
    def _steps_alike(self) -> bool:
        """True if the steps of all workers are equal to the bit."""
        return self.rule.averages_gradients and self.group.uniform

    def _closing(self) -> Closing:
        """Return everything that the round's mean carries: the numbers of the round's end, and the optimizer's state."""
        moments, rule = self.worker.optimizer.moments.view(-1), self.rule
        state = moments if rule.optimizer_state == "average" and rule.mixes_once and moments.numel() else None
        return Closing(self._numbers(), state, rule.weight(self.worker.items))

    def _numbers(self) -> tuple[float, ...]:
        """Return the worker's numbers at the end of a round: item-iterations, signals, exclusion, squared distance, its optimizer's fewest and most steps."""
        worker = self.worker
        signal, optimizer = self.hooks.poll(self.group.transport.run_clock() - self.began), worker.optimizer
        steps = map(float, optimizer.counts.aminmax()) if optimizer.counts_steps else (0.0, 0.0)
        return worker.items, signal, worker.guard.excluded, self.group.distance**2, *steps

    def _exchange(self) -> tuple[int, Signal, float]:
        """Exchange the numbers of all workers, unless a mean has closed the round: items, all signals, consensus distance."""
        worker, group = self.worker, self.group
        board = group.board(*self._numbers()) if group.closed is None else group.closed
        items, signals, excluded, squares, *_ = board.sum(0).tolist()  # one call: most rounds need no more of the columns
        if excluded and board[worker.rank, EXCLUDED] and not board[board[:, EXCLUDED] == 0, ITEMS].any():
            raise worker.guard.none_left(worker.rank, worker.round)
        distance = NAN if math.isnan(squares) else math.sqrt(fmean(board[:, SQUARE].tolist()))
        signal = Signal(int(np.bitwise_or.reduce(board[:, SIGNAL].astype(int))) if signals else 0)
        return int(items), signal, distance

    def _update_average(self) -> None:
        """Add the mixed network of the round to the average over rounds, if there is one."""
        worker, group, rule = self.worker, self.group, self.rule
        if not worker.average:
            return
        iterations = max(int(done) for (done,) in group.scores(worker.done))
        worker.average.update(rule.result(worker, group, self.state), iterations, self.progress.item_iterations)
        if not rule.synchronous:
            group.barrier()  # no worker changes the center while another reads it

    @contextmanager
    def mixed(self) -> Iterator[None]:
        """Let the worker's module show the run's network for a while: the mixed one, or its average over rounds."""
        worker, group = self.worker, self.group
        if worker.average and worker.average.count:
            with worker.average.shown():
                if worker.average.recalibrates:
                    recalibrate(worker, group)
                yield
            return
        with worker.replica.swapped_params(self.rule.result(worker, group, self.state)):
            if self.rule.buffers == "recalibrate":
                recalibrate(worker, group)
            yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let the modules of all workers show the run's network, with the same buffers."""
        with self.mixed(), shared_buffers(self.worker, self.group, self.rule):
            yield

    def evaluate(self, samples: Samples, network: AbstractContextManager[None]) -> tuple[float, float | None, dict[str, float]]:
        """Evaluate the network that modules show within `network` on some items. Return loss, accuracy, metrics.

        Workers share the items in proportion to those that the round plans for them.
        """
        worker, group, count = self.worker, self.group, len(samples.targets)
        with network:
            loss, correct = worker.evaluate(samples, own_part(worker.plan.items, count, worker.rank))
        losses, correct_answers = (column.tolist() for column in group.board(loss, correct).T)
        task, judged = worker.evaluator.task, worker.evaluator.metrics
        accuracy = sum(correct_answers) / count if task.accuracy else None
        metrics = judged.compute(partial(gather, group)) if judged else {}
        return sum(losses) / count, accuracy, metrics


def _count_steps_alike(counts: Tensor, group: ArenaGroup) -> None:
    """Set each tensor's optimizer steps (p,) to their maximum over all workers; only if tensors differ do workers send them all."""
    ranges = group.board(*map(float, counts.aminmax())) if group.closed is None else group.closed[:, FEWEST:]
    if (ranges[:, 0] == ranges[:, 1]).all():
        counts.fill_(float(ranges.max()))
    else:
        counts.copy_(torch.stack(group.all_gather(counts.cpu())).amax(0))


def own_part(counts: Sequence[int], total: int, rank: int) -> range:
    """Cut `total` items into consecutive ranges in proportion to `counts`, and return that of a worker."""
    whole, before = sum(counts), sum(counts[:rank])
    return range(total * before // whole, total * (before + counts[rank]) // whole)
