"""The answers of a trained network: confusion matrix, worst-judged items with their pictures, predicted against true numbers."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from partrain.errors import Failure
from partrain.number_format import number, plural
from partrain.record.result_lines import result_lines, trivial_words
from partrain.report.answer_figures import confusion, precision_recall, residuals, roc, scatter, series
from partrain.report.facts import Table
from partrain.report.history import RunHistory
from partrain.report.theme import Spec
from partrain.tasks.kinds import AutoencoderKind, ClassificationKind, RegressionKind, TaskKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.data import Dataset
    from partrain.inference.network import Split, TrainedNetwork
    from partrain.tasks.kinds import AnswerBatch
    from partrain.training.batches import Samples

MOST_ITEMS = 20_000
"""Maximum number of items whose answers are examined."""
WORST = 12
"""Number of items shown as the worst-judged ones."""
WORST_NUMBERS = 8
"""Number of rows in the table of worst predicted numbers."""
MOST_CLASSES = 20
"""Maximum number of classes of a drawn confusion matrix."""
NARROW_CLASSES = 12
"""Maximum number of classes of a confusion matrix on half of the page's width."""
ANSWER_CHARACTERS = 24
MOST_COLUMNS = 60
"""Maximum number of listed data columns."""
ROUNDING = 1e-6
"""Fraction of a column's mean and deviation below which a number counts as 0: standardized inputs are float32."""
SPLITS = {"test": "test items", "validation": "held-out items", "training": "training items"}


@dataclass(frozen=True)
class WorstItem:
    """One of the worst-judged items."""

    place: str
    """The item's line in the data set's file, or its index in the split."""
    text: str
    picture: str = ""
    """A data URI; empty if the item is not an image."""


@dataclass
class JudgedAnswers:
    """The part of a report about one network's answers and the data."""

    label: str
    title: str = "Result"
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Spec] = field(default_factory=dict)
    """Descriptions under `confusion`, `scatter`, `residuals`, `series`, `roc`, `ranking`."""
    confusion_caption: str = ""
    confusion_wide: bool = False
    errors: Table | None = None
    """The most frequent errors of a classifier."""
    scatter_caption: str = ""
    series_caption: str = ""
    roc_caption: str = ""
    ranking_caption: str = ""
    scores_title: str = ""
    scores: Table | None = None
    """Metrics of each class, label or number."""
    table: Table | None = None
    worst: list[WorstItem] = field(default_factory=list)
    worst_title: str = ""
    data: list[tuple[str, Table]] = field(default_factory=list)
    """Tables on the data, each with its title."""


@dataclass(frozen=True)
class _Judged:
    """The answers of a network to some items, and the items' places."""

    network: TrainedNetwork
    inputs: NDArray[Any]
    batch: AnswerBatch
    places: Sequence[str]
    """Place of each item."""


def answers_of(run: RunHistory, *, trusted: bool, several: bool) -> JudgedAnswers:
    """Evaluate a run's network on its test items, or on the held-out ones. If that fails, the note says why."""
    answers = JudgedAnswers(run.label if several else "")
    try:
        _evaluate(run, trusted=trusted, answers=answers)
    except Failure as failure:
        answers.notes.append(f"Left out: {failure.message}.")
    return answers


def _evaluate(run: RunHistory, *, trusted: bool, answers: JudgedAnswers) -> None:
    import torch

    from partrain.inference.network import evaluate_items, items_by_split, load_dataset, load_network, trivial_of
    from partrain.inference.open import load_job, open_checkpoint
    from partrain.tasks.kinds import AnswerBatch

    path, content = open_checkpoint(run.folder)
    loaded = load_job(content, path, trusted=trusted, use="items")
    network = load_network(loaded, content)
    dataset = load_dataset(loaded, content)
    by_split = items_by_split(network, dataset)
    split = next(name for name in ("test", "validation", "training") if name in by_split)
    items = by_split[split].chosen(slice(MOST_ITEMS))
    batches: list[AnswerBatch] = []
    draw = next((draw for kind, draw in _DRAWN.items() if isinstance(network.kind, kind)), None)
    metrics = network.metrics(reports=True, observe=batches.append if draw else None)
    scores = evaluate_items(network, items, metrics)
    answers.title = f"Result on {SPLITS[split]}"
    answers.notes.append(
        f"The network of the run on {scores['items']:,} {split} items, round {content.round:,}: {_named(scores)}."
    )
    lines = result_lines(run.summary)
    answers.notes += [f"{line[0].upper()}{line[1:]}." for line in lines]
    trained = by_split["training"].targets if "training" in by_split else None
    for key, numbers in trivial_of(network, items, trained).items():
        words = trivial_words(key, numbers)
        if not any(words in line for line in lines):
            answers.notes.append(f"{words.capitalize()}: {_named(numbers)}.")
    if metrics.measured:
        codec = network.codec
        names = (lambda _: codec.classes or []) if network.kind.one_class else codec.names
        report = metrics.report(names)
        for key in ("classes", "labels", "numbers"):
            if report.get(key):
                answers.scores_title, answers.scores = f"By {key[:-2] if key == 'classes' else key[:-1]}", _table(report[key])
    answers.data = data_tables(network, dataset, by_split)
    if draw is None:
        answers.notes.append(f"Single items are not shown for {network.kind}.")
        return
    joined = AnswerBatch(*(torch.cat(parts) for parts in zip(*batches, strict=True)))
    places = _places(network, dataset, split)
    draw(
        _Judged(network, items.inputs.numpy(), joined, places or [f"item {item:,}" for item in range(len(items.inputs))]), answers
    )


