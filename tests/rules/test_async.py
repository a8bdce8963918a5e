"""Asynchronous training: weights of stale updates, and the moments they are applied."""

import pytest
import torch
from support.lab import Common, Quadratic, Trial, descend, simulate
from support.rule_forms import findings
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.comm.simulated import Pace
from partrain.optim import Sgd
from partrain.protocols.asynchronous import Center, Update
from partrain.rules.async_ import Async
from partrain.rules.average import Average
from partrain.rules.diloco import Diloco

ONCE = Async(rule="async", visits=1)
"""Every worker visits once a round; all pull before anyone pushes, and push by rank: so the staleness of worker i is i."""
PLAIN = Sgd(lr=0.1, batch_size=4)


def ends(rule: Async, targets: list[float], rounds: int = 1) -> list[float]:
    """From 8, half the way to its target at each step: the center, which all have, after each round."""
    course = descend(rule, [8.0], [[target] for target in targets], rounds)
    assert all(replicas == [replicas[0]] * len(targets) for replicas in course)
    return [replicas[0][0] for replicas in course]


def test_golden() -> None:
    """b = 8: worker 0 goes to 4, worker 1 to 6, so the center to 8 - 4 - 2 = 2; b = 2: to 1 and 3, so it stays at 2 - 1 + 1."""
    assert ends(ONCE, [0.0, 4.0], rounds=2) == [2.0, 2.0]
    assert ends(ONCE.model_copy(update={"outer_lr": 0.5}), [0.0, 4.0], rounds=2) == [5.0, 3.5]


@pytest.mark.parametrize(
    ("weight", "end"),
    [("none", -4.0), ("inverse", -2.0), ("polynomial", 8 - 4 * (1 + 2**-0.5 + 3**-0.5)), ("hinge", -4.0)],
)
def test_a_stale_update_counts_less(weight: str, end: float) -> None:
    """Three workers go from 8 to 4 each: updates of 4 that are 0, 1 and 2 versions old."""
    assert ends(ONCE.model_copy(update={"staleness_weight": weight}), [0.0] * 3) == [pytest.approx(end)]


@pytest.mark.parametrize(("weight", "discounts"), [
    ("none", [1, 1, 1, 1, 1, 1, 1]),
    ("inverse", [1, 1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6]),
    ("polynomial", [1, 2**-0.5, 3**-0.5, 1 / 2, 5**-0.5, 6**-0.5, 7**-0.5]),
    ("hinge", [1, 1, 1, 1, 1, 1 / 11, 1 / 21]),
])  # fmt: skip
def test_staleness_weights(weight: str, discounts: list[float]) -> None:
    """Measure how far the center follows an update of length 1 and of this staleness."""
    rule, center = ONCE.model_copy(update={"staleness_weight": weight}), torch.zeros(1, 7, dtype=torch.float64)
    for staleness in range(7):
        part = Center(center[:, staleness : staleness + 1], torch.zeros(8, dtype=torch.float64), staleness, 2)
        rule.merge(part, Update(torch.tensor([-1.0]), None, 0.0, staleness))
    assert center[0].tolist() == pytest.approx(discounts)


def test_golden_soft_sync() -> None:
    """Two updates make one: 8 - (4 + 2) / 2 = 5, then 5 - (2.5 + 0.5) / 2 = 3.5."""
    assert ends(ONCE.model_copy(update={"soft_sync": 2}), [0.0, 4.0], rounds=2) == [5.0, 3.5]


def test_updates_that_are_too_few_wait_for_the_next_round() -> None:
    """8 -> 4 and 8 -> 6 are two of three; the third, again 8 -> 4, moves the center by their mean, 10 / 3."""
    course = ends(ONCE.model_copy(update={"soft_sync": 3}), [0.0, 4.0], rounds=2)
    assert course == [8.0, pytest.approx(8 - 10 / 3)]


