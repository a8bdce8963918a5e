"""Replicas of one process: trained at once, they have the numbers of workers that train one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lab import Common, Snapshot, Trained, Trial, blobs, join, mlp, restless
from support.rule_forms import SYNCHRONOUS, VARIANTS
from torch import nn

from partrain.comm.arena import Arena
from partrain.comm.group import Transport
from partrain.comm.replicas import ReplicaTransport
from partrain.comm.transport import Abandoned, Deadlock, Placement
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import Adam, Lbfgs, Muon
from partrain.training.batches import Samples
from partrain.training.fast_mlp import MlpGradient
from partrain.training.faults import Faults
from partrain.training.joint import JointTraining

UNEVEN = (range(14), range(9, 24), range(24, 36), range(36, 48))
EVEN = (range(12), range(12, 24), range(24, 36), range(36, 48))
SGD = Sgd(lr=0.1, momentum=0.9, batch_size=4)


def as_replicas(trial: Trial, rounds: int, *, at_once: bool = True) -> list[Trained]:
    """Train all workers as replicas of one process, at once or only in turn."""
    size, layout = len(trial.partitions), trial.layout
    arena, joint, taken, results = Arena.create(size), JointTraining(), Snapshot(trial.nothing().progress, {}), {}
    failures: list[BaseException] = []

    def work(rank: int, enter: Callable[[], Transport]) -> BaseException | None:
        try:
            transport = enter()
            common = Common(trial.rule, layout.params.size)
            group, row = join(arena, rank, transport, layout.numbers, layout.scratch, layout.params.dtype, common)
            prepare = partial(joint.add, wait=transport.wait_for_peers) if at_once else None
            results[rank] = trial.train(group, row, rounds, taken, prepare=prepare)
        except Exception as error:
            failures.append(error)
            return error
        return None

    placement = Placement(
        arena, tuple(range(size)), range(size), None, ["cpu"] * size, lambda _: None, joint.run, lambda _: {}, 0, exact=True
    )
    with torch.random.fork_rng():
        ReplicaTransport.run_workers(placement, work)
    os.close(arena.descriptor)
    if failures:
        raise failures[0]
    return [results[rank] for rank in range(size)]


def close(ours: list[Trained], theirs: list[Trained]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.tensor(one.courses), torch.tensor(other.courses), rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(one.worker.optimizer.moments, other.worker.optimizer.moments, rtol=1e-4, atol=1e-5)
        for mine, its in zip(one.records, other.records, strict=True):
            assert [mine[key] for key in ("items", "iterations", "lr")] == [its[key] for key in ("items", "iterations", "lr")]
            assert mine["loss"] == pytest.approx(its["loss"], rel=1e-4, nan_ok=True)


@pytest.mark.parametrize("name", sorted(SYNCHRONOUS))
def test_every_rule_has_the_numbers_of_workers_in_turn(name: str) -> None:
    trial = Trial(VARIANTS[name], SGD, mlp, partitions=UNEVEN, held_out=blobs(21))
    ours = as_replicas(trial, 3)
    assert all(one.worker.together for one in ours)
    close(ours, trial.run(3)[0])


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - set(SYNCHRONOUS)))
def test_asynchronous_rules_train_all_visits(name: str) -> None:
    trial = Trial(VARIANTS[name], Sgd(lr=0.02, batch_size=4), mlp, partitions=UNEVEN, held_out=blobs(21))
    ours, theirs = as_replicas(trial, 4, at_once=not VARIANTS[name].shares_params), trial.run(4)[0]
    trained = [sum(record["items"] for one in runs for record in one.records) for runs in (ours, theirs)]
    assert trained[0] == trained[1] > 0
    losses = [record["loss"] for record in ours[0].records]
    assert losses[-1] < losses[0]
    assert all(one.worker.items for one in ours)


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(name="adam", lr=0.02, batch_size=4, schedule="linear"),
        Sgd(lr=0.1, clip_norm=0.5, batch_size=4),
        Lbfgs(name="lbfgs", lr=0.1, batch_size=4),
        Muon(name="muon", lr=0.02, batch_size=4),
    ],
    ids=["adam", "clipped", "lbfgs", "muon"],
)
def test_every_kind_of_step(optimizer: AnyOptimizer) -> None:
    trial = Trial(VARIANTS["average"], optimizer, mlp, partitions=EVEN, horizon=200)
    close(as_replicas(trial, 2), trial.run(2)[0])


@pytest.mark.parametrize("partitions", [EVEN, UNEVEN], ids=["equal passes", "unequal passes"])
def test_whole_passes(partitions: tuple[range, ...]) -> None:
    """Unequal partitions end with batches of other lengths: such workers train apart."""
    trial = Trial(VARIANTS["average"].model_copy(update={"iterations": None, "passes": 2}), SGD, mlp, partitions=partitions)
    close(as_replicas(trial, 3), trial.run(3)[0])


def test_one_worker_is_excluded_alone() -> None:
    spoilt = blobs()
    spoilt.inputs[20] = torch.nan
    trial = Trial(VARIANTS["average"], SGD, mlp, items=spoilt, partitions=UNEVEN, faults=Faults(on_nonfinite="exclude"))
    ours, theirs = as_replicas(trial, 3), trial.run(3)[0]
    assert [[record["excluded"] for record in one.records] for one in ours] == [
        [record["excluded"] for record in one.records] for one in theirs
    ]
    assert any(record["excluded"] for record in ours[1].records)
    close(ours, theirs)


def test_bytes_in_blocks_are_read_before_the_next_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds gather bytes into the same memory again; a piece is a part of a block, and a round takes several."""
    monkeypatch.setattr("partrain.training.feed.BLOCK_BYTES", 240)
    monkeypatch.setattr("partrain.training.joint.BLOCK_BYTES", 400)
    items = blobs()
    items = Samples((items.inputs * 20 + 128).clamp(0, 255).to(torch.uint8), items.targets, 1 / 255)
    trial = Trial(VARIANTS["average"].model_copy(update={"iterations": 7}), SGD, mlp, items=items, partitions=EVEN)
    close(as_replicas(trial, 3), trial.run(3)[0])


