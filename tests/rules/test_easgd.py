"""Elastic averaging: the pull, the center, and what becomes unstable."""

from collections.abc import Sequence

import pytest
import torch
from support.lab import Common, Quadratic, Trial, simulate
from support.rule_forms import findings
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.comm.simulated import Pace
from partrain.protocols.rule_traits import JobContext
from partrain.rules.easgd import Easgd

Course = list[list[list[float]]]


def courses(
    rule: Easgd, targets: Sequence[float], rounds: int, ramped: bool = False, paces: Sequence[Pace] = ()
) -> tuple[Course, Course]:
    """From 8, for each round: every worker's x, and the center as every worker has it."""

    def program(group: ArenaGroup, row: Tensor) -> list[tuple[list[float], list[float]]]:
        worker = Quadratic(group, row, [8.0], [targets[group.rank]], rule.iterations or 1)
        state, seen = rule.init(worker, group), []
        for _ in range(rounds):
            worker.begin()
            group.begin(measure=False)
            rule.round(worker, group, state)
            seen.append((worker.params.tolist(), rule.result(worker, group, state).tolist()))
            group.barrier()
        return seen

    workers = simulate(len(targets), program, 64, 32, common=Common(rule, 1), paces=paces)
    by_round = list(zip(*workers, strict=True))
    return [[x for x, _ in seen] for seen in by_round], [[c for _, c in seen] for seen in by_round]


def test_golden() -> None:
    """beta = 1/2, so alpha = 1/4; each step goes half the way to 0, or to 4. The pull is that of the x before the step.

    c = 8       pulls 0, 0              8 -> 4                8 -> 6                c + 0 / 2
    c = 8       pulls -1, -1/2          4 -> 2 + 1 = 3        6 -> 5 + 1/2          c + mean(-4, -2) / 2 = 6.5
    c = 6.5     pulls -7/8, -1/4        3 -> 3/2 + 7/8        5.5 -> 19/4 + 1/4     c + mean(-7/2, -1) / 2 = 5.375
    """
    x, c = courses(Easgd(rule="easgd", elasticity=0.5), [0.0, 4.0], rounds=3)
    assert x == [[[4.0], [6.0]], [[3.0], [5.5]], [[2.375], [5.0]]]
    assert c == [[[8.0]] * 2, [[6.5]] * 2, [[5.375]] * 2]


def test_golden_with_two_iterations() -> None:
    """The pull comes after the first step: in round 2 the one goes 2 -> 1, + 3/2 = 2.5, -> 1.25; the other
    5 -> 4.5, + 3/4 = 5.25, -> 4.625; the center 8 + mean(-6, -3) / 2."""
    x, c = courses(Easgd(rule="easgd", elasticity=0.5, iterations=2), [0.0, 4.0], rounds=2)
    assert x == [[[2.0], [5.0]], [[1.25], [4.625]]]
    assert c[1] == [[5.75]] * 2


def test_golden_asynchronous() -> None:
    """Workers take turns, worker 0 first; alpha = 1/4, two visits each. A pull moves the center at once:

    0: c = 8, pull 0, x = 8 -> 4         1: c = 8, pull 0, x = 8 -> 6
    0: pull -1, c = 7, x = 4 -> 2 + 1    1: pull (6 - 7) / 4, c = 6.75, x = 6 -> 5 + 1/4
    """
    rule = Easgd(rule="easgd", elasticity=0.5, asynchronous=True, visits=2)
    x, c = courses(rule, [0.0, 4.0], rounds=1)
    assert x == [[[3.0], [5.25]]]
    assert c == [[[6.75]] * 2]


def test_a_faster_worker_visits_more_often() -> None:
    """Four visits in all; worker 0 makes its third while worker 1 is at its first: x = 8 -> 4 -> 3 -> 1.5 + 1 = 2.5."""
    rule = Easgd(rule="easgd", elasticity=0.5, asynchronous=True, visits=2)
    x, c = courses(rule, [0.0, 4.0], rounds=1, paces=[Pace(), Pace(speed=0.125)])
    assert x == [[[2.5], [6.0]]]
    assert c == [[[6.0]] * 2], "8 + (4 - 8) / 4 = 7, 7 + (3 - 7) / 4 = 6"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_without_elasticity_workers_are_alone_to_the_bit(asynchronous: bool) -> None:
    trial = Trial(Easgd(rule="easgd", elasticity=0.0, iterations=3, asynchronous=asynchronous, visits=1))
    workers, _ = trial.run(3)
    for rank, one in enumerate(workers):
        alone = trial.worker(rank)
        for number in range(1, 4):
            alone.begin(number, 0)
            alone.train()
        assert torch.equal(one.params, alone.params)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_center_comes_near_the_mean_of_the_targets(asynchronous: bool) -> None:
    x, c = courses(Easgd(rule="easgd", asynchronous=asynchronous), [0.0, 4.0, 8.0], rounds=30)
    assert c[-1][0] == c[-1][1] == c[-1][2]
    assert c[-1][0][0] == pytest.approx(4.0, abs=0.75), "the last to pull has the most say"
    assert x[-1][0][0] < x[-1][1][0] < x[-1][2][0]


