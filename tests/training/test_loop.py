"""The loop: who ends it, what is judged and recorded, what becomes of a failure."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.lab import OneWeight, Trial, blobs, line, restless, same, simulate
from torch import Tensor

from partrain.comm.group import ArenaGroup, Closing, NonFinite
from partrain.comm.simulated import Pace
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import Adam
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.rules.diloco import Diloco
from partrain.rules.fednova import Fednova
from partrain.rules.slowmo import Slowmo
from partrain.rules.swap import Swap
from partrain.training.loop import Signal, own_part
from partrain.training.stop import Stop


def judged(**stop: Any) -> Trial:
    return Trial(held_out=blobs(20), stop=Stop(**stop), optimizer=Sgd(lr=0.5, batch_size=8))


def test_rounds_run_until_the_limit() -> None:
    workers, _ = Trial().run(5)
    assert [(one.ending.reason, one.progress.round, len(one.records)) for one in workers] == [("rounds", 5, 5)] * 2


def test_item_iterations_of_all_workers_are_counted() -> None:
    """2 workers, 3 iterations of 4 items."""
    workers, _ = Trial(stop=Stop(item_iterations=49)).run(100)
    assert [(one.ending.reason, one.progress.round, one.progress.item_iterations) for one in workers] == [
        ("item_iterations", 3, 72)
    ] * 2


def test_a_target_ends_the_run_as_reached() -> None:
    workers, _ = judged(accuracy=0.8).run(100)
    assert all(one.ending.reached and one.ending.reason == "target" and one.progress.accuracy >= 0.8 for one in workers)


def test_a_target_reached_in_the_last_round_is_reached() -> None:
    rounds = judged(accuracy=0.8).run(100)[0][0].progress.round
    assert judged(accuracy=0.8).run(rounds)[0][0].ending.reached


def test_the_last_round_is_judged_even_if_it_is_not_due() -> None:
    workers, _ = judged(judge_every=1000).run(3)
    assert [one.progress.judged_round for one in workers] == [3, 3]


def test_patience_ends_a_run_that_gets_no_better() -> None:
    trial = Trial(network=OneWeight, items=line([1.0] * 8, [0.0] * 8), partitions=[range(4), range(4, 8)], rule=Average(iterations=1),
                  optimizer=Sgd(lr=1.0, batch_size=4), held_out=line([1.0], [0.0]), stop=Stop(patience=3))  # fmt: skip
    workers, _ = trial.run(100)  # w = 16, -16, 16, ...: always as bad
    assert [(one.ending.reason, one.progress.round) for one in workers] == [("patience", 4)] * 2


def test_the_user_is_heard_at_the_end_of_the_round() -> None:
    workers, taken = replace(judged(judge_every=1000), signals=[Signal(0), Signal.STOP]).run(100)
    assert [(one.ending.reason, one.progress.round, one.progress.judged_round) for one in workers] == [("asked", 2, 0)] * 2
    assert taken.progress.round == 2


def test_the_clock_is_heard_where_seconds_are_limited() -> None:
    assert replace(judged(seconds=9.0), signals=[Signal(0), Signal.OUT_OF_TIME]).run(100)[0][1].ending.reason == "seconds"


def test_a_snapshot_is_taken_when_it_is_welcome() -> None:
    trial = Trial(signals=[Signal(0), Signal.SNAPSHOT_WANTED])
    _, early = replace(trial, stop=Stop(item_iterations=48)).run(100)
    workers, _ = replace(trial, stop=Stop()).run(100, since=early)
    assert early.progress.round == 2
    assert workers[0].progress.round == 100


def test_workers_agree_on_every_judgement() -> None:
    one, other = judged(judge_every=2).run(5)[0]
    assert one.progress == other.progress


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9).filter(any), st.integers(0, 1000))
def test_items_are_shared_out_without_gaps_and_in_proportion(counts: list[int], total: int) -> None:
    cuts = [own_part(counts, total, rank) for rank in range(len(counts))]
    assert [item for cut in cuts for item in cut] == list(range(total))
    assert all(abs(len(cut) - total * count / sum(counts)) < 1 for cut, count in zip(cuts, counts, strict=True))


def test_judging_is_shared_and_adds_up_to_the_judgement_of_one() -> None:
    workers, _ = judged().run(2)
    loss, right = workers[0].worker.evaluate(blobs(20), range(20))
    assert workers[0].progress.loss == pytest.approx(loss / 20)
    assert workers[0].progress.accuracy == right / 20


def test_a_record_says_what_the_round_was() -> None:
    workers, _ = Trial(caps=[1, 3]).run(2)
    assert [[(record["iterations"], record["items"]) for record in one.records] for one in workers] == [
        [(1, 4)] * 2,
        [(3, 12)] * 2,
    ]


def test_who_meets_others_only_after_the_round_has_waited_too() -> None:
    """A swap every nine rounds; ten iterations are 10 ms, and 40 ms at a quarter of the speed."""
    trial = Trial(Swap(rule="swap", iterations=10, every=9), paces=[Pace(), Pace(0.25)])
    workers, _ = trial.run(2)
    times = [[(record["compute"], record["wait"], record["mix"]) for record in one.records] for one in workers]
    assert times == [[pytest.approx((0.01, 0.03, 0.0))] * 2, [pytest.approx((0.04, 0.0, 0.0))] * 2]


MIXED_ONCE = [Average(iterations=3, weights="equal"), Slowmo(rule="slowmo", iterations=3), Fednova(rule="fednova", iterations=3), Diloco(rule="diloco", iterations=3)]  # fmt: skip


@pytest.mark.parametrize(
    "optimizer", [Sgd(lr=0.1, momentum=0.9, batch_size=4), Adam(name="adam", lr=0.01, batch_size=4)], ids=["sgd", "adam"]
)
@pytest.mark.parametrize("rule", MIXED_ONCE, ids=[rule.rule for rule in MIXED_ONCE])
def test_one_meeting_gives_the_bits_of_several(rule: Rule, optimizer: AnyOptimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judged round measures the distance in its mean, and exchanges numbers afterwards as if the rule mixed more than once."""
    trial = Trial(rule, optimizer, caps=(3, 2), held_out=blobs(20), stop=Stop(judge_every=3), paces=[Pace(delay_s=1.0)] * 2)
    together, snapshot = trial.run(7)
    monkeypatch.setattr(type(rule), "mixes_once", False)
    apart, expected = trial.run(7)
    assert same(snapshot, expected)
    assert together[0].progress == apart[0].progress
    assert (
        together[0].records[6]["seconds"] < apart[0].records[6]["seconds"] - 4
    )  # one second for each of the four others' meetings


