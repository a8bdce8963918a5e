"""The `[partition]` table: held-out items, and the training items of each worker, as windows with overlap.

The rule. The held-out items are split off first. The n training items are put in order (a seeded shuffle, or as given) and
each of the N workers gets a *window*: consecutive items of that order. Windows lie on a line, not on a circle.

1. No worker has a `partition_size`: all get p = ceil(n / (1 + (N-1)(1-overlap))) items and worker j starts at
   floor(j (n-p) / (N-1)). So the first window begins at 0, the last ends at n, and overlaps are even to within one item.
2. All workers have one: sizes are exact and determine the overlap. With b items in the windows before worker j and a items in
the windows after it, worker j starts at floor((n-p_j) b / (b+a)). For equal sizes this is rule 1. If the sizes add up to n or
more, every item is covered and the excess becomes overlap; if they add up to less, the gaps are spread in the same way.
3. Some have one: these workers first take consecutive items of their own, in rank order and disjoint; the rest share what remains
by rule 1.

Equal sizes, as starts (the same windows that the older trainers' unit tests expect):

>>> [[w.start for w in windows(n, [p] * count)] for n, count, p in [(6, 3, 3), (5, 3, 2), (9, 4, 3), (100, 6, 40)]]
[[0, 1, 3], [0, 1, 3], [0, 2, 4, 6], [0, 12, 24, 36, 48, 60]]

The older trainers spaced windows by floor((n-p)/(N-1)) and let the last one jump to the end. If that does not divide evenly,
their last overlap was smaller than the others, and could be a hole: for n = 9 and 5 workers of 2 items they started at 0, 1, 2,
3, 7 and no worker had items 5 and 6. Here:

>>> [w.start for w in windows(9, [2] * 5)]
[0, 1, 3, 5, 7]

Six processors of 2,200 items and two GPUs of 22,000 on 57,200 items: exact sizes, no holes, nothing shared. (The older trainer cut
the second kind's slice at [used, m) instead of [used, used + m), so that it lost the items the first kind had used.)

>>> [(w.start, w.stop) for w in windows(57_200, [2_200] * 6 + [22_000] * 2)][5:]
[(11000, 13200), (13200, 35200), (35200, 57200)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from partrain.config.problems import Finding, WrongValue
from partrain.config.section import Section
from partrain.data import orders
from partrain.data.base import DataSection, Dataset, Training
from partrain.data.folds import Fold, HeldOut, held_out_count
from partrain.data.groups import draw_groups
from partrain.data.skew import label_groups
from partrain.data.windows import FOLD_IN_TIME, refuse_fold
from partrain.errors import InputMissing
from partrain.number_format import plural
from partrain.seeds import generator

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Indices = NDArray[int64]

Order = Literal["shuffled", "given", "stratified", "by-label", "dirichlet", "by-group"]


class Partition(Section):
    """The `[partition]` table."""

    overlap: float = Field(0.0, ge=0, lt=1)
    """Share of a worker's items that the next worker also has. 0: disjoint; all sizes are equal, so if the items do not divide
    evenly, neighbours share up to one. No effect if all workers have a `partition_size`."""
    order: Order = "shuffled"
    """Order of the items; each worker gets consecutive ones. `shuffled`: by the seed. `given`: as in the
    file. `stratified`: classes mixed evenly. `by-label`: sorted by class. `dirichlet`: uneven shares of the classes, set by
    `alpha`. For numbers, the tenths of the targets serve as classes. `by-group`: each worker has whole groups of `[dataset]
    group`; their numbers differ by one at most. With as many workers as groups, each person or machine has a worker."""
    alpha: float | None = Field(None, gt=0, le=1e6)
    """For `dirichlet`: the smaller, the fewer classes each worker sees. 1 is very uneven, 100 mildly uneven."""
    size_alpha: float | None = Field(None, gt=0, le=1e6)
    """Draw unequal sizes of the partitions, as shares of a Dirichlet distribution: the smaller, the more unequal; 1 is very
    unequal.
    Default: equal sizes."""
    clients: int | None = Field(None, ge=2)
    """Number of clients among which the items are shared, instead of the workers. In each round each worker takes the items of one
    client, which partrain draws. So there may be far more clients than workers; a client keeps no state from one round to the
    next. Default: each worker is a client, and keeps its items."""
    redraw: Literal["never", "round"] = "never"
    """`never`: each worker keeps its items. `round`: partrain draws new partitions for each round, by the seed."""
    sampling: Literal["permutation", "balanced"] = "permutation"
    """Items of a pass, in an order drawn by the seed. `permutation`: each item once. `balanced`: one draw per item, with
    replacement, each class equally often."""
    balance: Literal["none", "rate"] = "none"
    """Work of workers of different speed. `rate`: partrain measures the first rounds, then gives each worker iterations and items in
    proportion to its speed, with the same totals as before, for the rest of the run. So results depend on the clock."""
    uncovered: Literal["error", "allow"] = "error"
    """Reaction if the values of `partition_size` leave items without a worker: refuse the job, or leave these items out."""

    @model_validator(mode="after")
    def _redraw_shuffles(self) -> Partition:
        if self.redraw == "round" and self.clients:
            raise ValueError(
                'redraw = "round" draws other items for a client each round, which contradicts `clients`: leave it out'
            )
        if self.redraw == "round" and self.order == "given":
            raise ValueError('redraw = "round" shuffles the items again each round, which contradicts order = "given"')
        if self.redraw == "round" and self.order == "by-group":
            raise ValueError('redraw = "round" draws other items for a worker each round, which contradicts order = "by-group"')
        return self

    @model_validator(mode="after")
    def _alpha_of_dirichlet(self) -> Partition:
        if (self.alpha is None) == (self.order == "dirichlet"):
            raise ValueError('order = "dirichlet" and `alpha` go together: add alpha = 1.0, say, or remove it')
        return self

    @property
    def needs_targets(self) -> bool:
        """True if the order depends on the items' targets."""
        return self.order not in ("shuffled", "given", "by-group")

    @property
    def draws_sizes(self) -> bool:
        """True if the sizes of the partitions are drawn, or follow from groups or clients; see `drawn_sizes`."""
        return bool(self.sizes_by)

    @property
    def sizes_by(self) -> str:
        """The setting that decides the sizes of the partitions; "" if they are equal, or come from `partition_size`."""
        if self.order == "by-group":
            return 'order = "by-group"'
        return "`size_alpha`" if self.size_alpha is not None else "`clients`" if self.clients else ""


