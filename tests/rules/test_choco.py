"""CHOCO-SGD: estimates of one another, and a mean that no message changes."""

from typing import Any

import pytest
import torch
from support.lab import PLAIN, Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.rules.choco import Choco
from partrain.rules.topology import peers

TOPOLOGIES = ["ring", "torus", "exponential", "complete"]
HALF = {"kind": "topk", "density": 0.5}
PARTS = [range(12), range(12, 24), range(24, 36), range(36, 48)]


def choco(compressor: dict[str, Any] | None = None, **settings: Any) -> Choco:
    chosen = {"compressor": compressor} if compressor else {}
    return Choco.model_validate({"rule": "choco", "iterations": 1} | chosen | settings)


def test_golden() -> None:
    """Each goes half the way to (0, 6) and to (4, -2), sends its larger difference from its estimate, at first (8, 8), and moves half
    the way from its own estimate to the mean of both.

    x_0     (8, 8) -> (4, 7)    (-4, -1) -> (4, 8)    | (5, 5.75) -> (2.5, 5.875)    (-1.5, -2.125) -> (4, 5.875)
    x_1     (8, 8) -> (6, 3)    (-2, -5) -> (8, 3)    | (5, 4.25) -> (4.5, 1.125)    (-3.5, -1.875) -> (4.5, 3)
    mean                                   (6, 5.5)   |                                            (4.25, 4.4375)
    x_0     (4, 7) + (2, -2.5) / 2                    | (2.5, 5.875) + (0.25, -1.4375) / 2
    x_1     (6, 3) + (-2, 2.5) / 2                    | (4.5, 1.125) + (-0.25, 1.4375) / 2
    """
    course = descend(choco(HALF, gamma=0.5), start=[8.0, 8.0], targets=[[0.0, 6.0], [4.0, -2.0]], rounds=2)
    assert course == [[[5.0, 5.75], [5.0, 4.25]], [[2.625, 5.15625], [4.375, 1.84375]]]


@pytest.mark.parametrize("gamma", [0.25, 0.5, 1.0])
def test_gamma_is_how_far_a_worker_moves(gamma: float) -> None:
    """Half-steps end at 4 and 6, the mean is 5."""
    course = descend(choco({"kind": "identity"}, gamma=gamma), start=[8.0], targets=[[0.0], [4.0]])
    assert course == [[[4.0 + gamma], [6.0 - gamma]]]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_where_nothing_is_lost_it_is_gossip(topology: Any, size: int) -> None:
    """One step of neighbour averaging after each half-step: x_i <- sum_j W_ij (x_j + t_j) / 2."""
    targets = [[float(rank * rank)] for rank in range(size)]
    course = descend(choco({"kind": "identity"}, gamma=1.0, topology=topology), start=[8.0], targets=targets, rounds=3)
    x = [8.0] * size
    for seen in course:
        half = [(x[rank] + targets[rank][0]) / 2 for rank in range(size)]
        x = [sum(weight * half[peer] for peer, weight in peers(topology, rank, size)) for rank in range(size)]
        assert [row[0] for row in seen] == pytest.approx(x)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("compressor", [None, {"kind": "2bit"}, {"kind": "bf16"}], ids=["topk", "2bit", "bf16"])
def test_messages_leave_the_mean_as_it_is(topology: Any, compressor: dict[str, Any] | None) -> None:
    """On quadratic losses of equal curvature the mean goes half the way to the mean target, whatever was sent."""
    targets = [[float(rank), -float(rank * rank)] for rank in range(5)]
    course = descend(choco(compressor, topology=topology), start=[8.0, 4.0], targets=targets, rounds=4)
    mean = torch.tensor([8.0, 4.0])
    for replicas in course:
        mean = (mean + torch.tensor(targets).mean(0)) / 2
        torch.testing.assert_close(torch.tensor(replicas).mean(0), mean)


