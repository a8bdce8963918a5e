"""DiLoCo: an outer optimizer that sees what the mean has moved."""

from typing import Any

import pytest
import torch
from support.lab import Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.optim.sections import AdamW
from partrain.protocols.rule_traits import JobContext
from partrain.rules.average import Average
from partrain.rules.diloco import Diloco
from partrain.rules.gossip import Gossip


def diloco(**settings: Any) -> Diloco:
    return Diloco.model_validate({"rule": "diloco", "iterations": 1} | settings)


def course(rule: Diloco, rounds: int = 2) -> list[float]:
    """Two workers from 8, each iteration going half the way to 0 and to 4: their mean goes half the way to 2."""
    replicas = descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=rounds)
    assert all(one == other for one, other in replicas)
    return [one[0] for one, _ in replicas]


def test_golden() -> None:
    """Outer rate and momentum 1/2, Nesterov's:

    8    -> 4, 6           mean 5      delta 3      m = 3                 8 - (3 + 1.5) / 2         = 5.75
    5.75 -> 2.875, 4.875   mean 3.875  delta 1.875  m = 1.5 + 1.875       5.75 - (1.875 + 1.6875) / 2 = 3.96875
    """
    assert course(diloco(outer_lr=0.5, outer_momentum=0.5)) == [5.75, 3.96875]


def test_golden_without_nesterov() -> None:
    """8 - 3 / 2 = 6.5; then 3.25 and 5.25, mean 4.25, delta 2.25, m = 1.5 + 2.25, 6.5 - 3.75 / 2 = 4.625."""
    assert course(diloco(outer_lr=0.5, outer_momentum=0.5, nesterov=False)) == [6.5, 4.625]


def test_golden_fragments() -> None:
    """Two numbers are two fragments. Outer rate 1/2, no momentum; round 1 mixes the second one, round 2 the first:

    (8, 8) -> (4, 4), (6, 6)          mean of the second 5   8 - 3 / 2 = 6.5      (4, 6.5), (6, 6.5)
           -> (2, 3.25), (5, 5.25)    mean of the first 3.5  8 - 4.5 / 2 = 5.75   (5.75, 3.25), (5.75, 5.25)
    """
    rule = diloco(outer_lr=0.5, outer_momentum=0.0, fragments=2)
    course = descend(rule, start=[8.0, 8.0], targets=[[0.0, 0.0], [4.0, 4.0]], rounds=2)
    assert course == [[[4.0, 6.5], [6.0, 6.5]], [[5.75, 3.25], [5.75, 5.25]]]


def test_golden_before() -> None:
    """Outer rate 1/2, no momentum: the anchor goes half the way to the mean that the round began with, and x as far as the anchor is off it:

    8    -> 4, 6         mean of 8     a = 8                  4,            6
    4, 6 -> 2, 5         mean 5        a = 8 - 3 / 2 = 6.5    2 + 6.5 - 4,  5 + 6.5 - 6
    """
    rule = diloco(outer_lr=0.5, outer_momentum=0.0, order="before")
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=2) == [[[4.0], [6.0]], [[4.5], [5.5]]]


def test_before_without_an_outer_optimizer_is_gossip_of_all_with_all() -> None:
    plain = diloco(iterations=3, outer_lr=1.0, outer_momentum=0.0, order="before")
    late, _ = Trial(plain).run(4)
    mixed, _ = Trial(Gossip(rule="gossip", iterations=3, order="before")).run(4)
    for one, other in zip(late, mixed, strict=True):
        torch.testing.assert_close(one.params, other.params)


def test_the_outer_optimizer_is_torchs() -> None:
    """Defaults of the paper: 0.7 and 0.9, Nesterov's."""
    x = torch.tensor([8.0], requires_grad=True)
    outer = torch.optim.SGD([x], lr=0.7, momentum=0.9, nesterov=True)
    expected = []
    for _ in range(6):
        x.grad = x.detach() - (x.detach() / 2 + 1)
        outer.step()
        expected.append(x.item())
    assert course(diloco(), rounds=6) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("optimizer_state", ["average", "local", "reset"])