def windows(n: int, sizes: Sequence[int | None], overlap: float = 0.0) -> list[range]:
    """Compute the window of each worker, by rank, over `n` training items in their order (the rule above).

    Args:
        n: Training items, without held-out ones.
        sizes: Each worker's `partition_size`, or None.
        overlap: Share of a partition that its neighbour also has, for workers without a size.

    Raises:
        ValueError: a size exceeds n or is below 1; more workers than items; nothing remains for workers without a size.
    """
    _check(n, sizes)
    exact = [size for size in sizes if size is not None]
    if len(exact) == len(sizes):
        return _spread(n, exact)
    return _exact_first(n, sizes, sum(exact), overlap)


def uncovered(n: int, windows: Sequence[range]) -> list[range]:
    """Return the runs of consecutive items that no window holds, in order.

    >>> uncovered(10, [range(2, 5), range(4, 8)])
    [range(0, 2), range(8, 10)]
    """
    holes, reached = [], 0
    for window in sorted((w for w in windows if w), key=lambda w: w.start):
        if window.start > reached:
            holes.append(range(reached, min(window.start, n)))
        reached = max(reached, window.stop)
    return [*holes, range(reached, n)] if reached < n else holes


def _check(n: int, sizes: Sequence[int | None]) -> None:
    if not sizes:
        raise ValueError("there are no workers to share the items")
    if len(sizes) > n:
        raise ValueError(f"{len(sizes)} workers are more than the {n} training items: some partitions would be empty")
    for rank, size in enumerate(sizes):
        if size is not None and size < 1:
            raise ValueError(f"worker {rank}: partition_size = {size} is an empty partition")
        if size is not None and size > n:
            raise ValueError(f"worker {rank}: partition_size = {size} exceeds the {n} training items")


