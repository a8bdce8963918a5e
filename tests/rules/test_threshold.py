"""Threshold encoding: residuals, thresholds that follow what is sent, bytes."""

from typing import Any

import pytest
import torch
from support.lab import PLAIN, Quadratic, Trial, descend, simulate
from support.rule_forms import findings
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.optim import Sgd
from partrain.protocols.rule_traits import Traffic
from partrain.rules.bsp import Bsp
from partrain.rules.threshold import Threshold

D = 112
"""Numbers of `lab.mlp`: 40, 8, 24 and 3, each filled up to whole cache lines of 16."""


def threshold(**settings: Any) -> Threshold:
    """Make the rule, by default without adaptation and clipping."""
    plain = {"rule": "threshold", "iterations": 1, "adaptive": False, "clip_every": 0}
    return Threshold.model_validate(plain | settings)


class Counting(Quadratic):
    """Adds up its own updates."""

    def __init__(self, group: ArenaGroup, row: Tensor, start: list[float], target: list[float], iterations: int) -> None:
        super().__init__(group, row, start, target, iterations)
        self.updates = torch.zeros(len(start))

    def train(self, iterations: int | None = None) -> None:
        start = self.params.clone()
        super().train(iterations)
        self.updates += start - self.params


def follow(rule: Threshold, rounds: int, start: float = 8.0) -> list[list[tuple[float, float, float]]]:
    """After each round, of both workers (targets 0 and 4): x, the residual, the threshold."""

    def program(group: ArenaGroup, row: Tensor) -> list[tuple[float, float, float]]:
        worker, seen = Quadratic(group, row, [start], [[0.0], [4.0]][group.rank], rule.iterations or 1), []
        state = rule.init(worker, group)
        for _ in range(rounds):
            worker.begin()
            group.begin(measure=False)
            rule.round(worker, group, state)
            seen.append((worker.params.item(), state.residual.item(), state.tau))
        return seen

    return [list(both) for both in zip(*simulate(2, program, 8, 4), strict=True)]


def test_golden() -> None:
    """Updates go half the way to 0 and to 4, the threshold is 3. Residuals before what is sent:

    x        8            5               2             2             2             -1
    r_0      4 -> 1       3.5 -> 0.5      1.5           2.5           3.5 -> 0.5
    r_1      2            2.5             1.5           0.5           -0.5
    sum      3            3               0             0             3
    """
    course = descend(threshold(threshold=3.0), start=[8.0], targets=[[0.0], [4.0]], rounds=5)
    assert course == [[[x], [x]] for x in (5.0, 2.0, 2.0, 2.0, -1.0)]


def test_a_round_is_so_many_iterations() -> None:
    course = descend(threshold(threshold=3.0, iterations=5), start=[8.0], targets=[[0.0], [4.0]])
    assert course == [[[-1.0], [-1.0]]]


def test_updates_may_be_averaged() -> None:
    """At first only worker 0 is over 3, and the mean is 1.5: 6.5. Then residuals are 1 + 3.25 and 2 + 1.25: the mean of 3 and 3."""
    course = descend(threshold(threshold=3.0, combine="mean"), start=[8.0], targets=[[0.0], [4.0]], rounds=2)
    assert course == [[[6.5], [6.5]], [[3.5], [3.5]]]


def test_thresholds_follow_what_is_sent_each_by_itself() -> None:
    """All or nothing of one entry is sent, so worker 0's threshold doubles, 3 to 6, while worker 1's halves, 3 to 1.5.

    Then 4 + 2.5 - 3 = 3.5 is under 6, and 2 + 0.5 = 2.5 over 1.5: x = 5 - 1.5; now it is the other way round.
    """
    course = follow(threshold(threshold=3.0, adaptive=True, decay=0.5), rounds=2)
    assert course == [[(5.0, 1.0, 6.0), (5.0, 2.0, 1.5)], [(3.5, 3.5, 3.0), (3.5, 1.0, 3.0)]]


@pytest.mark.parametrize(("target", "after"), [([0.0, 1.0], 3.0), ([0.0, 0.5], 6.0)])
def test_a_share_within_the_target_leaves_a_threshold_as_it_is(target: list[float], after: float) -> None:
    ((worker, _),) = follow(threshold(threshold=3.0, adaptive=True, decay=0.5, target=target), rounds=1)
    assert worker[2] == after


def test_who_has_nothing_to_send_keeps_the_threshold() -> None:
    """Worker 1 is at its target, 4, from the start; worker 0 waits with 2."""
    course = follow(threshold(threshold=3.0, adaptive=True, decay=0.5), rounds=1, start=4.0)
    assert course == [[(4.0, 2.0, 1.5), (4.0, 0.0, 3.0)]]


def test_a_threshold_never_falls_to_nothing() -> None:
    """Halved for a hundred rounds it would be 3e-30."""
    rule = threshold(threshold=4.0, adaptive=True, decay=0.5, target=[1.0, 1.0])
    state = rule.init(Trial(rule).worker(), None)  # type: ignore[arg-type]
    state.residual += 1.0
    for _ in range(100):
        state.tau = rule.adapted(state, share=0.0)
    assert state.tau == pytest.approx(4e-6)


