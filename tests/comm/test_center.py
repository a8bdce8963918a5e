"""State that all workers share under an asynchronous rule, on both transports: visits, the center, messages in transit."""

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
import torch
from support.lab import TRANSPORTS, Common, Program, in_processes, simulate
from torch import Tensor

from partrain.comm.group import ArenaGroup, NonFinite
from partrain.comm.simulated import Pace
from partrain.comm.transport import Deadlock
from partrain.protocols import Rule
from partrain.protocols.asynchronous import Center, Update

D = 7

on_both = pytest.mark.parametrize("transport", TRANSPORTS.values(), ids=TRANSPORTS.keys())
among = pytest.mark.parametrize("size", [1, 2, 3, 4])
sliced = pytest.mark.parametrize("slices", [1, 3, 16])


class Adding(Rule):
    """A rule whose center is the sum of all updates. It also counts them."""

    rule: Literal["adding"] = "adding"
    cuts: int = 1

    @property
    def shared_vectors(self) -> int:
        return 2

    @property
    def slices(self) -> int:
        return self.cuts

    def merge(self, center: Center, update: Update) -> None:
        center.vectors[0].add_(update.delta)
        center.vectors[1].add_(1)
        center.numbers[0] += update.staleness
        center.numbers[1] += update.lr
        center.numbers[2] += float(update.base is not None)
        center.version += 1


def together(
    transport: Callable[..., list[Any]], size: int, program: Program[Any], slices: int = 1, **settings: Any
) -> list[Any]:
    """Run a program on each worker, over a center of D numbers, and return the results."""
    return transport(size, program, numbers=64, wire=32, common=Common(Adding(cuts=slices), D), **settings)


def dawdle(moods: random.Random, group: ArenaGroup) -> None:
    """Delay a worker sometimes: a simulated worker advances its clock, a process yields its core."""
    if moods.random() < 0.1:
        group.transport.advance_clock(0, 1)
        os.sched_yield()


# Visits


def claim_rounds(group: ArenaGroup, row: Tensor, visits: int) -> list[int]:
    moods, counts = random.Random(group.rank), []
    for number in range(3):
        group.begin(measure=False)
        counts.append(0)
        while group.claim(visits * (number + 1)):
            counts[-1] += 1
            dawdle(moods, group)
        assert not group.claim(visits * (number + 1)), "used up stays used up"
        group.barrier()
    return counts


@on_both
@among
@pytest.mark.parametrize("visits", [1, 10])
def test_each_round_has_its_number_of_visits(transport: Callable[..., list[Any]], size: int, visits: int) -> None:
    counts = together(transport, size, partial(claim_rounds, visits=visits))
    assert [sum(of_round) for of_round in zip(*counts, strict=True)] == [visits, 2 * visits, 3 * visits]


def keep_within(group: ArenaGroup, row: Tensor, fresh: int) -> tuple[int, int]:
    """Return this worker's largest lead over the slowest worker, and its visits."""
    moods, visits, most, count = random.Random(group.rank), group.arena.visits, 0, 0
    for _ in range(2):
        group.begin(measure=False)
        while group.claim(60):
            count += 1
            group.pull(fresh)
            most = max(most, int(visits[group.rank] - visits.min()))  # since the claim the slowest worker can only have caught up
            dawdle(moods, group)
        group.barrier()
    return most, count


@on_both
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("fresh", [0, 2])
def test_no_worker_exceeds_the_allowed_lead(transport: Callable[..., list[Any]], size: int, fresh: int) -> None:
    """The lead may exceed the limit by one: the newest visit, which the worker has claimed but not made."""
    ends = together(transport, size, partial(keep_within, fresh=fresh))
    assert max(most for most, _ in ends) <= fresh + 1
    assert sum(count for _, count in ends) == 120


def leave_it(group: ArenaGroup, row: Tensor) -> int:
    """Let worker 0 take no visits in round 2 and claim that it has none left."""
    count = 0
    for number in range(2):
        group.begin(measure=False)
        while group.claim(8 if group.rank or not number else 0):
            group.pull(fresh=0)
            count += 1
        group.barrier()
    return count


