"""When the checkpoint writer works, and when it rests."""

from __future__ import annotations

import time

import pytest

from partrain.comm.arena import Arena
from partrain.launch.slots import FIRST_S, Offer, Slots


def slots(monkeypatch: pytest.MonkeyPatch, coalesce: bool = True) -> tuple[Slots, list[float]]:
    """Begun at the time that the list tells, and can be changed there."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    made = Slots(Arena.create(1), coalesce)
    made.begin()
    return made, now


def welcome(one: Slots) -> bool:
    one.tick()
    return bool(one._arena.get("wanted"))


def write(one: Slots, number: int, busy: float, pace: float) -> None:
    one._arena.put("granted", 0)
    one.offered(Offer(1, {"round": number, "best_round": 0}))
    assert one.next() is not None
    one.written(number, busy, pace)


def test_it_begins_with_a_rest_if_it_coalesces(monkeypatch: pytest.MonkeyPatch) -> None:
    one, now = slots(monkeypatch)
    assert not welcome(one)
    now[0] += FIRST_S
    assert welcome(one)
    other, _ = slots(monkeypatch, coalesce=False)
    assert welcome(other)


@pytest.mark.parametrize(("pace", "rest"), [(0.006, 5.0), (0.4, 5.0), (0.6, 0.0), (60.0, 0.0)])
def test_it_rests_where_writing_takes_much_of_a_round(monkeypatch: pytest.MonkeyPatch, pace: float, rest: float) -> None:
    one, now = slots(monkeypatch)
    now[0] += FIRST_S
    write(one, 1, 0.025, pace)
    assert welcome(one) is (rest == 0)
    now[0] += rest
    assert welcome(one)
