"""Topologies: the graph of workers that mix with each other, and the mixing matrix W over it.

Every W here is symmetric and doubly stochastic, so mixing keeps the mean of all replicas. Its graph is connected, so the replicas
draw together. All workers of a graph have the same number of neighbours, hence W_ij = 1 / (1 + neighbours) for each neighbour and
for the worker itself. A neighbour in two directions counts once.

    ring          the ranks before and after
    torus         the most nearly square grid, whose edges meet; with a prime number of workers it is a ring
    exponential   the ranks 1, 2, 4, ... before and after
    complete      all others

Source: Lian et al. Can Decentralized Algorithms Outperform Centralized Algorithms? 2017. arXiv:1705.09056
Source: Ying et al. Exponential Graph is Provably Efficient for Decentralized Deep Training. 2021. arXiv:2110.13363
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

Topology = Literal["ring", "torus", "exponential", "complete"]


def peers(topology: Topology, rank: int, size: int, round_number: int = 0) -> list[tuple[int, float]]:
    """Return row `rank` of W in ascending order, including the worker itself: (peer, W_ij). It is the same in every round."""
    linked = sorted({rank, *_neighbours(topology, rank, size)})
    return [(peer, 1 / len(linked)) for peer in linked]


def pairs(topology: Topology, size: int, round_number: int, draw: np.random.Generator | None = None) -> list[int]:
    """Return the partner of every rank in disjoint pairs of neighbours; a rank that is left over is its own partner.

    Pairs change from round to round:

    complete      a random perfect matching, from `draw`, which must be equal on all workers
    ring          each even rank with the next, then each odd one
    torus         the same along the rows, along the columns, then both with the odd ones
    exponential   rank XOR 2^k, k = 0, 1, ... in turn: after all k the mean is exact. Only for powers of two
    """
    if topology == "complete":
        assert draw is not None, "a random matching needs a generator"
        order = draw.permutation(size).tolist()
        matched = list(zip(order[::2], order[1::2], strict=False))
        partners = dict(matched) | {other: rank for rank, other in matched}
        return [partners.get(rank, rank) for rank in range(size)]
    if topology == "exponential":
        if not pairable(topology, size):
            raise ValueError(f"{size} workers have no exponential pairs: it needs a power of two")
        hops = max(size.bit_length() - 1, 1)
        return [(rank ^ 1 << round_number % hops) % size for rank in range(size)]
    rows, columns = grid(size) if topology == "torus" else (1, size)
    ways = [(across, start) for start in (0, 1) for across in (True, False) if (columns if across else rows) > 1]
    if not ways:
        return [0]
    across, start = ways[round_number % len(ways)]
    if across:
        return [row * columns + _beside(column, columns, start) for row in range(rows) for column in range(columns)]
    return [_beside(row, rows, start) * columns + column for row in range(rows) for column in range(columns)]


def pairable(topology: Topology, size: int) -> bool:
    """Return whether `pairs` has pairs for this number of workers."""
    return topology != "exponential" or size & (size - 1) == 0


def grid(size: int) -> tuple[int, int]:
    """Return rows and columns of the most nearly square grid, with rows <= columns."""
    rows = next(rows for rows in range(math.isqrt(size), 0, -1) if size % rows == 0)
    return rows, size // rows


def _neighbours(topology: Topology, rank: int, size: int) -> list[int]:
    """List the ranks one hop away."""
    if topology == "complete":
        return list(range(size))
    if topology == "torus":
        rows, columns = grid(size)
        row, column = divmod(rank, columns)
        beside = [row * columns + (column + hop) % columns for hop in (-1, 1)]
        return beside + [(row + hop) % rows * columns + column for hop in (-1, 1)]
    hops = [1] if topology == "ring" else [1 << power for power in range((size - 1).bit_length())]
    return [(rank + sign * hop) % size for hop in hops for sign in (-1, 1)]


def _beside(index: int, length: int, start: int) -> int:
    """Return the partner of an index on a ring, with pairs that begin at even indices, or (`start` 1) at odd ones."""
    partner = index + 1 if (index - start) % 2 == 0 else index - 1
    if length % 2 and not 0 <= partner < length:
        return index  # on an odd ring one index is left over
    return partner % length