@on_both
def test_no_worker_waits_for_one_without_visits_left(transport: Callable[..., list[Any]]) -> None:
    assert sum(together(transport, 2, leave_it)) == 16


def test_a_worker_that_neither_takes_nor_ends_its_visits_causes_a_named_deadlock() -> None:
    def program(group: ArenaGroup, row: Tensor) -> None:
        group.begin(measure=False)
        while group.rank == 0 and group.claim(8):
            group.pull(fresh=0)
        group.barrier()

    with pytest.raises(Deadlock, match="worker 0 waits for slower workers; worker 1 waits for barrier 1"):
        together(simulate, 2, program)


# The center


def push_all(group: ArenaGroup, row: Tensor, count: int) -> tuple[list[list[float]], list[list[float]], list[int], int]:
    moods, own = random.Random(group.rank), torch.arange(D, dtype=torch.float32) + group.rank
    group.begin(measure=False)
    for _ in range(count):
        group.pull()
        dawdle(moods, group)
        group.push(own, lr=0.5)
    group.barrier()
    tensors = group.center_client.tensors()
    return (
        tensors["center"].tolist(),
        tensors["numbers"].tolist(),
        tensors["versions"].tolist(),
        sum(group.center_client.staleness),
    )


@on_both
@among
@sliced
def test_no_update_is_lost(transport: Callable[..., list[Any]], size: int, slices: int) -> None:
    """Every slice gets every update once, under its lock. Each slice has its own staleness."""
    count = 50
    ends = together(transport, size, partial(push_all, count=count), slices)
    first = sum(range(size))
    for center, numbers, versions, _ in ends:
        assert center[0] == [count * (size * j + first) for j in range(D)]
        assert center[1] == [float(count * size)] * D
        assert versions == [count * size] * slices + [0] * (16 - slices)
        assert [row[1] for row in numbers[:slices]] == [count * size / 2] * slices
        assert [row[2] for row in numbers[:slices]] == [0.0] * slices
        assert not any(any(row) for row in numbers[slices:])
    if slices == 1:
        assert ends[0][1][0][0] == sum(stale for *_, stale in ends)
    if size == 1:
        assert ends[0][3] == 0, "a lone worker is never late"


def test_staleness_counts_the_changes_of_the_center_since_the_pull() -> None:
    """All pull at once. Worker i pushes as the (i + 1)-th. Then worker 0 pushes twice without a pull."""

    def program(group: ArenaGroup, row: Tensor) -> tuple[list[int], float]:
        group.begin(measure=False)
        group.pull()
        group.barrier()
        stale = [group.push(torch.ones(D))]
        group.barrier()
        if group.rank == 0:
            group.pull()
            stale += [group.push(torch.ones(D)), group.push(torch.ones(D))]
        group.barrier()
        mean = group.staleness
        group.begin(measure=False)
        assert group.staleness != group.staleness, "none was pushed in this round"
        return stale, mean

    assert together(simulate, 3, program) == [([0, 0, 1], 1 / 3), ([1], 1.0), ([2], 2.0)]


def test_pull_returns_a_copy() -> None:
    def program(group: ArenaGroup, row: Tensor) -> list[float]:
        before = group.pull()
        group.push(torch.ones(D), base=before, lr=1.0)
        assert group.center_client.tensors()["numbers"][0, 2] == 1
        before.fill_(9)
        return group.pull().tolist()

    assert together(simulate, 1, program) == [[1.0] * D]


def test_non_finite_vectors_do_not_reach_other_workers() -> None:
    def program(group: ArenaGroup, row: Tensor) -> None:
        with pytest.raises(NonFinite):
            group.push(torch.full((D,), torch.nan))
        with pytest.raises(NonFinite):
            group.send(torch.full((D,), torch.inf), 0.5, 0)
        assert group.pull().tolist() == [0.0] * D
        assert group.receive()[1] == 0

    together(simulate, 1, program)


def test_a_rule_without_a_center_has_no_tensors_to_keep() -> None:
    assert simulate(1, lambda group, row: group.center_client.tensors()) == [{}]


# Messages


