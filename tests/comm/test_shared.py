"""Meetings of processes: no meeting ends before all workers have arrived, and each worker mixes to the same means."""

import random
import time
from functools import partial
from typing import Any

import pytest
from support.lab import in_processes
from torch import Tensor

from partrain.comm import futex
from partrain.comm.group import ArenaGroup

CORES = {"cores for all": [False] * 3, "too few cores": [True] * 3, "workers disagree": [True, False, True]}
"""By case: whether each worker finds that cores are short."""


def pretend(group: ArenaGroup, short: list[bool]) -> random.Random:
    """Let a worker believe that cores are short, or that they are not; return when it is late."""
    group.transport._look_at_cores = lambda now: None
    group.transport._cores_short = short[group.rank]
    return random.Random(group.rank)


def without_compiler(group: ArenaGroup, row: Tensor, program: Any) -> bool:
    """Run a program on a machine that has no C compiler."""
    futex._compiled = lambda: None  # type: ignore[assignment]
    return bool(program(group, row))


def race(group: ArenaGroup, row: Tensor, short: list[bool]) -> bool:
    """Let each process write its turn, then read all turns: none is behind, and none is ahead until the next barrier."""
    moods, turns = pretend(group, short), group.arena.beats
    for turn in range(1, 300):
        turns[group.rank] = turn
        if moods.random() < 0.02:
            time.sleep(0.002)
        group.barrier()
        if (turns != turn).any():
            return False
        group.barrier()
    return True


def average(group: ArenaGroup, row: Tensor, short: list[bool]) -> bool:
    """Average numbers of each turn; the mean of all ranks' is known."""
    moods = pretend(group, short)
    for turn in range(300):
        if moods.random() < 0.02:
            time.sleep(0.002)
        group.all_reduce_mean(row[:16].fill_(turn + group.rank))
        if (row[:16] != turn + (group.size - 1) / 2).any():
            return False
    return True


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("program", [race, average])
@pytest.mark.parametrize("short", CORES.values(), ids=CORES)
def test_no_process_passes_a_meeting_before_all_have_arrived(size: int, program: Any, short: list[bool]) -> None:
    assert in_processes(size, partial(program, short=short)) == [True] * size


@pytest.mark.parametrize("program", [race, average])
def test_meetings_need_no_c_compiler(program: Any) -> None:
    uncompiled = partial(without_compiler, program=partial(program, short=CORES["workers disagree"]))
    assert in_processes(3, uncompiled) == [True] * 3
