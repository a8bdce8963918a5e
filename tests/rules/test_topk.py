"""Averaging by compressed differences: the memory of what was left out, and what is left of `average`."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.lab import PLAIN, Quadratic, Trial, descend, simulate
from support.rule_forms import findings
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.rules.topk import Topk

HALF = {"kind": "topk", "density": 0.5}


def topk(compressor: dict[str, Any] | None = None, **settings: Any) -> Topk:
    chosen = {"compressor": compressor} if compressor else {}
    return Topk.model_validate({"rule": "topk", "iterations": 1} | chosen | settings)


def test_golden() -> None:
    """Each goes half the way to (0, 6) and to (4, -2), adds what it kept and sends the larger number; the mean moves x.

    x           (8, 8)                (6, 5.5)                 (4.5, 3.625)
    worker 0    (4, 1) -> (4, 0)      (3, -0.25 + 1) -> 3, 0   (2.25, -1.1875 + 0.75) -> 2.25, 0
    worker 1    (2, 5) -> (0, 5)      (1 + 2, 3.75) -> 0, 3.75 (0.25 + 3, 2.8125) -> 3.25, 0
    mean        (2, 2.5)              (1.5, 1.875)             (2.75, 0)
    """
    course = descend(topk(HALF), start=[8.0, 8.0], targets=[[0.0, 6.0], [4.0, -2.0]], rounds=3)
    assert course == [[x, x] for x in ([6.0, 5.5], [4.5, 3.625], [1.75, 3.625])]


def test_without_error_feedback_the_rest_is_lost() -> None:
    """The third time worker 1 sends 2.8125 rather than 0.25, having forgotten 3: (4.5 - 2.25 / 2, 3.625 - 2.8125 / 2)."""
    course = descend(topk(HALF, error_feedback=False), [8.0, 8.0], targets=[[0.0, 6.0], [4.0, -2.0]], rounds=3)
    assert course[:2] == [[x, x] for x in ([6.0, 5.5], [4.5, 3.625])]
    assert course[2] == [[3.375, 2.21875]] * 2


def test_half_precision_with_and_without_memory() -> None:
    """1 + 2^-12 is 1 in half precision; the rest joins 0.5 + 2^-12, which is 0.5 alone but together is exact."""
    start = [2 + 2**-11]
    for feedback, end in ((True, 0.5), (False, 0.5 + 2**-11)):
        course = descend(topk({"kind": "fp16"}, error_feedback=feedback), start, targets=[[0.0], [0.0]], rounds=2)
        assert course == [[[1 + 2**-11]] * 2, [[end]] * 2]


@pytest.mark.parametrize("weights", ["items", "equal"])
@pytest.mark.parametrize("feedback", [True, False])
def test_where_nothing_is_lost_it_is_averaging(weights: str, feedback: bool) -> None:
    rule = topk({"kind": "identity"}, iterations=3, weights=weights, error_feedback=feedback)
    mixed, _ = Trial(rule, PLAIN, caps=[1, 3]).run(4)
    averaged, _ = Trial(Average.model_validate({"iterations": 3, "weights": weights}), PLAIN, caps=[1, 3]).run(4)
    torch.testing.assert_close(mixed[0].params, averaged[0].params)


@pytest.mark.parametrize(("kind", "near"), [("fp32", 1e-6), ("fp16", 1e-4), ("bf16", 1e-3)])
def test_rounded_messages_are_nearly_averaging(kind: str, near: float) -> None:
    mixed, _ = Trial(topk({"kind": kind}, iterations=3), PLAIN).run(4)
    averaged, _ = Trial(Average(iterations=3), PLAIN).run(4)
    torch.testing.assert_close(mixed[0].params, averaged[0].params, atol=near, rtol=0)


@pytest.mark.parametrize("kind", ["topk", "2bit", "bf16"])
def test_sums_of_updates_are_kept(kind: str) -> None:
    """x moves by the mean of what was sent; what was not is in the memories."""
    rule = topk({"kind": kind}, iterations=2)

    def program(group: ArenaGroup, row: Tensor) -> tuple[Tensor, Tensor]:
        worker = Quadratic(group, row, [8.0, 2.0, -1.0], [[0.0, 1.0, 5.0], [4.0, 0.0, 0.3]][group.rank], 2)
        state, updates = rule.init(worker, group), torch.zeros(3)
        assert state is not None
        for _ in range(5):
            start = worker.params.clone()
            worker.begin()
            rule.round(worker, group, state)
            updates += start - (start + (0.25 - 1) * (start - worker._target))  # two steps leave a quarter of the way
        return worker.params.clone(), updates - state.error

    (x, sent), (other, too) = simulate(2, program, 16, 8)
    assert torch.equal(x, other)
    torch.testing.assert_close(torch.tensor([8.0, 2.0, -1.0]) - x, (sent + too) / 2)


def test_replicas_stay_equal_to_the_bit() -> None:
    parts = [range(20), range(20, 30), range(30, 48)]
    workers, _ = Trial(topk({"kind": "topk", "density": 0.1, "values": "2bit"}, iterations=3), partitions=parts).run(3)
    assert workers[0].courses == workers[1].courses == workers[2].courses


@pytest.mark.parametrize(
    ("compressor", "length"), [({"kind": "identity"}, 448), ({"kind": "fp16"}, 224), ({"kind": "2bit"}, 44), (None, 10)]
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bytes(compressor: dict[str, Any] | None, length: int, momentum: float) -> None:
    """112 numbers; momentum stays at home. By default one in a hundred is sent: a head of five, a value of four, its place."""
    workers, _ = Trial(topk(compressor), Sgd(lr=0.1, momentum=momentum, batch_size=4)).run(1)
    assert workers[0].records[0]["bytes"] == length


def test_memory_is_kept_only_where_it_is_used() -> None:
    _, with_memory = Trial(topk()).run(1)
    _, without = Trial(topk(error_feedback=False)).run(1)
    assert with_memory.arrays["workers/1/rule/error"].any()
    assert [path for path in without.arrays if "rule" in path] == []


def test_a_worker_that_does_not_train_has_no_say() -> None:
    """In the first of two ramp rounds worker 0 is alone."""
    both, _ = Trial(topk(HALF, ramp_workers=2)).run(1)
    (alone,), _ = Trial(topk(HALF), partitions=[range(22)]).run(1)
    assert torch.equal(both[1].params, alone.params)


def test_one_worker_sends_all_in_the_end() -> None:
    """A lone worker at rest: what is left of its first update goes out one entry a round."""
    lone = Trial(topk({"kind": "topk", "density": 0.01}), Sgd(lr=0.1, batch_size=4), partitions=[range(22)])
    _, taken = lone.run(1)
    left = [taken.arrays["workers/0/rule/error"]]
    still = replace(lone, optimizer=Sgd(lr=1e-30, batch_size=4))
    for rounds in (2, 3, 4):
        left.append(still.run(rounds, since=taken)[1].arrays["workers/0/rule/error"])
    counts = [int((abs(error) > 1e-12).sum()) for error in left]
    assert counts == [counts[0] - sent for sent in range(4)]


@pytest.mark.parametrize("kind", ["topk", "2bit"])
def test_a_coarse_compressor_without_memory_is_warned_about(kind: str) -> None:
    assert findings(topk({"kind": kind}, error_feedback=False)) == [("error_feedback", "warning")]
    assert findings(topk({"kind": kind})) == []


@pytest.mark.parametrize("kind", ["fp16", "bf16", "identity"])
def test_a_fine_one_is_not(kind: str) -> None:
    assert findings(topk({"kind": kind}, error_feedback=False)) == []
