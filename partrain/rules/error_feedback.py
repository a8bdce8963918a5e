"""Error feedback: compressed messages leave something out, and a worker adds it to its next message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class ErrorFeedbackState:
    """The error memory."""

    error: Tensor
    """e_i (d,): the sum of everything that this worker's messages left out."""
