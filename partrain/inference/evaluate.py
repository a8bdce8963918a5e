"""`partrain evaluate`: loss and metrics of a network on the splits of its data set, or on the items of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from partrain.display.text_table import table
from partrain.errors import InputMissing
from partrain.inference.codec import Codec
from partrain.inference.inputs.read import read
from partrain.inference.metrics import ByClass, ByItem, ByNumber, ByToken, Metric
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


def evaluate(network: TrainedNetwork, content: Content, wanted: Split | None = None) -> dict[str, Any]:
    """Evaluate on one split; by default on validation and test items, if there are any."""
    dataset = load_dataset(network.loaded, content)
    found = items_by_split(network, dataset)
    if wanted is not None and wanted not in found:
        raise InputMissing(f"the data set has no {wanted} items; it has: {', '.join(found)}")
    return {
        name: scores(network, network.items(torch.from_numpy(inputs), torch.from_numpy(targets), dataset.scale))
        for name, (inputs, targets) in found.items()
        if name in ([wanted] if wanted else ("validation", "test"))
    }


def evaluate_file(network: TrainedNetwork, path: Path, targets: Path | None) -> dict[str, Any]:
    """Evaluate on the items of a file. `targets`: a file of their targets, if `path` does not contain them."""
    sample = read(network, path, targets, labeled=True)
    assert sample.targets is not None
    return {str(path): scores(network, network.items(sample.inputs, sample.targets, 1.0))}


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


def scores(network: TrainedNetwork, items: Samples) -> dict[str, Any]:
    """Return number of items, loss, accuracy if the task has one, and the metrics of its kind of task."""
    metric = metric_of(network)
    found = evaluate_items(network, items, metric.add if metric else None)
    return found | (metric.report(found) if metric else {})


def metric_of(network: TrainedNetwork) -> Metric | None:
    """Make the metric of a network's kind of task; None for a user task that scores items itself."""
    if type(network.task).score is not Task.score:
        return None
    codec = Codec(network.codec)
    match network.kind:
        case "classification":
            return ByClass(network.record.outputs, codec.classes)
        case "regression" | "forecast":
            last = network.kind == "forecast" and codec.has_newest_values
            return ByNumber(codec, last)
        case "language":
            return ByToken()
        case "autoencoder":
            return ByItem()
    return None


def render(results: dict[str, Any]) -> list[str]:
    """Render the scores of each split as lines."""
    lines: list[str] = []
    for name, found in results.items():
        shown = [f"{key} {_shown(value)}" for key, value in found.items() if isinstance(value, float)]
        lines += [""] * bool(lines) + [f"{name} ({found['items']:,} items): " + ", ".join(shown)]
        for key in ("macro", "error", "naive"):
            if key in found:
                label = {"macro": "mean over classes", "error": "reconstruction error", "naive": "newest value as forecast"}[key]
                lines.append(f"{label}: " + ", ".join(f"{what} {_shown(value)}" for what, value in found[key].items()))
        for key in ("classes", "numbers"):
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
