"""Conditions on runs, and their order."""

from __future__ import annotations

import pytest

from partrain.runs.selection import BadSelection, check_names, holds, ordered, parse_condition, values_of


def test_a_number_that_is_missing_fulfils_no_comparison() -> None:
    numbers = {"loss": 0.5, "test.accuracy": None}
    assert holds(parse_condition("loss < 1"), numbers)
    for text in ("test.accuracy >= 0", "test.accuracy < 0", "test.loss < 9"):
        assert not holds(parse_condition(text), numbers)
    assert values_of(parse_condition("test.loss < loss"), numbers) == "test.loss is missing, loss is 0.5"


def test_order() -> None:
    rows = [{"a": 2}, {}, {"a": "word"}, {"a": 1}, {"a": None}]
    assert ordered(rows, "a", dict) == [{"a": 1}, {"a": 2}, {"a": "word"}, {}, {"a": None}]
    assert ordered(rows, "-a", dict)[:3] == [{"a": "word"}, {"a": 2}, {"a": 1}]
    assert ordered([], "b", dict) == []
    with pytest.raises(BadSelection):
        ordered(rows, "b", dict)


def test_the_end_of_a_name_leads_to_it() -> None:
    with pytest.raises(BadSelection, match=r"did you mean `seconds\.train`"):
        check_names(["train"], ["loss", "seconds.train"])