def _spread(n: int, sizes: Sequence[int]) -> list[range]:
    """Spread windows of these exact sizes evenly from 0 to n.

    Window j's share of the way is b / (b+a): the items in windows before it over the items in all other windows. If the sizes add
    up to n or more, the next start never exceeds this end (both are linear in the excess, with equality at excess 0): no holes.
    """
    total, before, result = sum(sizes), 0, []
    for size in sizes:
        start = (n - size) * before // max(total - size, 1)
        result.append(range(start, start + size))
        before += size
    return result


def _exact_first(n: int, sizes: Sequence[int | None], taken: int, overlap: float) -> list[range]:
    """Place exact sizes from 0 on, without overlap. The workers without a size share the other items evenly."""
    others = sizes.count(None)
    if n - taken < others:
        raise ValueError(
            f"partition_size takes {taken} of the {n} training items: the {others} {plural('worker', others)} without one cannot share the"
            f" {max(n - taken, 0)} that remain; lower it, or give every worker a partition_size"
        )
    shared = iter(_spread(n - taken, [_even_size(n - taken, others, overlap)] * others))
    result, start = [], 0
    for size in sizes:
        if size is None:
            window = next(shared)
            result.append(range(taken + window.start, taken + window.stop))
        else:
            result.append(range(start, start + size))
            start += size
    return result


