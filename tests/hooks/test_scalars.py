"""Rows of numbers: at most ten a second, never without the last round; keys of a job by their dotted names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from partrain.hooks.scalars import ScalarHook, flat, scalars, tags
from partrain.record.events import EndEvent, JudgementEvent, KnownEvent, RoundEvent, StartEvent
from partrain.record.round_record import NAN, RoundRecord
from partrain.record.run_state import RunState

START = StartEvent(
    t=0.0,
    name="x",
    rule="average",
    resumed_from=None,
    workers=[
        {
            "rank": rank,
            "device": device,
            "threads": 1,
            "pid": None,
            "partition": 8,
            "iterations": 1,
            "passes": None,
            "batch_size": 4,
        }
        for rank, device in enumerate(["cpu", "cpu", "cuda:0"])
    ],
    stop={"rounds": 100},
)


class Rows(ScalarHook):
    """Keeps the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.log: list[str] = []

    def start(self, event: StartEvent, state: RunState) -> None:
        self.log.append(event.kind)

    def write(self, t: float, step: int, values: Mapping[str, float]) -> None:
        self.rows.append((step, values))

    def end(self, event: EndEvent, state: RunState) -> None:
        self.log.append(event.kind)


def of_round(number: int, rank: int, distance: float = NAN) -> RoundEvent:
    t = number * 0.03
    record = RoundRecord(number, 1, 4, 2.0 + rank, 0.1, 0.01, 0.015, 0.005, distance, 10, NAN, t)
    return RoundEvent(t=t, rank=rank, record=record)


def fed(*events: KnownEvent) -> tuple[Rows, RunState]:
    hook, state = Rows(), RunState()
    for event in events:
        state.apply(event)
        hook.event(event, state)
    return hook, state


def test_rows_are_ten_a_second_and_the_last() -> None:
    rounds = [of_round(number, rank) for number in range(1, 10) for rank in range(3)]
    end = EndEvent(t=1.0, status="finished", reason="rounds", round=9, test={"loss": 0.5})
    hook, _ = fed(START, *rounds, end)
    assert hook.log == ["start", "end"]
    assert [values["round"] for _, values in hook.rows[:-1]] == [1, 5, 9]  # every 0.12 s
    assert [step for step, _ in hook.rows] == [12, 60, 108, 108]
    assert hook.rows[-1][1] == {"test/loss": 0.5}


def test_the_last_round_is_written_at_the_end() -> None:
    rounds = [of_round(number, rank) for number in (1, 2) for rank in range(3)]
    hook, _ = fed(START, *rounds, EndEvent(t=1.0, status="finished", reason="rounds", round=2))
    assert [values["round"] for _, values in hook.rows] == [1, 2]


def test_numbers_of_a_round() -> None:
    _, state = fed(START, *(of_round(1, rank, distance=0.25) for rank in range(3)))
    found = scalars(state)
    assert found | {"items_per_second": 0} == {
        "train/loss": pytest.approx(3.0),
        "lr": 0.1,
        "items_per_second": 0,
        "waiting_share": pytest.approx(0.5),
        "distance": 0.25,
        "bytes": 30,
        "round": 1,
        "seconds": pytest.approx(0.03),
    }
    assert found["items_per_second"] == pytest.approx(12 / 0.03)


def test_every_judgement_is_a_row() -> None:
    judged = [
        JudgementEvent(t=0.01 * n, round=n, item_iterations=n, seconds=0.0, loss=loss, metrics={"accuracy": 0.5}, best=True)
        for n, loss in ((1, 0.25), (2, None))
    ]
    hook, _ = fed(START, *judged)
    assert hook.rows == [(1, {"judged/loss": 0.25, "judged/accuracy": 0.5}), (2, {"judged/accuracy": 0.5})]


def test_keys_and_tags() -> None:
    job = {"name": "x", "model": {"hidden": [8, 4]}, "workers": [{"count": 2}, {"device": "cuda:0"}], "a": {"b": {"c": True}}}
    assert flat(job) == {
        "name": "x", "model.hidden": "[8, 4]", "workers.0.count": 2, "workers.1.device": "cuda:0", "a.b.c": True,
    }  # fmt: skip
    assert tags(START)["workers"] == "2 cpu, 1 cuda:0"
