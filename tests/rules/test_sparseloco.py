"""SparseLoCo: a decaying memory, chunks, two bits."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.lab import PLAIN, Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.rules.sparseloco import Sparseloco
from partrain.rules.topk import Topk

TARGETS = [[0.0, 6.0], [4.0, -2.0]]


def sparseloco(**settings: Any) -> Sparseloco:
    return Sparseloco.model_validate({"rule": "sparseloco", "iterations": 1} | settings)


def test_golden() -> None:
    """Each goes half the way to (0, 6) and to (4, -2), adds half of what it kept and sends the larger number, which one level holds.

    x           (8, 8)            (6, 5.5)                    (4.5, 3.625)                      (3.375, 2.21875)
    worker 0    (4, 1) -> 4, 0    (3, -0.25 + 0.5) -> 3, 0    (2.25, -1.1875 + 0.125) -> 2.25, 0  (1.6875, -1.890625 - 0.53125) -> 0, -2.421875
    worker 1    (2, 5) -> 0, 5    (1 + 1, 3.75) -> 0, 3.75    (0.25 + 1, 2.8125) -> 0, 2.8125   (-0.3125 + 0.625, 2.109375) -> 0, 2.109375
    mean        (2, 2.5)          (1.5, 1.875)                (1.125, 1.40625)                  (0, -0.15625)
    """
    course = descend(sparseloco(density=0.5, beta=0.5), start=[8.0, 8.0], targets=TARGETS, rounds=4)
    assert course == [[x, x] for x in ([6.0, 5.5], [4.5, 3.625], [3.375, 2.21875], [3.375, 2.375])]


def test_the_outer_learning_rate_scales_what_arrives() -> None:
    """Half of (2, 2.5)."""
    assert descend(sparseloco(density=0.5, outer_lr=0.5), [8.0, 8.0], TARGETS) == [[[7.0, 6.75]] * 2]


@pytest.mark.parametrize("values", ["fp32", "fp16", "bf16", "2bit"])
def test_a_memory_that_never_fades_is_the_rule_topk(values: Any) -> None:
    compressor = {"kind": "topk", "density": 0.1, "values": values, "chunk": 32}
    topk = Topk.model_validate({"rule": "topk", "iterations": 3, "compressor": compressor})
    one, _ = Trial(sparseloco(density=0.1, values=values, chunk=32, beta=1.0, iterations=3), PLAIN).run(4)
    other, _ = Trial(topk, PLAIN).run(4)
    torch.testing.assert_close(one[0].params, other[0].params)


@pytest.mark.parametrize("weights", ["items", "equal"])
def test_where_nothing_is_lost_it_is_averaging(weights: str) -> None:
    rule = sparseloco(density=1.0, values="fp32", iterations=3, weights=weights)
    mixed, _ = Trial(rule, PLAIN, caps=[1, 3]).run(4)
    averaged, _ = Trial(Average.model_validate({"iterations": 3, "weights": weights}), PLAIN, caps=[1, 3]).run(4)
    torch.testing.assert_close(mixed[0].params, averaged[0].params)


@pytest.mark.parametrize(("chunk", "sent"), [(16, 7), (0, 1)])
def test_every_chunk_sends(chunk: int, sent: int) -> None:
    """112 numbers are seven chunks of 16, the last one that of three biases; as a whole they would send one entry."""
    (end,), _ = Trial(sparseloco(density=1e-3, chunk=chunk, values="fp32"), PLAIN, partitions=[range(22)]).run(1)
    assert int((end.params != Trial().worker().params).sum()) == sent


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bytes(momentum: float) -> None:
    """Eleven of 112 entries: a head of five, four levels of four bytes, two bits each, and a place each of four to seven bits."""
    workers, _ = Trial(sparseloco(density=0.1), Sgd(lr=0.1, momentum=momentum, batch_size=4)).run(1)
    sizes = {worker.records[0]["bytes"] for worker in workers}
    assert min(sizes) >= 5 + 16 + 3 + 6
    assert max(sizes) <= 5 + 16 + 3 + 10


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_memory_fades(beta: float) -> None:
    """After a round that trains comes one that hardly does: all is left of beta times the memory but the one entry that is sent."""
    rule = sparseloco(density=1e-3, beta=beta)
    trial = Trial(rule, PLAIN)
    _, taken = trial.run(1)
    _, later = replace(trial, optimizer=Sgd(lr=1e-30, batch_size=4)).run(2, since=taken)
    path = "workers/0/rule/error"
    before, after = torch.tensor(taken.arrays[path]) * beta, torch.tensor(later.arrays[path])
    before[before.abs().argmax()] = 0.0
    torch.testing.assert_close(after, before, atol=1e-12, rtol=1e-6)


def test_replicas_stay_equal_to_the_bit() -> None:
    parts = [range(20), range(20, 30), range(30, 48)]
    workers, _ = Trial(sparseloco(iterations=3, density=0.1), partitions=parts).run(3)
    assert workers[0].courses == workers[1].courses == workers[2].courses


@pytest.mark.parametrize(("settings", "key"), [({"outer_lr": 2.0}, "outer_lr"), ({"beta": 1.0}, "beta")])
def test_findings(settings: dict[str, float], key: str) -> None:
    assert findings(sparseloco(**settings)) == [(key, "warning")]


def test_no_findings() -> None:
    assert findings(sparseloco(outer_lr=1.5, beta=0.99)) == []