def _named(scores: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in scores.items() if name != "items")


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of rows of numbers by name."""
    head = list(rows[0])
    texts = [
        [number(value) if isinstance(value, float) else "-" if value is None else str(value) for value in row.values()]
        for row in rows
    ]
    return Table(head, texts, frozenset(range(1, len(head))))


def _places(network: TrainedNetwork, dataset: Dataset, split: Split) -> list[str]:
    """Return the line of each item of a table's file; empty for other data."""
    from partrain.data.tables.load import row_numbers
    from partrain.data.tables.schema import open_table
    from partrain.data.tables.sections import AnyTable, Csv
    from partrain.inference.network import split_items

    section, folder = network.loaded.job.dataset, network.loaded.folder
    if not isinstance(section, AnyTable | Csv):
        return []
    rows = row_numbers(section, folder)
    path = {"test": section.test_path, "validation": section.validation_path}.get(split) or section.path
    lines = rows["test_"] if split == "test" else rows[""][split_items(network.loaded, dataset)[split == "validation"]]
    table = open_table(section, folder / path)
    return [table.locate(line).removeprefix(f"{table.path.parent}/") for line in lines[:MOST_ITEMS].tolist()]


def data_tables(network: TrainedNetwork, dataset: Dataset, by_split: Mapping[str, Samples]) -> list[tuple[str, Table]]:
    """Describe the data: items and classes by split, and the columns of a table as the network was trained on them."""

    codec = network.codec
    head, rows = ["", *by_split], [["items", *(f"{len(items.targets):,}" for items in by_split.values())]]
    if network.kind.one_class and network.record.outputs <= MOST_CLASSES:
        counts = [items.targets.bincount(minlength=network.record.outputs).tolist() for items in by_split.values()]
        rows += [
            [codec.class_name(label), *(f"{count:,}" for count in of_label)]
            for label, of_label in enumerate(zip(*counts, strict=True))
        ]
    tables = [("Items", Table(head, rows, frozenset(range(1, len(head)))))]
    if not codec.is_table or "training" not in by_split:
        return tables
    inputs, stored, columns = by_split["training"].inputs, codec.stored, []
    words = {name: len(kinds) for key in ("one_hot", "categories") for name, kinds in stored.get(key, {}).items()}
    cardinalities = stored.get("cardinalities") or [0] * len(stored["features"])
    twins = {f"{name} missing" for name in stored.get("missing_indicator", ())}
    days = {f"{name}:day" for name in stored.get("dates", ())}
    for at, (name, count) in enumerate(zip(stored["features"], cardinalities, strict=True)):
        if name in twins:  # the column `missing in the file` has them
            continue
        scale, mean = stored["std"][at], stored["mean"][at]
        values = inputs[:, at].double() * scale + mean
        values[values.abs() < ROUNDING * (scale + abs(mean))] = 0.0
        show = _day if name in days else number
        numbers = [*(show(float(value)) for value in (values.min(), values.mean(), values.max())), number(float(values.std()))]
        kind = "days" if name in days else "number"
        columns.append([name, f"{words.get(name, count):,} words", *("",) * 4] if count else [name, kind, *numbers])
    head = ["column", "kind", "least", "mean", "largest", "deviation"]
    if missing := _missing(network, {row[0] for row in columns}):
        head.append("missing in the file")
        columns = [[*row, f"{missing[row[0]]:,}" if missing[row[0]] else ""] for row in columns]
    if more := len(columns) - MOST_COLUMNS if len(columns) > MOST_COLUMNS else 0:
        columns[MOST_COLUMNS:] = [[f"and {more:,} more {plural('column', more)}", *("",) * (len(head) - 1)]]
    tables.append(("Columns, training items", Table(head, columns, frozenset(range(2, len(head))))))
    return tables


def _day(days: float) -> str:
    """Return the date of a number of days since 1970."""
    return (date(1970, 1, 1) + timedelta(days=math.floor(days + 1e-3))).isoformat()  # standardized inputs are float32


def _missing(network: TrainedNetwork, names: Collection[str]) -> Counter[str]:
    """Count the cells without a value in columns of the table that the network was trained on."""
    from partrain.data.fetch import local_path
    from partrain.data.tables.schema import open_table
    from partrain.data.tables.sections import Tabular

    section, missing = network.loaded.job.dataset, Counter[str]()
    if isinstance(section, Tabular) and section.missing != "error":
        table = open_table(section, local_path(section.path, network.loaded.folder))
        read = [name for name in table.names if name in names]
        for block in table.blocks(read):
            missing.update({name: sum(map(table.is_missing, block.columns[name])) for name in read})
    return +missing


