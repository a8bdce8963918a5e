"""Groups of items that belong together, such as the rows of one person: each group is held out, or tested on, as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partrain.data.folds import Fold, HeldOut
from partrain.errors import InputMissing
from partrain.seeds import generator

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


def draw_groups(chosen: HeldOut, groups: NDArray[int64], seed: int, labels: NDArray[Any] | None = None) -> NDArray[int64]:
    """Return the items of the held-out groups, in order.

    The seed draws an order of the groups. A group is held out if that brings the number of items, and of each class, nearer to
    the target (in the sum of squares), unless it is the last group of a class. For folds the largest groups come first, and each
    goes to the fold that it brings nearer than others.

    Args:
        chosen: Approximate number of items to hold out, or a fold.
        groups: (n,) number of the group of each item.
        seed: The seed of the draw.
        labels: (n,) classes, to hold out in proportion; None: ignore classes.

    Raises:
        InputMissing: there are too few groups to hold out some and train on others.
    """
    import numpy as np

    n, parts = len(groups), chosen.folds if isinstance(chosen, Fold) else 1
    names, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < max(parts, 2):
        what = (
            f"{parts:,} folds are more than" if parts > 1 else "some groups are held out and others trained on, and there is only"
        )
        raise InputMissing(f"`group`: {what} {'the ' * (parts > 1)}{len(names):,} group{'s' * (len(names) > 1)}")
    classes, kinds = (1, np.zeros(n, np.int64)) if labels is None else _numbered(labels)
    pairs, counts = np.unique(members * classes + kinds, return_counts=True)
    owners, kinds = np.divmod(pairs, classes)
    first = np.searchsorted(owners, np.arange(len(names) + 1))
    share = 1 / parts if isinstance(chosen, Fold) else chosen / n
    lacking = np.tile(np.append(np.bincount(kinds, counts, classes), n) * share, (parts, 1))
    left = np.bincount(kinds, minlength=classes)  # groups of each class that are not yet in a part
    part_of, order = np.full(len(names), -1), generator(seed, "groups").permutation(len(names))
    for group in order[np.argsort(-sizes[order], kind="stable")] if isinstance(chosen, Fold) else order:
        own = slice(first[group], first[group + 1])
        places, more = np.append(kinds[own], classes), np.append(counts[own], sizes[group])
        gains = ((2 * lacking[:, places] - more) * more).sum(1)
        if isinstance(chosen, Fold) or (gains[0] > 0 and (labels is None or (left[kinds[own]] > 1).all())):
            part_of[group] = best = int(gains.argmax())
            lacking[best, places] -= more
            left[kinds[own]] -= 1
    held = part_of == (chosen.number - 1 if isinstance(chosen, Fold) else 0)
    if held.all() or not held.any():  # the number is below half of the smallest group, or close to the number of all items
        held[order[sizes[order].argmin()]] = not held.any()
    return np.flatnonzero(held[members])


def _numbered(labels: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    import numpy as np

    names, numbers = np.unique(labels, return_inverse=True)
    return len(names), numbers
