"""Lines on the result of a run: beside trivial answers, and on its course."""

from __future__ import annotations

from typing import Any

import pytest

from partrain.record.result_lines import result_lines

RUN: dict[str, Any] = {"status": "finished", "best": {"round": 4, "loss": 0.3, "metrics": {"accuracy": 0.9}}, "test": {}}


def beside(by: str, network: float, trivial: float, low: float, high: float, **options: Any) -> dict[str, Any]:
    return {"by": by, "network": network, "trivial": trivial, "low": low, "high": high, "items": 360, **options}


RARE = {"name": "ill", "items": 29, "right": 17, "others": 4, "average_precision": 0.625}


@pytest.mark.parametrize(
    ("name", "numbers", "comparison", "line"),
    [
        ("constant", {"accuracy": 0.7}, beside("accuracy", 0.9, 0.7, 0.1, 0.3), "better than always answering the commonest class: accuracy 0.9000 against 0.7000 (360 items; 95 % interval of the difference 0.1000 to 0.3000)"),
        ("constant", {"accuracy": 0.7}, beside("accuracy", 0.7, 0.7, 0.0, 0.0), "NO BETTER than always answering the commonest class: accuracy 0.7000 against 0.7000 (360 items; 95 % interval of the difference 0.0000 to 0.0000)"),
        ("constant", {"accuracy": 0.7}, beside("accuracy", 0.73, 0.7, -0.01, 0.07), "not clearly better than always answering the commonest class: accuracy 0.7300 against 0.7000 (360 items; 95 % interval of the difference -0.0100 to 0.0700)"),
        ("constant", {"accuracy": 0.9}, beside("auroc", 0.8, 0.5, 0.2, 0.4, rare=RARE), "better than always answering the commonest class: auroc 0.8000 against 0.5000 (360 items; 95 % interval of the difference 0.2000 to 0.4000); of 29 items of the rare class ill, 17 got it, as did 4 others; its average precision is 0.6250, by chance 0.0806"),
        ("constant", {"loss": 1.0}, beside("mae", 0.2, 1.0, -0.9, -0.7, r2=0.8), "better than always answering the mean: mae 0.2000 against 1.0000 (360 items; 95 % interval of the difference -0.9000 to -0.7000)"),
        ("naive", {"mae": 3.0}, beside("mae", 2.0, 3.0, -1.5, -0.5, r2=-0.1), "not clearly better than repeating the newest value: mae 2.0000 against 3.0000 (360 items; 95 % interval of the difference -1.5000 to -0.5000); its R² is -0.1000, below 0"),
        ("seasonal_naive", {"mae": 1.5}, beside("mae", 2.0, 1.5, 0.2, 0.8, r2=0.5), "NO BETTER than repeating the newest season: mae 2.0000 against 1.5000 (360 items; 95 % interval of the difference 0.2000 to 0.8000)"),
    ],
)  # fmt: skip
def test_a_result_stands_beside_an_answer_that_needs_no_training(
    name: str, numbers: dict[str, Any], comparison: dict[str, Any], line: str
) -> None:
    assert result_lines(RUN | {"trivial": {name: numbers}, "comparisons": {name: comparison}}) == [line]


@pytest.mark.parametrize(
    ("course", "status", "spent", "line"),
    [
        ("improving", "finished", False, "still improving at the end: resume it for more rounds"),
        ("improving", "not-reached", True, "still improving at the end: raise `rounds` in [stop] and run it again"),
        ("past its best", "finished", False, "past its best: the judged loss rises, and more rounds of this kind would not help"),
        ("improving", "reached", False, None),
        (None, "finished", False, None),
    ],
)
def test_the_course_of_a_run(course: str | None, status: str, spent: bool, line: str | None) -> None:
    content = RUN | {"status": status} | ({"course": course} if course else {})
    assert result_lines(content, spent=spent) == ([line] if line else [])
