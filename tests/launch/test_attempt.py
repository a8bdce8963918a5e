"""An attempt of one of several machines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from partrain.launch.attempt import Attempt


@pytest.mark.parametrize(
    ("members", "arrivals", "late"),
    [
        (range(2, 4), [0, 0, 7, 9], [2]),  # workers 0 and 1 are of another machine, whose arrivals are never seen here
        (range(2), [8, 9, 0, 0], [0]),
        (range(4), [9, 7, 9, 7], [1, 3]),
    ],
)
def test_the_late_are_of_this_machine(members: range, arrivals: list[int], late: list[int]) -> None:
    attempt: Any = SimpleNamespace(members=members, done={}, arena=SimpleNamespace(arrivals=np.array(arrivals)))
    assert Attempt.stalled_workers(attempt) == late
