"""Parameter averaging: unequal work, weights, schedules for the number of local iterations."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.lab import Quadratic, Snapshot, Trial, descend, same, simulate
from support.rule_forms import findings
from torch import nn

from partrain.comm.simulated import Pace
from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.rules.average_schedules import AdacommState
from partrain.training.faults import Faults


def test_replicas_are_weighted_by_their_items() -> None:
    """One iteration ends at 8 -> 4; three at 8 -> 6 -> 5 -> 4.5; with weights 1 and 3 the mean is (4 + 3 * 4.5) / 4."""
    rule = Average(iterations=1)
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], caps=[1, 3]) == [[[4.375], [4.375]]]


def test_replicas_may_count_alike() -> None:
    rule = Average(iterations=1, weights="equal")
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], caps=[1, 3]) == [[[4.25], [4.25]]]


def test_each_coordinate_is_averaged_by_itself() -> None:
    rule = Average(iterations=1)
    assert descend(rule, start=[0.0, 8.0], targets=[[4.0, 0.0], [0.0, 8.0], [2.0, 4.0]]) == [[[1.0, 6.0]] * 3]


@pytest.mark.parametrize(("weights", "weight"), [("items", 640.0), ("equal", 1.0)])
def test_weight_of_a_replica(weights: str, weight: float) -> None:
    assert Average.model_validate({"weights": weights}).weight(640) == weight


def scheduled(schedule: str, **settings: Any) -> Average:
    return Average.model_validate({"iterations": 2, "schedule": schedule} | settings)


def local_iterations(rule: Average, rounds: int, caps: list[int], **settings: Any) -> list[list[float]]:
    """Of each worker, round by round."""
    workers, _ = Trial(rule, caps=caps, **settings).run(rounds)
    return [[record["iterations"] for record in worker.records] for worker in workers]


def test_a_constant_schedule_has_no_state() -> None:
    assert simulate(2, lambda group, row: Average(iterations=2).init(Quadratic(group, row, [0.0], [0.0]), group)) == [None] * 2


def test_post_local() -> None:
    """One iteration in the first round, then two: 8 -> 4 and 6, mean 5 | 5 -> 2.5 -> 1.25 and 5 -> 4.5 -> 4.25, mean 2.75."""
    rule = scheduled("post-local", switch_round=2)
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=2) == [[[5.0]] * 2, [[2.75]] * 2]


def test_post_local_begins_as_one_iteration_per_round() -> None:
    late, _ = Trial(scheduled("post-local", iterations=3, switch_round=9)).run(4)
    single, _ = Trial(Average(iterations=1)).run(4)
    assert late[0].courses == single[0].courses


def test_caps_are_scaled_alike() -> None:
    """The cap of worker 1 is three times that of [sync]: so is what the schedule gives it; none has less than one."""
    rule = scheduled("post-local", switch_round=3)
    assert local_iterations(rule, 4, [2, 6]) == [[1, 1, 2, 2], [3, 3, 6, 6]]
    assert local_iterations(rule, 3, [1, 2]) == [[1, 1, 1], [1, 1, 2]]


def test_qsr() -> None:
    """The rate 1/2: a first round of two iterations, 8 -> 2 and 8 -> 5, mean 3.5; from then on (alpha / 0.5)^2, two at least.

    alpha 1     3.5 -> 0.21875 and 3.96875 after four     3.5 -> 0.4375 and 3.9375 if three are the most
    alpha 1/4   3.5 -> 0.875 and 3.875
    """
    targets = [[0.0], [4.0]]
    for settings, end in (({"alpha": 1.0}, 2.09375), ({"alpha": 1.0, "most": 3}, 2.1875), ({"alpha": 0.25}, 2.375)):
        assert descend(scheduled("qsr", **settings), start=[8.0], targets=targets, rounds=2) == [[[3.5]] * 2, [[end]] * 2]


def test_qsr_waits_until_the_rate_falls() -> None:
    """Warm-up, peak, decay: 2 while it rises; then (0.2 / rate)^2, from 2 to 100. A low rate at first may be a warm-up's."""
    rule = scheduled("qsr", alpha=0.2)
    for first in (0.0, 0.01):
        rate = rule.init(None, None)  # type: ignore[arg-type]
        seen = [rate.iterations(2, 0.2, 100, now) for now in (first, 0.1, 0.2, 0.2, 0.1, 0.05, 0.01, 1e-200, 0.0)]
        assert seen == [2, 2, 2, 2, 4, 16, 100, 100, 2]


