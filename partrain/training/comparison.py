"""A network compared with a trivial answer on the same items: the difference of one number, and its interval by a paired
bootstrap.

Symbols: n items; R resamples; B blocks of consecutive items; K values by which items are ordered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partrain.record.events import BesideOptions, BesideTrivial
from partrain.seeds import generator
from partrain.tasks.kinds import AnswerBatch, TaskKind
from partrain.tasks.measures import Gather, OfNumbers

RESAMPLES, MOST_BLOCKS, BLOCKS_OF_SERIES = 1000, 1000, 50
"""Number of resamples; largest number of blocks to draw from; and largest if neighbors are alike, such as a series' windows."""
LEVEL = 0.95
RARE = 1 / 3
"""Share of the items below which one of two classes is rare: then accuracy says little, and the order of the answers counts."""
GUESSED = 0.5
"""Area under the ROC curve of answers that are all equal."""
DIGITS = 9
"""Decimals of an interval: later ones depend on the number of threads."""
MOST_VALUES = 256
"""Scores of rare items between which resamples order all items."""


class RareClass(NamedTuple):
    """The rare one of two classes."""

    label: int
    targets: Tensor
    """(n,): labels of all items."""


class ItemOutcomes:
    """The outcomes of a network's answers by item. Each worker adds its part, and all gather them at the end of the run."""

    def __init__(self, kind: TaskKind, rare: RareClass | None = None) -> None:
        self.rare, self._kind = rare, kind
        self._rows = [torch.zeros(0, 2 if rare else 1, dtype=torch.float64)]
        self._errors = OfNumbers()

    @classmethod
    def of(cls, kind: TaskKind, outputs: int, targets: Tensor) -> ItemOutcomes:
        """Begin without answers. `outputs`: number of classes; `targets`: of all items."""
        if not kind.one_class or outputs != 2:
            return cls(kind)
        counts = torch.bincount(targets.cpu(), minlength=2)
        rare = RareClass(int(counts.argmin()), targets.cpu())
        return cls(kind, rare if 0 < counts.min() < RARE * len(targets) else None)

    @property
    def by(self) -> str:
        """Name of the compared number."""
        return "auroc" if self.rare else "accuracy" if self._kind.accuracy else "mae"

    def add(self, batch: AnswerBatch) -> None:
        """Add a batch of answers."""
        if self.by == "mae":
            self._errors.add(batch.decided, batch.targets)
            rows = [absolute_errors(batch.decided, batch.targets)]
        else:
            rows = [(batch.decided == batch.targets).double().reshape(len(batch.targets), -1).mean(1)]
        if self.rare:
            rows.append(batch.answers[:, self.rare.label].double())
        self._rows.append(torch.stack(rows, 1))

    def gather(self, gather: Gather) -> None:
        """Join the outcomes of all workers."""
        self._rows = gather(torch.cat(self._rows))
        self._errors.gather(gather)

    @property
    def first(self) -> Tensor:
        """1 for a right answer and 0 for a wrong one, or its absolute error (n,)."""
        return torch.cat(self._rows)[:, 0]

    def beside(
        self, trivial: Tensor, classes: Sequence[Any] | None, seed: int, group: Tensor | None = None
    ) -> BesideTrivial | None:
        """Compare with a trivial answer, of which each item is right or has this absolute error (n,). None without a number.

        `classes`: their names, if any. `seed`: the run's seed. `group`: number of the group (n,) of each item.
        """
        rows = torch.cat(self._rows)
        if not len(rows):
            return None
        draw = _Resampling(len(rows), BLOCKS_OF_SERIES if self._kind.follows else MOST_BLOCKS, seed, group)
        options: BesideOptions = {}
        if self.rare:
            is_rare = self.rare.targets == self.rare.label
            counts = _counts(rows[:, 1], is_rare, len(rows))
            network, other = float(_auroc(*counts)), GUESSED
            differences = draw.areas(rows[:, 1], is_rare) - GUESSED
            name = str(classes[self.rare.label] if classes else self.rare.label)
            options["rare"] = {
                "name": name,
                "items": int(is_rare.sum()),
                "right": int(rows[is_rare, 0].sum()),
                "others": int((1 - rows[~is_rare, 0]).sum()),
                "average_precision": float(_average_precision(*counts)),
            }
        else:
            network, other = float(rows[:, 0].mean()), float(trivial.mean())
            differences = draw.means(rows[:, 0] - trivial)
        if self.by == "mae" and math.isfinite(r2 := self._errors.numbers()["r2"]):
            options["r2"] = r2
        tails = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
        low, high = (round(end, DIGITS) for end in torch.nanquantile(differences, tails).tolist())
        if not all(map(math.isfinite, (network, other, low, high))):
            return None
        return {"by": self.by, "network": network, "trivial": other, "low": low, "high": high, "items": len(rows), **options}


