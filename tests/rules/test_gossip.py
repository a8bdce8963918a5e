"""Gossip: neighbours, pairs, and one-way messages."""

from collections.abc import Sequence

import pytest
import torch
from support.lab import Common, Quadratic, Trial, descend, simulate
from support.rule_forms import findings
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.comm.simulated import Pace
from partrain.rules.average import Average
from partrain.rules.gossip import Gossip

FOUR = [[0.0], [12.0], [0.0], [24.0]]
"""From 0, a step half the way to these ends at 0, 6, 0, 12."""
PUSHY = Gossip(rule="gossip", style="push-sum", visits=2, probability=1.0)


def numbers(course: list[list[list[float]]]) -> list[list[float]]:
    """Round by round, the one weight of every worker."""
    return [[x for (x,) in replicas] for replicas in course]


def test_golden_neighbours() -> None:
    """On a ring of four, W = 1/3 each for the worker and its two neighbours.

    0, 6, 0, 12   mixed   (12 + 0 + 6) / 3 = 6,  (0 + 6 + 0) / 3 = 2,  6,  (0 + 12 + 0) / 3 = 4
    3, 7, 3, 14   mixed   (14 + 3 + 7) / 3 = 8,  13/3,                 8,  20/3
    """
    course = numbers(descend(Gossip(rule="gossip"), [0.0], FOUR, rounds=2))
    assert course[0] == pytest.approx([6, 2, 6, 4])
    assert course[1] == pytest.approx([8, 13 / 3, 8, 20 / 3])


def test_golden_before() -> None:
    """Two workers, W = 1/2. The step is that of the unmixed x, the pull half the way to where the other was before it:

    8 -> 4 + 0  |  4 -> 2 + 1 = 3  |  3 -> 1.5 + 0.5 = 2
    8 -> 6 + 0  |  6 -> 5 - 1 = 4  |  4 -> 4   - 0.5 = 3.5
    """
    rule = Gossip(rule="gossip", order="before")
    assert numbers(descend(rule, [8.0], [[0.0], [4.0]], rounds=3)) == [[4, 6], [3, 4], [2, 3.5]]
    two_steps = rule.model_copy(update={"iterations": 2})
    course = numbers(descend(two_steps, [8.0], [[0.0], [4.0]], rounds=2))
    assert course == [[2, 5], [0.5 + 1.5, 4.25 - 1.5]], "all steps of a round start at the unmixed x"


def test_golden_pairs() -> None:
    """On a ring of four: in round 1 the pairs (1, 2) and (3, 0), in round 2 (0, 1) and (2, 3).

    0, 6, 0, 12  ->  6, 3, 3, 6   |   3, 7.5, 1.5, 15  ->  5.25, 5.25, 8.25, 8.25
    """
    rule = Gossip(rule="gossip", style="pairs")
    assert numbers(descend(rule, [0.0], FOUR, rounds=2)) == [[6, 3, 3, 6], [5.25, 5.25, 8.25, 8.25]]


def courses(rule: Gossip, start: float, targets: Sequence[float], rounds: int, paces: Sequence[Pace] = (), lr: float = 0.5):
    """For each round: every worker's x, every worker's share, and the result as every worker has it."""

    def program(group: ArenaGroup, row: Tensor) -> list[tuple[float, float, float]]:
        worker = Quadratic(group, row, [start], [targets[group.rank]], rule.iterations or 1, lr)
        state, seen = rule.init(worker, group), []
        for _ in range(rounds):
            worker.begin()
            group.begin(measure=False)
            rule.round(worker, group, state)
            share = state.share if state else 0.0
            seen.append((float(worker.params), share, float(rule.result(worker, group, state))))
            group.barrier()
        return seen

    workers = simulate(len(targets), program, 64, 32, common=Common(rule, 1), paces=paces)
    return [[list(values) for values in zip(*seen, strict=True)] for seen in zip(*workers, strict=True)]