def test_qsr_among_real_workers() -> None:
    """A linear rate from 0.1 on over 480 item-iterations: a round of 2 iterations of 4 items each is 16 of them for two workers.

    alpha = 0.15: (0.15 / 0.1)^2 = 2; at 464/480 of it 2.4, at 448 2.6, 432 2.8, 416 3.0 after rounding down 2, 2, 2 and 2 or 3.
    """
    optimizer = Sgd(lr=0.1, batch_size=4, schedule="linear")
    one, other = local_iterations(scheduled("qsr", alpha=0.15), 9, [2, 2], optimizer=optimizer, horizon=480)
    expected, items = [], 0
    for _ in range(9):
        count = max(2, math.floor((0.15 / (0.1 * (1 - items / 480))) ** 2))
        expected.append(count)
        items += 2 * 4 * count
    assert one == other == expected
    assert (min(expected), max(expected)) == (2, 5)


def test_qsr_in_a_warm_up_from_above_zero() -> None:
    """one-cycle begins at a 25th of its peak, where (alpha / rate)^2 would be 625 times as many iterations as at the peak."""
    optimizer = Sgd(lr=0.1, batch_size=4, schedule="one-cycle")
    one, _ = local_iterations(scheduled("qsr", alpha=0.15), 3, [2, 2], optimizer=optimizer, horizon=480)
    assert one == [2, 2, 2]


def test_adacomm() -> None:
    """Both towards 0 from 8; the loss is x^2 / 2.

    8 -> 4 -> 2         F_0 = 2
    2 -> 1 -> 0.5       F = 1/8: 2 sqrt(1/16) = 0.5, so one iteration
    0.5 -> 0.25         no less than one
    """
    rule = scheduled("adacomm", every=1)
    course = descend(rule, start=[8.0], targets=[[0.0], [0.0]], rounds=4)
    assert [one[0] for one, _ in course] == [2.0, 0.5, 0.25, 0.125]


def test_adacomm_looks_at_whole_windows() -> None:
    """As above, every two rounds: F_0 = (2 + 1/8) / 2, then (1/128 + 1/2048) / 2: 2 sqrt(1/256) is one iteration from round 5 on."""
    course = descend(scheduled("adacomm", every=2), start=[8.0], targets=[[0.0], [0.0]], rounds=5)
    assert [one[0] for one, _ in course] == [2.0, 2**-1, 2**-3, 2**-5, 2**-6]


def losses(base: int = 8) -> AdacommState:
    return AdacommState(base, 0.0, 0.0, 0, 0.0)


def test_adacomm_follows_the_root_of_the_loss_and_else_halves() -> None:
    state, seen = losses(), []
    for loss in (4.0, 1.0, 1.0, 0.0625, 9.0):
        state.add([[3, loss], [5, loss]])
        state.end_window(8)
        seen.append(state.period)
    assert seen == [8, 4, 2, 1, 1]


def test_adacomm_weighs_losses_by_items() -> None:
    state = losses()
    state.add([[3, 2.0], [1, 6.0]])
    state.add([[4, 5.0]])
    state.end_window(8)
    assert state.first == 4.0


def test_adacomm_has_longer_rounds_as_the_rate_falls() -> None:
    """The root of what it has fallen from its peak; warm-up changes nothing."""
    state = losses()
    assert [state.iterations(20, rate) for rate in (0.0, 0.1, 0.4, 0.1, 0.01)] == [8, 8, 8, 16, 20]


def test_overhead_is_kept_under_its_target() -> None:
    """An iteration takes 1 ms, the mean 0.98 ms: an overhead of 0.98 / K.

    At 2 that is 0.49, almost five times too much: 10 more. At 12 it is between a half of 1/10 and 1/10.
    """
    paces = [Pace(delay_s=9.8e-4)] * 2
    assert local_iterations(scheduled("overhead"), 4, [2, 2], paces=paces) == [[2, 12, 12, 12]] * 2
    assert local_iterations(scheduled("overhead", target=0.26), 4, [2, 2], paces=paces) == [[2, 6, 6, 6]] * 2
    assert local_iterations(scheduled("overhead", most=7), 3, [2, 2], paces=paces) == [[2, 7, 7]] * 2


def test_an_overhead_too_low_shortens_rounds() -> None:
    """1.02/22 and 1.02/21 are less than half of 1/10; and no round is shorter than one iteration."""
    rule = scheduled("overhead", iterations=22)
    assert local_iterations(rule, 4, [22, 22], paces=[Pace(delay_s=1.02e-3)] * 2) == [[22, 21, 20, 20]] * 2
    assert local_iterations(scheduled("overhead"), 4, [2, 2]) == [[2, 1, 1, 1]] * 2


def test_waiting_for_a_slow_worker_is_no_overhead() -> None:
    """The slow one computes 20 ms in a round and spends 1 on the mean; longer rounds would not shorten the other's waiting."""
    paces = [Pace(delay_s=1e-3), Pace(speed=0.1, delay_s=1e-3)]
    assert local_iterations(scheduled("overhead", target=0.06), 3, [2, 2], paces=paces) == [[2, 2, 2]] * 2


