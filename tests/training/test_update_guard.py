"""`[faults] on_nonfinite` and `max_update_norm`: rounds of two workers by hand, and what every rule does with an excluded worker."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.lab import OneWeight, Snapshot, Trial, blobs, line, mlp, restless, same
from support.rule_forms import SYNCHRONOUS, VARIANTS
from torch import Tensor, nn

from partrain.errors import Diverged
from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.rules.average import Average
from partrain.rules.diloco import Diloco
from partrain.training.batches import Samples
from partrain.training.faults import Faults

EXCLUDE = Faults(on_nonfinite="exclude")
FORMS = sorted(name for name in SYNCHRONOUS if not VARIANTS[name].no_exclusion_reason and VARIANTS[name].clients is None)
SPOILT = 30
"""An item of worker 1 whose input is NaN."""


def spoilt_blobs(*items: int) -> Samples:
    """Make blobs, some of which are NaN."""
    samples = blobs()
    samples.inputs[list(items or [SPOILT])] = math.nan
    return samples


def trial(name: str, **settings: object) -> Trial:
    """BatchNorm, dropout, moments and buffers, and an item that spoils about every third round of worker 1."""
    rule = VARIANTS[name].model_copy(update=settings)
    return Trial(rule, Adam(name="adam", lr=0.02, batch_size=4), restless, spoilt_blobs(), faults=EXCLUDE)


def test_a_round_by_hand() -> None:
    """Worker 0 pulls w to 0, worker 1 to 8; its other item is NaN, so it is left out in one round of two.

    The loss of an item is (w - y)^2, its gradient 2 (w - y). All numbers are exact.
    """
    items = line([1.0, 1.0, math.nan], [0.0, 8.0, 0.0])
    rule, optimizer = Average(iterations=1), Sgd(lr=0.25, momentum=0.5, batch_size=1)
    members, _ = Trial(rule, optimizer, OneWeight, items, partitions=([0], [1, 2]), faults=EXCLUDE).run(4)
    first, second = members
    excluded = [bool(record["excluded"]) for record in second.records]
    assert sorted(excluded[:2]) == sorted(excluded[2:]) == [False, True]
    w, v, expected = 16.0, 0.0, []
    for left_out in excluded:
        targets = [0.0] if left_out else [0.0, 8.0]
        moments = [0.5 * v + 2 * (w - target) for target in targets]
        w = sum(w - 0.25 * moment for moment in moments) / len(moments)  # the mean is over those that are left
        v = sum(moments) / len(moments)
        expected.append(w)
    assert [course[0] for course in first.courses] == [course[0] for course in second.courses] == expected
    assert first.worker.optimizer.moments[0, 0] == second.worker.optimizer.moments[0, 0] == v
    counts = [(record["items"], record["discarded"]) for record in second.records]
    assert counts == [(0, 1) if left_out else (1, 0) for left_out in excluded]
    assert all(math.isnan(record["loss"]) == left_out for record, left_out in zip(second.records, excluded, strict=True))
    assert (first.progress.item_iterations, second.worker.tally.total_items) == (6, 2)
    assert not any(record["excluded"] for record in first.records)


@pytest.mark.parametrize(("spoil", "code"), [
    (lambda net: net.weight.register_hook(lambda gradient: gradient * math.nan), 2),
    (lambda net: net.weight.register_hook(lambda gradient: gradient + 1e30), 4),
    (lambda net: net.seen.fill_(math.nan), 5),
], ids=["parameters", "moments", "buffers"])  # fmt: skip
@pytest.mark.parametrize("policy", ["average", "local"])
def test_each_kind_of_number(spoil: object, code: int, policy: str) -> None:
    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(5, 3)
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            if self.training and x.isnan().any():
                spoil(self)  # type: ignore[operator]
            return super().forward(x.nan_to_num())

    rule = Average(iterations=1, optimizer_state=policy, buffers=policy)
    optimizer = Adam(name="adam", lr=0.02, batch_size=4)
    members, last = Trial(rule, optimizer, Net, spoilt_blobs(), faults=EXCLUDE).run(8)
    codes = {record["excluded"] for record in members[1].records}
    assert code in codes
    assert all(torch.from_numpy(array).isfinite().all() for array in last.arrays.values())


@pytest.mark.parametrize("name", FORMS)
def test_each_rule_leaves_the_worker_out_and_stays_finite(name: str) -> None:
    members, last = trial(name).run(5)
    assert any(record["excluded"] for record in members[1].records)
    assert not any(record["excluded"] for record in members[0].records)
    assert all(torch.from_numpy(array).isfinite().all() for array in last.arrays.values())
    if VARIANTS[name].keeps_replicas_equal:
        assert torch.equal(members[0].params, members[1].params)


@pytest.mark.parametrize("name", ["average", "diloco", "topk", "sparseloco", "slowmo", "fednova"])
def test_the_others_go_on_as_if_it_did_not_train(name: str) -> None:
    """All items of worker 1 are NaN: worker 0 does what it does beside a worker that is never active."""
    items = spoilt_blobs(*range(22, 48))
    one = replace(trial(name, optimizer_state="local", buffers="local"), items=items)
    alone = replace(one, rule=one.rule.model_copy(update={"ramp_workers": 2 * 10**6}))  # worker 1 waits for round 10^6
    excluded, _ = one.run(3)
    inactive, _ = alone.run(3)
    assert excluded[0].courses == inactive[0].courses
    assert [record["excluded"] for record in excluded[1].records] == [1, 1, 1]


def test_what_was_not_sent_is_sent_later() -> None:
    """An excluded worker's message has weight 0, and so its error memory keeps it."""
    _, before = trial("topk").run(1)
    members, after = replace(trial("topk"), items=spoilt_blobs(*range(22, 48))).run(2, since=before)
    assert members[1].records[0]["excluded"]
    kept = "workers/1/rule/error"
    assert before.arrays[kept].any()
    assert after.arrays[kept].tobytes() == before.arrays[kept].tobytes()


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, {}) for name in FORMS] + [("average", {"optimizer_state": "local", "buffers": "local"})],
)
def test_a_resumed_run_excludes_again(name: str, settings: dict[str, object]) -> None:
    one = replace(trial(name, **settings), faults=Faults(on_nonfinite="exclude", max_update_norm=0.2))
    if VARIANTS[name].averages_gradients or VARIANTS[name].full_batch:
        one = replace(one, faults=EXCLUDE)
    _, whole = one.run(5)
    for stopped in range(1, 5):
        _, half = one.run(stopped)
        members, resumed = one.run(5, since=Snapshot(half.progress, half.arrays))
        assert same(resumed, whole), stopped
    assert members


