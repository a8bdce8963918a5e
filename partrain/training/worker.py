"""The implementation of `protocols.Worker`: a replica, the plan of its rounds, a feed of batches and a gradient engine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from partrain.data.transforms import Augment
from partrain.optim.local import LocalOptimizer
from partrain.seeds import derive, generator
from partrain.training.average import NetworkAverage
from partrain.training.batches import Batches, Samples
from partrain.training.evaluate import Evaluator
from partrain.training.faults import Faults
from partrain.training.feed import Feed
from partrain.training.gradient import engine_for
from partrain.training.replica import Replica
from partrain.training.round_plan import RoundPlan
from partrain.training.section import Engine
from partrain.training.stream_batches import StreamBatches
from partrain.training.tally import RoundCounts, WorkerTally
from partrain.training.update_guard import UpdateGuard

FULL_GRADIENT_ITEMS = 1024
"""Items per block for the gradient of a whole partition."""
NOISE_CHUNK = 1 << 20
"""Largest number of noise values in memory at the same time."""


@dataclass
class Callbacks:
    """The functions that a worker calls while it trains. A process of a run sets its own."""

    heartbeat: Callable[[], None] = lambda: None
    """Signals life: called at every iteration, or after several short ones, and at times in other long work."""
    on_iterations: Callable[[int], None] = lambda count: None
    """Called after a number of gradients; `gradient(full=True)` calls it once per block of FULL_GRADIENT_ITEMS items."""
    clock: Callable[[], float] = time.perf_counter
    """Returns seconds; a simulated worker's come from the simulated clock."""


