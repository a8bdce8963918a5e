"""Answers that need no training, for comparison with a network: the commonest class, the mean, the newest value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from partrain.data.codec import Codec
from partrain.record.events import BesideTrivial
from partrain.record.round_record import finite, without_nan
from partrain.tasks.judged import JudgedMetrics
from partrain.tasks.kinds import TaskKind
from partrain.tasks.measures import OfNumbers
from partrain.tasks.task import Task
from partrain.training.batches import Samples
from partrain.training.comparison import ItemOutcomes, absolute_errors
from partrain.training.evaluate import Evaluator
from partrain.training.gathering import gather

if TYPE_CHECKING:
    from partrain.comm.group import ArenaGroup
    from partrain.data.base import DatasetInfo

MOST_TARGETS = 1_000_000
"""Largest number of training targets that give the commonest class or the mean."""
MOST_AT_A_TIME = 4096
"""Number of items that the constant answers at a time."""
Scores = dict[str, dict[str, float]]


class Constant(nn.Module):
    """A network that gives the same answer (outputs,) to each item."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.answer.expand(len(inputs), -1)


def trivial_scores(
    kind: TaskKind, task: Task, metrics: JudgedMetrics, codec: Codec, outputs: int, trained: Tensor | None, items: Samples
) -> Scores:
    """Evaluate trivial answers to some items, by name, as a network is evaluated.

    Args:
        kind: The kind of task.
        task: The task.
        metrics: The job's metrics; if the user has own metrics, all metrics are left out.
        codec: The conversion of files into items.
        outputs: Number of classes or numbers.
        trained: Training targets (n,) or (n, k); None if they are unknown.
        items: The items.

    Returns:
        `constant`: loss, accuracy and metrics of always answering the shares of the classes, or the mean. `naive`, `seasonal_naive`: see
        `naive`. Empty if answers have no known meaning.
    """
    if kind.follows:
        return naive(codec, items)
    if type(task).__module__ != Task.__module__:  # user code may give answers another meaning
        return {}
    if trained is None or not len(trained) or kind.head != "outputs" or not kind.orders:
        return {}
    judged = None if metrics.own else metrics
    answer = _constant(kind, task, trained, outputs).to(items.batch_device)
    count = len(items.targets)
    blank = Samples(
        torch.zeros(count, 1, device=items.inputs.device), items.targets, 1.0, device=items.device, newest=items.newest
    )
    loss, correct = Evaluator(Constant(answer), task, judged).evaluate(blank, range(count))
    named = {name: finite(value) for name, value in judged.compute().items()} if judged else {}
    scores = {"loss": loss / count, "accuracy": correct / count if task.accuracy else None, **named}
    return {"constant": {name: value for name, value in scores.items() if value is not None}}


