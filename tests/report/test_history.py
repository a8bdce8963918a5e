"""A run folder read into columns."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from support.histories import STARTED, judgement, made_run, round_of, start, write_events

from partrain.errors import InputMissing
from partrain.report.history import read_history


def test_rounds_are_sums_over_workers(tmp_path: Path) -> None:
    run = read_history(made_run(tmp_path / "run"), "run")
    assert [(each.round, each.items, each.seconds, each.numbers["loss"], each.numbers["bytes"]) for each in run.rounds] == [
        (1, 160, 1.0, 1.0, 800), (2, 320, 2.0, 0.5, 800), (3, 480, 3.0, pytest.approx(1 / 3), 800),
    ]  # fmt: skip
    assert run.shares == {"compute": pytest.approx(0.6), "wait": pytest.approx(0.3), "mix": pytest.approx(0.1)}
    assert (run.state.merged("bytes"), run.state.merged("staleness"), run.size) == (2400, None, 2)
    assert (run.summary["rounds"], run.summary["item_iterations"], run.rate) == (3, 480, 160)


def test_without_a_summary_a_run_was_killed_or_still_trains(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run")
    assert read_history(folder, "run").status == "killed"
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        assert read_history(folder, "run").status == "training"
    finally:
        os.close(lock)


def test_items_done_elsewhere_come_first(tmp_path: Path) -> None:
    event = start(1, resumed_from=5)
    event["workers"][0]["before"] = {"iterations": 50, "item_iterations": 1000}
    run = read_history(write_events(tmp_path / "run", event, round_of(0, 6)), "run")
    assert [each.items for each in run.rounds] == [1080]


def test_sessions_signals_and_faults_in_order(tmp_path: Path) -> None:
    run = read_history(
        write_events(
            tmp_path / "run",
            start(),
            round_of(0, 1),
            round_of(1, 1),
            {"event": "fault", "t": STARTED + 2, "what": "worker 1 was killed", "rank": 1},
            {"event": "stopping", "t": STARTED + 3, "signal": "SIGINT", "what": "ending the round"},
            start(resumed_from=1, t=STARTED + 9),
        ),
        "run",
    )
    assert [(one.seconds, one.rank, one.what) for one in run.faults] == [
        (2, 1, "worker 1 was killed"), (3, None, "SIGINT: ending the round"), (9, None, "resumed from round 1"),
    ]  # fmt: skip


@pytest.mark.parametrize("event", [
    start(workers=1) | {"workers": [{"rank": 0}]},
    start(workers=1) | {"t": "now"},
    round_of(0, 1, items="many"),
    judgement(1, 1.0, 0.5) | {"seconds": None},
    {"event": "commit", "t": STARTED, "round": 1},
])  # fmt: skip
def test_a_damaged_event_is_one_clear_line(tmp_path: Path, event: dict[str, object]) -> None:
    folder = write_events(tmp_path / "run", start(), event, round_of(1, 1))
    with pytest.raises(InputMissing, match=r"events\.jsonl"):
        read_history(folder, "run")


@pytest.mark.parametrize("text", ["{}", "[1]", "not JSON", '{"status": "reached", "loss": "low"}'])
def test_a_damaged_summary_is_one_clear_line(tmp_path: Path, text: str) -> None:
    folder = made_run(tmp_path / "run")
    (folder / "summary.json").write_text(text)
    with pytest.raises(InputMissing, match="not a summary of a run"):
        read_history(folder, "run")


def test_a_folder_without_a_start(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="before it began"):
        read_history(write_events(tmp_path / "run"), "run")
