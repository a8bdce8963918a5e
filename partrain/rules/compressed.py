"""What the rules with compressed messages share: the memory of what was left out, and the sum of what all workers say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from partrain.protocols import Group

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.compress.messages import Entries


@dataclass
class Memory:
    """The state of error feedback."""

    error: Tensor
    """e_i (d,): what a worker has left out so far."""


def sum_of_messages(
    group: Group, message: Tensor, read: Callable[[Tensor, int], Entries], d: int, weight: float | None
) -> tuple[Tensor, float]:
    """sum_i w_i q_i (d,) over what all workers' messages say, and sum_i w_i; without a weight each w_i is 1, and nobody is asked."""
    from partrain.compress.messages import total

    said = [read(one, d) for one in group.gather(message)]
    weights = [1.0] * len(said) if weight is None else [each for (each,) in group.scores(weight)]
    return total(said, weights, d), sum(weights)
