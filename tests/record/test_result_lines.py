"""Lines on the result of a run: beside trivial answers, and on its course."""

from __future__ import annotations

from typing import Any

import pytest

from partrain.record.result_lines import result_lines

RUN: dict[str, Any] = {"status": "finished", "best": {"round": 4, "loss": 0.3, "metrics": {"accuracy": 0.9}}, "test": {}}


@pytest.mark.parametrize(
    ("test", "trivial", "line"),
    [
        ({"loss": 0.2, "accuracy": 0.9}, {"constant": {"loss": 0.6, "accuracy": 0.7}}, "better than always answering the commonest class: accuracy 0.9000 against 0.7000"),
        ({"loss": 0.2, "accuracy": 0.7}, {"constant": {"loss": 0.6, "accuracy": 0.7}}, "NO BETTER than always answering the commonest class: accuracy 0.7000 against 0.7000"),
        ({"accuracy": 0.6, "auroc": 0.8}, {"constant": {"accuracy": 0.9, "auroc": 0.5}}, "better than always answering the commonest class: auroc 0.8000 against 0.5000"),
        ({"accuracy": 0.6, "f1": 0.5}, {"constant": {"accuracy": 0.9, "f1": 0.4}}, "better than always answering the commonest class: f1 0.5000 against 0.4000"),
        ({"loss": 0.2}, {"constant": {"loss": 1.0}}, "better than always answering the mean: loss 0.2000 against 1.0000"),
        ({"loss": 0.2, "r2": -0.1}, {"constant": {"loss": 1.0, "r2": 0.0}}, "NO BETTER than always answering the mean: r2 -0.1000 against 0.0000"),
        ({"mae": 2.0}, {"naive": {"mae": 3.0}}, "better than repeating the newest value: mae 2.0000 against 3.0000"),
        ({"mae": 2.0}, {"seasonal_naive": {"mae": 1.5}}, "NO BETTER than repeating the newest season: mae 2.0000 against 1.5000"),
        ({}, {"constant": {"accuracy": 0.7}}, "better than always answering the commonest class: accuracy 0.9000 against 0.7000"),
    ],
)  # fmt: skip
def test_a_result_stands_beside_an_answer_that_needs_no_training(
    test: dict[str, float], trivial: dict[str, Any], line: str
) -> None:
    assert result_lines(RUN | {"test": test, "trivial": trivial}) == [line]


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
