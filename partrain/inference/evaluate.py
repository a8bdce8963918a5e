"""`partrain evaluate`: loss and metrics of a network on the splits of its data set, or on the items of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from partrain.display.text_table import table
from partrain.errors import InputMissing
from partrain.inference.by_group import TOO_FEW, group_column, groups_by_split, render_groups, scores_of_groups
from partrain.inference.network import (
    Split,
    TrainedNetwork,
    blame_user_code,
    evaluate_items,
    items_by_split,
    load_dataset,
    trivial_of,
)
from partrain.record.result_lines import TRIVIAL, trivial_words
from partrain.training.batches import Samples

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.checkpoint import Content
    from partrain.inference.inputs.sample import Sample
    from partrain.preprocess.cells import Class
    from partrain.tasks.judged import JudgedMetrics

WIDEST_CONFUSION = 20
"""Maximum number of classes for which the whole confusion matrix is shown."""
LABELS = {
    "macro": "mean over classes",
    "error": "reconstruction error",
}
"""Labels of groups of metrics."""


def evaluate(
    network: TrainedNetwork, content: Content, wanted: Split | None = None, *, by_group: bool = False, fine_tune: int = 0
) -> dict[str, Any]:
    """Evaluate on one split; by default on validation and test items, if there are any.

    `by_group`: also on each of their groups; `fine_tune`: and after this number of passes over half of the items of each.
    """
    if by_group:
        group_column(network)
    dataset = load_dataset(network.loaded, content)
    splits = items_by_split(network, dataset)
    trained = splits["training"].targets if "training" in splits else None
    if wanted is not None and wanted not in splits:
        raise InputMissing(f"the data set has no {wanted} items; it has: {', '.join(splits)}")
    names = [wanted] if wanted else ("validation", "test")
    results = {name: scores(network, items, trained) for name, items in splits.items() if name in names}
    groups = groups_by_split(network, dataset) if by_group else {}
    results = {name: scored | _of_groups(network, splits[name], groups.get(name), fine_tune) for name, scored in results.items()}
    _require_tuned(results, fine_tune)
    return results


def evaluate_sample(network: TrainedNetwork, sample: Sample, *, by_group: bool = False, fine_tune: int = 0) -> dict[str, Any]:
    """Evaluate on items with targets. `by_group`, `fine_tune`: as in `evaluate`."""
    assert sample.targets is not None
    items = network.items(sample.inputs, sample.targets, 1.0, newest=sample.newest)
    result = scores(network, items) | _of_groups(network, items, sample.groups if by_group else None, fine_tune)
    _require_tuned({"": result}, fine_tune)
    return result


def scores(network: TrainedNetwork, items: Samples, trained: Tensor | None = None) -> dict[str, Any]:
    """Return number of items, loss, accuracy if the task has one, and the metrics of its kind of task; also for trivial answers.

    `trained`: training targets, if known.
    """
    with blame_user_code(network.loaded):
        metrics = network.metrics(reports=True)
    judged = _judged(network, items, metrics)
    return judged if metrics.measured is None else judged | trivial_of(network, items, trained)


def _judged(network: TrainedNetwork, items: Samples, metrics: JudgedMetrics) -> dict[str, Any]:
    """Return number of items, loss, accuracy and metrics. `metrics`: the network's, with reports."""
    numbers = evaluate_items(network, items, metrics)
    if metrics.measured is None:
        return numbers
    codec = network.codec
    names = (lambda _: codec.classes or []) if network.kind.one_class else codec.names
    return numbers | (metrics.report(names) | numbers)


def _of_groups(network: TrainedNetwork, items: Samples, groups: Sequence[Class] | None, fine_tune: int) -> dict[str, Any]:
    """Return the scores of each group under `groups`. `groups`: the group name of each item; None: return no scores of groups.

    `fine_tune`: passes over half of the items of each group; 0: none.
    """
    if groups is None:
        return {}
    with blame_user_code(network.loaded):
        metrics = network.metrics(reports=True)

    def judge(some: Tensor) -> dict[str, Any]:
        return _judged(network, items.chosen(some), metrics)

    result = scores_of_groups(group_column(network), groups, judge, network.own_errors)
    if fine_tune:
        from partrain.inference.fine_tune import fine_tuned_scores

        with blame_user_code(network.loaded):
            result["fine_tuned"] = fine_tuned_scores(network, items, groups, judge, fine_tune)
    return {"groups": result}


def _require_tuned(results: Mapping[str, Any], fine_tune: int) -> None:
    """Raise InputMissing if a network was to be fine-tuned, and no split has a group that is large enough."""
    if fine_tune and not any(scored["groups"]["fine_tuned"]["count"] for scored in results.values()):
        raise InputMissing(f"--fine-tune: {TOO_FEW}")


def render(results: dict[str, Any]) -> list[str]:
    """Render the scores of each split as lines."""
    lines: list[str] = []
    for name, scored in results.items():
        shown = [f"{key} {_shown(value)}" for key, value in scored.items() if isinstance(value, float)]
        lines += [""] * bool(lines) + [f"{name} ({scored['items']:,} items): " + ", ".join(shown)]
        words = {key: trivial_words(key, scored[key]) for key in TRIVIAL if key in scored}
        for key, label in (LABELS | words).items():
            if key in scored:
                lines.append(f"{label}: " + ", ".join(f"{what} {_shown(value)}" for what, value in scored[key].items()))
        for key in ("classes", "labels", "numbers"):
            if key in scored:
                head = tuple(scored[key][0])
                lines += ["", *table(head, [[_shown(row[column]) for column in head] for row in scored[key]])]
        if "confusion" in scored:
            lines += ["", *_confusion(scored["confusion"], [str(row.get("name", row["label"])) for row in scored["classes"]])]
        if "groups" in scored:
            lines += ["", *render_groups(scored["groups"])]
            if "fine_tuned" in scored["groups"]:
                from partrain.inference.fine_tune import render_fine_tuned

                lines += ["", *render_fine_tuned(scored["groups"]["fine_tuned"])]
    return lines


def _confusion(matrix: list[list[int]], names: list[str]) -> list[str]:
    """Render the confusion matrix; if it is too wide to read, its most frequent errors.

    An extra column counts answers outside all classes.
    """
    names += ["none of them"] * (len(matrix[0]) - len(names))
    if len(matrix) <= WIDEST_CONFUSION:
        rows = [[name, *map(str, row)] for name, row in zip(names, matrix, strict=False)]
        return table(("true \\ answer", *names), rows)
    pairs = [(n, names[a], names[b]) for a, row in enumerate(matrix) for b, n in enumerate(row) if n and a != b]
    most_frequent = sorted(pairs, key=lambda pair: -pair[0])[:WIDEST_CONFUSION]
    return table(("true", "answer", "items"), [(a, b, str(n)) for n, a, b in most_frequent])


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