def _even_size(n: int, count: int, overlap: float) -> int:
    """Compute p = ceil(n / (1 + (N-1)(1-overlap))), with `overlap` as the decimal fraction that the job file shows.

    >>> _even_size(19, 2, 0.1)  # 19 / 1.9; in floating point 1 + (1 - 0.1) may come out a hair smaller, and p one item larger
    10
    """
    from fractions import Fraction

    return -int(-n // (1 + (count - 1) * (1 - Fraction(repr(overlap)))))


@dataclass(frozen=True, eq=False)
class Assignment:
    """Each worker's items, as indices into the data set."""

    partitions: tuple[Indices, ...]
    """(p_j,) int64 each, by rank."""
    held_out: Indices
    """(h,) int64: items that no worker trains on."""

    def in_rows(self, rows: Indices | None) -> Assignment:
        """Return these items as indices of the arrays whose `rows` (n,) are items; None: all rows."""
        return self if rows is None else Assignment(tuple(rows[part] for part in self.partitions), rows[self.held_out])


def hold_out(
    n: int,
    chosen: HeldOut | Indices,
    order: Order,
    seed: int,
    gap: int | None = None,
    labels: NDArray[Any] | None = None,
    rows: Indices | None = None,
    groups: Indices | None = None,
) -> tuple[Indices, Indices]:
    """Split `n` items into training items, in the order from which windows are cut, and held-out items.

    `chosen` is a number h of held-out items, a fold, or the indices of the held-out items. With `groups` (n,), whole groups are
    held out (`draw_groups`), so h is approximate. Shuffled: the first h items of a permutation by the job's seed are held
    out; with `labels` (n,), the first ones of each class, in proportion. As given, or if items follow one another in time:
    the last items are held out, and no worker gets the items that begin within the `gap` before them. If the items are `rows`
    (n,) of larger arrays, indices and labels refer to rows.

    Fold i of k is the i-th of k blocks of the permutation, or of the items as given. With `labels`, the permutation is sorted by
    class, stably, and its positions i-1, i-1 + k, i-1 + 2k, ... are the fold: within each class, too, folds differ by one item at
    most.

    Returns:
        (n - h,) and (h,) int64 indices.

    Raises:
        ValueError: nothing would remain to train on or, in a fold, to hold out; or a fold of items that follow one another in
            time.
    """
    import numpy as np

    if groups is not None and chosen and isinstance(chosen, HeldOut):
        chosen = draw_groups(chosen, groups, seed, labels)
    if not isinstance(chosen, HeldOut):
        held = np.zeros(n, bool)
        held[chosen] = True
        items = np.arange(n) if order == "given" else generator(seed, "order").permutation(n)
        return items[~held[items]], items[held[items]]
    validation = held_out_count(chosen, n)
    if not 0 <= validation < n:
        raise ValueError(f"validation = {validation} leaves none of the {n} items to train on")
    if rows is not None:
        among = hold_out(n, chosen, order, seed, gap, None if labels is None else labels[rows])
        return rows[among[0]], rows[among[1]]
    if isinstance(chosen, Fold):
        if n < chosen.folds:
            raise ValueError(f"{chosen.folds} folds are more than the {n} items: some would be empty")
        if gap is not None:
            raise ValueError(FOLD_IN_TIME)
        return _hold_out_fold(n, chosen, order, seed, labels)
    if order == "given" or gap is not None:
        items = np.arange(n)
        training, held_out = items[: n - validation], items[n - validation :] + (gap or 0)
        return training if order == "given" else generator(seed, "order").permutation(training), held_out
    items = generator(seed, "order").permutation(n)
    if labels is None:
        return items[validation:], items[:validation]
    _, numbers, counts = np.unique(labels[items], return_inverse=True, return_counts=True)
    together, quotas = np.argsort(numbers, kind="stable"), orders.in_proportion(validation, counts)
    held = np.zeros(n, bool)
    for first, quota in zip(np.cumsum(counts) - counts, quotas, strict=True):
        held[together[first : first + quota]] = True
    return items[~held], items[held]


def _hold_out_fold(n: int, fold: Fold, order: Order, seed: int, labels: NDArray[Any] | None) -> tuple[Indices, Indices]:
    """Split `n` items into training items and the items of a fold; see `hold_out`."""
    import numpy as np

    items = np.arange(n) if order == "given" else generator(seed, "order").permutation(n)
    held = np.zeros(n, bool)
    if labels is None or order == "given":
        held[fold.block(n)] = True
    else:
        held[np.argsort(labels[items], kind="stable")[fold.number - 1 :: fold.folds]] = True
    return items[~held], items[held]


def chosen_of(dataset: Dataset, section: DataSection) -> HeldOut | Indices:
    """Return the choice of the held-out items: by the data set itself, or by its section."""
    return section.held_out if dataset.held_out is None else dataset.held_out


def split(dataset: Dataset, section: DataSection, order: Order, seed: int) -> tuple[Indices, Indices]:
    """Return the indices of a data set's training items (none for a stream) and of its held-out items."""
    import numpy as np

    if dataset.stream:
        return np.arange(0), np.arange(dataset.items)
    labels = dataset.targets if section.stratify else None
    return hold_out(dataset.items, chosen_of(dataset, section), order, seed, dataset.gap, labels, dataset.rows)


def drawn_sizes(section: Partition, dataset: Dataset, chosen: DataSection, workers: int, seed: int) -> list[int]:
    """Return the sizes of the partitions where the section `draws_sizes` or has `clients`, by rank or by client.

    Raises WrongValue if there are fewer groups or items than workers or clients, or if the data set does not keep the groups of its
    items.
    """
    training, _ = split(dataset, chosen, section.order, seed)
    count = section.clients or workers
    who = plural("client" if section.clients else "worker", count)
    if section.order == "by-group":
        place = ("partition", "order")
        if dataset.group is None:
            raise WrongValue(Finding(place, "the windows of a series are not told apart by group", "use another order"))
        groups = dataset.group[training]
        if count > (most := len(set(groups.tolist()))):
            raise WrongValue(Finding(place, f"{count:,} {who} are more than the {most:,} groups of the training items"))
        return [len(part) for part in orders.by_group(groups, count)]
    if count > len(training):
        what = f"{count:,} {who} are more than the {len(training):,} training items"
        raise WrongValue(Finding(("partition", "clients" if section.clients else "size_alpha"), what))
    if section.size_alpha is None:
        return [len(window) for window in windows(len(training), [None] * count, section.overlap)]
    return orders.unequal_sizes(len(training), count, section.size_alpha, generator(seed, "sizes"))


def training_of(dataset: DataSection, section: Partition, seed: int) -> Training:
    """Return the function that selects a job's training items, for `data.load`."""

    def training(
        items: int, labels: NDArray[Any] | None = None, gap: int | None = None, groups: Indices | None = None
    ) -> Indices:
        if dataset.validation >= items:
            raise InputMissing(f"`validation` holds out {dataset.validation:,} of {items:,} items: none are left to train on")
        if isinstance(dataset.held_out, Fold):
            if gap is not None:
                refuse_fold(dataset)
            if items < dataset.held_out.folds:
                raise InputMissing(f"`fold`: {dataset.held_out.folds:,} folds are more than the {items:,} items")
        return hold_out(items, dataset.held_out, section.order, seed, gap, labels if dataset.stratify else None, None, groups)[0]

    return training


def assign(
    section: Partition,
    n: int,
    chosen: HeldOut | Indices,
    sizes: Sequence[int | None],
    seed: int,
    round_number: int | None = None,
    gap: int | None = None,
    targets: NDArray[Any] | None = None,
    *,
    groups: Indices | None = None,
    stratify: bool = False,
) -> Assignment:
    """Share `n` items among workers.

    Args:
        section: The `[partition]` table.
        n: Items of the training set, including held-out ones.
        chosen: Number of held-out items, a fold, or the held-out items.
        sizes: Each worker's `partition_size`, or None, by rank.
        seed: The job's seed.
        round_number: Number of the round, for `redraw = "round"`. The held-out items are the same in all rounds.
        gap: Items between training and held-out items, if items follow one another in time.
        targets: (n,) labels or (n, outputs) numbers, of which the first counts; needed by orders by class, and by `stratify`.
        groups: (n,) number of the group of each item; needed by `by-group`.
        stratify: Hold out each class in proportion.

    Raises:
        ValueError: as in `hold_out` and `windows`; or items without a worker, unless the section allows it.
    """
    import numpy as np

    training, held_out = hold_out(n, chosen, section.order, seed, gap, targets if stratify else None)
    cut = windows(len(training), sizes, section.overlap)
    if section.uncovered == "error" and (holes := uncovered(len(training), cut)):
        missed = sum(map(len, holes))
        raise ValueError(
            f"{missed} of the {len(training)} training items belong to no worker: the partition_size of all add up to too little;"
            ' raise them, leave one out, or set [partition] uncovered = "allow"'
        )
    which = ("round", round_number) if section.redraw == "round" and round_number is not None else ()
    if which:
        training = training[generator(seed, "redraw", *which[1:]).permutation(len(training))]
    if section.order == "by-group":
        assert groups is not None
        training = training[np.concatenate(orders.by_group(groups[training], len(sizes)))]
    if section.needs_targets:
        assert targets is not None
        numbers = label_groups(targets if targets.ndim == 1 else targets[:, :1])[0][training]
        training = training[_ordered(section, numbers, cut, seed, which)]
    return Assignment(tuple(training[window.start : window.stop] for window in cut), held_out)


def share_out(
    dataset: Dataset, chosen: DataSection, section: Partition, sizes: Sequence[int | None], seed: int, number: int | None = None
) -> Assignment:
    """Share the items of a data set among workers in round `number`; see `assign`."""
    held_out, stratify, targets, groups = chosen_of(dataset, chosen), chosen.stratify, dataset.item_targets, dataset.item_groups
    n, gap = dataset.items, dataset.gap
    return assign(section, n, held_out, sizes, seed, number, gap, targets, groups=groups, stratify=stratify)


def _ordered(section: Partition, numbers: NDArray[Any], cut: Sequence[range], seed: int, which: tuple[str | int, ...]) -> Indices:
    """Return positions of the training items in the section's order; `numbers` (n,) are their groups."""
    if section.order == "stratified":
        return orders.stratified(numbers)
    if section.order == "by-label":
        return orders.by_label(numbers)
    assert section.alpha is not None
    return orders.dirichlet(numbers, cut, section.alpha, generator(seed, "dirichlet", *which))
