"""One replica of the network on one device: the engine behind `protocols.Worker`.

A worker's row, one dtype, P numbers per parameter vector:

    params P | gradient P | moments m x P | buffers B | wire P

Everything the rules mix is a slice of it, so mixing needs no gathering; the wire takes vectors that lie elsewhere.
"""

from __future__ import annotations

import math
import operator
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from partrain.errors import UserCodeFailed
from partrain.flat import Layout, adopt, trainable
from partrain.optim import AnyOptimizer
from partrain.optim.local import LocalOptimizer, moment_names
from partrain.protocols import Rule
from partrain.seeds import derive, generator
from partrain.tasks.kinds import KINDS, Classification, Regression, Task
from partrain.train.batches import Batches, Samples
from partrain.train.fast_mlp import MlpGradient
from partrain.train.gradient import backward_of, computing
from partrain.train.onednn import use_onednn_linear
from partrain.train.section import Precision

BLOCK_BYTES = 1 << 20
"""Items gathered at a time: iterations then train on slices of one contiguous block."""
FULL_BLOCK = 1024
"""Items at a time where the gradient of a whole partition is asked for."""
JUDGED_NUMBERS = 1 << 20
"""Numbers of the items judged at a time."""


@dataclass(frozen=True)
class RowLayout:
    """Where the parts of a row begin and end, in numbers."""

    layout: Layout
    moments: tuple[str, ...]
    buffers: Layout

    @property
    def sizes(self) -> list[int]:
        d = self.layout.size
        return [d, d, len(self.moments) * d, self.buffers.size, max(d, 2 * self.buffers.size + 64)]

    @property
    def wire(self) -> int:
        """Start of the wire."""
        return sum(self.sizes[:-1])

    @property
    def numbers(self) -> int:
        return sum(self.sizes)


def row_layout(module: nn.Module, optimizer: AnyOptimizer) -> RowLayout:
    """How a worker's row is laid out for this network and optimizer."""
    parameters = trainable(module)
    if not parameters:
        raise TypeError("the network has no parameters to train")
    dtype = parameters[0][1].dtype
    if not dtype.is_floating_point or dtype.itemsize < 4:
        raise TypeError(f"parameter `{parameters[0][0]}` is {dtype}; networks of float32 or float64 can be trained")
    floating = [(name, buffer) for name, buffer in persistent_buffers(module) if buffer.dtype == dtype]
    return RowLayout(Layout.of(parameters, dtype), moment_names(optimizer), Layout.of(floating, dtype))


