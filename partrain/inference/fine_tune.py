"""`--fine-tune` of `evaluate --by-group` and of `export --group`: a copy of the network, trained on the items of one group.

Source: Cheng, Chadha, Duchi. Federated Asymptotics: a model to compare federated learning algorithms. 2021. arXiv:2108.07313, where
    FedAvg with fine-tuning is level with methods made for personal networks.
Source: Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage. Federated Evaluation of On-device Personalization. 2019. arXiv:1910.10252
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.comm.group import NonFinite
from partrain.display.text_table import table
from partrain.errors import Diverged, InputMissing
from partrain.inference.by_group import FEWEST, TOO_FEW, group_column, groups_by_split, is_score, items_by_group
from partrain.inference.network import TrainedNetwork, blame_user_code, items_by_split, load_dataset
from partrain.number_format import counted
from partrain.rules.average import Average
from partrain.seeds import generator
from partrain.tasks.metric_names import lower_is_better
from partrain.training.batches import Batches, Samples
from partrain.training.replica import Replica, row_layout
from partrain.training.round_plan import RoundPlan
from partrain.training.worker import LocalWorker

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from partrain.checkpoint import Content
    from partrain.preprocess.cells import Class

    Indices = NDArray[np.int64]

DIVERGED = "--fine-tune: training diverged: its numbers are no longer finite; take fewer passes"


def fine_tuned_scores(
    network: TrainedNetwork,
    items: Samples,
    groups: Sequence[Class],
    judge: Callable[[Tensor], Mapping[str, Any]],
    passes: int,
) -> dict[str, Any]:
    """Train the network on one half of each group's items, and judge it on the other half before and after.

    Each group starts from the same network, with the job's optimizer at its constant rate. The halves are drawn from the job's seed;
    of a series the older items are trained on. The module is unchanged afterwards.

    Args:
        network: The network.
        items: Items with targets.
        groups: The group name of each item.
        judge: Function that returns the scores of some items, given by number.
        passes: Passes over the half to train on.
    """
    members = {name: np.array(numbers) for name, numbers in items_by_group(groups).items()}
    large = {name: numbers for name, numbers in members.items() if len(numbers) >= FEWEST}
    if not large:
        return {"passes": passes, "count": 0, "left_out": len(members), "diverged": 0, "numbers": {}, "each": []}
    halves = [_halves(network, numbers, place) for place, numbers in enumerate(large.values())]
    rows: list[dict[str, Any]] = []
    tuner = FineTuner(network, items, [trained for trained, _ in halves], passes)
    for place, (name, (_, judged)) in enumerate(zip(large, halves, strict=True)):
        chosen = torch.from_numpy(judged)
        before, after = _scores(judge(chosen)), dict[str, float | None]()
        with suppress(Diverged):
            tuner.train(place)
            after = _scores(judge(chosen))
        tuner.restore()
        rows.append({"group": name, "items": len(judged), "before": before, "after": after})
    compared = {key: _compared(rows, key, network.own_errors) for key in rows[0]["before"]}
    diverged, left_out = sum(not row["after"] for row in rows), len(members) - len(rows)
    return {"passes": passes, "count": len(rows), "left_out": left_out, "diverged": diverged, "numbers": compared, "each": rows}


def _halves(network: TrainedNetwork, numbers: Indices, place: int) -> tuple[Indices, Indices]:
    """Split the items of a group into those to train on and those to judge."""
    if not network.codec.is_series:
        numbers = generator(network.loaded.job.seed, "halves", place).permutation(numbers)
    middle = len(numbers) // 2
    return numbers[:middle], numbers[middle:]


class FineTuner:
    """The training of a network's module on parts of some items, each from the same start."""

    def __init__(self, network: TrainedNetwork, items: Samples, parts: Sequence[Indices], passes: int) -> None:
        """Prepare the module, whose parameters move to a row.

        Args:
            network: The network.
            items: All items, with targets.
            parts: The numbers of the items of each part.
            passes: Passes over a part.
        """
        job, module = network.loaded.job, network.module
        section = job.optimizer.model_copy(update={"schedule": "constant", "warmup": 0.0})
        layout = row_layout(module, section)
        replica = Replica(module, layout, torch.zeros(layout.numbers, dtype=layout.params.dtype), section)
        largest = max(map(len, parts))
        size = section.batch(largest, job.workers[0].batch_size)
        if job.model.least_batch(tuple(items.inputs.shape[1:])) > 1:  # BatchNorm: no batch of one item
            parts = [part[1:] if len(part) % size == 1 else part for part in parts]
        batches = Batches(parts[0], size, 1, passes=passes, seed=job.seed, rank=0, redraw=lambda number: parts[number - 1])
        plan = RoundPlan(0, Average(passes=passes), section, batches, [largest], job.seed)
        self._worker = LocalWorker(replica, items, plan, network.evaluator(), job.seed, job.engine, user_code=bool(job.user_code))
        self._start = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    def train(self, place: int) -> None:
        """Train on a part, without the bounds of `[faults]`. Raises Diverged if a number is no longer finite."""
        worker = self._worker
        worker.optimizer.reset()
        worker.begin(place + 1, 0)
        worker.module.train()
        try:
            worker.train()
        except NonFinite:
            raise Diverged(DIVERGED) from None
        finally:
            worker.module.eval()
        if not math.isfinite(worker.loss()):
            raise Diverged(DIVERGED)

    def restore(self) -> None:
        """Return to the start."""
        self._worker.module.load_state_dict(self._start)