def test_other_networks_train_in_turn_with_the_same_bits() -> None:
    trial = Trial(VARIANTS["average"], SGD, restless, partitions=UNEVEN, held_out=blobs(21))
    ours = as_replicas(trial, 3)
    assert not any(one.worker.together for one in ours)
    assert [one.courses for one in ours] == [one.courses for one in trial.run(3)[0]]


def test_a_wait_that_nothing_ends_is_a_deadlock() -> None:
    arena = Arena.create(2)
    waits: list[BaseException | None] = []

    def work(rank: int, enter: Callable[[], Transport]) -> None:
        try:
            enter().wait_for_peers(lambda: False, "a message")
        except BaseException as error:
            waits.append(error.__cause__)
            raise

    placement = Placement(arena, (0, 1), range(2), None, ["cpu"] * 2, lambda _: None, lambda: False, lambda _: {}, 0, exact=True)
    ReplicaTransport.run_workers(placement, work)
    os.close(arena.descriptor)
    assert [str(error) for error in waits if isinstance(error, Deadlock)] == [
        "deadlock: worker 0 waits for a message; worker 1 waits for a message"
    ] * 2


@settings(max_examples=60)
@given(st.data(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]), st.booleans())
def test_gradients_of_replicas_are_those_of_each(data: st.DataObject, kind: torch.dtype, labels: bool) -> None:
    dtype = torch.float32 if kind == torch.bfloat16 else kind
    widths = data.draw(st.lists(st.integers(2, 33), min_size=2, max_size=4))
    count, size = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5))
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    modules = [
        nn.Sequential(
            *(part for before, after in pairwise(widths) for part in (nn.Linear(before, after, dtype=dtype), nn.Tanh()))
        )
        for _ in range(size)
    ]
    inputs = torch.randn(size, count, widths[0], dtype=dtype)
    targets = torch.randint(widths[-1], (size, count)) if labels else torch.randn(size, count, widths[-1], dtype=dtype)
    gradients = [[torch.zeros_like(parameter) for parameter in module.parameters()] for module in modules]
    each = [MlpGradient.of(module, own, kind) for module, own in zip(modules, gradients, strict=True)]
    losses = [one.differentiate(*batch) for one, *batch in zip(each, inputs, targets, strict=True) if one]
    stacked = [torch.stack([p.detach() for p in same]) for same in zip(*(module.parameters() for module in modules), strict=True)]
    got = [torch.zeros_like(parameter) for parameter in stacked]
    assert each[0]
    loss = each[0].of_replicas(stacked, got).differentiate(inputs, targets)
    exact = {"rtol": 1e-2, "atol": 1e-2} if kind == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(loss, torch.stack(losses), **exact)
    for one, same in zip(got, zip(*gradients, strict=True), strict=True):
        torch.testing.assert_close(one, torch.stack(same), **exact)


def test_an_error_of_joint_training_is_the_failure_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a worker that trains alone: it is reported, and the others stop."""
    errors: list[type[BaseException]] = []

    class Watched(Trial):
        def train(self, *words: Any, **options: Any) -> Trained:
            try:
                return super().train(*words, **options)
            except Exception as error:
                errors.append(type(error))
                raise

    def fail(*_: object) -> torch.Tensor:
        raise MemoryError("none left")

    monkeypatch.setattr(MlpGradient, "differentiate", fail)
    with pytest.raises(MemoryError, match="none left"):
        as_replicas(Watched(VARIANTS["average"], SGD, mlp, partitions=EVEN), 1)
    assert errors == [MemoryError, Abandoned, Abandoned, Abandoned]


def test_of_two_replicas_each_keeps_its_own_labels() -> None:
    """A fault in the order of items would be lost among equal replicas."""
    trial = replace(Trial(VARIANTS["average"], SGD, mlp, partitions=EVEN), rule=VARIANTS["average"])
    losses = [one.records[0]["loss"] for one in as_replicas(trial, 1)]
    assert len(set(losses)) == 4