@pytest.mark.parametrize("name", FORMS)
def test_no_worker_is_left(name: str) -> None:
    items = spoilt_blobs(*range(48))
    with pytest.raises(Diverged, match=r"^round 1: no worker is left whose numbers are finite(.*)") as caught:
        replace(trial(name), items=items).run(1)
    if "ramp" not in name:  # there the worker that waits may be the first to find it
        assert "(worker 0: non-finite numbers in the training loss)" in str(caught.value)


@pytest.mark.parametrize("ramp", [0, 4])
def test_one_worker_alone(ramp: int) -> None:
    partitions = ([SPOILT],) if not ramp else ([SPOILT], [1])
    one = Trial(
        Average(iterations=1, ramp_workers=ramp), Sgd(lr=0.1, batch_size=1), mlp, spoilt_blobs(), partitions, faults=EXCLUDE
    )
    with pytest.raises(Diverged, match="no worker is left"):
        one.run(1)


def test_a_finite_run_keeps_its_bits() -> None:
    for name in ("average", "bsp", "topk"):
        one = Trial(VARIANTS[name], Adam(name="adam", lr=0.02, batch_size=4), restless)
        assert same(one.run(3)[1], replace(one, faults=EXCLUDE).run(3)[1])


def test_a_bound_by_hand() -> None:
    """Of the updates -8 and -2 the first is scaled to -2; the mean moves from 16 to 14, and not to 11."""
    items = line([1.0, 1.0], [0.0, 12.0])
    one = Trial(Average(iterations=1), Sgd(lr=0.25, batch_size=1), OneWeight, items, ([0], [1]))
    members, _ = replace(one, faults=Faults(max_update_norm=2.0)).run(1)
    assert [member.courses[0][0] for member in members] == [14.0, 14.0]
    assert members[0].records[0]["clipped_norm"] == 8.0
    assert math.isnan(members[1].records[0]["clipped_norm"])
    assert one.run(1)[0][0].courses[0][0] == 11.0


def test_a_bound_keeps_the_direction() -> None:
    one = Trial(Average(iterations=5), Sgd(lr=0.1, momentum=0.9, batch_size=4), partitions=(range(48),))
    (free,), _ = one.run(1)
    (held,), _ = replace(one, faults=Faults(max_update_norm=0.01)).run(1)
    start = one.worker().params.double()
    update, scaled = (torch.tensor(each.courses[0]).double() - start for each in (free, held))
    norm = torch.linalg.vector_norm(update)
    assert held.records[0]["clipped_norm"] == pytest.approx(float(norm), rel=1e-6)
    torch.testing.assert_close(scaled, update * (0.01 / norm), rtol=0, atol=1e-7)


def test_a_bound_in_a_network_of_float64() -> None:
    """Its parameters are computed with in their own type, and must not be the memory that is computed in."""
    items = blobs(dtype=torch.float64)
    one = Trial(Average(iterations=5), Sgd(lr=0.1, batch_size=4), lambda: mlp().double(), items, partitions=(range(48),))
    (free,), _ = one.run(1)
    (loose,), _ = replace(one, faults=Faults(max_update_norm=100.0)).run(1)
    (held,), _ = replace(one, faults=Faults(max_update_norm=0.01)).run(1)
    assert loose.courses == free.courses
    moved = torch.tensor(held.courses[0], dtype=torch.float64) - one.worker().params
    assert float(torch.linalg.vector_norm(moved)) == pytest.approx(0.01)


def test_squares_that_overflow_float32_do_not_wipe_an_update_out() -> None:
    one = Trial(Average(iterations=1), Sgd(lr=1e30, batch_size=4), partitions=(range(48),))
    (member,), _ = replace(one, faults=Faults(max_update_norm=1.0)).run(1)
    moved = torch.tensor(member.courses[0]).double() - one.worker().params.double()
    assert float(torch.linalg.vector_norm(moved)) == pytest.approx(1.0, rel=1e-5)
    assert member.records[0]["clipped_norm"] > 1e25


def test_overflow_by_an_outer_step_names_the_round_the_tensor_and_mixing() -> None:
    class Flip(nn.Linear):
        """A bias that jumps to an end of float32, which is finite; 1.9 times the jump, Nesterov's first step, is not."""

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.bias.data[0] = -3e38 if self.bias[0] > 0 else 3e38
            return super().forward(x)[:, 1:]

    def flip() -> nn.Module:
        return Flip(5, 4)

    with pytest.raises(Diverged, match=r"^round 1: mixing made non-finite numbers in parameter `bias` from finite ones"):
        Trial(Diloco(rule="diloco", iterations=1), Sgd(lr=0.1, batch_size=4), flip).run(4)
