"""One class reads the folder of a run: every reader tells the same status of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from support.histories import judgement, round_of, start, write_events
from support.watched import end, write
from support.watched import events_of as watched_events

from partrain.record.event_log import EventLog
from partrain.record.run_folder import RunFolder, status_of
from partrain.report.history import read_history
from partrain.runs.listing import read_run
from partrain.watch.once import read_once, rows_of


def events_of() -> list[Any]:
    """Events whose `start` has the keys that a report reads, too."""
    start, *others = watched_events()
    start.workers = [worker | {"partition": 10, "threads": 1} for worker in start.workers]
    return [start, *others]


@pytest.mark.parametrize("summary", [None, "", "[1, 2]", '{"stat'], ids=["none", "empty", "list", "cut off"])
def test_without_a_summary_the_end_event_tells_the_status(tmp_path: Path, summary: str | None) -> None:
    folder = write(tmp_path / "run", [*events_of(), end("reached")])
    if summary is not None:
        (folder / "summary.json").write_text(summary)
    assert read_run(folder).columns["status"] == "reached"
    assert [row.status for row in rows_of(read_once(folder))] == ["reached"]
    if summary is None:  # a report refuses a damaged summary
        assert read_history(folder, "run").status == "reached"


def test_a_session_after_the_end_counts(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [*events_of(), end(), *events_of()])
    assert read_run(folder).columns["status"] == "killed"
    assert [row.status for row in rows_of(read_once(folder))] == ["killed"]
    assert read_history(folder, "run").status == "killed"


def test_a_lock_means_training(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", events_of())
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert read_run(folder).columns["status"] == read_history(folder, "run").status == "training"
    os.close(descriptor)
    assert not RunFolder(folder).is_training


def test_a_summary_without_a_status_says_so() -> None:
    assert status_of({"rounds": 3}, training=False) == "?"


def test_a_run_that_never_began_has_no_start(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).start is None
    EventLog(tmp_path / "events.jsonl").close()
    run = RunFolder(tmp_path)
    assert run.start is None
    assert list(run.first_values()) == list(run.last_values()) == []
    assert (run.job, run.summary) == ({}, {})


def test_a_killed_run_is_listed_with_its_best_network(tmp_path: Path) -> None:
    stop = {"rounds": 9, "patience_by": "r2"}
    events = [start(1, stop=stop, lower_is_better=False)]
    for number, (r2, best) in enumerate([(0.1, True), (0.8, True), (0.7, False), (0.6, False)], 1):
        events += [round_of(0, number), judgement(number, float(number), 0.5, metrics={"r2": r2, "accuracy": r2 / 2}, best=best)]
    run = read_run(write_events(tmp_path / "run", *events))
    assert run.columns["status"] == "killed"
    assert (run.result.round, run.result.by, run.result.metrics["r2"]) == (2, "r2", 0.8)
    assert (run.columns["rounds"], run.columns["accuracy"]) == (4, 0.4)
    (row,) = rows_of(read_once(tmp_path / "run"))
    assert row.accuracy == 0.4
