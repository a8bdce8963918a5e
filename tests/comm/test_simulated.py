"""Workers in one process take turns in a fixed order; an error names each deadlock."""

import os
from collections.abc import Callable, Sequence

import pytest
import torch
from support.lab import Snapshot, Trial, in_processes, same, simulate
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.comm.simulated import ITERATION_NS, Pace
from partrain.comm.transport import Abandoned, Deadlock
from partrain.protocols import Rule
from partrain.rules.async_ import Async
from partrain.rules.average import Average
from partrain.rules.easgd import Easgd
from partrain.rules.gossip import Gossip
from partrain.rules.hogwild import Hogwild


def test_one_worker_runs_at_a_time_and_the_lowest_rank_first() -> None:
    log: list[tuple[int, int]] = []

    def program(group: ArenaGroup, row: Tensor) -> None:
        for turn in range(3):
            log.append((turn, group.rank))
            group.barrier()

    simulate(3, program)
    assert log == [(turn, rank) for turn in range(3) for rank in range(3)]


def test_a_worker_that_does_not_wait_is_not_interrupted() -> None:
    log: list[int] = []

    def program(group: ArenaGroup, row: Tensor) -> None:
        for _ in range(200):
            log.append(group.rank)
            os.sched_yield()

    simulate(2, program)
    assert log == [0] * 200 + [1] * 200


def test_a_deadlock_is_named() -> None:
    """Worker 1 leaves before the second barrier."""

    def program(group: ArenaGroup, row: Tensor) -> None:
        group.barrier()
        if group.rank != 1:
            group.barrier()

    with pytest.raises(Deadlock, match="worker 0 waits for barrier 2; worker 2 waits for barrier 2"):
        simulate(3, program)


def test_a_rule_that_skips_an_operation_on_one_worker_is_a_deadlock() -> None:
    def program(group: ArenaGroup, row: Tensor) -> None:
        if group.rank == 0:
            group.all_reduce_mean(torch.ones(2))

    with pytest.raises(Deadlock, match="worker 0 waits for barrier 1"):
        simulate(2, program, numbers=64, wire=32)


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_failing_worker_stops_the_others(culprit: int) -> None:
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


def fail(group: ArenaGroup, row: Tensor) -> None:
    if group.rank == 1:
        raise ZeroDivisionError("in a process")
    group.barrier()


def test_the_error_of_a_process_is_raised_while_others_wait() -> None:
    with pytest.raises(ZeroDivisionError, match="in a process"):
        in_processes(3, fail)


# The simulated clock


def clocks(size: int, steps: Callable[[ArenaGroup], None], paces: Sequence[Pace]) -> list[float]:
    """Return the simulated milliseconds of each worker."""

    def program(group: ArenaGroup, row: Tensor) -> float:
        steps(group)
        return round(group.transport.clock() * 1e3, 6)

    return simulate(size, program, paces=paces)


def work(group: ArenaGroup, iterations: int = 4) -> None:
    for _ in range(iterations):
        group.transport.advance_clock(0, 1)


@pytest.mark.parametrize(("iterations", "milliseconds"), [(4, 7.0), (12, 12.0)])
def test_a_message_travels_while_the_worker_trains(iterations: int, milliseconds: float) -> None:
    """An exchange that begins before the training takes 7 ms beside it, not after it."""

    def steps(group: ArenaGroup) -> None:
        arrived = group.start_exchange(torch.full((2,), float(group.rank)), [1 - group.rank])
        work(group, iterations)
        assert arrived()[0].tolist() == [1.0 - group.rank] * 2

    assert clocks(2, steps, [Pace(delay_s=0.007)] * 2) == [milliseconds] * 2


def test_an_iteration_takes_a_millisecond_divided_by_the_speed() -> None:
    assert clocks(3, work, [Pace(), Pace(speed=0.25), Pace(speed=2.0)]) == [4.0, 16.0, 2.0]
    assert ITERATION_NS == 1_000_000


def test_a_barrier_ends_at_the_last_arrival_and_each_worker_adds_its_delay() -> None:
    def meet(group: ArenaGroup) -> None:
        work(group)
        group.barrier()

    assert clocks(3, meet, [Pace(), Pace(speed=0.5), Pace()]) == [8.0] * 3
    assert clocks(3, meet, [Pace(), Pace(speed=0.5), Pace(delay_s=5e-3)]) == [9.0] * 3, "4 + 5 is later than 8"
    assert clocks(2, lambda group: [meet(group) for _ in range(3)], [Pace(), Pace(delay_s=1e-3)]) == [15.0] * 2


