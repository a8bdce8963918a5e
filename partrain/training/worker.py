"""The implementation of `protocols.Worker`: a replica, a feed of batches, a gradient engine and a learning rate."""

from __future__ import annotations

import math
import operator
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from partrain.data.transforms import Augment
from partrain.optim.local import LocalOptimizer
from partrain.protocols import Rule
from partrain.seeds import derive, generator
from partrain.tasks.judged import JudgedMetrics
from partrain.tasks.task import Task
from partrain.training.average import NetworkAverage
from partrain.training.batches import Batches, Samples
from partrain.training.evaluate import evaluate
from partrain.training.faults import Faults
from partrain.training.feed import Feed
from partrain.training.gradient import engine_for
from partrain.training.learning_rate import LearningRate
from partrain.training.participation import Participation
from partrain.training.replica import Replica
from partrain.training.round_caps import RoundCaps
from partrain.training.section import Engine
from partrain.training.stream_batches import StreamBatches
from partrain.training.update_guard import UpdateGuard

FULL_GRADIENT_ITEMS = 1024
"""Items per block for the gradient of a whole partition."""
NOISE_CHUNK = 1 << 20
"""Largest number of noise values in memory at the same time."""
NAN = float("nan")


class LocalWorker:
    """One worker: it trains its replica, and counts items and seconds."""

    def __init__(
        self,
        rank: int,
        replica: Replica,
        samples: Samples,
        batches: Batches | StreamBatches,
        task: Task,
        rule: Rule,
        seed: int,
        planned_items: Sequence[int],
        horizon: int | None = None,
        engine: Engine | None = None,
        *,
        user_code: bool = False,
        metrics: JudgedMetrics | None = None,
        augment: Augment | None = None,
        faults: Faults | None = None,
        participation: Participation | None = None,
    ) -> None:
        """Make worker `rank`.

        Args:
            rank: The worker's rank, from 0.
            replica: The network over the worker's row.
            samples: All items of the training set.
            batches: The worker's partition, cut into batches in its order, or its shard of a stream.
            task: The task, which has the loss.
            rule: The sync rule, which scales the learning rate.
            seed: The job's seed.
            planned_items: Item-iterations of each worker in a full round, by rank.
            horizon: Item-iterations of all workers over which the learning rate's schedule runs.
            engine: The `[engine]` table; it has the number type of the network's operations.
            user_code: True if the network is user code, which may also draw from Python's and numpy's generators.
            metrics: The job's metrics besides loss and accuracy.
            augment: Changes the inputs of each mini-batch by a seed.
            faults: The reaction to numbers that are not finite, and the bound of updates.
            participation: The draw of the workers that train in a round. Default: the rule's draw, by the planned items.
        """
        engine = engine or Engine()
        self.rank, self.size, self._compiles = rank, len(planned_items), engine.compiled
        self.replica, self.task = replica, task
        self.params, self.grads = replica.params, replica.grads
        self.parameters = sum(field.size for field in replica.layout.params.fields)
        self.iterations = batches.iterations
        optimizer = replica.optimizer.section
        self._engine, self.uncompiled = engine_for(replica, task, optimizer.accumulate, engine)
        """The engine, and the reason why the network's code could not be compiled, or ""."""
        plain = augment is None and isinstance(batches, Batches)
        most = self._engine.most_numbered(samples) if plain else 0
        self._feed = Feed(samples, batches, reuse=self._engine.reuses_inputs, augment=augment, most_numbered=most)
        self._visits = rule.visits_per_worker or 1
        self._learning_rate = LearningRate(optimizer, rule, planned_items, batches.iterations * self._visits, horizon)
        self._seed, self._user_code, self.metrics = seed, user_code, metrics
        self._planned_items, self._participation = planned_items, participation or Participation(rule, seed, planned_items)
        self.heartbeat: Callable[[], None] = lambda: None
        """Function that signals life: called at every iteration, or after several short ones, and at times in other long work."""
        self.on_iterations: Callable[[int], None] = lambda count: None
        """Callback after a number of gradients; `gradient(full=True)` calls it once per block of FULL_GRADIENT_ITEMS items."""
        self.clock: Callable[[], float] = time.perf_counter
        """Function that returns seconds; a simulated worker's come from the simulated clock."""
        self.average: NetworkAverage | None = None
        """The average over rounds that counts as the run's network, if there is one (`ema`, `swa`)."""
        self.round_caps: RoundCaps | None = None
        """The rule that caps the iterations of each round, if there is one (`round_seconds`, `balance`)."""
        self.caps: Sequence[int] = ()
        """Caps of this round, by rank; none: the planned iterations."""
        self.total_items = self.total_iterations = 0
        self.guard = UpdateGuard(replica, faults or Faults())
        self.participants: Sequence[int] = range(self.size)
        """Ranks of the workers that train in this round, ascending."""
        self._reset_counters(0)

    def _reset_counters(self, round_number: int) -> None:
        self.round, self.active = round_number, True
        self.items = self.done = self.discarded = self._applied = 0
        """Item-iterations and local iterations since the round began; undone item-iterations; calls of `apply`."""
        self.seconds = self.lr = 0.0
        """Seconds spent computing since the round began, and the newest learning rate."""
        self._draws = 0
        self._losses: list[Any] = []
        """Loss of each iteration of the round: a number, or a tensor () on a device that is still computing."""
        self._sizes: list[int] = []
        self.guard.begin()
        self._mean_loss = (0, NAN)
        """Cache of `loss`: (iterations so far, value)."""

    @property
    def module(self) -> nn.Module:
        """The worker's network."""
        return self.replica.module

    @property
    def optimizer(self) -> LocalOptimizer:
        """The worker's optimizer."""
        return self.replica.optimizer

    @property
    def compiled(self) -> bool:
        """True if the network, or a part of it, trains in compiled code."""
        return self._engine.compiled

    @property
    def samples(self) -> Samples:
        """All items of the training set; the worker's partition is a part of them."""
        return self._feed.samples

    @property
    def batches(self) -> Batches | StreamBatches:
        """The worker's partition, cut into batches in its order, or its shard of a stream."""
        return self._feed.batches

    @property
    def sits_out(self) -> bool:
        """True if the worker does not train in this round, because others do (`clients`, `ramp_workers`)."""
        return self.rank not in self.participants

    @property
    def partition_size(self) -> int:
        """Number of items in the worker's partition."""
        assert self.batches.size is not None  # a job's checks refuse streams of unknown length here
        return self.batches.size

    def begin(self, round_number: int, item_iterations: int, caps: Sequence[int] = ()) -> None:
        """Start a round (from 1). `item_iterations` of all workers so far place the learning rate's schedule.

        `caps`: each worker's local iterations in this round, if `round_caps` decided them.
        """
        self._reset_counters(round_number)
        self.caps = caps
        planned = self._planned_items
        if self.round_caps and caps:
            self.batches.limit(caps)
            planned = self.round_caps.items(planned, caps)
        self.participants = self._participation.of(round_number)
        self.active = not self.sits_out
        self._feed.begin(round_number)
        self.iterations = self.batches.iterations
        self._learning_rate.plan(planned, self.iterations * self._visits)
        self._learning_rate.begin(round_number, item_iterations, self.participants)
        self.lr = self._learning_rate.at(0.0)

    def train(self, iterations: int | None = None) -> None:
        """Run local iterations, each an optimizer step on the next mini-batch."""
        if not self.active:
            return
        before, counts = self.guard.before(), self._counts()
        began = self.clock()
        self._seed_generators()
        count = self.iterations if iterations is None else iterations
        for piece in self._feed.pieces(count):
            rates = self._learning_rate.after(self.done, len(piece.sizes))
            for losses, sizes in self._engine.train(piece, rates, self._iterations):
                self._note(losses, sizes)
                self.done += len(sizes)
            self.lr = rates[-1]
        self.replica.sync_replaced_buffers()
        self._count_seconds(began)
        if self.guard.check_update(before, self._has_finite_loss):
            self._take_back(*counts)

    def gradient(self, *, full: bool = False) -> Tensor:
        """Compute g_i(x_i) (d,) on the next mini-batch, or the mean over the whole partition. The next call overwrites it."""
        if not self.active:
            return self.grads.zero_()
        before, counts = self.guard.before(gradient=True), self._counts()
        began = self.clock()
        self._seed_generators()
        if full:
            self._full_gradient()
        else:
            (piece,) = self._feed.pieces(1)
            self._note([self._engine.gradient(piece, self._iterations)], piece.sizes)
        self.done += 1
        self.replica.sync_replaced_buffers()
        self._count_seconds(began)
        if self.guard.check_gradient(before, self._has_finite_loss, self.grads):
            self._take_back(*counts)
        return self.grads

    def apply(self, gradient: Tensor) -> None:
        """Take one step of the local optimizer with this gradient (d,)."""
        began = self.clock()
        self._applied += 1
        self.lr = self._learning_rate.at(self._applied - 0.5)  # a worker without items takes the others' steps
        if gradient is self.grads:
            self._engine.step(self.lr)
        else:
            self.replica.step(gradient, self.lr)
        self._count_seconds(began)

    def add_noise(self, multiplier: float) -> None:
        """Add Gaussian noise to the parameters, the same on all workers. The padding between tensors stays zero."""
        assert self.guard.bound is not None  # a job's checks refuse noise without it
        draw, deviation = self.draw("noise", common=True), multiplier * self.guard.bound
        for view in self.replica.layout.params.views(self.params):
            for part in torch.split(view.view(-1), NOISE_CHUNK):
                noise = torch.from_numpy(draw.standard_normal(len(part)) * deviation)
                part.add_(noise.to(part.dtype).to(part.device))  # rounded on the CPU: the same bits on each device

    def loss(self) -> float:
        """Return the mean training loss over the items of the round."""
        if not self._losses:
            return NAN
        if self._mean_loss[0] != len(self._losses):
            losses = torch.stack(self._losses).tolist() if isinstance(self._losses[0], Tensor) else self._losses
            self._mean_loss = len(losses), float(sum(map(operator.mul, losses, self._sizes)) / sum(self._sizes))
        return self._mean_loss[1]

    def draw(self, *purpose: str | int, common: bool = False) -> np.random.Generator:
        """Return randomness for one purpose in this round: this worker's own, or the same for all workers."""
        return generator(self._seed, "rule", *purpose, self.round, -1 if common else self.rank)

    def evaluate(self, samples: Samples, span: range) -> tuple[float, float]:
        """Sum the loss and count the correct answers over a range of items, in evaluation mode."""
        self.module.eval()
        sums = evaluate(self.module, self.task, samples, span, self.heartbeat, self.metrics, compiled=self._compiles)
        self.module.train()
        return sums

    def close_round(self) -> None:
        """Add the round to the totals. Raises UserCodeFailed if user code has taken the module's parameters out of the row."""
        if self._user_code:
            self.replica.check_module(f"worker {self.rank}, round {self.round}")
        self.total_items += self.items
        self.total_iterations += self.done

    def _counts(self) -> tuple[int, int, int]:
        return self.items, self.done, len(self._losses)

    def _has_finite_loss(self) -> bool:
        return not self._losses or math.isfinite(self.loss())

    def _take_back(self, items: int, done: int, losses: int) -> None:
        """Count only the first items, iterations and losses of the round, and train no more in it."""
        self.discarded += self.items - items
        self.items, self.done, self.active = items, done, False
        del self._losses[losses:], self._sizes[losses:]

    @property
    def _iterations(self) -> int:
        """Local iterations since the run began."""
        return self.total_iterations + self.done

    def _note(self, losses: Sequence[float | Tensor], sizes: Sequence[int]) -> None:
        """Record the losses of mini-batches of these sizes."""
        self._losses += losses
        self._sizes += sizes
        self.items += sum(sizes)
        self.heartbeat()
        self.on_iterations(len(sizes))

    def _full_gradient(self) -> None:
        """Write the mean gradient over the partition into the row, block by block in a fixed order."""
        for number, (inputs, targets) in enumerate(self._feed.partition(FULL_GRADIENT_ITEMS)):
            share = len(targets) / self.partition_size
            self._note([self._engine.add_gradient(inputs, targets, self._iterations, share, add=number > 0)], [len(targets)])

    def _count_seconds(self, began: float) -> None:
        """Add the time since `began`, after waiting for an accelerator: otherwise its work would count as mixing."""
        if self.replica.accelerator:
            self.replica.accelerator.synchronize()
        self.seconds += self.clock() - began

    def _seed_generators(self) -> None:
        """Seed the default generators for dropout and the like, again at each call."""
        if not self._engine.draws:
            return
        seed = derive(self._seed, "draws", self.rank, self.round, self._draws)
        self._draws += 1
        if self._user_code:
            random.seed(seed)
            np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if self.replica.accelerator:
            self.replica.accelerator.seed(seed)
