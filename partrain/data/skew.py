"""Label skew between partitions: measure it, warn about it, and group items by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Indices = NDArray[int64]


def label_groups(targets: NDArray[Any]) -> list[NDArray[Any]]:
    """Return group numbers (n,) for each output: the class, or the number's tenth of the data set (from a sample, if large)."""
    import numpy as np

    if targets.ndim == 1:
        return [np.unique(targets, return_inverse=True)[1]]
    groups = []
    for column in targets.T:
        sample = column[:: len(column) // 100_000 + 1]
        finite = sample[np.isfinite(sample)]
        edges = np.unique(np.quantile(finite, np.arange(1, 10) / 10)) if len(finite) else finite
        groups.append(np.searchsorted(edges, column, side="right"))
    return groups


def label_skew(targets: NDArray[Any], partitions: Sequence[Indices | range]) -> list[float]:
    """Measure each partition's distance from all together: 0 for equal distributions of targets, towards 1 for disjoint ones.

    It is the total variation distance of class shares: the share of a partition's items that would need another class. Numbers
    are first sorted into tenths of the data set. With several outputs, the one with the largest distance counts.

    Args:
        targets: (n,) class labels or (n, outputs) numbers.
        partitions: Each worker's items.
    """
    import numpy as np

    worst = np.zeros(len(partitions))
    for numbers in label_groups(targets):
        counts = np.stack([np.bincount(numbers[_index(part)], minlength=int(numbers.max()) + 1) for part in partitions])
        shares = counts / counts.sum(axis=1, keepdims=True)
        worst = np.maximum(worst, _distances(shares, counts.sum(axis=0) / counts.sum()))
    return [round(float(distance), 4) for distance in worst]


def skew_warning(targets: NDArray[Any], windows: Sequence[range]) -> str | None:
    """Warn if the targets of two workers are too dissimilar to average what they learn; for items in the order given.

    Two partitions are compared as in `label_skew`. Tenths of numbers reveal a partition that is merely flatter (which misled the
    older trainers' stop rule) as well as one with larger values. The limit is 1/5 (normal distributions half a standard deviation
    apart, a medium effect) beyond twice the distance by chance, which for G classes is on average at most
    sqrt((G-1) (1/p_a + 1/p_b) / 2 pi).

    Args:
        targets: (n,) class labels or (n, outputs) numbers of the training items, in their order.
        windows: Each worker's items in that order.

    Returns:
        One sentence that names the worker least like the whole, and the worker least like that one; None if all are similar.
    """
    import numpy as np

    worst = (0.0, "")
    for numbers in label_groups(targets):
        count = int(numbers.max()) + 1
        shares = np.stack([np.bincount(numbers[w.start : w.stop], minlength=count) / len(w) for w in windows])
        a = int(_distances(shares, np.bincount(numbers) / len(numbers)).argmax())
        b = int(_distances(shares, shares[a]).argmax())
        distance = float(_distances(shares[b], shares[a]))
        chance = float(np.sqrt((count - 1) * (1 / len(windows[a]) + 1 / len(windows[b])) / (2 * np.pi)))
        text = (
            f'order = "given" skews the labels: the targets of workers {a} and {b} differ by {distance:.0%} (total variation distance;'
            f' about {chance:.0%} by chance); order = "shuffled" avoids it'
        )
        worst = max(worst, (distance - 2 * chance, text))
    return worst[1] if worst[0] > 0.2 else None


def _index(part: Indices | range) -> Indices | slice:
    return slice(part.start, part.stop) if isinstance(part, range) else part


def _distances(shares: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Compute total variation distances between class shares (..., G) and (G,)."""
    distances: NDArray[Any] = abs(shares - other).sum(axis=-1) / 2
    return distances