class LocalWorker:
    """One worker: it trains its replica by the plan of each round, and counts items and seconds."""

    def __init__(
        self,
        replica: Replica,
        samples: Samples,
        plan: RoundPlan,
        evaluator: Evaluator,
        seed: int,
        engine: Engine | None = None,
        *,
        user_code: bool = False,
        augment: Augment | None = None,
        faults: Faults | None = None,
    ) -> None:
        """Make a worker.

        Args:
            replica: The network over the worker's row.
            samples: All items of the training set.
            plan: The plan of its rounds, which has its rank and batches.
            evaluator: The evaluation of its module; it has the task, which has the loss.
            seed: The job's seed.
            engine: The `[engine]` table; it has the number type of the network's operations.
            user_code: True if the network is user code, which may also draw from Python's and numpy's generators.
            augment: Changes the inputs of each mini-batch by a seed.
            faults: The reaction to numbers that are not finite, and the bound of updates.
        """
        self.rank, self.size = plan.rank, plan.size
        self.replica, self.plan, self.evaluator = replica, plan, evaluator
        self.params, self.grads = replica.params, replica.grads
        self.parameters = sum(field.size for field in replica.layout.params.fields)
        accumulate, batches = replica.optimizer.section.accumulate, plan.batches
        self._engine, self.uncompiled = engine_for(replica, evaluator.task, accumulate, engine or Engine())
        """The engine, and the reason why the network's code could not be compiled, or ""."""
        plain = augment is None and isinstance(batches, Batches)
        most = self._engine.most_numbered(samples) if plain else 0
        self._feed = Feed(samples, batches, reuse=self._engine.reuses_inputs, augment=augment, most_numbered=most)
        self._seed, self._user_code = seed, user_code
        self.callbacks = Callbacks()
        self.average: NetworkAverage | None = None
        """The average over rounds that counts as the run's network, if there is one (`ema`, `swa`)."""
        self.tally, self.guard = WorkerTally(), UpdateGuard(replica, faults or Faults())
        self.active, self.lr = True, 0.0
        self._applied = self._draws = 0
        """Calls of `apply`, and seeds drawn, since the round began."""

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
        return self.plan.batches

    @property
    def round(self) -> int:
        """Number of this round, from 1."""
        return self.plan.round

    @property
    def participants(self) -> Sequence[int]:
        """Ranks of the workers that train in this round, ascending."""
        return self.plan.participants

    @property
    def iterations(self) -> int:
        """Cap on local iterations: per round, or per visit under an asynchronous rule."""
        return self.plan.iterations

    @property
    def done(self) -> int:
        """Local iterations since the round began."""
        return self.tally.done

    @property
    def items(self) -> int:
        """Item-iterations since the round began."""
        return self.tally.items

    @property
    def seconds(self) -> float:
        """Seconds spent computing since the round began."""
        return self.tally.seconds

    @property
    def partition_size(self) -> int:
        """Number of items in the worker's partition."""
        assert self.batches.size is not None  # a job's checks refuse streams of unknown length here
        return self.batches.size

    def begin(self, round_number: int, item_iterations: int, caps: Sequence[int] = ()) -> None:
        """Start a round (from 1). The arguments are those of `RoundPlan.begin`."""
        self.tally.begin()
        self.guard.begin()
        self._applied = self._draws = 0
        self.plan.begin(round_number, item_iterations, caps)
        self._feed.begin()
        self.active, self.lr = not self.plan.sits_out, self.plan.learning_rate.at(0.0)

    def train(self, iterations: int | None = None) -> None:
        """Run local iterations, each an optimizer step on the next mini-batch."""
        if not self.active:
            return
        before, counts = self.guard.before(), self.tally.counts()
        began = self.clock()
        self._seed_generators()
        count = self.iterations if iterations is None else iterations
        for piece in self._feed.pieces(count):
            rates = self.plan.learning_rate.after(self.done, len(piece.sizes))
            for losses, sizes in self._engine.train(piece, rates, self.tally.iterations):
                self._note(losses, sizes)
                self.tally.done += len(sizes)
            self.lr = rates[-1]
        self.replica.sync_replaced_buffers()
        self._count_seconds(began)
        if self.guard.check_update(before, self.tally.has_finite_loss):
            self._take_back(counts)

    def gradient(self, *, full: bool = False) -> Tensor:
        """Compute g_i(x_i) (d,) on the next mini-batch, or the mean over the whole partition. The next call overwrites it."""
        if not self.active:
            return self.grads.zero_()
        before, counts = self.guard.before(gradient=True), self.tally.counts()
        began = self.clock()
        self._seed_generators()
        if full:
            self._full_gradient()
        else:
            (piece,) = self._feed.pieces(1)
            self._note([self._engine.gradient(piece, self.tally.iterations)], piece.sizes)
        self.tally.done += 1
        self.replica.sync_replaced_buffers()
        self._count_seconds(began)
        if self.guard.check_gradient(before, self.tally.has_finite_loss, self.grads):
            self._take_back(counts)
        return self.grads

    def apply(self, gradient: Tensor) -> None:
        """Take one step of the local optimizer with this gradient (d,)."""
        began = self.clock()
        self._applied += 1
        self.lr = self.plan.learning_rate.at(self._applied - 0.5)  # a worker without items takes the others' steps
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
        return self.tally.loss()

    def clock(self) -> float:
        """Read the clock in seconds, from an arbitrary start."""
        return self.callbacks.clock()

    def draw(self, *purpose: str | int, common: bool = False) -> np.random.Generator:
        """Return randomness for one purpose in this round: this worker's own, or the same for all workers."""
        return generator(self._seed, "rule", *purpose, self.round, -1 if common else self.rank)

    def evaluate(self, samples: Samples, span: range) -> tuple[float, float]:
        """Sum the loss and count the correct answers over a range of items, in evaluation mode."""
        self.module.eval()
        sums = self.evaluator.evaluate(samples, span, self.callbacks.heartbeat)
        self.module.train()
        return sums

    def close_round(self) -> None:
        """Add the round to the totals. Raises UserCodeFailed if user code has taken the module's parameters out of the row."""
        if self._user_code:
            self.replica.check_module(f"worker {self.rank}, round {self.round}")
        self.tally.close()

    def _take_back(self, counts: RoundCounts) -> None:
        """Count nothing of the round after a moment, and train no more in it."""
        self.tally.take_back(counts)
        self.active = False

    def _note(self, losses: Sequence[float | Tensor], sizes: Sequence[int]) -> None:
        """Record the losses of mini-batches of these sizes."""
        self.tally.add(losses, sizes)
        self.callbacks.heartbeat()
        self.callbacks.on_iterations(len(sizes))

    def _full_gradient(self) -> None:
        """Write the mean gradient over the partition into the row, block by block in a fixed order."""
        for number, (inputs, targets) in enumerate(self._feed.partition(FULL_GRADIENT_ITEMS)):
            share = len(targets) / self.partition_size
            self._note([self._engine.add_gradient(inputs, targets, self.tally.iterations, share, add=number > 0)], [len(targets)])

    def _count_seconds(self, began: float) -> None:
        """Add the time since `began`, after waiting for an accelerator: otherwise its work would count as mixing."""
        if self.replica.accelerator:
            self.replica.accelerator.synchronize()
        self.tally.seconds += self.clock() - began

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
