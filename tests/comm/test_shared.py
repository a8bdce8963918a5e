"""Barriers between processes: no process passes one before all have arrived."""

import random
import time
from functools import partial

import pytest
from support.lab import in_processes
from torch import Tensor

from partrain.comm.group import ArenaGroup


def race(group: ArenaGroup, row: Tensor, spin: bool) -> bool:
    """Let each process write its turn, then read all turns: none is behind, and none is ahead until the next barrier."""
    group.transport._spin_s = 100e-6 if spin else 0.0
    moods, turns = random.Random(group.rank), group.arena.beats
    for turn in range(1, 300):
        turns[group.rank] = turn
        if moods.random() < 0.02:
            time.sleep(0.002)
        group.barrier()
        if (turns != turn).any():
            return False
        group.barrier()
    return True


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("spin", [True, False], ids=["spinning", "sleeping"])
def test_no_process_passes_a_barrier_before_all_have_arrived(size: int, spin: bool) -> None:
    assert in_processes(size, partial(race, spin=spin)) == [True] * size
