"""When the checkpoint writer works, and when it rests."""

from __future__ import annotations

import time

import pytest

from partrain.comm.arena import ASKED, IF_LONG, LONG_S, Arena
from partrain.launch.snapshot_slots import FIRST_S, PendingSnapshot, SnapshotSlots


def slots(monkeypatch: pytest.MonkeyPatch, coalesce: bool = True) -> tuple[SnapshotSlots, list[float]]:
    """Begun at the time that the list tells, and can be changed there."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    made = SnapshotSlots(Arena.create(1), coalesce=coalesce)
    made.start()
    return made, now


def welcome(one: SnapshotSlots) -> bool:
    one.poll()
    return one._arena.get("wanted") == 1


def offer(one: SnapshotSlots, number: int, pace: float, at_once: bool = False) -> PendingSnapshot | None:
    """The snapshot to write, now that this one was offered."""
    one._arena.put("granted", 0)
    one.offer(PendingSnapshot(1, {"round": number, "best_round": 0}), pace)
    return one.next(at_once=at_once)


def write(one: SnapshotSlots, number: int, busy: float, pace: float) -> None:
    assert offer(one, number, pace, at_once=True)
    one.written(number, busy, pace)


def test_it_begins_with_a_rest_if_it_coalesces(monkeypatch: pytest.MonkeyPatch) -> None:
    one, now = slots(monkeypatch)
    assert not welcome(one)
    now[0] += FIRST_S
    assert welcome(one)
    other, _ = slots(monkeypatch, coalesce=False)
    assert welcome(other)


def test_a_first_round_that_was_long_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever offers it knows how long it took; a best one that was short waits as before."""
    one, now = slots(monkeypatch)
    assert one._arena.get("wanted") == IF_LONG
    assert offer(one, 1, LONG_S / 2) is None
    now[0] += FIRST_S
    assert one.next()
    other, _ = slots(monkeypatch)
    assert offer(other, 1, LONG_S)
    other.written(1, 0.013, LONG_S)
    assert welcome(other)


@pytest.mark.parametrize("pace", [LONG_S, 0.15, 0.2, 0.35, 1.0])
def test_every_round_is_written_that_is_long(monkeypatch: pytest.MonkeyPatch, pace: float) -> None:
    """With the seconds measured for the files of MNIST's network: the first takes twice as long, some take many times as long."""
    one, now = slots(monkeypatch)
    for number, busy in enumerate([0.017, 0.0077, 0.0055, 0.0067, 0.0475, 0.0059, 0.0084, 0.0291, 0.0059, 0.0065], 1):
        now[0] += pace
        assert number == 1 or welcome(one)
        write(one, number, busy, pace)


def test_files_that_always_take_long_are_not_all_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second shows that it was not the first one's fault."""
    one, now = slots(monkeypatch)
    write(one, 1, 0.05, 0.2)
    assert welcome(one)
    write(one, 2, 0.04, 0.2)
    assert not welcome(one)
    now[0] += 8.0
    assert welcome(one)


@pytest.mark.parametrize(("pace", "rest"), [(0.006, 5.0), (0.2, 5.0), (0.3, 0.0), (60.0, 0.0)])
def test_it_rests_where_writing_takes_much_of_a_round(monkeypatch: pytest.MonkeyPatch, pace: float, rest: float) -> None:
    one, now = slots(monkeypatch)
    now[0] += FIRST_S
    for number in (1, 2):
        write(one, number, 0.025, pace)
    assert welcome(one) is (rest == 0)
    now[0] += rest
    assert welcome(one)


def test_a_snapshot_that_the_user_asked_for_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if the writer is at another one when it is offered, and would rest after that."""
    one, now = slots(monkeypatch)
    now[0] += FIRST_S
    assert offer(one, 1, 0.006)
    one.hurry()
    assert not welcome(one)
    assert one._arena.get("wanted") == ASKED
    assert offer(one, 2, 0.006) is None, "the writer is busy"
    one.written(1, 0.025, 0.006)
    assert (asked := one.next())
    assert asked.round == 2
    one.written(2, 0.025, 0.006)
    assert offer(one, 3, 0.006) is None, "it rests"


def test_an_older_snapshot_does_not_count_as_the_one_that_the_user_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = slots(monkeypatch)
    assert offer(one, 1, 0.006) is None
    one.hurry()
    assert (older := one.next())
    assert older.round == 1
    one.written(1, 0.025, 0.006)
    assert offer(one, 2, 0.006)


def test_a_user_may_ask_before_training_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = slots(monkeypatch)
    one.hurry()
    one.start()
    assert one._arena.get("wanted") == ASKED
    assert offer(one, 1, 0.006)
