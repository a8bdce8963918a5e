"""What the rules with compressed messages share: the memory of what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Memory:
    """The state of error feedback."""

    error: Tensor
    """e_i (d,): what a worker has left out so far."""