def persistent_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Buffers that belong to the state dict."""
    buffers = list(module.named_buffers())
    kept = module.state_dict(keep_vars=True) if buffers else {}
    return [(name, buffer) for name, buffer in buffers if name in kept]


class LocalWorker:
    """A worker as a rule sees it, and what the loop needs to know besides."""

    def __init__(
        self,
        rank: int,
        size: int,
        module: nn.Module,
        items: Samples,
        row: Tensor,
        spans: RowLayout,
        optimizer: AnyOptimizer,
        rule: Rule,
        seed: int,
        batches: Batches,
        planned: Sequence[int],
        horizon: int | None,
        shared: Tensor | None = None,
        task: Task | None = None,
        precision: Precision = "float32",
    ) -> None:
        """`planned`: item-iterations of each worker in a full round. `shared` (d,): parameters that are not this worker's alone.
        `task`: by default what the targets imply."""
        self.rank, self.size = rank, size
        self.round = 0
        self.active = True
        self.module = module
        self.stock = items
        self.batches = batches
        self.iterations = batches.iterations
        self.items = self.done = 0
        """`done`: local iterations of this round."""
        self.planned_iterations = batches.iterations * (rule.visits_per_worker or 1)
        self.task = task or (Classification() if items.targets.dtype == torch.int64 else Regression())
        self.seconds = 0.0
        """Seconds spent computing since the round began."""
        self.lr = 0.0
        """Learning rate of the newest iteration."""
        self.total_items = 0
        self.total_iterations = 0
        self.stop_below: float | None = None
        """End the round's training once a pass has this mean loss (the older trainers' rule)."""

        self.foreign = False
        """The network is the user's own code, which may draw from Python's and numpy's generators too."""

        self.beat: Callable[[], None] = lambda: None
        """Called at every local iteration."""
        self.alive: Callable[[], None] = lambda: None
        """Called now and then by work that is no iteration, as judging is: a sign of life."""
        self.clock: Callable[[], float] = time.perf_counter
        """Seconds, simulated ones where the worker is."""

        self.params, self.grads, moments, self.buffers, _ = torch.split(row, spans.sizes)
        self.params = self.params if shared is None else shared
        adopt(module, spans.layout, self.params)
        for part in module.modules():
            if isinstance(part, nn.RNNBase):  # on CUDA this would move the weights out of the row, and no step would reach them
                part.flatten_parameters = _stay  # type: ignore[method-assign]
        self.own = self.params
        """x_i also while the module shows another network."""
        self._homes = _adopt_buffers(module, spans.buffers, self.buffers)
        self.buffered = bool(persistent_buffers(module))
        """The network has buffers to mix."""
        self.spans = spans
        self.optimizer = LocalOptimizer(optimizer, self.params, moments.view(-1, spans.layout.size), spans.layout)
        self._parameters = [parameter for _, parameter in trainable(module)]
        self._gradients = spans.layout.views(self.grads)
        self.precision = precision
        """In which the network computes; parameters, gradients and all that is mixed keep their type."""
        self._backward = backward_of(self.task, optimizer.accumulate, precision, self.params.device)
        known = type(self.task) in KINDS.values() and self.task.plain  # a task of the user's own may do anything
        self._chain = MlpGradient.of(module, self._gradients) if known and self._backward == self.task.differentiate else None
        if not self.params.is_cuda:
            use_onednn_linear(module)
        self._most = max(1, BLOCK_BYTES // max(items.inputs[:1].numel() * 4, 1))
        """Items gathered at a time, and where they go, block after block, if nobody can keep them: other networks might."""
        self._room = items.room(max(self._most, batches.batch_size)) if self._chain else None
        self._idle: set[int] = set()
        """Tensors that the newest gradient did not reach."""
        self._rule, self._seed, self._horizon = rule, seed, horizon
        self._draws = self._begun_at = 0
        self._planned, self._actives, self._expected = planned, size, 0
        self._losses: list[Any] = []
        """Of each iteration of the round: a number, or a tensor () on a device that must not be waited for."""
        self._known = (0, 0, float("nan"))
        """The mean loss last asked for: of how many iterations, of how many newest."""
        self._sizes: list[int] = []
        self._feed: Iterator[tuple[Tensor, Tensor]] = iter(())

    def begin(self, number: int, item_iterations: int) -> None:
        """Start a round (from 1): counters to zero; `item_iterations` of all workers so far place the schedule."""
        self.round, self._draws, self._begun_at = number, 0, item_iterations
        self.items, self.done, self.seconds = 0, 0, 0.0
        self._losses, self._sizes, self._known = [], [], (0, 0, float("nan"))
        self._actives = self._rule.active_workers(self.size, number)
        self.active, self._expected = self.rank < self._actives, sum(self._planned[: self._actives])
        self._scale = self._lr_scale()
        self.batches.begin(number)
        self._feed = self._blocks()
        self._rate(0.0)

    def train(self, iterations: int | None = None) -> None:
        """Local iterations, each an optimizer step on the next mini-batch."""
        if not self.active:
            return
        began = self.clock()
        self._seed_draws()
        for inputs, targets in self._take(self.iterations if iterations is None else iterations):
            gradients = self._differentiate(inputs, targets)
            self.done += 1
            self.optimizer.step(gradients, self._rate(self.done - 0.5))
            if self.stop_below is not None and self._good_pass(self.stop_below):
                break
        self.gather_buffers()
        self._count_seconds(began)

    def gradient(self, full: bool = False) -> Tensor:
        """g_i(x_i) (d,) on the next mini-batch, or the mean over the whole partition; overwritten by the next call."""
        if not self.active:
            return self.grads.zero_()
        began = self.clock()
        self._seed_draws()
        if full:
            self._full_gradient()
        else:
            ((inputs, targets),) = self._take(1)
            gradients = self._differentiate(inputs, targets)
            if self._chain is None:
                self._collect(gradients, 1.0, fresh=True)
        self.done += 1
        self.gather_buffers()
        self._count_seconds(began)
        return self.grads

    def apply(self, gradient: Tensor) -> None:
        """One step of the local optimizer with this gradient (d,)."""
        began = self.clock()
        parts = self.spans.layout.views(gradient)
        unused = {index for index in self._idle if not parts[index].any()}  # by any worker: as in `train`, it has no gradient
        rate = self._rate(max(self.done, 1) - 0.5)
        self.optimizer.step([None if index in unused else part for index, part in enumerate(parts)], rate)
        self._count_seconds(began)

    @property
    def partition_size(self) -> int:
        """Items of its partition."""
        return len(self.batches.partition)

    def draw(self, *purpose: str | int, common: bool = False) -> np.random.Generator:
        """Randomness for one purpose in this round: this worker's own, or the same for all workers."""
        return generator(self._seed, "rule", *purpose, self.round, -1 if common else self.rank)

    def gather_buffers(self) -> None:
        """Buffers that the network has replaced by other tensors come back into the row."""
        for home, name, view in self._homes:
            if home[name].data_ptr() != view.data_ptr():
                home[name] = view.copy_(home[name].detach())

    def loss(self, newest: int = 0) -> float:
        """Mean training loss over the items of the round, or of its newest iterations."""
        if not self._losses:
            return float("nan")
        if self._known[:2] != (len(self._losses), newest):
            losses, sizes = self._losses[-newest:], self._sizes[-newest:]
            losses = torch.stack(losses).tolist() if isinstance(losses[0], Tensor) else losses
            self._known = (len(self._losses), newest, float(sum(map(operator.mul, losses, sizes)) / sum(sizes)))
        return self._known[2]

    @contextmanager
    def showing(self, network: Tensor) -> Iterator[None]:
        """Let the module stand for another vector of parameters (d,) for a while; `own` are the worker's meanwhile."""
        if network.data_ptr() == self.params.data_ptr():
            yield
            return
        self.own = self.params.clone()
        self.params.copy_(network)
        yield
        self.params.copy_(self.own)
        self.own = self.params

    def evaluate(self, items: Samples, part: range) -> tuple[float, float]:
        """Sum of the loss and number of correct answers over a range of items, in evaluation mode."""
        self.module.eval()
        sums = judge(self.module, self.task, items, part, self.alive, self.precision)
        self.module.train()
        return sums

    def close_round(self) -> None:
        """Add the round to the totals."""
        self.total_items += self.items
        self.total_iterations += self.done

    def _count_seconds(self, began: float) -> None:
        """Add the time since then; a device's work is done by now, or it would count as mixing."""
        if self.params.is_cuda:
            torch.cuda.synchronize(self.params.device)
        self.seconds += self.clock() - began

    def _take(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(count):
            inputs, targets = next(self._feed)
            self.batches.position += len(targets)
            yield inputs, targets

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Mini-batches: gathered in blocks, handed out as slices."""
        for sizes in self.batches.blocks(self._most):
            index = torch.from_numpy(self.batches.draw(sum(sizes))).to(self.stock.inputs.device)
            inputs, targets = self.stock.batch(index, self._room)
            yield from zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True)

    def _differentiate(self, inputs: Tensor, targets: Tensor, whole: bool = False) -> Sequence[Tensor | None]:
        """Count the items, note the loss, return the gradient tensor by tensor: of a chain where `gradient` is to lie, unless
        it is one part of the `whole` partition's."""
        gradients: Sequence[Tensor | None] = self._gradients
        if self._chain is None or whole:
            iteration = self.total_iterations + self.done
            loss, gradients = self._backward(self.module, self._parameters, inputs, targets, iteration)
        else:
            loss = self._chain.differentiate(inputs, self.task.targets(inputs, targets))
        self._losses.append(loss.detach() if loss.is_cuda else loss.item())
        self._sizes.append(len(targets))
        self.items += len(targets)
        self.beat()
        return gradients

    def _full_gradient(self) -> None:
        """Mean gradient over the partition, block by block in a fixed order."""
        whole, step = self.batches.partition, FULL_BLOCK
        for first in range(0, len(whole), step):
            index = torch.from_numpy(whole[first : first + step]).to(self.stock.inputs.device)
            gradients = self._differentiate(*self.stock.batch(index), whole=True)
            self._collect(gradients, len(index) / len(whole), fresh=first == 0)

    def _collect(self, gradients: Sequence[Tensor | None], share: float, fresh: bool) -> None:
        """Lay gradients out in the row: replace (`fresh`) or add."""
        idle = {index for index, gradient in enumerate(gradients) if gradient is None}
        self._idle = idle if fresh else self._idle & idle
        for view, gradient in zip(self._gradients, gradients, strict=True):
            if fresh:
                view.zero_() if gradient is None else torch.mul(gradient, share, out=view)
            elif gradient is not None:
                view.add_(gradient, alpha=share)

    def _good_pass(self, loss: float) -> bool:
        """Whether a pass has just ended with a mean loss at or below this."""
        per_pass = self.batches.per_pass
        return self.done % per_pass == 0 and self.loss(per_pass) <= loss

    def _rate(self, done: float) -> float:
        """Learning rate after so many local iterations of this round, as a share of the round's planned ones."""
        so_far = self._begun_at + done / self.planned_iterations * self._expected
        self.lr = self._scale * self.optimizer.section.rate(so_far, self._horizon or 1)
        return self.lr

    def _lr_scale(self) -> float:
        """What the rule makes of the learning rate in this round."""
        count = self._actives
        scale = {"none": 1.0, "linear": float(count), "sqrt": math.sqrt(count)}[self._rule.lr_scale]
        if self._rule.warmup_rounds and self.round <= self._rule.warmup_rounds:
            return 1 + (scale - 1) * self.round / self._rule.warmup_rounds
        return scale

    def _seed_draws(self) -> None:
        """Dropout and the like: the default generators, derived anew at each call; a chain draws nothing."""
        if self._chain:
            return
        seed = derive(self._seed, "draws", self.rank, self.round, self._draws)
        self._draws += 1
        if self.foreign:
            random.seed(seed)
            np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if self.params.is_cuda:
            torch.cuda.default_generators[self.params.device.index or 0].manual_seed(seed)


def judge(
    module: nn.Module,
    task: Task,
    items: Samples,
    part: range,
    alive: Callable[[], None] = lambda: None,
    precision: Precision = "float32",
) -> tuple[float, float]:
    """Sum of the loss and number of correct answers of a network in evaluation mode over a range of items."""
    loss, correct = 0.0, 0.0
    chunk = max(16, min(1024, JUDGED_NUMBERS // max(1, math.prod(items.inputs.shape[1:]))))
    with torch.no_grad(), computing(precision, items.place):
        for first in range(part.start, part.stop, chunk):
            alive()
            block = slice(first, min(first + chunk, part.stop))
            scored = task.score(module, *items.part(block))
            loss, correct = loss + scored[0], correct + scored[1]
    right = float(correct)  # a task of the user's own may give tensors of any device
    if not 0 <= right <= len(part) * 1.001:  # fractions are rounded
        raise UserCodeFailed(f"[task] name: {type(task).__name__} counts {right:g} right answers of {len(part)} items")
    return float(loss), right


def _stay() -> None:
    """In place of `flatten_parameters`."""


def _adopt_buffers(module: nn.Module, layout: Layout, row: Tensor) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Make a module's floating-point buffers views of the row (B,), values kept; for each its dict, its name there, its view."""
    owners, homes = dict(module.named_modules()), []
    for piece in layout.pieces:
        owner, _, name = piece.name.rpartition(".")
        home, view = owners[owner]._buffers, piece.view(row)
        home[name].data = view.copy_(home[name])
        homes.append((home, name, view))
    return homes
