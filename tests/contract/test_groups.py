"""Every verb of a group, on every transport, among one to four workers: the same numbers, whoever comes late."""

import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from lab import TRANSPORTS, Quadratic, simulate
from torch import Tensor

from partrain.comm.group import ArenaGroup, NonFinite
from partrain.flat import mean_into
from partrain.rules.average import Average

D = 33
WIRE = 48
NUMBERS = WIRE + 96
"""A row: 48 numbers of the worker, a wire of 96."""

on_both = pytest.mark.parametrize("transport", TRANSPORTS.values(), ids=TRANSPORTS.keys())
among = pytest.mark.parametrize("size", [1, 2, 3, 4])


def own(rank: int, count: int = D, dtype: torch.dtype = torch.float32) -> Tensor:
    """What worker `rank` brings: awkward numbers."""
    return torch.randn(count, generator=torch.Generator().manual_seed(rank), dtype=torch.float64).mul(3).to(dtype)


def mean_in_row(group: ArenaGroup, row: Tensor) -> list[float]:
    row[5 : 5 + D] = own(group.rank)
    group.all_reduce_mean(row[5 : 5 + D])
    return row[:WIRE].tolist()


def mean_elsewhere(group: ArenaGroup, row: Tensor) -> list[float]:
    x = own(group.rank)
    group.all_reduce_mean(x)
    return x.tolist()


def mean_of_columns(group: ArenaGroup, row: Tensor) -> list[float]:
    """A vector that is not contiguous."""
    table = torch.zeros(D, 2)
    table[:, 1] = own(group.rank)
    group.all_reduce_mean(table[:, 1])
    assert table[:, 0].eq(0).all()
    return table[:, 1].tolist()


def weighted(group: ArenaGroup, row: Tensor) -> list[float]:
    x = row[:D].copy_(own(group.rank))
    group.all_reduce_mean(x, weight=0.1 + group.rank)
    return x.tolist()


def expected_mean(size: int, weight: Callable[[int], float] = lambda rank: 1.0) -> list[float]:
    rows = [own(rank) for rank in range(size)]
    if size > 1:
        mean_into(rows, [weight(rank) for rank in range(size)])
    return rows[0].tolist()


@on_both
@among
def test_mean_of_vectors_in_the_rows(transport: Any, size: int) -> None:
    padded = [0.0] * 5 + expected_mean(size) + [0.0] * (WIRE - D - 5)
    assert transport(size, mean_in_row, NUMBERS, WIRE) == [padded] * size


@on_both
@among
@pytest.mark.parametrize("program", [mean_elsewhere, mean_of_columns])
def test_mean_of_vectors_elsewhere(transport: Any, size: int, program: Any) -> None:
    assert transport(size, program, NUMBERS, WIRE) == [expected_mean(size)] * size


@on_both
@among
def test_weighted_mean(transport: Any, size: int) -> None:
    assert transport(size, weighted, NUMBERS, WIRE) == [expected_mean(size, lambda rank: 0.1 + rank)] * size


def gather(group: ArenaGroup, row: Tensor, dtype: torch.dtype, inside: bool) -> list[list[float]]:
    x = own(group.rank, dtype=dtype).view(3, 11)
    if inside:
        x = row[:D].copy_(x.view(-1)).view(3, 11)
    gathered = group.all_gather(x)
    x.zero_()  # what was gathered is a copy
    assert all(one.shape == (3, 11) and one.dtype == dtype for one in gathered)
    return [one.flatten().tolist() for one in gathered]


@on_both
@among
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_gather(transport: Any, size: int, dtype: torch.dtype) -> None:
    expected = [own(rank, dtype=dtype).tolist() for rank in range(size)]
    assert transport(size, partial(gather, dtype=dtype, inside=False), NUMBERS, WIRE) == [expected] * size


@on_both
@among
def test_gather_from_the_rows(transport: Any, size: int) -> None:
    expected = [own(rank).tolist() for rank in range(size)]
    assert transport(size, partial(gather, dtype=torch.float32, inside=True), NUMBERS, WIRE) == [expected] * size


def gather_one_number(group: ArenaGroup, row: Tensor) -> list[float]:
    return [float(one) for one in group.all_gather(torch.tensor(group.rank + 0.5))]


@on_both
def test_gather_single_numbers(transport: Any) -> None:
    assert transport(3, gather_one_number, NUMBERS, WIRE) == [[0.5, 1.5, 2.5]] * 3


def broadcast(group: ArenaGroup, row: Tensor, dtype: torch.dtype, inside: bool) -> list[list[float]]:
    """From each worker in turn."""
    heard = []
    for source in range(group.size):
        x = row[:D] if inside else torch.zeros(D, dtype=dtype)
        x.copy_(own(group.rank, dtype=dtype))
        group.broadcast(x, source)
        heard.append(x.tolist())
        x.zero_()  # by now all others have heard
    return heard


@on_both
@among
@pytest.mark.parametrize(
    ("dtype", "inside"), [(torch.float32, True), (torch.float32, False), (torch.int64, False), (torch.uint8, False)]
)
def test_broadcast_from_each_source(transport: Any, size: int, dtype: torch.dtype, inside: bool) -> None:
    expected = [own(source, dtype=dtype).tolist() for source in range(size)]
    assert transport(size, partial(broadcast, dtype=dtype, inside=inside), NUMBERS, WIRE) == [expected] * size