def test_residuals_are_clipped() -> None:
    """Threshold 1: worker 0 sends 1 of 4 and keeps 3; 2 are left if all above twice the threshold is cut, at every iteration."""
    assert follow(threshold(threshold=1.0), rounds=1)[0][0][1] == 3.0
    assert follow(threshold(threshold=1.0, clip=2.0, clip_every=1), rounds=1)[0][0][1] == 2.0


def test_below_a_threshold_residuals_are_cut_before_they_reach_it() -> None:
    """A constant step of 1/2, threshold 1: two of them are sent if they may wait together, none if all over 1/4 is cut between."""

    def program(group: ArenaGroup, row: Tensor, clip: float) -> float:
        rule = threshold(threshold=1.0, clip=clip, clip_every=1)
        worker = Quadratic(group, row, [8.0], [0.0], lr=0.0625)
        state = rule.init(worker, group)
        for _ in range(40):
            rule.round(worker, group, state)
        return worker.params.item()

    (stays,) = simulate(1, lambda group, row: program(group, row, 0.25), 8, 4)
    (moves,) = simulate(1, lambda group, row: program(group, row, 1.0), 8, 4)
    assert (stays, moves) == (8.0, pytest.approx(1.0, abs=3.0))


def test_iterations_between_cuts_are_counted_from_round_to_round() -> None:
    """8 -> 6 -> 4: residuals of worker 0 are 3, then 3 + 3 - 1 = 5, cut to 2 at the second iteration; then 2 + 2 - 1 = 3."""
    course = follow(threshold(threshold=1.0, clip=2.0, clip_every=2), rounds=3)
    assert [rows[0][1] for rows in course] == [3.0, 2.0, 3.0]
    (three,) = follow(threshold(threshold=1.0, clip=2.0, clip_every=2, iterations=3), rounds=1)
    assert three == course[-1]


