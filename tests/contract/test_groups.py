"""Every verb of a group, on every transport, among one to four workers: the same numbers, whichever worker is late."""

import math
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.lab import TRANSPORTS, Quadratic, in_processes, simulate
from support.pairwise import named, pairwise
from support.process_pool import ProcessPool
from torch import Tensor

from partrain.comm.group import ArenaGroup, NonFinite
from partrain.flat import SparseVector, mean_into
from partrain.rules.average import Average
from partrain.rules.compression.messages import raw_message, read_raw, read_sparse, sparse_message
from partrain.training.gathering import gather as gather_tensors

D = 33
WIRE = 48
NUMBERS = WIRE + 96
"""A row: 48 numbers of the worker, a wire of 96."""

SIZES = named(1, 2, 3, 4)
ALL_TRANSPORTS = named(*TRANSPORTS, "distributed")
among = pytest.mark.parametrize("size", [1, 2, 3, 4])


def own(rank: int, count: int = D, dtype: torch.dtype = torch.float32) -> Tensor:
    """Make the numbers of worker `rank`: awkward ones."""
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


@among
def test_mean_of_vectors_in_the_rows(transport: Any, size: int) -> None:
    padded = [0.0] * 5 + expected_mean(size) + [0.0] * (WIRE - D - 5)
    assert transport(size, mean_in_row, NUMBERS, WIRE) == [padded] * size


@pairwise(
    transport=ALL_TRANSPORTS,
    size=SIZES,
    program={"mean_elsewhere": mean_elsewhere, "mean_of_columns": mean_of_columns},
    indirect=["transport"],
)
def test_mean_of_vectors_elsewhere(transport: Any, size: int, program: Any) -> None:
    assert transport(size, program, NUMBERS, WIRE) == [expected_mean(size)] * size


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


@pairwise(
    transport=ALL_TRANSPORTS,
    size=SIZES,
    dtype=named(torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool),
    indirect=["transport"],
)
def test_gather(transport: Any, size: int, dtype: torch.dtype) -> None:
    expected = [own(rank, dtype=dtype).tolist() for rank in range(size)]
    assert transport(size, partial(gather, dtype=dtype, inside=False), NUMBERS, WIRE) == [expected] * size


@among
def test_gather_from_the_rows(transport: Any, size: int) -> None:
    expected = [own(rank).tolist() for rank in range(size)]
    assert transport(size, partial(gather, dtype=torch.float32, inside=True), NUMBERS, WIRE) == [expected] * size


def reduce_messages(group: ArenaGroup, row: Tensor, weigh: bool, form: str) -> list[float]:
    """Reduce twice: leftovers of the first call must not reach the second. "long" messages exceed the wire."""
    sums = []
    for turn in range(2):
        x = own(group.rank + turn)
        kept = (x.abs() > 2 + group.rank).nonzero().view(-1)  # of some workers nothing at all
        message = {
            "raw": lambda x=x: raw_message(x),
            "sparse": lambda x=x, kept=kept: sparse_message(kept, x[kept], D, "fp32"),
            "long": lambda x=x: torch.cat([raw_message(x)] * 4),
        }[form]()
        read = {"raw": read_raw, "sparse": partial(read_sparse, precision="fp32"), "long": read_first}[form]
        sums += group.reduce_messages(message, read, D, 0.1 + group.rank if weigh else None).tolist()
    return sums