def test_replicas_draw_together() -> None:
    """Trained for a round with a learning rate, then with hardly any: the distance between replicas falls by gossip alone."""
    rule = choco({"kind": "topk", "density": 0.2}, iterations=3)
    _, taken = Trial(rule, PLAIN, partitions=PARTS).run(1)
    workers, _ = Trial(rule, Sgd(lr=1e-30, batch_size=4), partitions=PARTS).run(60, since=taken)
    spread = [torch.stack([torch.tensor(worker.courses[at]) for worker in workers]).std(0).norm() for at in (0, -1)]
    assert spread[1] < spread[0] / 100


def test_the_network_that_counts_is_the_mean() -> None:
    """The same on every worker, and none is changed by it."""
    workers, taken = Trial(choco(iterations=3), PLAIN, partitions=PARTS).run(2)
    replicas = torch.stack([worker.params for worker in workers])
    assert not torch.equal(replicas[0], replicas[1])
    judged = torch.cat([torch.tensor(taken.arrays[path]).view(-1) for path in taken.arrays if path.startswith("model/")])
    layout = Trial().layout.params
    mean = torch.cat([field.view(replicas.double().mean(0).float()).view(-1) for field in layout.fields])
    torch.testing.assert_close(judged, mean, rtol=0, atol=1e-8)


def test_workers_keep_two_vectors_whatever_the_topology() -> None:
    _, taken = Trial(choco(topology="complete"), PLAIN, partitions=PARTS).run(1)
    own = sorted(path for path in taken.arrays if path.startswith("workers/0/rule"))
    assert own == ["workers/0/rule/estimate", "workers/0/rule/mixed"]
    assert [taken.arrays[path].shape for path in own] == [(112,)] * 2


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bytes_are_those_of_its_own_message(momentum: float) -> None:
    optimizer = Sgd(lr=0.1, momentum=momentum, batch_size=4)
    workers, _ = Trial(choco({"kind": "fp16"}, topology="complete"), optimizer, partitions=PARTS).run(1)
    assert [worker.records[0]["bytes"] for worker in workers] == [224] * 4


def test_settings_for_replicas_that_differ() -> None:
    rule = choco()
    assert (rule.keeps_replicas_equal, rule.optimizer_state, rule.buffers) == (False, "local", "recalibrate")


@pytest.mark.parametrize(
    ("compressor", "step"),
    [(None, 0.02), ({"kind": "topk", "density": 0.1}, 0.2), ({"kind": "topk", "density": 0.9}, 1.0), ({"kind": "bf16"}, 1.0)],
)
def test_gamma_follows_the_density(compressor: dict[str, Any] | None, step: float) -> None:
    assert choco(compressor).step == step
    assert findings(choco(compressor)) == []


def test_a_gamma_too_large_for_the_density_is_warned_about() -> None:
    far, near = (findings(choco(gamma=gamma)) for gamma in (0.041, 0.04))
    assert far == [("gamma", "warning")]
    assert near == []
    assert findings(choco({"kind": "2bit"}, gamma=1.0)) == []


@pytest.mark.parametrize(("gamma", "together"), [(None, True), (1.0, False)])
def test_too_large_a_gamma_drives_replicas_apart(gamma: float | None, together: bool) -> None:
    """The default for one entry in ten brings six replicas together; a full step makes them run away, without any training."""
    rule = choco({"kind": "topk", "density": 0.1}, gamma=gamma, topology="complete")
    parts = [range(8 * rank, 8 * rank + 8) for rank in range(6)]
    _, taken = Trial(rule, PLAIN, partitions=parts).run(1)
    workers, _ = Trial(rule, Sgd(lr=1e-30, batch_size=4), partitions=parts).run(80, since=taken)
    spread = [torch.stack([torch.tensor(worker.courses[at]) for worker in workers]).std(0).norm() for at in (0, -1)]
    assert bool(spread[1] < spread[0]) == together