def show(group: ArenaGroup, row: Tensor) -> list[list[list[float]]]:
    """Three times: boards are used in turn."""
    return [group.scores(group.rank + 0.25, turn, 2.0**53) for turn in range(3)]


@on_both
@among
def test_scores(transport: Any, size: int) -> None:
    expected = [[[rank + 0.25, turn, 2.0**53] for rank in range(size)] for turn in range(3)]
    assert transport(size, show, NUMBERS, WIRE) == [expected] * size


def everything(group: ArenaGroup, row: Tensor, late: int | None) -> list[Any]:
    """All verbs in turn, again and again; with `late`, workers come to each at their own time."""
    moods = random.Random(f"{late} {group.rank}")
    x, seen = row[:D].copy_(own(group.rank)), []
    for turn in range(12):
        if late is not None:
            time.sleep(moods.choice([0, 0, 0.001, 0.003]))
        group.all_reduce_mean(x, weight=1 + (group.rank + turn) % 3)
        seen += [x.tolist(), group.scores(turn, group.rank)]
        group.broadcast(x, turn % group.size)
        seen += [one.tolist() for one in group.all_gather(own(group.rank + turn, 4, torch.int64))]
        group.barrier()
        x.mul_(1 + group.rank)
    return seen


@pytest.mark.parametrize("size", [2, 3, 4])
def test_transports_agree_to_the_bit_whoever_comes_late(size: int) -> None:
    runs = [
        transport(size, partial(everything, late=late), NUMBERS, WIRE)
        for transport, late in [
            *((one, None) for one in TRANSPORTS.values()),
            (TRANSPORTS["shared"], 1),
            (TRANSPORTS["shared"], 2),
        ]
    ]
    assert all(run == runs[0] for run in runs)


def descend(group: ArenaGroup, row: Tensor) -> list[float]:
    rule = Average(iterations=2)
    worker = Quadratic(group, row, [8.0, 1.0], [float(group.rank), 3.0], iterations=group.rank + 1)
    for _ in range(3):
        worker.items = 0
        rule.round(worker, group, rule.init(worker, group))
    return worker.params.tolist()


@pytest.mark.parametrize("size", [2, 3])
def test_a_rule_gives_the_same_bits_on_both_transports(size: int) -> None:
    one, other = (transport(size, descend, NUMBERS, WIRE) for transport in TRANSPORTS.values())
    assert one == other


def gather_much(group: ArenaGroup, row: Tensor) -> list[list[float]]:
    """A vector of more numbers than the wire has."""
    return [one.tolist() for one in group.all_gather(own(group.rank, 1000, torch.int64).view(10, 100))]


@on_both
def test_gather_more_than_a_wire_holds(transport: Any) -> None:
    expected = [own(rank, 1000, torch.int64).view(10, 100).tolist() for rank in range(2)]
    assert transport(2, gather_much, NUMBERS, WIRE) == [expected] * 2


@pytest.mark.parametrize("verb", ["all_reduce_mean", "broadcast"])
def test_a_vector_longer_than_the_wire_is_refused(verb: str) -> None:
    with pytest.raises(ValueError, match="97 numbers does not fit a wire of 96"):
        simulate(2, lambda group, row: getattr(group, verb)(torch.zeros(97)), NUMBERS, WIRE)


def test_a_mean_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"float64 in a group of torch\.float32"):
        simulate(2, lambda group, row: group.all_reduce_mean(torch.zeros(3, dtype=torch.float64)), NUMBERS, WIRE)


@pytest.mark.parametrize(("bad", "inside", "offset"), [(math.nan, True, 4), (math.inf, True, 4), (math.nan, False, WIRE)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_number_that_is_not_finite_is_caught_before_anything_is_mixed(bad: float, inside: bool, offset: int, size: int) -> None:
    rows: dict[int, Tensor] = {}

    def program(group: ArenaGroup, row: Tensor) -> None:
        x = row[4 : 4 + D] if inside else torch.zeros(D)
        rows[group.rank] = x.fill_(group.rank)
        if group.rank == size - 1:
            x[7] = bad
        group.all_reduce_mean(x)

    with pytest.raises(NonFinite, match="non-finite number at 7") as caught:
        simulate(size, program, NUMBERS, WIRE)
    assert (caught.value.offset, caught.value.index) == (offset, 7)
    assert all(rows[rank].eq(rank).all() for rank in range(size - 1))


def test_distance_is_measured_where_asked_for() -> None:
    """Workers bring 0 and 6 in every coordinate: both are 3 from the mean."""

    def program(group: ArenaGroup, row: Tensor) -> list[float]:
        distances = []
        for measure in (False, True, False):
            group.measure = measure
            group.all_reduce_mean(row[:4].fill_(6.0 * group.rank))
            distances.append(group.distance)
        return distances

    for distances in simulate(2, program, NUMBERS, WIRE):
        assert math.isnan(distances[0])
        assert distances[1] == 3.0