def test_waiting_and_working_are_counted_separately() -> None:
    def program(group: ArenaGroup, row: Tensor) -> float:
        work(group)
        group.barrier()
        return round(group.waited * 1e3, 6)

    assert simulate(2, program, paces=[Pace(), Pace(speed=0.25)]) == [12.0, 0.0]


def test_the_worker_with_the_earliest_clock_has_the_turn() -> None:
    log: list[int] = []

    def program(group: ArenaGroup, row: Tensor) -> None:
        for _ in range(4):
            group.transport.message()
            log.append(group.rank)
            group.transport.advance_clock(0, 1)

    simulate(2, program, paces=[Pace(), Pace(speed=0.4)])
    assert log == [0, 1, 0, 0, 1, 0, 1, 1], "at 0, 0, 1, 2, 2.5, 3 and then, alone, 5, 7.5"


def test_jitter_stretches_iterations_reproducibly() -> None:
    def stretches(jitter: float) -> list[list[float]]:
        def program(group: ArenaGroup, row: Tensor) -> list[float]:
            seen = []
            for number in range(2000):
                began = group.transport.clock()
                group.transport.advance_clock(number, 1)
                seen.append((group.transport.clock() - began) * 1e3)
            return seen

        return simulate(2, program, paces=[Pace(jitter=jitter), Pace(jitter=jitter)])

    once, twice = stretches(0.5), stretches(0.5)
    assert once == twice
    assert once[0] != once[1], "each worker has noise of its own"
    logs = torch.tensor(once).log()
    assert logs.mean().abs() < 0.03
    assert logs.std() == pytest.approx(0.5, rel=0.05)
    assert stretches(0.0)[0] == pytest.approx([1.0] * 2000)


# Rules on the simulated clock: four workers, one at a quarter of the speed

UNEVEN = [Pace(), Pace(), Pace(), Pace(speed=0.25)]
QUARTERS = [range(first, first + 12) for first in range(0, 48, 12)]


def course(rule: Rule, paces: Sequence[Pace] = ()) -> tuple[float, float, Snapshot]:
    """Return the simulated milliseconds of three rounds, the local iterations in total, and the last snapshot."""
    workers, taken = Trial(rule, partitions=QUARTERS, paces=paces).run(3)
    done = sum(record["iterations"] for worker in workers for record in worker.records)
    return workers[0].ending.seconds * 1e3, done, taken


ASYNCHRONOUS: list[Rule] = [
    Async(rule="async", iterations=2, visits=8),
    Async(rule="async", iterations=2, visits=8, momentum=0.9, outer_lr=0.7, staleness_weight="polynomial", parts=3),
    Async(rule="async", iterations=2, visits=8, soft_sync=3, compensation=0.1),
    Easgd(rule="easgd", iterations=2, visits=8, asynchronous=True),
    Gossip(rule="gossip", style="push-sum", iterations=2, visits=8, probability=0.3),
    Hogwild(rule="hogwild", iterations=2, visits=8),
    Hogwild(rule="hogwild", iterations=2, visits=8, local=True),
]
every_asynchronous = pytest.mark.parametrize("rule", ASYNCHRONOUS, ids=lambda rule: rule.rule)


def test_a_synchronous_round_takes_as_long_as_the_slowest_worker() -> None:
    even, done, _ = course(Average(iterations=16))
    uneven, also_done, _ = course(Average(iterations=16), UNEVEN)
    assert (even, done) == (pytest.approx(3 * 16), 3 * 64)
    assert (uneven, also_done) == (pytest.approx(4 * even), done)


@every_asynchronous
def test_an_asynchronous_round_gives_fast_workers_more_visits(rule: Rule) -> None:
    """The work is equal. The round waits less than half of the 3 x 16 milliseconds that averaging waits."""
    even, done, _ = course(rule)
    uneven, also_done, _ = course(rule, UNEVEN)
    assert also_done == done == 3 * 64
    assert even == pytest.approx(3 * 16)
    assert uneven - even < (4 * even - even) / 2


@every_asynchronous
def test_a_job_gives_the_same_bits_for_workers_of_any_speed(rule: Rule) -> None:
    paces = [Pace(jitter=0.3), Pace(speed=0.7, delay_s=1e-4), Pace(jitter=0.1, delay_s=3e-4), Pace(speed=0.25)]
    seconds, _, once = course(rule, paces)
    again, _, twice = course(rule, paces)
    assert same(once, twice)
    assert seconds == again
    assert not same(once, course(rule)[2]), "who comes when matters"


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_a_bound_costs_less_time_than_barriers(bound: int) -> None:
    free, _, _ = course(Async(rule="async", iterations=2, visits=8), UNEVEN)
    bounded, done, _ = course(Async(rule="async", iterations=2, visits=8, bound=bound), UNEVEN)
    assert done == 3 * 64
    assert free <= bounded <= 4 * 3 * 16
