"""Figures in prose are those of the recorded results: each sentence here, filled from its record, stands on its page."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TEN = "two workers / one worker, 10 iterations of batch 64 per round"
BOUND = "bound of two workers / two runs at once, 10 iterations of batch 64 per round"
TRAINING, WHOLE = "training / partrain", "whole / partrain"
PEERS = "torch (2 threads)", "torch hogwild (2 processes)", "torch PeriodicModelAverager (2 processes)", "torch DDP (2 processes)"

Number = tuple[str, str, str]
"""Record, row (its first cell), column."""


def ratio(row: str) -> Number:
    return "throughput", row, "ratio"


SENTENCES: list[tuple[str, str, list[Number]]] = [
    ("README.md", "time to 97.5 % | yes: {0} times as soon as one ({0-}) |", [("workers-to-target", "2, equal", "speed-up")]),
    ("README.md", "items per second | yes: {0} times those of one ({0-}) | `python benchmarks/throughput.py 3`", [ratio(TEN)]),
    (
        "README.md",
        "a CNN on MNIST to 99 % | yes: {0} times as soon as one ({0-}) |",
        [("cnn", "partrain, 1 worker", "training / two workers")],
    ),
    (
        "README.md",
        "Two workers also reach 97.5 % {0} times ({0-}) as fast as the best hand-written PyTorch loop",
        [("peers", "torch (2 threads)", TRAINING)],
    ),
    (
        "README.md",
        "JAX on two threads comes closest: it takes {0} times ({0-}) the training time and {1} times ({1-}) the time of the whole process.",
        [("peers", "JAX and optax (2 threads)", TRAINING), ("peers", "JAX and optax (2 threads)", WHOLE)],
    ),
    (
        "docs/benchmarks.md",
        "items per second at batch 16, 64, 256 | `python benchmarks/throughput.py 3` | {0}, {1}, {2} |",
        [ratio(f"one worker / hand-written loop, batch {batch}") for batch in (16, 64, 256)],
    ),
    (
        "docs/benchmarks.md",
        "under `bsp` | the same call | {0} ({0-}); {1} ({1-}) |",
        [ratio(TEN), ratio("two workers / one worker, `bsp`: gradients averaged in each iteration")],
    ),
    (
        "docs/benchmarks.md",
        "the same call | {0} ({0-}); the bound for workers that wait for the slower one is {1} ({1-}) of that |",
        [ratio("two runs of one worker at once / one run"), ratio(BOUND)],
    ),
    (
        "docs/benchmarks.md",
        "Keras; JAX | `make bench-peers` | {0}, {1}, {2}, {3}, {4}; {5} (",
        [("peers", peer, TRAINING) for peer in (*PEERS, "Keras on JAX", "JAX and optax (2 threads)")],
    ),
    (
        "docs/benchmarks.md",
        "| {0} ({0-}); {1} ({1-}) |",
        [("workers-to-target", "2, equal", "speed-up"), ("workers-to-target", "2, times sqrt(2)", "speed-up")],
    ),
    (
        "docs/benchmarks.md",
        "one worker / two workers | `python benchmarks/cnn.py 2` | {0}, {1}, {2} |",
        [
            ("cnn", name, "training / two workers")
            for name in ("hand-written loop, 1 thread", "hand-written loop, 2 threads", "partrain, 1 worker")
        ],
    ),
    (
        "docs/benchmarks.md",
        "`python benchmarks/startup.py 7` | {0} ({0-}) |",
        [("startup", "partrain run, to the first local iteration / python -c 'import torch'", "number")],
    ),
    (
        "docs/choosing-a-rule.md",
        "two workers reach 97.5 % on MNIST {0} times ({0-}) as fast as the best hand-written PyTorch loop",
        [("peers", "torch (2 threads)", TRAINING)],
    ),
]


def recorded(name: str, row: str, column: str) -> list[float]:
    """Return the measured numbers of a row, whose first column names it."""
    result = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
    first = result["columns"][0]
    (values,) = [one[column] for one in result["rows"] if one[first] == row]
    return list(values)


def filled(sentence: str, numbers: list[Number]) -> str:
    """Put medians for {0}, {1}, ..., and for {0-}, {1-}, ... the least and the largest number."""

    def value(place: re.Match[str]) -> str:
        measured = recorded(*numbers[int(place[1])])
        return f"{min(measured):.2f}-{max(measured):.2f}" if place[2] else f"{statistics.median(measured):.2f}"

    return re.sub(r"\{(\d)(-?)\}", value, sentence)


@pytest.mark.parametrize(
    ("page", "sentence", "numbers"), SENTENCES, ids=[f"{page}: {sentence[:40]}" for page, sentence, _ in SENTENCES]
)
def test_figures_are_those_of_the_record(page: str, sentence: str, numbers: list[Any]) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert filled(sentence, numbers) in text


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
