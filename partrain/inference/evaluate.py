"""`partrain evaluate`: loss and metrics of a network on the splits of its data set, or on the items of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from partrain.display.text_table import table
from partrain.errors import InputMissing
from partrain.inference.codec import Codec
from partrain.inference.inputs.kinds import STDIN
from partrain.inference.inputs.read import read
from partrain.inference.metrics import ByClass, ByItem, ByLabel, ByNumber, ByPixel, ByToken, Metric
from partrain.inference.network import TrainedNetwork, evaluate_items, load_dataset, split_items
from partrain.tasks.kinds import Task
from partrain.training.batches import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.checkpoint import Content
    from partrain.data import Dataset

Split = Literal["training", "validation", "test"]
WIDEST_CONFUSION = 20
"""Largest number of classes for which the whole confusion matrix is shown."""
LABELS = {
    "macro": "mean over classes",
    "error": "reconstruction error",
    "naive": "newest value as forecast",
    "seasonal_naive": "value of one season before as forecast",
}
"""Labels of groups of metrics."""


def evaluate(network: TrainedNetwork, content: Content, wanted: Split | None = None) -> dict[str, Any]:
    """Evaluate on one split; by default on validation and test items, if there are any."""
    dataset = load_dataset(network.loaded, content)
    found = items_by_split(network, dataset)
    if wanted is not None and wanted not in found:
        raise InputMissing(f"the data set has no {wanted} items; it has: {', '.join(found)}")
    return {
        name: scores(
            network,
            network.items(torch.from_numpy(inputs), torch.from_numpy(targets), dataset.scale, dataset),
            newest_values(network, dataset, name),
        )
        for name, (inputs, targets) in found.items()
        if name in ([wanted] if wanted else ("validation", "test"))
    }


def evaluate_file(
    network: TrainedNetwork, path: Path, targets: Path | None, skip_bad: bool = False
) -> tuple[dict[str, Any], Sequence[str]]:
    """Evaluate on the items of a file; returns the fault of each row that was left out, too.

    Args:
        network: The network.
        path: The file; `-` is the standard input.
        targets: A file of their targets, if `path` does not contain them.
        skip_bad: Leave out rows of a table that cannot be read.
    """
    sample = read(network, path, targets, labeled=True, skip_bad=skip_bad)
    assert sample.targets is not None
    name = STDIN if str(path) == "-" else str(path)
    return {name: scores(network, network.items(sample.inputs, sample.targets, 1.0), sample.newest)}, sample.skipped


def items_by_split(network: TrainedNetwork, dataset: Dataset) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return inputs and targets of each split that has items."""
    training, validation = split_items(network.loaded, dataset)
    found = {
        "training": (dataset.inputs[training], dataset.targets[training]),
        "validation": (dataset.inputs[validation], dataset.targets[validation]),
    }
    if dataset.test_inputs is not None and dataset.test_targets is not None:
        found["test"] = (dataset.test_inputs, dataset.test_targets)
    return {name: (inputs, targets) for name, (inputs, targets) in found.items() if len(targets)}


def newest_values(network: TrainedNetwork, dataset: Dataset, split: str) -> Tensor | None:
    """Return the newest values (n, number, targets) of the items of a split, where the data set keeps them."""
    if dataset.newest is None:
        return None
    if split == "test":
        return None if dataset.test_newest is None else torch.from_numpy(dataset.test_newest)
    training, validation = split_items(network.loaded, dataset)
    return torch.from_numpy(dataset.newest[training if split == "training" else validation])


def scores(network: TrainedNetwork, items: Samples, newest: Tensor | None = None) -> dict[str, Any]:
    """Return number of items, loss, accuracy if the task has one, and the metrics of its kind of task. `newest`: see `newest_values`."""
    metric = metric_of(network, newest)
    found = evaluate_items(network, items, metric.add if metric else None)
    return found | (metric.report(found) if metric else {})


def metric_of(network: TrainedNetwork, newest: Tensor | None = None) -> Metric | None:
    """Make the metric of a network's kind of task; None for a user task that scores items itself. `newest`: see `newest_values`."""
    if type(network.task).score is not Task.score:
        return None
    codec = Codec(network.codec)
    match network.kind:
        case "classification":
            return ByClass(network.record.outputs, codec.classes)
        case "regression" | "forecast":
            return ByNumber(codec, network.kind == "forecast", newest, network.task.predicted)
        case "language":
            return ByToken(network.record.interface.unequal)
        case "autoencoder":
            return ByItem()
        case "multi-label":
            return ByLabel(network.task, codec.names(network.record.outputs))
        case "segmentation":
            return ByPixel(network.record.outputs, network.task)
    return None


def render(results: dict[str, Any]) -> list[str]:
    """Render the scores of each split as lines."""
    lines: list[str] = []
    for name, found in results.items():
        shown = [f"{key} {_shown(value)}" for key, value in found.items() if isinstance(value, float)]
        lines += [""] * bool(lines) + [f"{name} ({found['items']:,} items): " + ", ".join(shown)]
        for key, label in LABELS.items():
            if key in found:
                lines.append(f"{label}: " + ", ".join(f"{what} {_shown(value)}" for what, value in found[key].items()))
        for key in ("classes", "labels", "numbers"):
            if key in found:
                head = tuple(found[key][0])
                lines += ["", *table(head, [[_shown(row[column]) for column in head] for row in found[key]])]
        if "confusion" in found:
            lines += ["", *_confusion(found["confusion"], [str(row.get("name", row["label"])) for row in found["classes"]])]
    return lines


def _confusion(matrix: list[list[int]], names: list[str]) -> list[str]:
    """Render the confusion matrix; if it is too wide to read, its most frequent errors."""
    if len(matrix) <= WIDEST_CONFUSION:
        rows = [[name, *map(str, row)] for name, row in zip(names, matrix, strict=True)]
        return table(("true \\ answer", *names), rows)
    pairs = [(n, names[a], names[b]) for a, row in enumerate(matrix) for b, n in enumerate(row) if n and a != b]
    most_frequent = sorted(pairs, key=lambda pair: -pair[0])[:WIDEST_CONFUSION]
    return table(("true", "answer", "items"), [(a, b, str(n)) for n, a, b in most_frequent])


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