class _Resampling:
    """Resamples of n items, the same for all comparisons: each draws as many blocks of consecutive items, or groups, as there are."""

    def __init__(self, items: int, most_blocks: int, seed: int, group: Tensor | None = None) -> None:
        members = torch.arange(items) if group is None else torch.unique(group, return_inverse=True)[1]
        count = int(members.max()) + 1
        blocks = min(count, most_blocks)
        drawn = torch.from_numpy(generator(seed, "beside trivial answers").integers(blocks, size=(RESAMPLES, blocks)))
        places = drawn + blocks * torch.arange(RESAMPLES)[:, None]
        self._times = torch.bincount(places.flatten(), minlength=RESAMPLES * blocks).view(RESAMPLES, blocks)
        """(R, B): how often each block was drawn."""
        self._block = members * blocks // count
        """(n,): the block of each item."""

    def means(self, values: Tensor) -> Tensor:
        """Return the mean (R,) of the values (n,) in each resample."""
        columns = torch.stack([values, torch.ones_like(values)], 1)
        sums = columns.new_zeros(self._times.shape[1], 2).index_add_(0, self._block, columns)
        total, count = (self._times.to(sums.dtype) @ sums).unbind(1)
        return total / count

    def areas(self, scores: Tensor, is_rare: Tensor) -> Tensor:
        """Return the area under the ROC curve (R,) of scores (n,) in each resample; NaN without an item of either class."""
        blocks = self._times.shape[1]
        counts = (self._times.float() @ part.float() for part in _counts(scores, is_rare, MOST_VALUES, self._block, blocks))
        return _auroc(*counts)


def _counts(scores: Tensor, is_rare: Tensor, most: int, block: Tensor | None = None, blocks: int = 1) -> tuple[Tensor, Tensor]:
    """Count rare and other items by block and by their scores' place among `most` scores of rare items: two tensors (B, K)."""
    edges = torch.unique(scores[is_rare])
    edges, scores = edges[:: -(-len(edges) // most)].contiguous(), scores.contiguous()
    places = torch.searchsorted(edges, scores) + torch.searchsorted(edges, scores, right=True)
    width = 2 * len(edges) + 1
    places = places if block is None else places + width * block
    rare, other = (torch.bincount(places[mask], minlength=blocks * width).view(blocks, width) for mask in (is_rare, ~is_rare))
    return rare, other


def _auroc(rare: Tensor, other: Tensor) -> Tensor:
    """Return the share (...) of pairs of a rare item and another in which the rare one has the higher score; equal scores count half."""
    below = other.cumsum(-1) - other / 2
    return (rare * below).double().sum(-1) / (rare.sum(-1).double() * other.sum(-1))


def _average_precision(rare: Tensor, other: Tensor) -> Tensor:
    """Return the mean (...) over the rare items of the share of rare ones among all items with their score or a higher one."""
    above, others = (counts.flip(-1).cumsum(-1).double() for counts in (rare, other))
    return (rare.flip(-1) * above / (above + others).clamp(min=1)).sum(-1) / rare.sum(-1)


def absolute_errors(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the mean absolute error of each item (n,)."""
    return (answers - targets).abs().double().reshape(len(targets), -1).mean(1)