def test_golden_compensation() -> None:
    """Worker 1 pulled 8 and made 2 of it, but finds c = 4: 2 + lambda / (1/2) * 2^2 * (4 - 8) = 2 - 32 lambda = 1.

    With two iterations: 8 -> 2, then 3 of 8 -> 5 for c = 2: 3 + lambda / (1/2 * 2) * 3^2 * (2 - 8) = 3 - 54 lambda.
    """
    rule = ONCE.model_copy(update={"compensation": 1 / 32})
    assert ends(rule, [0.0, 4.0]) == [3.0]
    assert ends(rule.model_copy(update={"iterations": 2}), [0.0, 4.0]) == [2.0 - (3 - 54 / 32)]


def test_no_learning_rate_is_no_division_by_it() -> None:
    center = Center(torch.tensor([[4.0]]), torch.zeros(8, dtype=torch.float64), 0, 2)
    ONCE.model_copy(update={"compensation": 1.0}).merge(center, Update(torch.tensor([1.0]), torch.tensor([8.0]), 0.0, 0))
    assert center.vectors.tolist() == [[3.0]]


def test_golden_momentum() -> None:
    """beta = 1/2; a share of 1/2 at each arrival, and after the second the momentum:

    8 - 4/2 - 2/2 = 5,              m = 3,                   5 - 3/2 = 3.5
    3.5 - 1.75/2 + 0.25/2 = 2.75,   m = 3/2 + 3/4 = 2.25,    2.75 - 2.25/2 = 1.625
    """
    assert ends(ONCE.model_copy(update={"momentum": 0.5}), [0.0, 4.0], rounds=2) == [3.5, 1.625]


def test_one_worker_is_plain_descent() -> None:
    trial = Trial(Async(rule="async", iterations=1, visits=6), PLAIN, partitions=[range(26)])
    (one,), _ = trial.run(3)
    (alone,), _ = Trial(Average(iterations=6), PLAIN, partitions=[range(26)]).run(3)
    torch.testing.assert_close(one.params, alone.params)
    assert not torch.equal(one.params, trial.worker().params)


@pytest.mark.parametrize(
    "settings", [{"staleness_weight": "inverse"}, {"bound": 0}, {"compensation": 0.5}, {"parts": 4}, {"paced": True}]
)
def test_what_is_for_late_updates_does_nothing_to_a_lone_worker(settings: dict[str, object]) -> None:
    rule = Async(rule="async", iterations=2, visits=3)
    (one,), _ = Trial(rule.model_copy(update=settings), PLAIN, partitions=[range(26)]).run(3)
    (other,), _ = Trial(rule, PLAIN, partitions=[range(26)]).run(3)
    assert torch.equal(one.params, other.params)


def test_one_visit_each_gathered_is_averaging() -> None:
    gathered, _ = Trial(Async(rule="async", iterations=3, visits=1, soft_sync=2), PLAIN).run(4)
    averaged, _ = Trial(Average(iterations=3, weights="equal"), PLAIN).run(4)
    torch.testing.assert_close(gathered[0].params, averaged[0].params)


def test_one_visit_each_with_momentum_is_diloco() -> None:
    delayed, _ = Trial(Async(rule="async", iterations=3, visits=1, momentum=0.9, outer_lr=0.7), PLAIN).run(4)
    diloco, _ = Trial(Diloco(rule="diloco", iterations=3, weights="equal"), PLAIN).run(4)
    torch.testing.assert_close(delayed[0].params, diloco[0].params)


def test_slices_are_visited_by_themselves_and_add_up_to_the_same() -> None:
    """The simulated transport never interrupts a push: so the slices see the same updates in the same order."""
    settings = {"rule": "async", "iterations": 2, "visits": 3, "staleness_weight": "inverse"}
    whole, one = Trial(Async.model_validate(settings), PLAIN).run(3)
    sliced, three = Trial(Async.model_validate(settings | {"parts": 3}), PLAIN).run(3)
    assert torch.equal(whole[0].params, sliced[0].params)
    assert one.arrays["rule/versions"][:4].tolist() == [18, 0, 0, 0]
    assert three.arrays["rule/versions"][:4].tolist() == [18, 18, 18, 0]


