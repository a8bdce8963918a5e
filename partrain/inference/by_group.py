"""`partrain evaluate --by-group`: a network's scores on each group of items (a person or clinic, say), and their spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch

from partrain.data import groups_by_part
from partrain.data.tables.group_cells import ordered_groups
from partrain.display.text_table import table
from partrain.errors import BadJob
from partrain.inference.network import SPLITS, TrainedNetwork, split_items
from partrain.number_format import counted
from partrain.preprocess.cells import Class
from partrain.tasks.metric_names import lower_is_better

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.data import Dataset

TENTH = 10
"""The worst groups are one in ten, and at least one."""
FEWEST = 4
"""Items of the smallest group for which a network is fine-tuned: two to train on, and two to judge."""
TOO_FEW = f"no group has {FEWEST} items, half of them to train on and half to judge"
"""The reason why no network was fine-tuned."""


def group_column(network: TrainedNetwork) -> str:
    """Return the column that names the groups of a network's items. BadJob if its job has none."""
    codec = network.codec
    name = codec.stored.get("group") if codec.is_series else getattr(network.loaded.job.dataset, "group", None)
    if not isinstance(name, str):
        cure = "name the column of the persons or clinics with `group` in [dataset], a key of tables and series, and train again"
        more = "; or evaluate --input FILE with a --job FILE that names it" if codec.is_table else ""
        raise BadJob(f"--by-group: the job names no groups: {cure}{more}")
    return name


def groups_by_split(network: TrainedNetwork, dataset: Dataset) -> dict[str, list[Class]]:
    """Return the group name of each item by split. Reads the files of the data set again."""
    section, folder = network.loaded.job.dataset, network.loaded.folder
    parts = groups_by_part(section, folder, dataset)
    training, held_out = ([parts[""][item] for item in items] for items in split_items(network.loaded, dataset))
    return dict(zip(SPLITS, (training, held_out, parts.get("test_", [])), strict=True))


def scores_of_groups(
    column: str, groups: Sequence[Class], judge: Callable[[Tensor], Mapping[str, Any]], own_errors: Collection[str]
) -> dict[str, Any]:
    """Evaluate the items of each group, and summarise the scores; each group counts once.

    Args:
        column: The column that names the groups.
        groups: The group name of each item.
        judge: Function that returns the scores of some items, given by number.
        own_errors: Names of the job's custom metrics of which lower is better.
    """
    judged = {name: judge(torch.tensor(numbers)) for name, numbers in items_by_group(groups).items()}
    numbers = [name for name in next(iter(judged.values())) if all(is_score(scores[name]) for scores in judged.values())]
    rows = [{"group": name, "items": scores["items"], **{key: scores[key] for key in numbers}} for name, scores in judged.items()]
    spread = {key: _spread(rows, key, lower=lower_is_better(key, own_errors)) for key in numbers}
    return {"column": column, "count": len(rows), "numbers": spread, "each": rows}


def items_by_group(groups: Sequence[Class]) -> dict[Class, list[int]]:
    """List the numbers of the items of each group, groups in order."""
    members: dict[Class, list[int]] = {}
    for item, name in enumerate(groups):
        members.setdefault(name, []).append(item)
    return {name: members[name] for name in ordered_groups(members)}


def is_score(value: Any) -> bool:
    """Return whether a value is a score; counts are not, and None is an undefined score."""
    return value is None or isinstance(value, float)


def _spread(rows: Sequence[Mapping[str, Any]], key: str, *, lower: bool) -> dict[str, Any]:
    """Summarise a number over all groups in which it is defined."""
    defined = [row for row in rows if row[key] is not None and not math.isnan(row[key])]
    undefined = len(rows) - len(defined)
    if not defined:
        return dict.fromkeys(("mean", "median", "worst_tenth", "worst")) | {"undefined": undefined}
    worst = sorted(defined, key=lambda row: -row[key] if lower else row[key])
    tenth = worst[: max(1, len(worst) // TENTH)]
    return {
        "mean": fmean(row[key] for row in defined),
        "median": median(row[key] for row in defined),
        "worst_tenth": fmean(row[key] for row in tenth),
        "worst": {"group": worst[0]["group"], "items": worst[0]["items"], "value": worst[0][key]},
        "undefined": undefined,
    }


def render_groups(groups: Mapping[str, Any]) -> list[str]:
    """Render the scores of groups as a table, with a line for each number that some groups lack."""
    numbers = groups["numbers"]
    head = ("each group once", "mean", "median", "worst tenth", "worst", "worst group", "items")
    count = counted(groups["count"], "group")
    lines = [f"{count} of `{groups['column']}`:", *table(head, [_row(key, spread) for key, spread in numbers.items()])]
    for key, spread in numbers.items():
        if lacking := spread["undefined"]:
            lines.append(f"{key}: not defined in {lacking:,} of {count}, left out")
    return lines


def _row(key: str, spread: Mapping[str, Any]) -> list[str]:
    worst = spread["worst"] or {"value": None, "group": "-", "items": "-"}
    values = (spread["mean"], spread["median"], spread["worst_tenth"], worst["value"])
    shown = ["-" if value is None else f"{value:.6g}" for value in values]
    return [key, *shown, str(worst["group"]), str(worst["items"])]
