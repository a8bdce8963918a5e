"""Each number of a round is declared once: the surfaces show declared numbers, and no name stands for two of them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
from support.histories import made_run

from partrain.display.live_table import AFTER, COLUMNS, FIRST
from partrain.hooks.scalars import scalars
from partrain.record.numbers import DERIVED, Merge, Merged
from partrain.record.round_record import ACTIVITIES, ELSEWHERE, FIELDS, NUMBERS, RoundRecord
from partrain.report.figures import FIGURES
from partrain.report.history import read_history

PLOTS_OF_THEIR_OWN = {"loss", "accuracy", "timeline", "speed"}


def test_surfaces_show_declared_numbers(tmp_path: Path) -> None:
    state = read_history(made_run(tmp_path / "run"), "run").state
    assert set(scalars(state)) <= {number.scalar for number in NUMBERS.values()} | set(DERIVED)
    assert set(FIGURES) - PLOTS_OF_THEIR_OWN == {name for name, number in NUMBERS.items() if number.drawn}
    derived = sum(map(len, AFTER.values()))
    assert len(COLUMNS) == len(FIRST) + derived + sum(number.column is not None for number in NUMBERS.values())


def test_no_name_stands_for_two_numbers() -> None:
    for names in (
        [number.scalar for number in NUMBERS.values()],
        [number.metric for number in NUMBERS.values() if not number.activity],
        [number.run_metric for number in NUMBERS.values()],
        [number.column[:2] for number in NUMBERS.values() if number.column],
        [number.drawn.title for number in NUMBERS.values() if number.drawn],
        [number.meaning for number in NUMBERS.values()],
    ):
        assert [name for name, count in Counter(filter(None, names)).items() if count > 1] == []
    assert all(NUMBERS[name].metric == "worker_seconds" for name in ACTIVITIES)


def test_names_of_a_hook_are_those_of_their_numbers() -> None:
    for name, number in NUMBERS.items():
        assert not number.scalar or name in number.scalar
        assert not (number.drawn or number.column) or name not in ELSEWHERE


def test_the_ring_and_the_event_hold_the_declared_numbers() -> None:
    record = RoundRecord(**{name: 1 if number.whole else 0.5 for name, number in NUMBERS.items()})
    assert RoundRecord.of(record.row()) == record
    assert set(record.event_values()) == set(FIELDS) - set(ELSEWHERE)
    bare = RoundRecord.of([math.nan if number.optional else 1.0 for number in NUMBERS.values()])
    assert set(bare.event_values()) == {name for name, number in NUMBERS.items() if not number.optional} - set(ELSEWHERE)


@pytest.mark.parametrize(("merge", "expected"), [(Merge.SUM, 9.0), (Merge.MEAN, 3.25), (Merge.MOST, 5.0), (Merge.NEWEST, 2.0)])
def test_merging(merge: Merge, expected: float) -> None:
    merged = Merged()
    for value, items in ((2.0, 1), (5.0, 5), (math.nan, 100), (2.0, 6)):
        merged.add({"x": value}, [("x", merge)], items)
    assert merged["x"] == pytest.approx(expected)
