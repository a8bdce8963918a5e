"""Workers in one process take turns: always in the same order, and what can't go on is named."""

import os
import threading

import pytest
import torch
from lab import in_processes, simulate
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.comm.simulated import Abandoned, Baton, Deadlock


def test_one_worker_runs_at_a_time_and_the_lowest_rank_first() -> None:
    log: list[tuple[int, int]] = []

    def program(group: ArenaGroup, row: Tensor) -> None:
        for turn in range(3):
            log.append((turn, group.rank))
            group.barrier()

    simulate(3, program)
    assert log == [(turn, rank) for turn in range(3) for rank in range(3)]


def test_who_waits_for_nothing_is_not_interrupted() -> None:
    log: list[int] = []

    def program(group: ArenaGroup, row: Tensor) -> None:
        for _ in range(200):
            log.append(group.rank)
            os.sched_yield()

    simulate(2, program)
    assert log == [0] * 200 + [1] * 200


def test_a_deadlock_is_named() -> None:
    """Worker 1 leaves without coming to the second barrier."""

    def program(group: ArenaGroup, row: Tensor) -> None:
        group.barrier()
        if group.rank != 1:
            group.barrier()

    with pytest.raises(Deadlock, match="worker 0 waits for barrier 2; worker 2 waits for barrier 2"):
        simulate(3, program)


def test_a_rule_that_forgets_a_verb_on_one_worker_is_a_deadlock() -> None:
    def program(group: ArenaGroup, row: Tensor) -> None:
        if group.rank == 0:
            group.all_reduce_mean(torch.ones(2))

    with pytest.raises(Deadlock, match="worker 0 waits for barrier 1"):
        simulate(2, program, numbers=64, wire=32)


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_failing_worker_takes_the_others_with_it(culprit: int) -> None:
    ended: dict[int, BaseException] = {}

    def program(group: ArenaGroup, row: Tensor) -> None:
        try:
            group.barrier()
            if group.rank == culprit:
                raise ZeroDivisionError("mine")
            group.barrier()
        except BaseException as error:
            ended[group.rank] = error
            raise

    with pytest.raises(ZeroDivisionError, match="mine"):
        simulate(3, program)
    assert {rank: type(error) for rank, error in ended.items()} == {
        rank: ZeroDivisionError if rank == culprit else Abandoned for rank in range(3)
    }
    assert all(error.__cause__ is ended[culprit] for rank, error in ended.items() if rank != culprit)


def test_workers_that_start_late_are_waited_for() -> None:
    """The baton may be handed out before a thread has asked for it."""
    baton, log = Baton(2), []

    def member(rank: int) -> None:
        baton.wait(rank, lambda: True, "the start")
        log.append(rank)
        baton.arrive(rank)
        baton.leave(rank)

    threads = [threading.Thread(target=member, args=(rank,)) for rank in (1, 0)]
    baton.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log == [0, 1]


def fail(group: ArenaGroup, row: Tensor) -> None:
    if group.rank == 1:
        raise ZeroDivisionError("in a process")
    group.barrier()


def test_a_failing_process_is_heard_while_others_wait() -> None:
    with pytest.raises(ZeroDivisionError, match="in a process"):
        in_processes(3, fail)
