"""When a run ends."""

import math
from dataclasses import replace
from typing import Any

import pytest

from partrain.training.stop import Criterion, Progress, Stop


def progress(*losses: float, accuracies: tuple[float | None, ...] = ()) -> Progress:
    """After one judgement a round."""
    standing = Progress()
    for loss, accuracy in zip(losses, accuracies or (None,) * len(losses), strict=True):
        standing.round += 1
        standing.judge(loss, accuracy)
    return standing


@pytest.mark.parametrize(("target", "loss", "accuracy", "reached"), [
    ({"loss": 0.5}, 0.5, None, True),
    ({"loss": 0.5}, 0.51, None, False),
    ({"accuracy": 0.9}, 3.0, 0.9, True),
    ({"accuracy": 0.9}, 3.0, 0.89, False),
    ({"accuracy": 0.9}, 3.0, None, False),
    ({"loss": 0.5, "accuracy": 0.9}, 0.4, 0.1, True),
    ({"loss": 0.5, "accuracy": 0.9}, 0.6, 0.95, True),
    ({"loss": 0.5}, math.nan, None, False),
    ({"rounds": 1}, 0.0, 1.0, False),
])  # fmt: skip
def test_a_target_is_reached_by_the_judged_network(
    target: dict[str, Any], loss: float, accuracy: float | None, reached: bool
) -> None:
    assert Stop(**target).reached(progress(loss, accuracies=(accuracy,))) is reached


def test_nothing_is_reached_before_the_first_judgement() -> None:
    assert not Stop(loss=1e9, accuracy=1e-9).reached(Progress(round=7))


@pytest.mark.parametrize(("table", "standing", "limit"), [
    ({"rounds": 5}, Progress(round=4), None),
    ({"rounds": 5}, Progress(round=5), "rounds"),
    ({"rounds": 5}, Progress(round=6), "rounds"),
    ({"item_iterations": 100}, Progress(round=9, item_iterations=99), None),
    ({"item_iterations": 100}, Progress(round=9, item_iterations=100), "item_iterations"),
    ({"patience": 2}, Progress(misses=1), None),
    ({"patience": 2}, Progress(misses=2), "patience"),
    ({"rounds": 5, "item_iterations": 100}, Progress(round=5, item_iterations=100), "rounds"),
    ({"loss": 1.0}, Progress(round=10**9, loss=0.5), None),
])  # fmt: skip
def test_limits(table: dict[str, Any], standing: Progress, limit: str | None) -> None:
    assert Stop(**table).limit(standing, out_of_time=False) == limit


def test_time_is_up_when_the_clock_says_so_and_seconds_were_given() -> None:
    assert Stop(seconds=9.0).limit(Progress(), out_of_time=True) == "seconds"
    assert Stop(seconds=9.0).limit(Progress(), out_of_time=False) is None
    assert Stop(rounds=9).limit(Progress(), out_of_time=True) is None


def test_the_best_is_the_lowest_loss_where_there_is_no_accuracy() -> None:
    assert (progress(3.0, 1.0, 2.0).best, progress(3.0, 1.0, 2.0).best_round) == (1.0, 2)


def test_the_best_is_the_highest_accuracy_whatever_the_loss() -> None:
    standing = progress(1.0, 5.0, 0.5, accuracies=(0.7, 0.9, 0.8))
    assert (standing.best, standing.best_round, standing.accuracy, standing.loss) == (0.9, 2, 0.8, 0.5)


def test_an_equal_judgement_is_no_new_best() -> None:
    standing = progress(1.0, 1.0, 1.0)
    assert (standing.best_round, standing.misses) == (1, 2)


def test_a_new_best_forgives_all_misses() -> None:
    assert progress(2.0, 3.0, 3.0, 1.0).misses == 0


def test_judging_tells_whether_this_is_the_best_so_far() -> None:
    standing = Progress()
    assert [standing.judge(loss, None) for loss in (2.0, 3.0, 1.0)] == [True, False, True]


def test_a_loss_that_is_not_a_number_is_never_the_best() -> None:
    standing = progress(math.nan, 2.0, math.nan, 1.0)
    assert (standing.best, standing.best_round, standing.misses) == (1.0, 4, 0)
    assert progress(math.nan, math.nan).misses == 0, "nor a miss"


def test_patience_goes_by_regular_judgements_only() -> None:
    """What the end of a run has brought about is no miss for the run that goes on, and no best to be beaten."""
    standing = progress(2.0)
    assert standing.judge(1.0, None, regular=False)
    assert (standing.best, standing.misses) == (1.0, 0)
    assert not standing.judge(1.5, None)
    assert (standing.best, standing.lead, standing.misses) == (1.0, 1.5, 0)
    assert not standing.judge(9.0, None, regular=False)
    assert standing.misses == 0


def test_a_copy_stands_where_the_original_stood() -> None:
    standing = progress(1.0, 2.0)
    copy = replace(standing)
    standing.judge(0.5, None)
    assert copy.best == 1.0


def test_the_best_is_by_the_number_that_patience_by_names() -> None:
    standing = Progress()
    for loss, accuracy, mae in ((1.0, 0.9, 3.0), (0.8, 0.9, 2.0), (0.9, 0.95, 2.5)):
        standing.round += 1
        standing.judge(loss, accuracy, {"mae": mae}, Criterion("mae", lower=True))
    assert (standing.best, standing.best_round, standing.misses, standing.metrics) == (2.0, 2, 1, {"mae": 2.5})
    by_loss = Progress(round=1)
    assert [by_loss.judge(loss, 0.9, by=Criterion("loss", lower=True)) for loss in (1.0, 0.9)] == [True, True]


def test_a_metric_that_is_not_finite_is_left_out_and_is_neither_a_best_nor_a_miss() -> None:
    standing, by = Progress(round=1), Criterion("auroc", lower=False)
    assert not standing.judge(1.0, None, {"auroc": math.nan}, by)
    assert (standing.metrics, standing.misses) == ({}, 0)
    assert not Stop(at_least={"auroc": -1.0}).reached(standing)
    assert standing.judge(1.0, None, {"auroc": 0.5}, by)
    assert not standing.judge(1.0, None, {"auroc": 0.4}, by)
    assert not standing.judge(1.0, None, {"auroc": math.nan}, by)
    assert (standing.best, standing.misses) == (0.5, 1)


@pytest.mark.parametrize(("table", "reached"), [({"at_least": {"f1": 0.5}}, True), ({"at_most": {"f1": 0.4}}, False)])
def test_goals_of_metrics(table: dict[str, Any], reached: bool) -> None:
    standing = Progress(round=1)
    standing.judge(1.0, None, {"f1": 0.5})
    assert Stop(**table).reached(standing) is reached
    assert Stop(**table).has_target


def test_progress_without_metrics_is_stored_as_before() -> None:
    assert "metrics" not in Progress(round=1).stored()
    assert Progress(metrics={"f1": 0.5}).stored()["metrics"] == {"f1": 0.5}