def test_sums_of_updates_are_kept() -> None:
    """x moves by all that was sent; what was not is in the residuals, adaptive thresholds or not."""
    rule = threshold(threshold=0.7, iterations=3, adaptive=True)

    def program(group: ArenaGroup, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        worker = Counting(group, row, [8.0, 2.0, -1.0], [[0.0, 1.0, 5.0], [4.0, 0.0, 0.3]][group.rank], 3)
        state = rule.init(worker, group)
        for _ in range(4):
            worker.begin()
            rule.round(worker, group, state)
        return worker.params.clone(), worker.updates, state.residual

    (x, updates, waiting), (other, more, too) = simulate(2, program, 16, 8)
    assert torch.equal(x, other)
    assert waiting.any()
    torch.testing.assert_close(torch.tensor([8.0, 2.0, -1.0]) - x, updates + more - waiting - too)


def test_a_threshold_of_zero_is_gradient_averaging() -> None:
    """Plain steps averaged are the averaged gradient's step; all is sent, up to rounding."""
    all_sent, _ = Trial(threshold(threshold=0.0, combine="mean", iterations=3, adaptive=True, clip_every=5), PLAIN).run(4)
    averaged, _ = Trial(Bsp(rule="bsp", iterations=3), PLAIN).run(4)
    torch.testing.assert_close(all_sent[0].params, averaged[0].params)


def test_added_up_two_workers_take_twice_the_step_of_their_mean() -> None:
    """To the bit: doubling is exact, and so is a threshold of zero."""
    once, _ = Trial(threshold(threshold=0.0, combine="mean"), PLAIN).run(1)
    twice, _ = Trial(threshold(threshold=0.0), PLAIN).run(1)
    start = Trial().worker().params
    torch.testing.assert_close(twice[0].params - start, 2 * (once[0].params - start))


def test_replicas_stay_equal_to_the_bit() -> None:
    parts = [range(20), range(20, 30), range(30, 48)]
    workers, _ = Trial(threshold(threshold=0.01, iterations=3, adaptive=True), partitions=parts).run(3)
    assert workers[0].courses == workers[1].courses == workers[2].courses


def test_a_worker_that_does_not_train_has_no_say_and_keeps_its_threshold() -> None:
    """In the first of two ramp rounds worker 0 is alone."""
    rule = threshold(threshold=0.01, combine="mean", adaptive=True, iterations=3, ramp_workers=2)
    both, taken = Trial(rule).run(1)
    (alone,), _ = Trial(rule.model_copy(update={"ramp_workers": 0}), partitions=[range(22)]).run(1)
    assert torch.equal(both[1].params, alone.params)
    assert taken.arrays["workers/1/rule/tau"] == 0.01
    assert taken.arrays["workers/0/rule/tau"] != 0.01


def test_a_short_batch_weighs_less_in_the_mean() -> None:
    """Under passes worker 1 has batches of one item, worker 0 of three: by items its update has a quarter of the weight."""
    ends = {}
    for weights in ("items", "equal"):
        rule = threshold(threshold=0.0, combine="mean", passes=1, iterations=None, weights=weights)
        workers, _ = Trial(rule, Sgd(lr=0.1, batch_size=3), partitions=[range(3), range(3, 4)]).run(1)
        ends[weights] = workers[0].params.clone()
    single = [Trial(rule, Sgd(lr=0.1, batch_size=3), partitions=[part]).run(1)[0][0] for part in (range(3), range(3, 4))]
    first, second = (one.params for one in single)
    torch.testing.assert_close(ends["items"], 0.75 * first + 0.25 * second)
    torch.testing.assert_close(ends["equal"], 0.5 * first + 0.5 * second)


@pytest.mark.parametrize(("settings", "message"), [({"threshold": 0.0}, 4 + 4 * D), ({"threshold": 1e3}, 9)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bytes_of_everything_and_of_nothing(settings: dict[str, Any], message: int, momentum: float) -> None:
    """Three messages a round; momentum stays with the worker. Nine bytes an iteration are messages without signs."""
    rule = threshold(iterations=3, **settings)
    workers, _ = Trial(rule, Sgd(lr=0.1, momentum=momentum, batch_size=4)).run(1)
    assert workers[0].records[0]["bytes"] == 3 * message


def test_bytes_are_those_of_the_messages() -> None:
    rule = threshold(threshold=0.02, iterations=5)

    def program(group: ArenaGroup, row: Tensor) -> tuple[int, list[int]]:
        worker = Quadratic(group, row, [1.0] * 40, torch.linspace(0, 1 - group.rank, 40).tolist(), 5, lr=0.01)
        lengths, reduce = [], group.reduce_messages

        def listening(message: Tensor, *others: Any) -> Tensor:
            lengths.append(len(message))
            return reduce(message, *others)

        group.reduce_messages = listening  # type: ignore[method-assign]
        group.begin(measure=False)
        rule.round(worker, group, rule.init(worker, group))
        return group.bytes, lengths

    for counted, lengths in simulate(2, program, 160, 80):
        assert counted == sum(lengths)
        assert len(set(lengths)) > 1


@pytest.mark.parametrize(("sent", "since"), [
    ([0, 0, 0, 0], "nothing was sent in any of the 4 rounds, "),
    ([7, 7, 0, 0], "nothing was sent since round 3 of 4, "),
    ([0, 7, 7, 0], None),
    ([], None),
])  # fmt: skip
def test_a_run_that_sends_nothing_is_warned_about(sent: list[int], since: str | None) -> None:
    """Two workers, three iterations a round, but none of worker 1 in the first round; a message without signs has nine bytes."""
    rounds = [
        Traffic(number, 3 * (rank == 0 or number > 1), 27.0 + more * (rank == 0))
        for number, more in enumerate(sent, 1)
        for rank in (0, 1)
    ]
    warning = threshold().review(rounds)
    assert (warning or "").startswith(since or "")
    assert (warning is None) == (since is None)
    assert Bsp(rule="bsp").review(rounds) is None


@pytest.mark.parametrize(("tau", "mute"), [(1e3, True), (0.01, False)])
def test_records_of_workers_show_whether_signs_were_sent(tau: float, mute: bool) -> None:
    rule = threshold(threshold=tau, iterations=3)
    workers, _ = Trial(rule, PLAIN).run(3)
    records = [(number, record) for worker in workers for number, record in enumerate(worker.records, 1)]
    assert bool(rule.review(Traffic(number, int(record["iterations"]), record["bytes"]) for number, record in records)) == mute


@pytest.mark.parametrize(("settings", "workers", "key", "severity"), [
    ({"target": [0.5, 0.1], "adaptive": True}, 2, "target", "error"),
    ({"target": [0.5, 0.1], "adaptive": False}, 2, "target", "warning"),
    ({"decay": 0.5, "adaptive": False}, 2, "decay", "warning"),
    ({"clip": 2.0, "clip_every": 0}, 2, "clip", "warning"),
    ({"threshold": 2.0}, 2, "threshold", "warning"),
    ({"target": [0.0, 0.0], "adaptive": True}, 2, "target", "error"),
    ({"clip": 0.5, "clip_every": 5}, 2, "clip", "warning"),
    ({"clip": 0.5, "clip_every": 1, "adaptive": True}, 1, "clip", "warning"),
    ({"lr_scale": "linear"}, 2, "lr_scale", "warning"),
])  # fmt: skip
def test_findings(settings: dict[str, Any], workers: int, key: str, severity: str) -> None:
    assert findings(threshold(**settings), workers) == [(key, severity)]


@pytest.mark.parametrize(("settings", "workers"), [
    ({"adaptive": True}, 2),
    ({"adaptive": False, "clip_every": 0}, 2),
    ({"threshold": 1.0}, 2),
    ({"clip": 1.0, "clip_every": 1}, 2),
    ({"clip": 0.5, "clip_every": 1, "threshold": 0.0}, 2),
    ({"target": [0.0, 0.5], "adaptive": True}, 2),
    ({"lr_scale": "linear"}, 1),
    ({"lr_scale": "linear", "combine": "mean"}, 2),
    ({"lr_scale": "sqrt"}, 2),
])  # fmt: skip
def test_no_findings(settings: dict[str, Any], workers: int) -> None:
    assert findings(threshold(**settings), workers) == []
