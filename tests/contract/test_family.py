"""Relations between rules, and between many workers and one."""

from dataclasses import replace

import pytest
import torch
from support.lab import Trial, restless

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.rules.bsp import Bsp

PLAIN = Sgd(lr=0.1, batch_size=4)


def test_averaging_after_each_plain_step_is_averaging_gradients() -> None:
    averaged, _ = Trial(Average(iterations=1), PLAIN).run(10)
    summed, _ = Trial(Bsp(rule="bsp", iterations=1), PLAIN).run(10)
    torch.testing.assert_close(averaged[0].params, summed[0].params)
    assert not torch.equal(averaged[0].params, Trial(Average(iterations=1), PLAIN).worker().params)


@pytest.mark.parametrize("rule", [Average(iterations=3), Bsp(rule="bsp", iterations=3)], ids=lambda rule: rule.rule)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("optimizer", [PLAIN, Adam(name="adam", lr=0.01, batch_size=4)], ids=["sgd", "adam"])
def test_identical_workers_are_one_worker_to_the_bit(rule: Rule, count: int, optimizer: Sgd | Adam) -> None:
    crowd = Trial(rule, optimizer, partitions=[range(26)] * count, twins=True)
    many, _ = crowd.run(4)
    (one,), _ = replace(crowd, partitions=[range(26)]).run(4)
    assert all(torch.equal(worker.params, one.params) for worker in many)


def test_identical_workers_have_the_statistics_of_one_to_the_bit() -> None:
    crowd = Trial(network=lambda: restless()[:3].append(torch.nn.Linear(8, 3)), partitions=[range(26)] * 3, twins=True)
    many, _ = crowd.run(4)
    (one,), _ = replace(crowd, partitions=[range(26)]).run(4)
    assert all(torch.equal(worker.worker.replica.buffers, one.worker.replica.buffers) for worker in many)


@pytest.mark.parametrize("weights", ["items", "equal"])
def test_weights_matter_where_work_is_unequal(weights: str) -> None:
    """Worker 1 does three times the work of worker 0: the mean leans towards it by items, and lies half-way if all count alike."""
    rule = Average.model_validate({"iterations": 1, "weights": weights})
    mixed, _ = Trial(rule, PLAIN, caps=[1, 3]).run(1)
    ends = []
    for rank in (0, 1):
        worker = Trial(rule, PLAIN, caps=[1, 3]).worker(rank)
        worker.begin(1, 0)
        worker.train()
        ends.append(worker.params.double())
    share = 0.75 if weights == "items" else 0.5
    torch.testing.assert_close(mixed[0].params.double(), (1 - share) * ends[0] + share * ends[1], atol=1e-7, rtol=1e-6)


def test_weights_do_not_matter_where_work_is_equal() -> None:
    by_items, _ = Trial(Average(iterations=3, weights="items")).run(3)
    alike, _ = Trial(Average(iterations=3, weights="equal")).run(3)
    assert torch.equal(by_items[0].params, alike[0].params)


def test_after_a_round_all_replicas_are_equal() -> None:
    workers, _ = Trial(
        optimizer=Sgd(lr=0.1, momentum=0.9, batch_size=4), partitions=[range(20), range(20, 30), range(30, 48)]
    ).run(3)
    assert all(torch.equal(worker.params, workers[0].params) for worker in workers)
    assert all(torch.equal(worker.worker.optimizer.moments, workers[0].worker.optimizer.moments) for worker in workers)
