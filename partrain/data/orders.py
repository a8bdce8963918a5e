"""Orders of items, beyond shuffled and given, from which partitions are cut: by class, evenly or unevenly.

Symbols: n training items in G groups (classes, or for numbers the tenths of the data set), n_g of them in group g.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy import int64
    from numpy.typing import NDArray

    Indices = NDArray[int64]


def stratified(groups: NDArray[Any]) -> Indices:
    """Order positions (n,) so that each run of consecutive ones has each group in proportion.

    The i-th item of group g is placed at the fraction (i + 1/2) / n_g of the order. Any prefix then has n_g's share of its items
    to within 1/2 + G n_g / 2n, which for equal groups is one item.
    """
    import numpy as np

    _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
    together = np.argsort(numbers, kind="stable")
    within = np.empty(len(numbers))
    within[together] = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.argsort((within + 0.5) / counts[numbers], kind="stable")


def by_label(groups: NDArray[Any]) -> Indices:
    """Sort positions (n,) by group: each worker sees few groups."""
    import numpy as np

    return np.argsort(groups, kind="stable")


def dirichlet(groups: NDArray[Any], windows: Sequence[range], alpha: float, random: np.random.Generator) -> Indices:
    """Order positions (n,) so that each window's group shares are a draw from Dirichlet(alpha n_g / n).

    The larger `alpha`, the more similar the workers; towards 0 each has as few groups as possible. Window sizes stay as given,
    and each item is used once. When a group is used up, the rest is redrawn over the other groups, so the last windows take the
    remainder. The first window that holds a shared item draws it; items in no window come last. (T.-M. H. Hsu, H. Qi, M. Brown.
    Measuring the effects of non-identical data distribution for federated visual classification. 2019. arXiv:1909.06335)
    """
    import numpy as np

    _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
    pools = np.split(np.argsort(numbers, kind="stable"), np.cumsum(counts)[:-1])
    line, used, reached = np.full(len(numbers), -1), np.zeros_like(counts), 0
    for rank in sorted(range(len(windows)), key=lambda rank: windows[rank].start):
        begin, end = max(reached, windows[rank].start), windows[rank].stop
        if begin < end:
            taken = _allot(end - begin, alpha * counts / len(numbers), counts - used, random)
            drawn = [pool[first : first + count] for pool, first, count in zip(pools, used, taken, strict=True)]
            line[begin:end] = random.permutation(np.concatenate(drawn))
            used, reached = used + taken, end
    rest = np.concatenate([pool[first:] for pool, first in zip(pools, used, strict=True)])
    line[line < 0] = random.permutation(rest)
    return line


def by_group(groups: NDArray[Any], parts: int) -> list[Indices]:
    """Return the positions (m,) of each part: whole groups, ordered by first item; group counts differ by one at most."""
    import numpy as np

    _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    owners = place[numbers] * parts // len(first)
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners, minlength=parts))[:-1])


def unequal_sizes(total: int, parts: int, alpha: float, random: np.random.Generator) -> list[int]:
    """Draw sizes of at least 1 that add up to `total`: shares of a Dirichlet distribution of equal concentrations `alpha`."""
    import numpy as np

    exact = (total - parts) * random.dirichlet(np.full(parts, alpha))
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - parts - int(sizes.sum())]] += 1
    return [int(size) + 1 for size in sizes]


def in_proportion(total: int, counts: NDArray[Any]) -> NDArray[Any]:
    """Share `total` among groups (G,) in proportion to `counts`: to within one, by largest remainder, and never above a count.

    >>> import numpy as np
    >>> in_proportion(10, np.array([50, 30, 19, 1])).tolist()
    [5, 3, 2, 0]
    """
    import numpy as np

    quotas, remainders = np.divmod(total * counts.astype(np.int64), counts.sum())
    quotas[np.argsort(-remainders, kind="stable")[: total - quotas.sum()]] += 1
    return quotas


def _allot(total: int, concentrations: NDArray[Any], left: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Draw counts (G,) that add up to `total`: shares from a Dirichlet distribution, as far as `left` allows."""
    import numpy as np

    allotted = np.zeros_like(left)
    while rest := total - int(allotted.sum()):
        free = np.flatnonzero(left > allotted)
        exact = rest * random.dirichlet(concentrations[free])
        wanted = np.floor(exact).astype(left.dtype)
        wanted[np.argsort(wanted - exact, kind="stable")[: rest - int(wanted.sum())]] += 1
        allotted[free] += np.minimum(wanted, (left - allotted)[free])
    return allotted