def test_optimizer_state_that_is_not_finite_is_caught_before_the_parameters_are_mixed() -> None:
    def train(group: ArenaGroup, row: Tensor) -> None:
        worker = trial.worker(group.rank, row)
        worker.optimizer.moments[0, 3] = math.nan if group.rank else 0.0
        mixed.append(worker.params.clone())
        group.begin(lambda: Closing((1.0,), worker.optimizer.moments.view(-1), 1.0), measure=False)
        try:
            group.all_reduce_mean(worker.params)
        finally:
            mixed.append(worker.params.clone())

    trial, mixed = Trial(optimizer=Sgd(lr=0.1, momentum=0.9, batch_size=4)), list[Tensor]()
    with pytest.raises(NonFinite, match="non-finite number at 3"):
        simulate(2, train, trial.layout.numbers, trial.layout.scratch)
    assert all(params.equal(mixed[0]) for params in mixed)


def test_the_distance_is_recorded_only_of_rounds_in_which_it_was_measured() -> None:
    workers, _ = judged(judge_every=2).run(4)
    measured = [[not math.isnan(record["distance"]) for record in one.records] for one in workers]
    assert measured == [[False, True, False, True]] * 2


def test_the_distance_is_that_of_all_replicas() -> None:
    """The replicas do not mix in this round, so they can be measured after it."""
    workers, _ = replace(judged(), rule=Swap(rule="swap", iterations=3, every=9)).run(1)
    rows = torch.stack([trained.worker.params for trained in workers]).double()
    expected = (rows - rows.mean(0)).square().sum(1).mean().sqrt()
    assert expected > 0
    assert [trained.records[-1]["distance"] for trained in workers] == [pytest.approx(float(expected), rel=1e-6)] * 2


def test_workers_begin_as_worker_0_does() -> None:
    made: list[torch.nn.Module] = []

    def unlike() -> torch.nn.Module:
        made.append(restless())
        torch.nn.init.constant_(made[-1][0].bias, 4.0 ** len(made))
        return made[-1]

    workers, _ = Trial(network=unlike, optimizer=Sgd(lr=1e-30, batch_size=4)).run(1)
    biases = [one.worker.module[0].bias[0].item() for one in workers]
    assert biases[0] == biases[1]
    assert math.log(biases[0], 4).is_integer()  # one of them, not a mean of two


def test_numbers_that_are_not_finite_end_the_run_before_they_are_mixed() -> None:
    with pytest.raises(NonFinite):
        Trial(optimizer=Sgd(lr=1e38, batch_size=4)).run(50)


def test_an_error_of_the_users_code_comes_out_as_it_is() -> None:
    class Broken(OneWeight):
        def forward(self, x: Tensor) -> Tensor:
            raise ZeroDivisionError("by the user")

    with pytest.raises(ZeroDivisionError, match="by the user"):
        Trial(network=Broken).run(1)


def test_twenty_rounds_are_ten_and_ten() -> None:
    trial = replace(judged(judge_every=3), network=restless, optimizer=Sgd(lr=0.1, momentum=0.9, batch_size=4))
    _, half = trial.run(10)
    assert same(trial.run(20, since=half)[1], trial.run(20)[1])
