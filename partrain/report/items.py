"""The answers of a trained network: confusion matrix, worst-judged items with their pictures, predicted against true numbers."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from partrain.errors import Failure
from partrain.number_format import number
from partrain.report.answer_figures import confusion, scatter, series
from partrain.report.facts import Table
from partrain.report.history import RunHistory
from partrain.report.theme import Spec
from partrain.tasks.kinds import AutoencoderKind, ClassificationKind, RegressionKind, TaskKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork
    from partrain.tasks.kinds import AnswerBatch

MOST_ITEMS = 20_000
"""Most items whose answers are looked at."""
WORST = 12
"""Items shown as the worst-judged ones."""
WORST_NUMBERS = 8
"""Rows of the table of worst predicted numbers."""
MOST_CLASSES = 20
"""Most classes of a drawn confusion matrix."""
NARROW_CLASSES = 12
"""Most classes of a confusion matrix that takes half of the page."""
ANSWER_CHARACTERS = 24


@dataclass(frozen=True)
class WorstItem:
    """One of the worst-judged items."""

    item: int
    """Its index in the data set's split."""
    text: str
    picture: str = ""
    """A data URI; empty if the item is no image."""


@dataclass
class JudgedAnswers:
    """The part of a report on one network's answers."""

    label: str
    note: str
    figures: dict[str, Spec] = field(default_factory=dict)
    """Descriptions under `confusion`, `scatter`, `series`."""
    confusion_caption: str = ""
    confusion_wide: bool = False
    errors: Table | None = None
    """The most frequent errors of a classifier."""
    scatter_caption: str = ""
    table: Table | None = None
    worst: list[WorstItem] = field(default_factory=list)
    worst_title: str = ""


def answers_of(run: RunHistory, *, trusted: bool, several: bool) -> JudgedAnswers:
    """Evaluate a run's network on its test items, or those held out. If that fails, the note says why."""
    answers = JudgedAnswers(run.label if several else "", "")
    try:
        _evaluate(run, trusted=trusted, answers=answers)
    except Failure as failure:
        answers.note = f"Left out: {failure.message}."
    return answers


def _evaluate(run: RunHistory, *, trusted: bool, answers: JudgedAnswers) -> None:
    import torch

    from partrain.inference.network import evaluate_items, items_by_split, load_dataset, load_network
    from partrain.inference.open import load_job, open_checkpoint
    from partrain.tasks.kinds import AnswerBatch

    path, content = open_checkpoint(run.folder)
    loaded = load_job(content, path, trusted=trusted, use="items")
    network = load_network(loaded, content)
    dataset = load_dataset(loaded, content)
    by_split = items_by_split(network, dataset)
    split = next(name for name in ("test", "validation", "training") if name in by_split)
    items = by_split[split]
    newest = None if items.newest is None else items.newest[:MOST_ITEMS]
    items = replace(items, inputs=items.inputs[:MOST_ITEMS], targets=items.targets[:MOST_ITEMS], newest=newest)
    inputs = items.inputs.numpy()
    batches: list[AnswerBatch] = []
    draw = next((draw for kind, draw in _DRAWN.items() if isinstance(network.kind, kind)), None)
    scores = evaluate_items(network, items, network.metrics(observe=batches.append if draw else None))
    which = f"{scores['items']:,} {split} items, round {content.round:,}"
    answers.note = f"The network of the run on {which}: " + ", ".join(
        f"{name} {number(value)}" for name, value in scores.items() if name != "items"
    )
    if draw is None:
        answers.note += f". Single items are not shown for {network.kind}."
        return
    joined = AnswerBatch(*(torch.cat(parts) for parts in zip(*batches, strict=True)))
    draw(network, inputs, joined, answers)


