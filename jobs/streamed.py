"""The data that `streamed.toml` names: a stream of points that never are in memory together."""

from collections.abc import Iterator

import numpy as np


class Rings:
    """Points in the plane, and which of the rings around the origin each lies on."""

    classes = 3

    def __init__(self, items: int) -> None:
        self.items = items

    def item(self, number: int) -> tuple[np.ndarray, int]:
        """Make item `number`; real data would be read from a file or an archive here."""
        draw = np.random.default_rng(number)
        ring, angle = int(draw.integers(self.classes)), 2 * np.pi * draw.random()
        radius = 1 + ring + 0.15 * draw.normal()
        return np.array([radius * np.cos(angle), radius * np.sin(angle)]), ring

    def stream(self, rank: int, size: int, seed: int, pass_number: int, skip: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """Yield every `size`-th item, in an order that all workers share and that each pass has anew."""
        order = np.random.default_rng([seed, pass_number]).permutation(self.items)
        for number in order[rank::size][skip:]:
            yield self.item(int(number))

    def length(self, rank: int, size: int) -> int:
        """Count the items of the shard of worker `rank`: `[sync] passes` need it."""
        return len(range(rank, self.items, size))

    def validation(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield items to hold out. None of them is in the stream."""
        return (self.item(self.items + number) for number in range(1000))

    def test(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield the test items."""
        return (self.item(self.items + 1000 + number) for number in range(1000))