def exchange_all(group: ArenaGroup, row: Tensor, count: int) -> tuple[float, list[float]]:
    """Start each worker with share 1 of its own vector, send halves around, and return the final vector and share."""
    moods, share, x = random.Random(group.rank), 1.0, torch.full((D,), float(2**group.rank), dtype=torch.float64)
    total = x.clone()  # share * x

    def take_in() -> None:
        nonlocal share
        came, weight = group.receive()
        if weight:
            total.add_(came[:D])
            share += weight

    group.begin(measure=False)
    for _ in range(count):
        take_in()
        dawdle(moods, group)
        share /= 2
        total.div_(2)
        group.send(total / share, share, (group.rank + moods.randrange(1, group.size)) % group.size)
    group.barrier()
    take_in()
    group.barrier()
    assert group.receive()[1] == 0
    return share, total.tolist()


@on_both
@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_message_is_lost_or_counted_twice(transport: Callable[..., list[Any]], size: int) -> None:
    ends = together(transport, size, partial(exchange_all, count=40), dtype=torch.float64)
    assert sum(share for share, _ in ends) == pytest.approx(size)
    assert [sum(column) for column in zip(*(total for _, total in ends), strict=True)] == pytest.approx([2**size - 1] * D)


def test_messages_add_up_until_the_worker_receives_them() -> None:
    def program(group: ArenaGroup, row: Tensor) -> list[Any]:
        group.begin(measure=False)
        seen = []
        for shares in ((0.5, 0.25), (1.0,)):
            nothing, none = group.receive()
            assert (nothing.shape, none) == ((0,), 0.0)
            group.barrier()
            if group.rank == 0:
                for share in shares:
                    group.send(torch.arange(3.0), share, 1)
            group.barrier()
            if group.rank == 1:
                total, share = group.receive()
                seen.append((total[:3].tolist(), share))
        return seen

    assert together(simulate, 2, program)[1] == [([0.0, 0.75, 1.5], 0.75), ([0.0, 1.0, 2.0], 1.0)]


def test_bytes_count_pulled_pushed_and_sent_vectors() -> None:
    def program(group: ArenaGroup, row: Tensor) -> list[int]:
        seen = []
        for action in (
            lambda: group.pull(),
            lambda: group.push(torch.ones(D)),
            lambda: group.push(torch.ones(D), torch.ones(D)),
            lambda: group.send(torch.ones(D), 0.5, 0),
            lambda: group.receive(),
        ):
            group.begin(measure=False)
            action()
            seen.append(group.bytes)
        return seen

    assert together(simulate, 1, program) == [[4 * D, 4 * D, 8 * D, 4 * D, 0]]


# Simulated clock


def test_a_message_takes_simulated_time_and_the_earlier_one_arrives_first() -> None:
    """Each worker pushes after an iteration: the slow worker's update arrives after the second update of the fast one."""
    log: list[tuple[int, int, float]] = []

    def program(group: ArenaGroup, row: Tensor) -> None:
        for _ in range(2):
            group.transport.advance_clock(0, 1)
            group.push(torch.ones(D))
            log.append((group.rank, int(group.arena.versions[0]), round(group.transport.clock() * 1e3, 6)))

    paces = [Pace(speed=0.4), Pace(delay_s=1e-4)]
    together(simulate, 2, program, paces=paces)
    assert log == [(1, 1, 1.1), (1, 2, 2.2), (0, 3, 2.5), (0, 4, 5.0)]


def test_a_worker_that_waits_for_a_slower_one_continues_at_its_arrival() -> None:
    """Worker 1 visits at 0, 4 and 8 milliseconds, and worker 0 only together with it."""
    ends = {}

    def program(group: ArenaGroup, row: Tensor) -> None:
        group.begin(measure=False)
        while group.claim(6):
            group.pull(fresh=0)
            group.transport.advance_clock(0, 1)
        ends[group.rank] = (round(group.waited * 1e3, 6), round(group.transport.clock() * 1e3, 6))

    together(simulate, 2, program, paces=[Pace(), Pace(speed=0.25)])
    assert ends == {0: (6.0, 9.0), 1: (0.0, 12.0)}


def test_processes_and_simulated_workers_have_the_same_sum() -> None:
    assert (
        together(in_processes, 3, partial(push_all, count=20))[0][0] == together(simulate, 3, partial(push_all, count=20))[0][0]
    )