def _classes(judged: _Judged, answers: JudgedAnswers) -> None:
    import torch

    from partrain.tasks.measures import OfClasses

    network, batch = judged.network, judged.batch
    codec, count = network.codec, network.record.outputs
    names = [codec.class_name(label)[:ANSWER_CHARACTERS] for label in range(batch.answers.shape[1])]
    measure = OfClasses(count)
    measure.add(batch.decided, batch.targets)
    matrix = measure.confusion[:, :count]
    if count <= MOST_CLASSES:
        answers.figures["confusion"] = confusion(matrix.tolist(), names)
        answers.confusion_wide = count > NARROW_CLASSES
        answers.confusion_caption = "Rows: true class. Columns: answer. Color: share of the true class."
    if count == 2 and 0 < int(batch.targets.sum()) < len(batch.targets):
        positive, share = names[1], float(batch.targets.double().mean())
        answers.figures["roc"], area = roc(batch.answers[:, 1].tolist(), batch.targets.tolist())
        answers.figures["ranking"] = precision_recall(batch.answers[:, 1].tolist(), batch.targets.tolist())
        answers.roc_caption = f"Class {positive}. Area {number(area)}; the dashed line is guessing."
        answers.ranking_caption = f"Class {positive}, which {share:.1%} of the items have."
    wrong = [(int(matrix[a, b]), names[a], names[b]) for a, b in (matrix - torch.diag(matrix.diag())).nonzero().tolist()]
    rows = [[true, answer, f"{n:,}"] for n, true, answer in sorted(wrong, key=lambda row: (-row[0], row[1:]))[:10]]
    answers.errors = Table(["true", "answer", "items"], rows, frozenset({2})) if rows else None
    right = batch.answers.gather(1, batch.targets[:, None]).squeeze(1)
    answers.worst_title = "Worst-judged items"
    for item in network.kind.worst(batch, WORST):
        true, answer = int(batch.targets[item]), int(batch.decided[item])
        share_of = f"{names[true]}, answered {names[answer]} ({float(batch.answers[item, answer]):.0%})"
        text = share_of if true != answer else f"{names[true]}, right ({float(right[item]):.0%})"
        answers.worst.append(WorstItem(judged.places[item], text, picture(judged.inputs[item])))


def _numbers(judged: _Judged, answers: JudgedAnswers) -> None:

    network, batch = judged.network, judged.batch
    predicted, true = (numbers.reshape(len(numbers), -1) for numbers in (batch.answers, batch.targets))
    codec = network.codec
    names = codec.names(true.shape[1])
    name = names[0]
    pairs = list(zip(true[:, 0].tolist(), predicted[:, 0].tolist(), strict=True))
    answers.figures["scatter"] = scatter(pairs, name)
    answers.figures["residuals"] = residuals(pairs, name)
    several = f" The first of {len(names):,} predicted numbers." if len(names) > 1 else ""
    answers.scatter_caption = f"On the dashed line an answer is right.{several}"
    if network.kind.follows and not codec.stored.get("group"):  # forecasts of several groups do not form a single line
        width = len(codec.targets) or 1
        steps = true.shape[1] // width
        some = range((len(true) - 1) % steps, len(true), steps)  # consecutive forecasts; the last one ends the series
        ahead = [
            (float(true[item, step * width]), float(predicted[item, step * width])) for item in some for step in range(steps)
        ]
        answers.figures["series"] = series(ahead, codec.targets[0] if codec.targets else name)
        answers.series_caption = (
            f"Each forecast has {steps:,} steps, and begins where the one before it ends." if steps > 1 else ""
        )
    answers.table = Table(
        ["item", f"true {name}", f"predicted {name}"],
        [
            [judged.places[item], number(float(true[item, 0])), number(float(predicted[item, 0]))]
            for item in network.kind.worst(batch, WORST_NUMBERS)
        ],
        frozenset({1, 2}),
    )


def _reconstructions(judged: _Judged, answers: JudgedAnswers) -> None:
    kind = judged.network.kind
    errors = kind.faults(judged.batch)
    answers.worst_title = "Worst-judged items: largest reconstruction errors"
    for item in kind.worst(judged.batch, WORST):
        text = f"error {number(float(errors[item]))}"
        answers.worst.append(WorstItem(judged.places[item], text, picture(judged.inputs[item])))


_DRAWN: dict[type[TaskKind], Callable[[_Judged, JudgedAnswers], None]] = {
    ClassificationKind: _classes,
    AutoencoderKind: _reconstructions,
    RegressionKind: _numbers,
}
"""Functions that draw the answers, by kind of task; derived kinds use the same."""


def picture(item: NDArray[Any]) -> str:
    """Return an item as a picture; "" if it is not an image or Pillow is not installed.

    An image is (height, width) or (1 or 3 channels, height, width). Numbers other than bytes are scaled from black to white.
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