def _classes(network: TrainedNetwork, inputs: NDArray[Any], batch: AnswerBatch, answers: JudgedAnswers) -> None:
    import torch

    from partrain.data.codec import Codec
    from partrain.tasks.measures import OfClasses

    codec, count = Codec(network.codec), network.record.outputs
    names = [codec.class_name(label)[:ANSWER_CHARACTERS] for label in range(batch.answers.shape[1])]
    measure = OfClasses(count)
    measure.add(batch.decided, batch.targets)
    matrix = measure.confusion[:, :count]
    if count <= MOST_CLASSES:
        answers.figures["confusion"] = confusion(matrix.tolist(), names)
        answers.confusion_wide = count > NARROW_CLASSES
        answers.confusion_caption = "Rows: true class. Columns: answer. Color: share of the true class."
    wrong = [(int(matrix[a, b]), names[a], names[b]) for a, b in (matrix - torch.diag(matrix.diag())).nonzero().tolist()]
    rows = [[true, answer, f"{n:,}"] for n, true, answer in sorted(wrong, key=lambda row: (-row[0], row[1:]))[:10]]
    answers.errors = Table(["true", "answer", "items"], rows, frozenset({2})) if rows else None
    right = batch.answers.gather(1, batch.targets[:, None]).squeeze(1)
    answers.worst_title = "Worst-judged items"
    for item in network.kind.worst(batch, WORST):
        true, answer = int(batch.targets[item]), int(batch.decided[item])
        share = f"{names[true]}, answered {names[answer]} ({float(batch.answers[item, answer]):.0%})"
        answers.worst.append(
            WorstItem(
                item, share if true != answer else f"{names[true]}, right ({float(right[item]):.0%})", picture(inputs[item])
            )
        )


def _numbers(network: TrainedNetwork, inputs: NDArray[Any], batch: AnswerBatch, answers: JudgedAnswers) -> None:
    from partrain.data.codec import Codec

    predicted, true = (numbers.reshape(len(numbers), -1) for numbers in (batch.answers, batch.targets))
    names = Codec(network.codec).names(true.shape[1])
    name = names[0]
    pairs = list(zip(true[:, 0].tolist(), predicted[:, 0].tolist(), strict=True))
    answers.figures["scatter"] = scatter(pairs, name)
    several = f" The first of {len(names):,} predicted numbers." if len(names) > 1 else ""
    answers.scatter_caption = f"On the dashed line an answer is right.{several}"
    if network.kind.follows:
        answers.figures["series"] = series(pairs, name)
    answers.table = Table(
        ["item", f"true {name}", f"predicted {name}"],
        [
            [f"{item:,}", number(float(true[item, 0])), number(float(predicted[item, 0]))]
            for item in network.kind.worst(batch, WORST_NUMBERS)
        ],
        frozenset({1, 2}),
    )


def _reconstructions(network: TrainedNetwork, inputs: NDArray[Any], batch: AnswerBatch, answers: JudgedAnswers) -> None:
    errors = network.kind.faults(batch)
    answers.worst_title = "Worst-judged items: largest reconstruction errors"
    for item in network.kind.worst(batch, WORST):
        answers.worst.append(WorstItem(item, f"error {number(float(errors[item]))}", picture(inputs[item])))


_DRAWN: dict[type[TaskKind], Callable[[TrainedNetwork, NDArray[Any], AnswerBatch, JudgedAnswers], None]] = {
    ClassificationKind: _classes,
    AutoencoderKind: _reconstructions,
    RegressionKind: _numbers,
}
"""Drawing of the answers, by kind of task and the kinds that derive from it."""


def picture(item: NDArray[Any]) -> str:
    """Return an item as a picture; "" if it is no image or Pillow is not installed.

    An image is (height, width) or (1 or 3 channels, height, width). Numbers that are no bytes are spread from black to white.
    """
    import numpy as np

    pixels = (
        item[0] if item.ndim == 3 and len(item) == 1 else item.transpose(1, 2, 0) if item.ndim == 3 and len(item) == 3 else item
    )
    if pixels.ndim not in (2, 3) or (pixels.shape[-1] != 3 and pixels.ndim == 3) or min(pixels.shape[:2]) < 8:
        return ""
    try:
        from PIL import Image
    except ImportError:
        return ""
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