def _constant(kind: TaskKind, task: Task, trained: Tensor, outputs: int) -> Tensor:
    """Return the answer (outputs,) that fits the training targets best: logits of the shares of classes or labels, or the mean."""
    trained = trained[:: -(-len(trained) // MOST_TARGETS)]
    if kind.one_class:
        return (torch.bincount(trained, minlength=outputs) + 0.5).log()
    mean = trained.double().mean(0)
    if kind.zero_one:
        return mean.clamp(1e-6, 1 - 1e-6).logit().float()
    return (mean.log() if getattr(task, "counts", False) else mean).float()


def compared(kind: TaskKind, task: Task, outputs: int, items: Samples) -> ItemOutcomes | None:
    """Begin to collect a network's answers to these items; None if no number of single answers compares them with trivial ones."""
    telling = (
        type(task).__module__ == Task.__module__ and kind.head == "outputs" and kind.orders and getattr(task, "central", True)
    )
    return ItemOutcomes.of(kind, outputs, items.targets) if telling else None


def comparisons(
    network: ItemOutcomes | None,
    kind: TaskKind,
    task: Task,
    codec: Codec,
    outputs: int,
    trained: Tensor | None,
    items: Samples,
    seed: int,
) -> dict[str, BesideTrivial]:
    """Compare a network, whose answers to the items are collected, with trivial answers, by name. `seed`: the run's seed. Others:
    see `trivial_scores`."""
    if network is None:
        return {}
    errors: dict[str, Tensor] = {}
    if kind.follows:
        errors = {name: absolute_errors(answers, targets) for name, answers, targets in _forecasts(codec, items)}
    elif trained is not None and len(trained):
        answer, constant = _constant(kind, task, trained, outputs), ItemOutcomes(kind)
        for first in range(0, len(items.targets), MOST_AT_A_TIME):
            block = slice(first, first + MOST_AT_A_TIME)
            targets, newest = items.targets[block].cpu(), None if items.newest is None else items.newest[block]
            constant.add(kind.batch(task, answer.expand(len(targets), -1), targets, newest, codec.restore_units))
        errors["constant"] = constant.first
    made = {name: network.beside(trivial, codec.classes, seed, items.group) for name, trivial in errors.items()}
    return {name: comparison for name, comparison in made.items() if comparison}


class TrivialComparison:
    """The comparison of a run's network with trivial answers to the same items, which its workers evaluate together."""

    def __init__(self, kind: TaskKind, task: Task, metrics: JudgedMetrics, data: DatasetInfo, items: Samples | None) -> None:
        """Prepare the comparison.

        Args:
            kind: Kind of the answers.
            task: The task.
            metrics: The job's metrics, which see the network's answers.
            data: The data set, with its codec and number of outputs.
            items: The items: of the test, or held-out ones without a test; None without any.
        """
        self._kind, self._task, self._metrics, self.items = kind, task, metrics, items
        self._codec, self._outputs = Codec(data.codec), data.outputs
        self._answers = compared(kind, task, data.outputs, items) if items else None

    @property
    def of_single_answers(self) -> bool:
        """True if a number of single answers compares the network with trivial ones."""
        return self._answers is not None

    def observe(self) -> None:
        """Collect the network's answers from now on."""
        if self._answers:
            self._metrics.observe = self._answers.add

    def gather(self, group: ArenaGroup) -> None:
        """Gather the collected answers of all workers."""
        if self._answers:
            self._answers.gather(partial(gather, group))

    def result(self, trained: Tensor | None, seed: int) -> tuple[Scores, dict[str, BesideTrivial]]:
        """Evaluate the trivial answers, and compare the network with them; see `trivial_scores` and `comparisons`."""
        assert self.items is not None
        self._metrics.observe = None
        of_items = self._kind, self._task, self._metrics, self._codec, self._outputs, trained, self.items
        beside = comparisons(self._answers, self._kind, self._task, self._codec, self._outputs, trained, self.items, seed)
        return trivial_scores(*of_items), beside


def naive(codec: Codec, items: Samples) -> Scores:
    """Return the errors of forecasts that repeat the newest value and the newest season, if these are known."""
    by_rule = {}
    for name, answers, targets in _forecasts(codec, items):
        errors = OfNumbers()
        errors.add(answers, targets)
        numbers = errors.numbers()
        by_rule[name] = without_nan({key: numbers[key] for key in ("mae", "rmse", "r2")})
    return by_rule


def _forecasts(codec: Codec, items: Samples) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the forecasts (n, k) of a rule by its name, and the targets (n, k) in the units of the files."""
    newest = items.newest
    if newest is None and codec.has_newest_values:
        newest = codec.newest(items.inputs)
    if newest is None:
        return
    targets = codec.restore_units(items.targets.double().flatten(1), newest)
    steps = targets.shape[1] // newest.shape[2]
    for name, season in ("naive", 1), ("seasonal_naive", codec.season):
        if season:
            yield name, newest[:, -season:].repeat(1, -(-steps // season), 1)[:, :steps].flatten(1), targets
