"""Figures in prose are those of the recorded results: docs/generate/figures.py has their sentences."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from generate.figures import FILES, ROOT, TRAINING


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.name)
def test_figures_are_those_of_the_record(page: Path) -> None:
    """`python docs/generate figures` writes them."""
    assert FILES[page]() == page.read_text(encoding="utf-8")


def test_the_best_loop_is_that_with_two_threads() -> None:
    """The sentences on the best hand-written loop name its ratio."""
    rows = json.loads((ROOT / "benchmarks/results/peers.json").read_text(encoding="utf-8"))["rows"]
    loops = {
        row["peer"]: statistics.median(row[TRAINING])
        for row in rows
        if row["peer"].startswith("torch") and "thread" in row["peer"]
    }
    assert min(loops, key=loops.__getitem__) == "torch (2 threads)"


def test_the_number_of_other_programs_is_that_of_the_record() -> None:
    rows = json.loads((ROOT / "benchmarks/results/peers.json").read_text(encoding="utf-8"))["rows"]
    others = [row for row in rows if not row["peer"].startswith("partrain") and TRAINING in row]
    assert all(statistics.median(row[TRAINING]) > 1 for row in others)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"faster than {len(others)} forms of [other software]" in text
