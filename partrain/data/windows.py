"""Items that are windows over one long sequence, in its order: to train on | gap | held out | gap | test.

An item sees some of its window and is to give the rest, which lies at its end. What an item that is held out or tested is to give,
no item before the gap has seen or given; what it sees may reach back before the gap, as when the network is used. The windows of one
buffer overlap in memory, too: none is copied.
"""

from __future__ import annotations

from dataclasses import dataclass

from partrain.errors import InputMissing


@dataclass(frozen=True)
class WindowSplit:
    """Where the parts begin and end, in items."""

    items: int
    """To train on or held out."""
    gap: int
    """Between these two."""
    first_test: int
    tests: int

    def training_elements(self, validation: int, span: int, stride: int) -> int:
        """Elements of the sequence that items to train on see or give."""
        return max(0, self.items - validation - 1) * stride + span


def split_windows(where: str, elements: int, span: int, given: int, stride: int, validation: int, tests: int) -> WindowSplit:
    """Cut a sequence of so many elements.

    Args:
        where: What to call it in an error.
        span: Elements of a window.
        given: Of these, how many at its end the item is to give.
        stride: From the beginning of one window to that of the next.
        validation: Items to be held out.
        tests: Items to be tested.

    Raises:
        InputMissing: too short.
    """
    windows = max(0, (elements - span) // stride + 1)
    gap = -(-given // stride) - 1
    items = windows - tests - gap * (bool(validation) + bool(tests))
    if items < 1:
        wanted = f"one window takes {span:,}" + (f", and {tests:,} are for the test" if tests else "")
        raise InputMissing(f"{where}: too short: it has {elements:,} elements, {wanted}")
    return WindowSplit(items, gap if validation else 0, windows - tests, tests)