@pytest.mark.parametrize(
    ("settings", "vectors"),
    [({}, 1), ({"soft_sync": 2}, 2), ({"momentum": 0.9}, 3), ({"staleness_weight": "hinge", "compensation": 1.0}, 1)],
)
def test_no_more_vectors_than_the_settings_need(settings: dict[str, object], vectors: int) -> None:
    assert ONCE.model_copy(update=settings).shared_vectors == vectors


def test_paced_workers_end_their_visits_at_the_same_time() -> None:
    """A quarter of the speed: one iteration a visit instead of four, once a round has shown the speeds."""
    rule = Async(rule="async", iterations=4, visits=4, paced=True)
    workers, _ = Trial(rule, PLAIN, paces=[Pace(), Pace(speed=0.25)]).run(3)
    fast, slow = ([record["iterations"] for record in worker.records] for worker in workers)
    assert fast == [6 * 4, 4 * 4, 4 * 4]
    assert slow == [2 * 4, 4 * 1, 4 * 1]


def test_equal_paced_workers_run_what_they_are_told() -> None:
    workers, _ = Trial(Async(rule="async", iterations=3, visits=4, paced=True), PLAIN).run(4)
    assert [[record["iterations"] for record in worker.records] for worker in workers] == [[12] * 4] * 2


@pytest.mark.parametrize(("bound", "most"), [(None, 11), (0, 0), (2, 2)])
def test_nobody_is_further_ahead_than_the_bound(bound: int | None, most: int) -> None:
    """Worker 1 is ten times slower: without a bound worker 0 takes most visits of the round."""
    done, ahead = [0, 0], []

    class Watched(Quadratic):
        def train(self, iterations: int | None = None) -> None:
            ahead.append(done[self.rank] - done[1 - self.rank])
            super().train(iterations)
            done[self.rank] += 1

    rule = Async(rule="async", visits=8, bound=bound)

    def program(group: ArenaGroup, row: Tensor) -> None:
        worker = Watched(group, row, [8.0], [0.0])
        state = rule.init(worker, group)
        worker.begin()
        group.begin(measure=False)
        rule.round(worker, group, state)

    simulate(2, program, 64, 32, common=Common(rule, 1), paces=[Pace(), Pace(speed=0.1)])
    assert sum(done) == 16
    assert max(ahead) == most


@pytest.mark.parametrize("bound", [None, 0])
def test_workers_that_do_not_train_yet_are_not_waited_for(bound: int | None) -> None:
    trial = Trial(Async(rule="async", iterations=2, visits=3, bound=bound, ramp_workers=2), PLAIN)
    workers, _ = trial.run(2)
    items = [[record["items"] for record in worker.records] for worker in workers]
    visit = items[0][0] / 3
    assert items == [[3 * visit, 3 * visit], [0, 3 * visit]], "an inactive worker leaves no visits to others"
    assert torch.equal(workers[0].params, workers[1].params)


def found(workers: int, **settings: object) -> list[tuple[str, str]]:
    return findings(Async.model_validate({"rule": "async", **settings}), workers)


def test_findings() -> None:
    assert found(2) == found(1) == found(2, soft_sync=2) == found(2, momentum=0.5) == []
    assert found(2, soft_sync=2, momentum=0.5) == [("soft_sync", "error")]
    assert found(2, soft_sync=3) == [("soft_sync", "warning")]
    assert found(2, outer_lr=1.5) == [("outer_lr", "warning")]
    assert found(2, momentum=0.9) == found(8, momentum=0.9, outer_lr=0.7) == [("momentum", "warning")]
    assert found(3) == found(8, outer_lr=0.5) == found(8, soft_sync=2) == [("outer_lr", "warning")]
    assert found(8, outer_lr=0.25) == found(8, soft_sync=4) == found(8, momentum=0.5) == [], "shares, means, and shares of 1/N"
