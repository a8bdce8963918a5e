"""Spikes: a loss above the robust band of the newest ones, told once until it has fallen back."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from partrain.record.events import JudgementEvent, RoundEvent, SpikeEvent, decode, encode
from partrain.record.loss_band import LEAST, WINDOW, LossBand
from partrain.record.round_record import NAN, RoundRecord
from partrain.record.run_state import RunState


def leaps(losses: list[float]) -> list[int]:
    band = LossBand()
    return [place for place, loss in enumerate(losses) if band.add(loss)]


def test_the_bound_by_hand() -> None:
    """16 losses of 1.0 to 1.15: their median is 1.075, the median distance from it 0.04, so 10 robust deviations are 0.593."""
    usual = [1.0 + place / 100 for place in range(16)]
    bound = 1.075 + 10 * 0.04 / 0.6745
    assert leaps([*usual, bound - 1e-6]) == []
    band = LossBand()
    assert not any(map(band.add, usual))
    leap = band.add(bound + 1e-6)
    assert leap
    assert leap.usual == (1.0, 1.15)
    assert leap.bound == pytest.approx(bound)


def test_it_is_told_once_until_it_has_fallen_back() -> None:
    usual = [1.0 + place % 3 / 10 for place in range(LEAST)]
    assert leaps([*usual, 9.0, 8.0, 12.0, 1.1, 7.0]) == [LEAST, LEAST + 4]


def test_a_new_level_becomes_usual() -> None:
    """After half a window on the new level nothing is above the band any more, and a leap from there is a new one."""
    usual = [1.0 + place % 3 / 10 for place in range(WINDOW)]
    high = [20.0 + place % 3 for place in range(WINDOW)]
    assert leaps([*usual, *high, 400.0]) == [WINDOW, 2 * WINDOW]


@pytest.mark.parametrize("losses", [[2.0] * 60, [2.0] * 40 + [2.9], [0.0] * 40, [-1.0] * 40 + [-0.6]])
def test_constant_losses_and_small_rises_are_quiet(losses: list[float]) -> None:
    assert leaps(losses) == []


def test_a_rise_from_nothing_is_a_leap() -> None:
    assert leaps([0.0] * 40 + [1e-3]) == [40]


def test_losses_near_zero_vary_by_factors_and_leap_by_what_counts() -> None:
    drawn = random.Random(5)
    learned = [math.exp(-place / 20) for place in range(100)] + [math.exp(drawn.gauss(-10, 1.2)) for _ in range(2000)]
    assert leaps(learned) == []
    assert leaps([*learned, 0.1]) == [len(learned)]


def test_a_loss_that_fell_to_nothing_at_once_does_not_leap_by_next_to_nothing() -> None:
    assert leaps([1.1, 0.3, *[0.0] * 20, 2.5e-7]) == []
    assert leaps([1.1, 0.3, *[0.0] * 20, 0.5]) == [22]


def test_noisy_falling_losses_are_quiet() -> None:
    drawn = random.Random(5)
    assert leaps([math.exp(-place / 300 + drawn.gauss(0, 0.2)) for place in range(3000)]) == []


def record(number: int, loss: float) -> RoundRecord:
    return RoundRecord(number, 1, 8, loss, 0.1, 0.1, 0.0, 0.0, NAN, 0, NAN, float(number))


def test_a_run_finds_the_worker_or_the_judged_loss_and_repeats_it_from_its_events() -> None:
    def told(state: RunState, change: int) -> list[SpikeEvent]:
        found = []
        for number in range(1, 41):
            for rank in (0, 1):
                loss = 50.0 if (number, rank) == (change, 1) else 1 + number % 3 / 10
                state.apply(RoundEvent(t=number, rank=rank, record=record(number, loss)))
                found += [state.leap] if state.leap else []
            judged = 7.0 if number == 35 else 0.5
            state.apply(JudgementEvent(t=number, round=number, seconds=number, loss=judged, best=False))
            found += [state.leap] if state.leap else []
        return found

    state = RunState()
    worker, mixed = told(state, change=30)
    assert (worker.round, worker.rank, worker.loss, worker.usual) == (30, 1, 50.0, [1.0, 1.2])
    assert (mixed.round, mixed.rank, mixed.loss) == (35, None, 7.0)
    assert worker.describe() == "round 30: the training loss of worker 1 leapt to 50.000; before, it was 1.0000 to 1.2000"
    assert mixed.describe() == "round 35: the judged loss leapt to 7.0000; before, it was 0.5000 to 0.5000"
    again = replace(worker, usual=[1.0, 60.0], bound=20.0)  # the newest losses have an earlier leap
    assert again.describe().endswith("leapt to 50.000; before, it was mostly below 20.000")
    state.apply(worker)
    assert (state.tallies["spike"].count, state.leap) == (1, None)
    assert decode(encode(worker)) == worker
    assert [one.round for one in told(RunState(), change=30)] == [30, 35]
