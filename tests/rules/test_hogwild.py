"""Hogwild: shared parameters without locks."""

import pytest
import torch
from support.lab import Common, Quadratic, Trial, in_processes, simulate
from support.rule_forms import findings
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.comm.simulated import Pace
from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.rules.hogwild import Hogwild

PLAIN = Sgd(lr=0.1, batch_size=4)
both_forms = pytest.mark.parametrize("local", [False, True])


def descend(group: ArenaGroup, row: Tensor, rule: Hogwild, targets: list[float], rounds: int) -> list[float]:
    """The parameter after each round, from 8; with its gradient it is the center where the rule shares parameters."""
    place = group.center.view(-1) if rule.shares_params else row
    worker, seen = Quadratic(group, place, [8.0], [targets[group.rank]], rule.iterations or 1), []
    state = rule.init(worker, group)
    for _ in range(rounds):
        worker.begin()
        group.begin(measure=False)
        rule.round(worker, group, state)
        seen.append(float(worker.params))
        group.barrier()
    return seen


@both_forms
def test_golden(local: bool) -> None:
    """Workers take turns, each a step half the way to its target, 0 or 4:  8 -> 4, 4 -> 4  |  4 -> 2, 2 -> 3."""
    rule = Hogwild(rule="hogwild", visits=1, local=local)
    d = 1 if local else 2
    courses = simulate(2, lambda group, row: descend(group, row, rule, [0.0, 4.0], 2), 64, 32, common=Common(rule, d))
    assert courses == [[4.0, 3.0]] * 2


@both_forms
def test_a_faster_worker_makes_more_of_the_visits(local: bool) -> None:
    """Of four visits the fast one makes three, the slow one the second: 8 -> 4, 4 -> 4, 4 -> 2, 2 -> 1."""
    rule = Hogwild(rule="hogwild", visits=2, local=local)
    d, paces = 1 if local else 2, [Pace(), Pace(speed=0.125)]
    courses = simulate(
        2, lambda group, row: descend(group, row, rule, [0.0, 4.0], 1), 64, 32, common=Common(rule, d), paces=paces
    )
    assert courses == [[1.0]] * 2


def settle(group: ArenaGroup, row: Tensor) -> list[float]:
    return descend(group, row, Hogwild(rule="hogwild", visits=20), [4.0, 4.0], 10)


def settle_locally(group: ArenaGroup, row: Tensor) -> list[float]:
    return descend(group, row, Hogwild(rule="hogwild", visits=1, iterations=3, local=True), [4.0, 4.0], 1)


def test_processes_share_one_vector() -> None:
    """Lost steps only cost time: what all want is where they end, and all have the same at a round's end."""
    rule = Hogwild(rule="hogwild", visits=20)
    one, other = in_processes(2, settle, 64, 32, common=Common(rule, 2))
    assert one[-1] == other[-1] == pytest.approx(4.0, abs=1e-3)


def test_processes_end_a_round_of_the_local_form_with_the_same_numbers() -> None:
    """Either one after the other, 8 -> 4.5 -> 4.0625, or both at once from 8: 8 - 3.5 - 3.5, or one of both lost."""
    one, other = in_processes(2, settle_locally, 64, 32, common=Common(Hogwild(rule="hogwild", local=True), 1))
    assert one == other
    assert one[0] in (4.0625, 1.0, 4.5)


@both_forms
def test_one_worker_is_the_local_optimizer(local: bool) -> None:
    rule = Hogwild(rule="hogwild", iterations=2, visits=3, local=local)
    (one,), _ = Trial(rule, PLAIN, partitions=[range(26)]).run(3)
    (alone,), _ = Trial(Average(iterations=6), PLAIN, partitions=[range(26)]).run(3)
    torch.testing.assert_close(one.params, alone.params)
    if not local:
        assert torch.equal(one.params, alone.params)


def test_the_parameters_are_the_center() -> None:
    shared, _ = Trial(Hogwild(rule="hogwild", iterations=1), PLAIN).run(2)
    assert len({one.params.data_ptr() for one in shared}) == 1, "workers of one process share one mapping"
    assert torch.equal(shared[0].params, shared[1].params)
    rule = Hogwild(rule="hogwild")
    assert (rule.shares_params, rule.model_copy(update={"local": True}).shares_params) == (True, False)
    assert rule.shared_vectors == 1


@both_forms
def test_simulated_workers_repeat_to_the_bit_and_share_out_the_visits(local: bool) -> None:
    rule = Hogwild(rule="hogwild", iterations=2, visits=5, local=local)
    trial = Trial(rule, PLAIN, paces=[Pace(), Pace(speed=0.25)])
    workers, _ = trial.run(3)
    again, _ = trial.run(3)
    assert torch.equal(workers[0].params, again[0].params)
    assert [sum(worker.records[number]["iterations"] for worker in workers) for number in range(3)] == [20.0] * 3
    assert workers[0].records[0]["iterations"] == 16


@both_forms
def test_workers_that_do_not_train_yet_take_no_visits(local: bool) -> None:
    rule = Hogwild(rule="hogwild", iterations=1, visits=4, local=local, ramp_workers=2)
    workers, _ = Trial(rule, PLAIN).run(2)
    assert [[record["iterations"] for record in worker.records] for worker in workers] == [[4, 4], [0, 4]]
    assert torch.equal(workers[0].params, workers[1].params)
    more, _ = Trial(rule.model_copy(update={"visits": 5}), PLAIN).run(1)
    assert more[0].records[0]["iterations"] == 5


def test_findings() -> None:
    rule = Hogwild(rule="hogwild")
    assert findings(rule) == []
    assert findings(rule, 1) == [("rule", "warning")]
