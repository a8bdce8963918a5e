"""Items that are windows over one long sequence, in its order: training | gap | held out | gap | test.

An item sees the first part of its window; the end of the window is its target. No item before the gap sees or has as target
any target of an item after the gap. The inputs after the gap may reach back over it, as when the network is used.
The windows overlap in memory as well: none is copied.
"""

from __future__ import annotations

from dataclasses import dataclass

from partrain.data.base import DataSection, WrongSetting
from partrain.errors import InputMissing

FOLD_IN_TIME = (
    "`fold`: the items follow one another in time; those after a fold would be trained on, and see what the fold is to forecast"
)


@dataclass(frozen=True)
class WindowSplit:
    """Sizes of the parts, in items."""

    items: int
    """Items to train on or to hold out."""
    gap: int
    """Number of items between training and held-out items."""
    first_test: int
    tests: int

    def training_elements(self, validation: int, span: int, stride: int) -> int:
        """Return the number of elements of the sequence that training items see or have as targets."""
        return max(0, self.items - validation - 1) * stride + span


def refuse_fold(section: DataSection) -> None:
    """Raise WrongSetting if a section of such items holds out a fold: only items before the held-out ones may be trained on."""
    if section.fold:
        raise WrongSetting("fold", FOLD_IN_TIME, "use `validation`: it holds out the last items")


def split_windows(
    where: str, elements: int, span: int, input_length: int, stride: int, validation: int, tests: int
) -> WindowSplit:
    """Split a sequence of `elements`.

    Args:
        where: Name of the sequence, for messages.
        elements: Length of the sequence.
        span: Elements of a window.
        input_length: Length of the targets, the elements at the end of a window.
        stride: Elements from the beginning of one window to the beginning of the next.
        validation: Items to hold out.
        tests: Items to test on.

    Raises:
        InputMissing: the sequence is too short.
    """
    windows = max(0, (elements - span) // stride + 1)
    gap = -(-input_length // stride) - 1
    items = windows - tests - gap * (bool(validation) + bool(tests))
    if items < 1:
        wanted = f"one window takes {span:,}" + (f", and {tests:,} are for the test" if tests else "")
        raise InputMissing(f"{where}: too short: it has {elements:,} elements, {wanted}")
    return WindowSplit(items, gap if validation else 0, windows - tests, tests)
