"""Synchronous rules give the same bits whether workers are threads that take turns, processes, or processes of two machines."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from support.lab import Trial, blobs, in_processes, mlp, restless, simulate
from support.process_pool import ProcessPool
from support.rule_forms import SYNCHRONOUS, VARIANTS
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.training.faults import Faults

RULES: dict[str, Rule] = {name: VARIANTS[name] for name in sorted(SYNCHRONOUS)} | {
    "all-alone": Average(iterations=3, optimizer_state="local", buffers="local", weights="equal"),
    "anew": Average(iterations=3, optimizer_state="reset", buffers="recalibrate"),
}
PARTITIONS = {2: (range(22), range(22, 48)), 4: (range(14), range(9, 24), range(24, 36), range(36, 48))}

one_form_of_each_rule = pytest.mark.parametrize(
    "name", [name if "," not in name else pytest.param(name, marks=pytest.mark.soak) for name in RULES]
)
"""`make soak` takes all forms: a form changes when and what a rule sums, not how sums are sent.

The gate compares all forms between machines of one process, and one form of each rule between machines of two.
"""

Course = tuple[list[list[float]], list[float], float | None]
"""A worker's parameters after each round, its moments and buffers at the end, the last judgement."""


def trial(name: str, size: int) -> Trial:
    """Dropout, BatchNorm, moments, unequal partitions, judging."""
    optimizer = Adam(name="adam", lr=0.02, batch_size=4, schedule="linear")
    return Trial(RULES[name], optimizer, restless, partitions=PARTITIONS[size], held_out=blobs(21), horizon=200)


def train(group: ArenaGroup, row: Tensor, name: str) -> Course:
    torch.set_num_threads(1)
    one = trial(name, group.size)
    trained = one.train(group, row, 4, one.nothing())
    worker = trained.worker
    return (
        trained.courses,
        torch.cat([worker.optimizer.moments.flatten(), worker.replica.buffers]).tolist(),
        trained.progress.loss,
    )


@cache
def simulated(name: str, size: int) -> list[Course]:
    layout, threads = trial(name, size).layout, torch.get_num_threads()
    with torch.random.fork_rng():
        courses = simulate(size, partial(train, name=name), layout.numbers, layout.scratch)
    torch.set_num_threads(threads)
    return courses


@pytest.mark.representative
@one_form_of_each_rule
def test_threads_and_processes_give_the_same_bits(name: str) -> None:
    layout = trial(name, 2).layout
    assert in_processes(2, partial(train, name=name), layout.numbers, layout.scratch) == simulated(name, 2)


@pytest.mark.representative
@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=pytest.mark.slow if "," in name and size > 2 else ())
        for name in RULES
        for size in PARTITIONS
    ],
)
def test_two_machines_give_the_bits_of_one(pool: ProcessPool, name: str, size: int) -> None:
    layout = trial(name, size).layout
    assert pool(size, partial(train, name=name), layout.numbers, layout.scratch) == simulated(name, size)


EXCLUDING = [name for name in RULES if not RULES[name].no_exclusion_reason and RULES[name].clients is None]
"""Forms that go on without an excluded worker. Where workers are drawn, a round may have no other one."""


def train_spoilt(group: ArenaGroup, row: Tensor, name: str) -> tuple[list[list[float]], list[list[float]]]:
    """Parameters after each round, and exclusions and clipped norms of each; an item of worker 1 is NaN."""
    torch.set_num_threads(1)
    one = trial(name, group.size)
    spoilt, sends_gradients = blobs(), one.rule.averages_gradients or one.rule.full_batch
    spoilt.inputs[30 if group.size == 2 else 20] = torch.nan
    faults = Faults(on_nonfinite="exclude", max_update_norm=None if sends_gradients else 0.1)
    trained = replace(one, items=spoilt, faults=faults).train(group, row, 4, one.nothing())
    return trained.courses, [
        [record["excluded"], record["discarded"], round(record["clipped_norm"], 9) if record["clipped_norm"] > 0 else 0]
        for record in trained.records
    ]


@pytest.mark.representative
@pytest.mark.parametrize("name", [name if "," not in name else pytest.param(name, marks=pytest.mark.slow) for name in EXCLUDING])
def test_exclusions_and_bounds_give_the_same_bits_on_all_transports(pool: ProcessPool, name: str) -> None:
    layout, program = trial(name, 2).layout, partial(train_spoilt, name=name)
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        in_turns = simulate(2, program, layout.numbers, layout.scratch)
    torch.set_num_threads(threads)
    assert any(excluded for excluded, _, _ in in_turns[1][1])
    assert in_processes(2, program, layout.numbers, layout.scratch) == in_turns
    assert pool(2, program, layout.numbers, layout.scratch) == in_turns


def train_smoothly(group: ArenaGroup, row: Tensor, name: str) -> list[list[float]]:
    """Parameters after each round, where a rounding stays a rounding: Adam would blow up those of gradients that are zero."""
    torch.set_num_threads(1)
    one = smooth(name)
    return one.train(group, row, 2, one.nothing()).courses


def smooth(name: str) -> Trial:
    return Trial(RULES[name], Sgd(lr=0.1, momentum=0.9, batch_size=4), mlp, partitions=PARTITIONS[4], held_out=blobs(21))


@one_form_of_each_rule
def test_sums_of_machines_change_the_last_digits_only_and_for_all_workers_alike(pool: ProcessPool, name: str) -> None:
    layout = smooth(name).layout
    exact, got = (
        pool(4, partial(train_smoothly, name=name), layout.numbers, layout.scratch, exact=exact) for exact in (True, False)
    )
    torch.testing.assert_close(torch.tensor(got), torch.tensor(exact), rtol=1e-5, atol=2e-6)
    if RULES[name].keeps_replicas_equal:
        assert got == [got[0]] * 4


def train_noisy(group: ArenaGroup, row: Tensor) -> list[list[float]]:
    """Parameters after each round, with noise on the mean of some bounded updates."""
    torch.set_num_threads(1)
    rule = Average(iterations=3, clients=2, weights="equal", noise=0.5)
    one = replace(trial("average", group.size), rule=rule, network=mlp, faults=Faults(max_update_norm=0.1))
    return one.train(group, row, 4, one.nothing()).courses


def test_noise_has_the_same_bits_on_all_transports(pool: ProcessPool) -> None:
    layout = replace(trial("average", 4), network=mlp).layout
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        in_turns = simulate(4, train_noisy, layout.numbers, layout.scratch)
    torch.set_num_threads(threads)
    assert all(courses == in_turns[0] for courses in in_turns)
    assert in_processes(4, train_noisy, layout.numbers, layout.scratch) == in_turns
    assert pool(4, train_noisy, layout.numbers, layout.scratch) == in_turns
