"""benchmarks/results/README.md is the page of the JSON files beside it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import recording


def test_the_page_is_that_of_the_results() -> None:
    written = (recording.FOLDER / "README.md").read_text(encoding="utf-8")
    assert recording.page() == written, "`python -m benchmarks.recording` writes it"


def test_raw_numbers_become_a_median_and_a_chart(tmp_path: Path) -> None:
    rows = [{"task": "a", "seconds": [3.0, 1.0, 2.0]}, {"task": "b", "seconds": [2000.0]}, {"task": "c"}]
    result = {"title": "Tasks", "command": "python x", "date": "2026-01-01", "machine": "2 cores", "notes": [],
              "columns": ["task", "seconds"], "rows": rows, "chart": {"x": "seconds", "y": "task", "log": ["x"]}}  # fmt: skip
    (tmp_path / "tasks.json").write_text(json.dumps(result))
    recording.write(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| a | 2.000 (1.000-3.000) |\n| b | 2,000 |\n| c |  |" in page
    assert "![Tasks](tasks.svg)" in page
    assert (tmp_path / "tasks.svg").read_text().startswith("<svg")


def test_each_series_of_a_chart_has_a_colour_and_its_bound() -> None:
    """The colours of an SVG are values: names of colours, as the report's pages resolve them, draw nothing."""
    rows = [{"x": float(at), "y": [at + 1.0, at + 2.0], "limit": 1.0, "kind": kind} for kind in "ab" for at in (1, 2)]
    drawn = recording.drawn({"title": "T", "rows": rows, "chart": {"x": "x", "y": "y", "series": "kind", "bound": "limit"}})
    for color in recording.palette(2):
        assert drawn.count(f'stroke="{color}"') >= 3, "line, range and bound"


def test_a_recorded_command_names_no_path_of_a_machine() -> None:
    words = ["benchmarks/federated.py", "--flower", "/somewhere/bin/python", "--many", "2"]
    assert recording.command(words) == "python benchmarks/federated.py --flower python --many 2"