def test_with_a_rate_of_one_and_no_momentum_it_is_averaging(optimizer_state: str) -> None:
    optimizer = AdamW(name="adamw", lr=0.02, batch_size=4)
    policy = {"iterations": 3, "optimizer_state": optimizer_state}
    outer, _ = Trial(diloco(outer_lr=1.0, outer_momentum=0.0, **policy), optimizer).run(4)
    plain, _ = Trial(Average.model_validate(policy), optimizer).run(4)
    torch.testing.assert_close(outer[0].params, plain[0].params, atol=1e-6, rtol=1e-5)


def test_one_worker_looks_ahead() -> None:
    """Two iterations from 8 towards 0 end at 2; Lookahead goes half the way there."""
    rule = diloco(iterations=2, outer_lr=0.5, outer_momentum=0.0)
    assert descend(rule, start=[8.0], targets=[[0.0]], rounds=2) == [[[5.0]], [[3.125]]]


@pytest.mark.parametrize(("settings", "alike"), [({}, False), ({"optimizer_state": "average"}, True)])
def test_moments_stay_with_the_worker_unless_asked_otherwise(settings: dict[str, str], alike: bool) -> None:
    (one, other), _ = Trial(diloco(iterations=3, **settings), Sgd(lr=0.1, momentum=0.9, batch_size=4)).run(2)
    assert torch.equal(one.worker.optimizer.moments, other.worker.optimizer.moments) == alike
    assert one.courses == other.courses


def test_replicas_are_weighted_by_their_items() -> None:
    """As under averaging: 4 and 4.5 with the weights 1 and 3 have the mean 4.375, or 4.25 if they count alike."""
    plain = {"outer_lr": 1.0, "outer_momentum": 0.0}
    assert descend(diloco(**plain), [8.0], [[0.0], [4.0]], caps=[1, 3])[0] == [[4.375]] * 2
    assert descend(diloco(**plain, weights="equal"), [8.0], [[0.0], [4.0]], caps=[1, 3])[0] == [[4.25]] * 2


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    optimizer = Sgd(lr=0.1, batch_size=4)
    (first, second), _ = Trial(diloco(iterations=3, ramp_workers=2), optimizer).run(1)
    (alone,), _ = Trial(diloco(iterations=3), optimizer, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


@pytest.mark.parametrize("workers", [4, 8, 64])
def test_an_extreme_momentum_is_warned_about_for_any_number(workers: int) -> None:
    (finding,) = diloco(outer_momentum=0.99).check(JobContext(workers))
    assert (finding.path, finding.severity) == (("sync", "outer_momentum"), "warning")
    assert "moves 70 times each delta" in finding.message
    assert findings(diloco(outer_momentum=0.92), workers) == []


def test_among_few_the_papers_momentum_suits_the_papers_optimizer() -> None:
    """AdamW, which the advice excepts, gets no such advice; other optimizers do, and an extreme momentum is one for AdamW too."""
    adamw, sgd = AdamW(name="adamw", lr=0.01), Sgd(lr=0.1)
    assert list(diloco().check(JobContext(2, adamw))) == []
    (finding,) = diloco().check(JobContext(2, sgd))
    assert finding.suggestion == "0.8 or less suits fewer than 4 workers; the paper's 0.9 suits AdamW"
    assert len(list(diloco(outer_momentum=0.99).check(JobContext(2, adamw)))) == 1


@pytest.mark.parametrize(("momentum", "workers", "warned"), [(0.9, 1, True), (0.9, 3, True), (0.9, 4, False), (0.5, 2, False)])
def test_a_high_momentum_among_few_is_warned_about(momentum: float, workers: int, warned: bool) -> None:
    found = list(diloco(outer_momentum=momentum).check(JobContext(workers)))
    assert [(finding.path, finding.severity) for finding in found] == [(("sync", "outer_momentum"), "warning")] * warned
    assert all("7 times" in finding.message for finding in found)
