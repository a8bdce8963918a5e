"""Stragglers: who is slow, against whom, since when, and when it is worth a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from partrain.record.events import SlowEvent, decode, encode
from partrain.record.round_record import NAN, RoundRecord
from partrain.record.stragglers import Stragglers, median_of_others


def round_of(number: int, computing: Sequence[float], items: Sequence[int], lasts: float, end: float) -> list[RoundRecord]:
    return [
        RoundRecord(number, 1, count, 1.0, 0.1, seconds, lasts - seconds, 0.0, NAN, 0, NAN, end)
        for seconds, count in zip(computing, items, strict=True)
    ]


def reports(
    rounds: Sequence[Sequence[float]], items: Sequence[int] | None = None, kinds: Sequence[str] | None = None, lasts: float = 1.0
) -> list[SlowEvent]:
    """Reports of rounds that last `lasts` seconds, given each worker's seconds of computing."""
    size = len(rounds[0])
    stragglers = Stragglers(kinds or ["cpu"] * size)

    def told() -> Iterator[SlowEvent]:
        for number, computing in enumerate(rounds, 1):
            yield from stragglers.add(0.0, round_of(number, computing, items or [100] * size, lasts, lasts * number))

    return list(told())


def summary(events: Sequence[SlowEvent]) -> list[tuple[int, int, float, int, bool]]:
    return [(event.round, event.rank, event.factor, event.since, event.recovered) for event in events]


def test_a_slow_worker_is_reported_once() -> None:
    assert summary(reports([[0.1, 0.1, 0.4]] * 20)) == [(5, 2, 4.0, 1, False)]


def test_the_median_of_the_others_decides() -> None:
    """A second slow worker makes the first no faster, and a fast one makes no other slow."""
    assert summary(reports([[0.1, 0.1, 0.1, 0.3, 0.4]] * 9)) == [(5, 3, 3.0, 1, False), (5, 4, 4.0, 1, False)]
    assert reports([[0.02, 0.1, 0.1, 0.1]] * 20) == []
    assert reports([[0.1, 0.149]] * 20) == []
    assert summary(reports([[0.1, 0.151]] * 20)) == [(5, 1, 1.51, 1, False)]


@pytest.mark.parametrize("hiccups", [1, 2])
def test_a_hiccup_is_no_report(hiccups: int) -> None:
    rounds = [[0.1, 0.1]] * 20
    rounds[8 : 8 + hiccups] = [[0.1, 0.9]] * hiccups
    assert reports(rounds) == []


def test_short_rounds_are_measured_together() -> None:
    """A hiccup of 0.1 s is 100 rounds of 1 ms: they are one span. A worker that is slow for longer is reported."""
    short = [[0.0002, 0.0002]] * 4000
    short[1000:1100] = [[0.0002, 0.0009]] * 100
    assert reports(short, lasts=0.001) == []
    short[2000:] = [[0.0002, 0.0009]] * 2000
    (event,) = reports(short, lasts=0.001)
    assert (event.rank, event.factor, 1500 < event.since < 2510) == (1, 4.5, True)


def test_seconds_per_item_and_not_per_round() -> None:
    """Twice the items in twice the time are no slower; a capped worker that fits the round is still slow."""
    assert reports([[0.2, 0.1]] * 9, items=[200, 100]) == []
    assert summary(reports([[0.1, 0.1]] * 9, items=[100, 25])) == [(5, 1, 4.0, 1, False)]


def test_only_workers_of_a_kind_are_compared() -> None:
    assert reports([[0.01, 0.4]] * 9, kinds=["cuda", "cpu"]) == []
    assert summary(reports([[0.01, 0.1, 0.4]] * 9, kinds=["cuda", "cpu", "cpu"])) == [(5, 2, 4.0, 1, False)]


def test_it_becomes_slower_and_recovers() -> None:
    rounds = (
        [[0.1, 0.1]] * 10 + [[0.1, 0.2]] * 10 + [[0.1, 0.21]] * 10 + [[0.1, 0.5]] * 10 + [[0.1, 0.14]] * 10 + [[0.1, 0.1]] * 10
    )
    assert summary(reports(rounds)) == [(13, 1, 2.0, 11, False), (33, 1, 5.0, 11, False), (43, 1, 1.4, 11, True)]
    between = [[0.1, 0.2]] * 10 + [[0.1, 0.14]] * 10 + [[0.1, 0.12]] * 10
    assert summary(reports(between)) == [(5, 1, 2.0, 1, False), (23, 1, 1.2, 1, True)], (
        "1.4 is neither slow nor recovered from 2.0"
    )


def test_idle_workers_are_not_measured() -> None:
    assert reports([[0.1, 0.0]] * 9, items=[100, 0]) == []


def test_rounds_that_run_again() -> None:
    """The report of a round that is forgotten is forgotten, too; an earlier one stays."""
    stragglers = Stragglers(["cpu"] * 2)

    def train(rounds: range) -> list[SlowEvent]:
        return [event for n in rounds for event in stragglers.add(0.0, round_of(n, [0.1, 0.4], [100, 100], 1.0, n))]

    assert summary(train(range(1, 9))) == [(5, 1, 4.0, 1, False)]
    stragglers.rewind(4)
    assert summary(train(range(5, 20))) == [(9, 1, 4.0, 5, False)]
    stragglers.rewind(12)
    assert train(range(13, 30)) == []


@pytest.mark.parametrize(("values", "expected"), [([1, 2], [2, 1]), ([1, 2, 9], [5.5, 5, 1.5]), ([3, 3, 3, 5], [3, 3, 3, 3])])
def test_median_of_the_others(values: list[float], expected: list[float]) -> None:
    assert [median_of_others(values, one) for one in values] == expected


def test_the_event() -> None:
    event = SlowEvent(t=1.0, round=20, rank=1, factor=4.0, since=3)
    assert decode(encode(event)) == event
    assert event.describe() == "worker 1 takes 4.0 times as long per item as the others, since round 3"
    again = SlowEvent(t=1.0, round=30, rank=1, factor=1.1, since=3, recovered=True)
    assert again.describe() == "worker 1 keeps up again: 1.1 times the others' seconds per item"
