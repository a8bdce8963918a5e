"""A network beside a trivial answer: the numbers of a paired bootstrap."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from partrain.record.result_lines import verdict
from partrain.tasks.kinds import KINDS, AnswerBatch
from partrain.training.comparison import ItemOutcomes


def outcomes(kind: str, answers: Tensor, targets: Tensor, decided: Tensor | None = None, parts: int = 1) -> ItemOutcomes:
    """Collect answers in several parts."""
    collected = ItemOutcomes.of(KINDS[kind], 2, targets)
    decided = answers if decided is None else decided
    for part in zip(answers.tensor_split(parts), targets.tensor_split(parts), decided.tensor_split(parts), strict=True):
        collected.add(AnswerBatch(*part))
    return collected


def probabilities(scores: Tensor) -> Tensor:
    return torch.stack([1 - scores, scores], 1)


def test_the_interval_is_that_of_the_mean_difference() -> None:
    torch.manual_seed(0)
    targets, right = torch.arange(400) % 2, torch.rand(400) < 0.8
    decided = torch.where(right, targets, 1 - targets)
    always = (targets == 0).double()
    told = outcomes("classification", probabilities(decided.double()), targets, decided).beside(always, None, 7)
    assert told
    assert (told["by"], told["items"], told["trivial"]) == ("accuracy", 400, 0.5)
    difference = (decided == targets).double() - always
    error = float(difference.std() / 20)
    assert told["network"] - told["trivial"] == pytest.approx(float(difference.mean()))
    assert [told["low"], told["high"]] == pytest.approx(
        [float(difference.mean()) + side * 1.96 * error for side in (-1, 1)], abs=0.02
    )


def test_rows_of_one_group_count_together() -> None:
    """Twenty rows of a person tell no more than one, where a network is right or wrong in all of them."""
    torch.manual_seed(0)
    targets, person = torch.arange(400) % 2, torch.arange(400) % 20
    right = (torch.rand(20) < 0.7)[person]
    decided = torch.where(right, targets, 1 - targets)
    always = (targets == 0).double()
    compared = outcomes("classification", probabilities(decided.double()), targets, decided)
    widths = [made["high"] - made["low"] for group in (None, person) if (made := compared.beside(always, None, 7, group))]
    by_person = torch.stack([((decided == targets).double() - always)[person == one].mean() for one in range(20)])
    assert widths[1] == pytest.approx(2 * 1.96 * float(by_person.std(correction=0) / 20**0.5), rel=0.15)
    assert widths[1] > 1.5 * widths[0]


def test_a_rare_class_is_compared_by_the_order_of_the_answers() -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    torch.manual_seed(1)
    targets = (torch.arange(3000) % 10 == 0).long()
    scores = (torch.rand(3000) + 0.4 * targets).mul(100).round().div(200)
    told = outcomes("classification", probabilities(scores), targets, (scores > 0.5).long()).beside(
        torch.zeros(3000), ["no", "ill"], 7
    )
    assert told
    assert told["network"] == pytest.approx(roc_auc_score(targets, scores))
    assert told["low"] < told["network"] - 0.5 < told["high"] < told["low"] + 0.1
    ill = scores > 0.5
    assert told["rare"] == {
        "name": "ill",
        "items": 300,
        "right": int((ill & (targets == 1)).sum()),
        "others": int((ill & (targets == 0)).sum()),
        "average_precision": pytest.approx(average_precision_score(targets, scores)),
    }


def test_a_forecast_with_a_negative_r2_is_never_better() -> None:
    torch.manual_seed(2)
    targets = torch.randn(500, 1).double()
    network, naive = targets + 0.1 * torch.randn(500, 1), targets.roll(1)
    network[7] += 30
    told = outcomes("forecast", network, targets).beside((naive - targets).abs().squeeze(1), None, 7)
    assert told
    assert told["by"] == "mae"
    assert told["r2"] < 0
    assert told["high"] < 0
    assert verdict(told) == "unsure"


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_parts_of_workers_make_the_same_numbers(kind: str) -> None:
    torch.manual_seed(3)
    targets = torch.arange(90) % 2
    answers = probabilities(torch.rand(90)) if kind == "classification" else torch.rand(90).double()
    made: list[Any] = []
    for parts in 1, 3:
        collected = outcomes(
            kind,
            answers,
            targets if kind == "classification" else targets.double(),
            (torch.rand(90, generator=torch.Generator().manual_seed(0)) > 0.5).long() if kind == "classification" else None,
            parts,
        )
        made.append(collected.beside(torch.ones(90).double(), None, 5))
    if kind == "regression":
        assert made[0].pop("r2") == pytest.approx(made[1].pop("r2"))
    assert made[0] == made[1]


def test_nothing_is_compared_without_answers() -> None:
    assert ItemOutcomes(KINDS["regression"]).beside(torch.zeros(0), None, 1) is None