def test_golden_push_sum() -> None:
    """Shares of 1/2 at first, each visit sends. Workers take turns: both first visits, then both second ones.

    0: 8 -> 4, sends (4, 1/4)                       1: 8 -> 6, sends (6, 1/4)
    0: nothing has come yet; 4 -> 2,                1: takes in (4, 1/4): 5, share 1/2; 5 -> 4.5,
       sends (2, 1/8), keeps 1/8                       sends (4.5, 1/4), keeps 1/4
    0: takes in (6, 1/4) and (4.5, 1/4):            1: takes in (2, 1/8):
       (2/8 + 6/4 + 4.5/4) / (5/8) = 4.6               (4.5/4 + 2/8) / (3/8) = 11/3
    """
    ((x, shares, results),) = courses(PUSHY, 8.0, [0.0, 4.0], rounds=1)
    assert x == pytest.approx([4.6, 11 / 3])
    assert shares == [0.625, 0.375]
    assert results == pytest.approx([4.25] * 2), "5/8 * 4.6 + 3/8 * 11/3"


@pytest.mark.parametrize("order", ["after", "before"])
def test_all_with_all_is_averaging(order: str) -> None:
    """After the step: up to rounding. Before it: one step behind, all mean values being the same."""
    rule = Gossip.model_validate({"rule": "gossip", "topology": "complete", "order": order, "iterations": 3})
    partitions = [range(16), range(16, 32), range(32, 48)]
    mixed, _ = Trial(rule, partitions=partitions).run(4)
    averaged, _ = Trial(Average(iterations=3), partitions=partitions).run(4)
    if order == "after":
        torch.testing.assert_close(mixed[1].params, averaged[1].params)
    else:
        assert not torch.allclose(mixed[0].params, mixed[1].params)


@pytest.mark.parametrize("style", ["neighbours", "pairs"])
@pytest.mark.parametrize("topology", ["ring", "torus", "exponential", "complete"])
@pytest.mark.parametrize("order", ["after", "before"])
def test_mixing_keeps_the_mean_and_draws_replicas_together(style: str, topology: str, order: str) -> None:
    """With a rate of 0 there is only mixing."""
    rule = Gossip.model_validate({"rule": "gossip", "style": style, "topology": topology, "order": order})

    def program(group: ArenaGroup, row: Tensor) -> list[float]:
        worker, seen = Quadratic(group, row, [float(group.rank**2)], [0.0], lr=0.0), []
        for _ in range(40):
            worker.begin()
            rule.round(worker, group, None)
            seen.append(float(worker.params))
        return seen

    rounds = list(zip(*simulate(8, program, 64, 32), strict=True))
    assert [sum(replicas) / 8 for replicas in rounds] == pytest.approx([17.5] * 40)
    assert rounds[-1] == pytest.approx([17.5] * 8, rel=1e-2)


@pytest.mark.parametrize("rule", [Gossip(rule="gossip"), Gossip(rule="gossip", style="pairs", topology="complete")])
def test_equal_replicas_stay_equal_to_the_bit(rule: Gossip) -> None:
    crowd = Trial(rule.model_copy(update={"iterations": 3}), partitions=[range(26)] * 3, twins=True)
    many, _ = crowd.run(4)
    (alone,), _ = Trial(Average(iterations=3), partitions=[range(26)]).run(4)
    assert all(torch.equal(worker.params, alone.params) for worker in many)


@pytest.mark.parametrize("style", ["neighbours", "pairs", "push-sum"])
def test_one_worker_is_alone(style: str) -> None:
    rule = Gossip.model_validate({"rule": "gossip", "style": style, "iterations": 3, "visits": 1, "probability": 1.0})
    (one,), _ = Trial(rule, partitions=[range(26)]).run(4)
    (alone,), _ = Trial(Average(iterations=3), partitions=[range(26)]).run(4)
    assert torch.equal(one.params, alone.params)


# Push-sum


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_shares_add_up_to_one_at_every_rounds_end(workers: int, probability: float) -> None:
    rule = Gossip(rule="gossip", style="push-sum", visits=7, probability=probability)
    paces = [Pace(speed=1 / (rank + 1), delay_s=1e-4) for rank in range(workers)]
    seen = courses(rule, 4.0, [float(rank) for rank in range(workers)], rounds=6, paces=paces)
    assert [sum(shares) for _, shares, _ in seen] == pytest.approx([1.0] * 6)
    assert all(len(set(results)) == 1 for _, _, results in seen)
    assert len({share for _, shares, _ in seen for share in shares}) > 2, "they did change"


