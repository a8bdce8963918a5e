"""The display of a workflow."""

from __future__ import annotations

import io
import os
from contextlib import suppress

import pytest

from partrain.display import workflow_table
from partrain.display.workflow_table import StepRow, WorkflowLines, seconds_text, workflow_display

ROWS = [
    StepRow("first", "done", "", 3.25, None, "", 0.5, ""),
    StepRow("second", "running", "round 12, 40%", 65.0, 90.0, "2 cores", 0.25, "`seed` 4 → 5"),
    StepRow("third", "waiting", "", 0.0, None, "", None, ""),
]


def test_durations() -> None:
    assert [seconds_text(each) for each in (None, 0.04, 59.94, 60, 125, 3725)] == ["", "0.0s", "59.9s", "1:00", "2:05", "1:02:05"]


def test_lines_tell_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_table, "time_of_day", lambda moment: "12:34:56")
    stream = io.StringIO()
    lines = WorkflowLines(stream)
    for rows in ROWS, ROWS, [ROWS[0], ROWS[1]._replace(status="failed", note="why"), ROWS[2]]:
        lines.update(lambda rows=rows: rows)
    assert stream.getvalue().splitlines() == [
        "12:34:56  first: done in 3.2s", "12:34:56  second: running (`seed` 4 → 5)", "12:34:56  second: failed in 1:05 (why)",
    ]  # fmt: skip


def written(ours: int) -> str:
    """Read all that a terminal was sent, whose other side is closed; it comes in several parts."""
    parts = []
    with suppress(OSError):
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode()


def test_80_columns_have_room_for_a_reason() -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        table = workflow_display(stream)
        table.update(
            lambda: [StepRow("sweep/lr=0.003", "running", "round 2, 33%", 1.4, 0.8, "2 cores", 0.4364, "asked for by --rerun")]
        )
        table.close()
    shown = written(ours)
    assert "reason" in shown
    assert "by --rerun" in shown


def test_a_table_on_a_terminal_shows_every_step_and_goes_when_it_is_closed() -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        table = workflow_display(stream)
        table.update(lambda: ROWS)
        table.close()  # returns when all is written
    shown = written(ours)
    for row in ROWS:
        assert row.name in shown
    for part in "round 12, 40%", "1:05", "1:30", "2 cores", "0.25", "`seed` 4 → 5":
        assert part in shown