def read_first(message: Tensor, d: int) -> SparseVector:
    return read_raw(message[: len(message) // 4].clone(), d)


@pairwise(
    transport=ALL_TRANSPORTS,
    size=SIZES,
    weigh=named(False, True),
    form=named("raw", "sparse", "long"),
    indirect=["transport"],
)
def test_sum_of_what_messages_say(transport: Any, size: int, weigh: bool, form: str) -> None:
    expected = []
    for turn in range(2):
        total, weights = torch.zeros(D, dtype=torch.float64), 0.0
        for rank in range(size):
            x, weight = own(rank + turn), 0.1 + rank if weigh else 1.0
            decoded = x * (x.abs() > 2 + rank) if form == "sparse" else x
            total.add_(decoded.double(), alpha=weight)
            weights += weight
        expected += (total / (weights if weigh else 1.0)).float().tolist()
    assert transport(size, partial(reduce_messages, weigh=weigh, form=form), NUMBERS, WIRE) == [expected] * size


def gather_one_number(group: ArenaGroup, row: Tensor) -> list[float]:
    return [float(one) for one in group.all_gather(torch.tensor(group.rank + 0.5))]


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


@pairwise(
    transport=ALL_TRANSPORTS,
    size=SIZES,
    vector={
        "in the row": (torch.float32, True),
        "float32": (torch.float32, False),
        "int64": (torch.int64, False),
        "uint8": (torch.uint8, False),
    },
    indirect=["transport"],
)
def test_broadcast_from_each_source(transport: Any, size: int, vector: tuple[torch.dtype, bool]) -> None:
    dtype, inside = vector
    expected = [own(source, dtype=dtype).tolist() for source in range(size)]
    assert transport(size, partial(broadcast, dtype=dtype, inside=inside), NUMBERS, WIRE) == [expected] * size


def show(group: ArenaGroup, row: Tensor) -> list[list[list[float]]]:
    """Three times: boards are used in turn."""
    return [group.scores(group.rank + 0.25, turn, 2.0**53) for turn in range(3)]


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
def test_transports_agree_to_the_bit_whoever_comes_late(pool: ProcessPool, size: int) -> None:
    expected = simulate(size, partial(everything, late=None), NUMBERS, WIRE)
    for transport in in_processes, pool:
        for late in None, 1, 2:
            assert transport(size, partial(everything, late=late), NUMBERS, WIRE) == expected


def descend(group: ArenaGroup, row: Tensor) -> list[float]:
    rule = Average(iterations=2)
    worker = Quadratic(group, row, [8.0, 1.0], [float(group.rank), 3.0], iterations=group.rank + 1)
    for _ in range(3):
        worker.items = 0
        rule.round(worker, group, rule.init(worker, group))
    return worker.params.tolist()


@pytest.mark.parametrize("size", [2, 3])
def test_a_rule_gives_the_same_bits_on_all_transports(transport: Any, size: int) -> None:
    assert transport(size, descend, NUMBERS, WIRE) == simulate(size, descend, NUMBERS, WIRE)


def gather_any(group: ArenaGroup, row: Tensor, count: int) -> list[tuple[str, list[float]]]:
    """Tensors of unlike shapes and types, twice: what one call has read must not reach the next."""
    found = []
    for turn in range(2):
        dtype = (torch.float32, torch.int64, torch.bool, torch.float64)[(group.rank + turn) % 4]
        found += [
            (str(one.dtype), one.tolist()) for one in gather_tensors(group, own(group.rank, count * (group.rank + turn), dtype))
        ]
    return found


@pairwise(transport=ALL_TRANSPORTS, size=SIZES, count=named(3, 700), indirect=["transport"])
def test_gather_tensors_of_any_kind(transport: Any, size: int, count: int) -> None:
    """700 numbers are more than the wire holds."""
    types = torch.float32, torch.int64, torch.bool, torch.float64
    expected = [
        (str(dtype), own(rank, count * (rank + turn), dtype).tolist())
        for turn in range(2)
        for rank in range(size)
        for dtype in [types[(rank + turn) % 4]]
    ]
    assert transport(size, partial(gather_any, count=count), NUMBERS, WIRE) == [expected] * size


def gather_much(group: ArenaGroup, row: Tensor) -> list[list[float]]:
    """A vector of more numbers than the wire has."""
    return [one.tolist() for one in group.all_gather(own(group.rank, 1000, torch.int64).view(10, 100))]


def test_gather_more_than_a_wire_holds(transport: Any) -> None:
    expected = [own(rank, 1000, torch.int64).view(10, 100).tolist() for rank in range(2)]
    assert transport(2, gather_much, NUMBERS, WIRE) == [expected] * 2


@pytest.mark.parametrize("verb", ["all_reduce_mean", "broadcast"])
def test_a_vector_longer_than_the_wire_is_refused(verb: str) -> None:
    with pytest.raises(ValueError, match="97 numbers does not fit the scratch part of 96"):
        simulate(2, lambda group, row: getattr(group, verb)(torch.zeros(97)), NUMBERS, WIRE)


def test_a_mean_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"float64 in a group of torch\.float32"):
        simulate(2, lambda group, row: group.all_reduce_mean(torch.zeros(3, dtype=torch.float64)), NUMBERS, WIRE)


@pytest.mark.parametrize(("bad", "inside", "offset"), [(math.nan, True, 4), (math.inf, True, 4), (math.nan, False, WIRE)])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_a_number_that_is_not_finite_is_caught_before_anything_is_mixed(
    bad: float, inside: bool, offset: int, size: int, exact: bool
) -> None:
    rows: dict[int, Tensor] = {}

    def program(group: ArenaGroup, row: Tensor) -> None:
        x = row[4 : 4 + D] if inside else torch.zeros(D)
        rows[group.rank] = x.fill_(group.rank)
        if group.rank == size - 1:
            x[7] = bad
        group.all_reduce_mean(x)

    with pytest.raises(NonFinite, match="non-finite number at 7") as caught:
        simulate(size, program, NUMBERS, WIRE, exact=exact)
    assert (caught.value.offset, caught.value.index) == (offset, 7)
    assert all(rows[rank].eq(rank).all() for rank in range(size - 1))


def measured(group: ArenaGroup, row: Tensor) -> list[float]:
    distances = []
    for measure in (False, True, False):
        group.measure = measure
        group.all_reduce_mean(row[:4].fill_(6.0 * group.rank))
        distances.append(group.distance)
    group.compare(row[:4].fill_(4.0 * group.rank))
    return [*distances, group.distance, *row[:4].tolist()]


def test_distance_is_measured_where_asked_for(transport: Any) -> None:
    """Workers bring 0 and 6 in four coordinates: both are sqrt(4 * 9) from the mean; then 0 and 4, to be compared only."""
    for rank, seen in enumerate(transport(2, measured, NUMBERS, WIRE)):
        assert math.isnan(seen[0])
        assert seen[1:] == [6.0, 6.0, 4.0] + [4.0 * rank] * 4


# With `[engine] exact = false`: each machine sums what its own workers have, and only these sums are sent


def weighted_in_part(group: ArenaGroup, row: Tensor) -> list[float]:
    """Only the last worker trained."""
    x = row[:D].copy_(own(group.rank))
    group.all_reduce_mean(x, weight=float(group.rank == group.size - 1))
    return x.tolist()


means = pytest.mark.parametrize("program", [mean_in_row, mean_elsewhere, mean_of_columns, weighted, weighted_in_part])


@means
@pytest.mark.parametrize("size", [2, 3, 4])
def test_sums_of_machines_give_the_mean_up_to_rounding_and_all_workers_the_same_bits(
    pool: ProcessPool, program: Any, size: int
) -> None:
    got = pool(size, program, NUMBERS, WIRE, exact=False)
    assert got == [got[0]] * size
    assert got[0] == pytest.approx(simulate(size, program, NUMBERS, WIRE)[0], rel=0, abs=2e-6)  # of numbers up to ten


@means
@pytest.mark.parametrize("size", [2, 3, 4])
def test_on_one_machine_there_is_nothing_to_add_and_no_bit_changes(program: Any, size: int) -> None:
    expected = simulate(size, program, NUMBERS, WIRE)
    assert simulate(size, program, NUMBERS, WIRE, exact=False) == expected


def test_what_is_no_mean_is_exact_all_the_same(pool: ProcessPool) -> None:
    expected = [own(rank).tolist() for rank in range(4)]
    assert pool(4, partial(gather, dtype=torch.float32, inside=True), NUMBERS, WIRE, exact=False) == [expected] * 4
    assert pool(4, partial(broadcast, dtype=torch.float32, inside=True), NUMBERS, WIRE, exact=False) == [expected] * 4


def test_distance_is_measured_between_machines_too(pool: ProcessPool) -> None:
    assert [seen[1:] for seen in pool(2, measured, NUMBERS, WIRE, exact=False)] == [
        [6.0, 6.0, 4.0, *[4.0 * rank] * 4] for rank in range(2)
    ]


def received() -> dict[int, int]:
    """Bytes that have come through each of this process's TCP connections, by the kernel's account."""
    counts = {}
    sockets = [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.is_socket()]
    for fd in sockets:
        with socket.socket(fileno=os.dup(fd)) as one, suppress(OSError):  # not all are TCP
            counts[fd] = int.from_bytes(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)[128:], "little")
    return counts


def traffic(group: ArenaGroup, row: Tensor) -> float:
    """Measure the bytes that a mean receives from other machines, in vectors."""
    x = row[:100_000].fill_(1.0)
    group.all_reduce_mean(x)  # now all connections are there
    before = received()
    group.barrier()  # nothing of the next has come yet
    group.all_reduce_mean(x)
    return sum(count - before.get(fd, count) for fd, count in received().items()) / x.nbytes


@pytest.mark.parametrize(("exact", "vectors"), [(True, 2.0), (False, 1.0)])
def test_sums_of_machines_are_one_vector_however_many_workers_they_have(pool: ProcessPool, exact: bool, vectors: float) -> None:
    assert pool(4, traffic, 100_000, 100_000, exact=exact) == pytest.approx([vectors, 0.0, vectors, 0.0], abs=0.05)