def test_messages_keep_the_weighted_mean() -> None:
    """With a rate of 0 the network that counts never moves, wherever the shares go; replicas come together at it."""

    def program(group: ArenaGroup, row: Tensor) -> tuple[list[float], float]:
        worker = Quadratic(group, row, [float(group.rank)], [0.0], lr=0.0)
        state, results = PUSHY.init(worker, group), []
        for _ in range(12):
            worker.begin()
            group.begin(measure=False)
            PUSHY.round(worker, group, state)
            results.append(float(PUSHY.result(worker, group, state)))
            group.barrier()
        return results, float(worker.params)

    ends = simulate(4, program, 64, 32, common=Common(PUSHY, 1), paces=[Pace(speed=1 + rank) for rank in range(4)])
    assert all(results == pytest.approx([1.5] * 12) for results, _ in ends)
    assert [x for _, x in ends] == pytest.approx([1.5] * 4, rel=0.05)


@pytest.mark.parametrize(("iterations", "chance"), [(1, 0.1), (4, 1 - 0.9**4)])
def test_a_longer_visit_sends_as_often_as_one_of_its_iterations_would(iterations: int, chance: float) -> None:
    rule = Gossip(rule="gossip", style="push-sum", visits=2000, probability=0.1, iterations=iterations)

    def program(group: ArenaGroup, row: Tensor) -> float:
        worker = Quadratic(group, row, [1.0], [0.0], iterations)
        worker.begin()
        group.begin(measure=False)
        rule.round(worker, group, rule.init(worker, group))
        return group.bytes / worker.params.nbytes / (worker.done / iterations)

    assert simulate(2, program, 64, 32, common=Common(rule, 1)) == pytest.approx([chance] * 2, rel=0.15)


def test_every_other_worker_is_written_to() -> None:
    reached: dict[int, set[int]] = {rank: set() for rank in range(4)}

    def program(group: ArenaGroup, row: Tensor) -> None:
        send = group.send
        group.send = lambda x, share, peer: (reached[group.rank].add(peer), send(x, share, peer))[1]  # type: ignore[method-assign]
        rule = PUSHY.model_copy(update={"visits": 30})
        worker = Quadratic(group, row, [1.0], [0.0])
        group.begin(measure=False)
        rule.round(worker, group, rule.init(worker, group))

    simulate(4, program, 64, 32, common=Common(PUSHY, 1))
    assert reached == {rank: set(range(4)) - {rank} for rank in range(4)}


def test_workers_that_do_not_train_yet_still_mix() -> None:
    for rule in (
        Gossip(rule="gossip", iterations=2, ramp_workers=2),
        PUSHY.model_copy(update={"iterations": 2, "ramp_workers": 2}),
    ):
        workers, _ = Trial(rule).run(1)
        start = Trial(rule).worker().params
        assert workers[1].records[0]["items"] == 0
        assert not torch.equal(workers[1].params, start), "it has what came from worker 0"


# Findings


def found(workers: int, **settings: float | str) -> list[tuple[str, str]]:
    return findings(Gossip.model_validate({"rule": "gossip", **settings}), workers)


@pytest.mark.parametrize("topology", ["ring", "torus", "complete"])
def test_pairs_of_an_odd_number_leave_someone_over(topology: str) -> None:
    assert found(3, style="pairs", topology=topology) == [("topology", "warning")]
    assert found(4, style="pairs", topology=topology) == []
    assert found(3, topology=topology) == [], "neighbours need no partner"


def test_a_grid_with_odd_rows_leaves_some_over() -> None:
    assert found(6, style="pairs", topology="torus") == [("topology", "warning")]
    assert found(6, style="pairs", topology="ring") == []


def test_exponential_pairs_need_a_power_of_two() -> None:
    assert found(6, style="pairs", topology="exponential") == [("topology", "error")]
    assert found(8, style="pairs", topology="exponential") == found(6, topology="exponential") == []


def test_other_findings() -> None:
    assert found(1) == found(1, style="pairs") == found(1, style="push-sum") == [("rule", "warning")]
    assert found(2, style="push-sum") == found(2, style="push-sum", visits=3, probability=1.0) == []
    assert found(2, style="push-sum", probability=0.0) == [("probability", "warning")]
    assert found(2, style="push-sum", topology="ring", order="before") == [("topology", "warning"), ("order", "warning")]
    assert found(2, visits=3, probability=0.5) == [("visits", "warning"), ("probability", "warning")]