def test_pulls_add_up_to_what_the_center_gains() -> None:
    """Elastic symmetry: without gradients (rate 0) the sum of all x and c never changes."""

    def program(group: ArenaGroup, row: Tensor) -> float:
        rule = Easgd(rule="easgd", elasticity=0.75)
        worker = Quadratic(group, row, [float(group.rank)], [0.0], lr=0.0)
        state = rule.init(worker, group)
        state.center.fill_(5.0)
        for _ in range(4):
            rule.round(worker, group, state)
        return (sum(float(x) for x in group.all_gather(worker.params)) + float(state.center)) / 8

    assert simulate(3, program, 64, 32) == pytest.approx([1.0] * 3)


def test_workers_that_do_not_train_yet_do_not_hold_the_center_back() -> None:
    """In round 1 of 2 only worker 0 trains and alpha = beta; worker 1 follows the center."""
    trial = Trial(Easgd(rule="easgd", elasticity=0.5, iterations=2, ramp_workers=2))
    workers, _ = trial.run(1)
    (alone,), _ = Trial(Easgd(rule="easgd", elasticity=0.5, iterations=2), partitions=[range(22)]).run(1)
    assert torch.equal(workers[0].params, alone.params)
    assert workers[1].worker.tally.total_items == 0
    again, _ = Trial(Easgd(rule="easgd", elasticity=0.5, iterations=2, ramp_workers=2, asynchronous=True)).run(2)
    assert again[1].records[0]["items"] == 0
    assert again[1].records[1]["items"] > 0


def found(workers: int, **settings: float | bool) -> list[tuple[str, str]]:
    return findings(Easgd.model_validate({"rule": "easgd", **settings}), workers)


def test_findings() -> None:
    assert found(2) == found(4, asynchronous=True) == found(2, asynchronous=True, visits=3) == []
    assert found(2, elasticity=0.0) == found(2, elasticity=0.0, asynchronous=True) == [("elasticity", "error")]
    assert found(4, elasticity=1.6) == found(2, elasticity=1.4) == [("elasticity", "error")]
    assert found(4, elasticity=1.5) == [("elasticity", "warning")], "the center overshoots"
    assert found(4, elasticity=1.5, asynchronous=True) == [("elasticity", "warning")], "it also does if visits coincide"
    assert found(4, elasticity=2.5, asynchronous=True) == [("elasticity", "warning")]
    assert found(4, elasticity=4.0, asynchronous=True) == [("elasticity", "error")]
    assert found(1) == [("elasticity", "warning")], "a lone worker and its center overshoot each other"
    assert found(4, ramp_workers=8) == [("elasticity", "warning")], "so do the first of a ramp"
    assert found(4, ramp_workers=8, elasticity=1.0) == [("elasticity", "error")]
    assert found(4, ramp_workers=8, elasticity=0.5) == found(4, ramp_workers=1) == []
    assert found(4, ramp_workers=2, elasticity=1.2) == [("elasticity", "warning")], "two begin"
    assert found(2, visits=3) == [("visits", "warning")]


@pytest.mark.parametrize(("asynchronous", "workers"), [(False, 1), (False, 2), (False, 4), (True, 2), (True, 3)])
@pytest.mark.parametrize("side", [0.97, 1.1])
def test_the_limit_of_stability_is_where_the_error_says(asynchronous: bool, workers: int, side: float) -> None:
    """Without gradients replicas and center draw together on this side of the limit, and fly apart on the other."""
    limit = float(workers) if asynchronous else 2 * workers / (workers + 1)
    rule = Easgd(rule="easgd", elasticity=limit * side, asynchronous=asynchronous, visits=1)

    def program(group: ArenaGroup, row: Tensor) -> float:
        worker = Quadratic(group, row, [1.0], [0.0], lr=0.0)
        state = rule.init(worker, group)
        if state:
            state.center.zero_()
        else:
            group.center.zero_()
            group.barrier()
        for _ in range(150):
            group.begin(measure=False)
            rule.round(worker, group, state)
            group.barrier()
        return float((worker.params - rule.result(worker, group, state)).abs())

    ends = simulate(workers, program, 64, 32, common=Common(rule, 1))
    assert (max(ends) < 0.1) == (side < 1)
    assert bool(found(workers, elasticity=limit * side, asynchronous=asynchronous)[0][1] == "error") == (side > 1)


@pytest.mark.parametrize("side", [0.97, 1.1])
def test_where_all_visits_coincide_the_limit_is_that_of_a_meeting(side: float) -> None:
    """Each message takes as long as an iteration: all pull before anyone pushes."""
    rule = Easgd(rule="easgd", elasticity=1.6 * side, asynchronous=True, visits=1)

    def program(group: ArenaGroup, row: Tensor) -> float:
        worker = Quadratic(group, row, [1.0], [0.0], lr=0.0)
        rule.init(worker, group)
        group.center.zero_()
        group.barrier()
        for _ in range(150):
            group.begin(measure=False)
            rule.round(worker, group, None)
            group.barrier()
        return float((worker.params - rule.result(worker, group, None)).abs())

    ends = simulate(4, program, 64, 32, common=Common(rule, 1), paces=[Pace(delay_s=1.0)] * 4)
    assert (max(ends) < 0.1) == (side < 1)
    assert any("at once" in finding.message for finding in rule.check(JobContext(4))) == (side > 1)