def fine_tune(network: TrainedNetwork, content: Content, group: str, passes: int) -> int:
    """Train the network's module on all items of a group, whatever split they are in; return their number.

    Raises InputMissing if the data set has no such group.
    """
    group_column(network)
    dataset = load_dataset(network.loaded, content)
    splits, names = items_by_split(network, dataset), groups_by_split(network, dataset)
    parts = [
        items.chosen(torch.tensor([at for at, name in enumerate(names[split]) if str(name) == group], dtype=torch.int64))
        for split, items in splits.items()
    ]
    items = replace(
        parts[0], inputs=torch.cat([part.inputs for part in parts]), targets=torch.cat([part.targets for part in parts])
    )
    if parts[0].newest is not None:
        items = replace(items, newest=torch.cat([part.newest for part in parts if part.newest is not None]))
    count = len(items.targets)
    if count < 2:
        every = sorted({str(name) for of in names.values() for name in of})
        near = f"; did you mean `{close[0]}`?" if (close := get_close_matches(group, every, 1)) and not count else ""
        what = (
            f"has {counted(count, 'item')}, and fine-tuning needs two"
            if count
            else f"is none of its {counted(len(every), 'group')}"
        )
        raise InputMissing(f"--group: `{group}` {what}{near}")
    with blame_user_code(network.loaded):
        FineTuner(network, replace(items, group=None), [np.arange(count)], passes).train(0)
    return count


def _scores(judged: Mapping[str, Any]) -> dict[str, float | None]:
    return {key: value for key, value in judged.items() if is_score(value)}


def _compared(rows: Sequence[Mapping[str, Any]], key: str, own_errors: Collection[str]) -> dict[str, Any]:
    """Compare a number before and after, over the groups in which both are defined; each counts once."""
    pairs = [(row["before"].get(key), row["after"].get(key)) for row in rows]
    defined = [(before, after) for before, after in pairs if before is not None and after is not None]
    if not defined:
        return {"before": None, "after": None, "better": 0, "worse": 0, "undefined": len(rows)}
    sign = -1 if lower_is_better(key, own_errors) else 1
    gains = [sign * (after - before) for before, after in defined]
    return {
        "before": fmean(before for before, _ in defined),
        "after": fmean(after for _, after in defined),
        "better": sum(gain > 0 for gain in gains),
        "worse": sum(gain < 0 for gain in gains),
        "undefined": len(rows) - len(defined),
    }


def render_fine_tuned(tuned: Mapping[str, Any]) -> list[str]:
    """Render the scores before and after as a table."""
    if not tuned["count"]:
        return [f"not fine-tuned: {TOO_FEW}"]
    left_out = f"; {counted(tuned['left_out'], 'group')} with fewer than {FEWEST} items left out" if tuned["left_out"] else ""
    count, passes = counted(tuned["count"], "group"), "1 pass" if tuned["passes"] == 1 else f"{tuned['passes']:,} passes"
    head = ("each group once", "before", "after", "better in", "worse in")
    rows = [
        [key, _shown(row["before"]), _shown(row["after"]), f"{row['better']:,}", f"{row['worse']:,}"]
        for key, row in tuned["numbers"].items()
    ]
    lines = [
        f"fine-tuned by {passes} over half of a group's items, judged on its other half ({count}{left_out}):",
        *table(head, rows),
    ]
    if tuned["diverged"]:
        lines.append(f"training diverged in {tuned['diverged']:,} of {count}, left out")
    for key, row in tuned["numbers"].items():
        if lacking := row["undefined"] - tuned["diverged"]:
            lines.append(f"{key}: not defined in {lacking:,} of {count}, left out")
    return lines


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