@pytest.mark.parametrize(
    "rule", [scheduled("qsr", alpha=0.3), scheduled("adacomm", iterations=8, every=1)], ids=["qsr", "adacomm"]
)
def test_a_schedule_goes_on_from_a_snapshot(rule: Average) -> None:
    trial = Trial(rule, Sgd(lr=0.1, batch_size=4, schedule="cosine", warmup=0.1), horizon=400)
    _, half = trial.run(3)
    workers, whole = trial.run(6)
    assert same(trial.run(6, since=half)[1], whole)
    assert len({record["iterations"] for record in workers[0].records}) > 1


@pytest.mark.parametrize(("settings", "key"), [
    ({"iterations": 2}, None),
    ({"passes": 2}, None),
    ({"iterations": 2, "schedule": "post-local", "switch_round": 9}, None),
    ({"iterations": 2, "schedule": "post-local"}, "schedule"),
    ({"iterations": 2, "schedule": "qsr", "alpha": 0.1, "most": 9}, None),
    ({"iterations": 2, "schedule": "qsr"}, "schedule"),
    ({"iterations": 20, "schedule": "qsr", "alpha": 0.1, "most": 9}, "most"),
    ({"iterations": 2, "schedule": "adacomm", "every": 9, "most": 9}, None),
    ({"iterations": 2, "schedule": "overhead", "target": 0.2, "most": 9}, None),
    ({"iterations": 2, "schedule": "qsr", "alpha": 0.1, "target": 0.2}, "target"),
    ({"passes": 2, "schedule": "adacomm"}, "schedule"),
    ({"iterations": 2, "alpha": 0.1}, "alpha"),
    ({"iterations": 2, "most": 9}, "most"),
    ({"iterations": 2, "schedule": "adacomm", "switch_round": 9}, "switch_round"),
])  # fmt: skip
def test_findings(settings: dict[str, Any], key: str | None) -> None:
    assert findings(Average.model_validate(settings)) == ([(key, "error")] if key else [])


NOISY = {"iterations": 2, "clients": 2, "weights": "equal", "optimizer_state": "local"}
THREE = [range(16), range(16, 32), range(32, 48)]


def noisy(noise: float, bound: float = 0.5, **settings: Any) -> Trial:
    """Two of three workers train in a round, whose updates are bounded."""
    rule = Average.model_validate(NOISY | {"noise": noise} | settings)
    return Trial(rule, Sgd(lr=0.1, momentum=0.9, batch_size=4), partitions=THREE, faults=Faults(max_update_norm=bound))


def test_noise_has_its_deviation_in_each_parameter_and_none_in_the_padding() -> None:
    """The mean of two updates of the norm C at most moves by less than C; the noise of z = 10,000 has the deviation z C / 2."""

    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 1001), nn.Linear(1001, 3))

    trial = replace(noisy(10_000.0), network=wide)
    start = trial.worker().params.clone()
    members, _ = trial.run(1)
    layout, moved = trial.layout.params, torch.tensor(members[0].courses[0]) - start
    noise = torch.cat([view.flatten() for view in layout.views(moved)])
    assert noise.numel() < layout.size, "there is padding"
    assert torch.count_nonzero(moved) == torch.count_nonzero(noise) == noise.numel()
    deviation = 10_000.0 * 0.5 / 2
    assert float(noise.std()) == pytest.approx(deviation, rel=4 / (2 * noise.numel()) ** 0.5)
    assert abs(float(noise.mean())) < 4 * deviation / noise.numel() ** 0.5
    assert float((noise / deviation).abs().gt(1.0).double().mean()) == pytest.approx(0.3173, abs=0.02), "it is Gaussian"
    others, _ = replace(trial, seed=1).run(1)
    assert others[0].courses[0] != members[0].courses[0]


def test_noise_is_added_to_the_mean() -> None:
    """In the first round both runs have the same updates. The networks differ by the noise, which is that of the round alone."""
    plain, loud, louder = (noisy(noise).run(1)[0][0].courses[0] for noise in (0.0, 0.5, 1.0))
    first, second = (torch.tensor(course).double() - torch.tensor(plain).double() for course in (loud, louder))
    torch.testing.assert_close(2 * first, second, rtol=0, atol=1e-6)
    assert float(first.norm()) > 0.1


def test_all_workers_have_the_same_noise_also_after_a_resume() -> None:
    trial = noisy(1.0)
    members, whole = trial.run(4)
    assert members[0].courses == members[1].courses == members[2].courses
    _, half = trial.run(2)
    _, resumed = trial.run(4, since=Snapshot(half.progress, half.arrays))
    assert same(resumed, whole)


def test_no_noise_is_averaging() -> None:
    plain = replace(noisy(0.0), rule=Average.model_validate(NOISY))
    assert same(noisy(0.0).run(3)[1], plain.run(3)[1])
