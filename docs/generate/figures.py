"""Figures in prose, filled from the recorded results in benchmarks/results: `python docs/generate figures`.

A sentence names the place of each number: {0} is the median of the first measured numbers, {0-} the least and the largest of them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
        "under `bsp` with one, with ten iterations in a round | the same call | {0} ({0-}); {1} ({1-}), {2} ({2-}) |",
        [ratio(TEN), *(ratio(f"two workers / one worker, `bsp`: {count} averaged gradients per round") for count in (1, 10))],
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
        "judge_every=10}'` | {0} ({0-}); {1} ({1-}) |",
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


PLACE = re.compile(r"\{(\d)(-?)\}")
FIGURE = r"(\d+\.\d\d(?:-\d+\.\d\d)?)"


def recorded(name: str, row: str, column: str) -> list[float]:
    """Return the measured numbers of a row, whose first column names it."""
    result = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
    first = result["columns"][0]
    (values,) = (own[column] for own in result["rows"] if own[first] == row)
    return list(values)


def shown(values: list[float], spread: str) -> str:
    """Format a median, or with a `spread` the least and the largest number."""
    return f"{min(values):.2f}-{max(values):.2f}" if spread else f"{statistics.median(values):.2f}"


def filled(text: str, sentence: str, numbers: list[Number]) -> str:
    """Return a page's text with the figures of a sentence from its record. Raises ValueError unless the page has the sentence once."""
    words = [re.escape(part).replace(r"\ ", r"\s+") for part in re.split(r"\{\d-?\}", sentence)]
    places, matches = PLACE.findall(sentence), list(re.finditer(FIGURE.join(words), text))
    if len(matches) != 1:
        raise ValueError(f"{len(matches)} times on the page: {sentence}")
    for group, (place, spread) in reversed(list(enumerate(places, 1))):
        begin, end = matches[0].span(group)
        text = text[:begin] + shown(recorded(*numbers[int(place)]), spread) + text[end:]
    return text


def page_text(page: str) -> str:
    """Return a page's text with all figures from their records."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for other, sentence, numbers in SENTENCES:
        if other == page:
            text = filled(text, sentence, numbers)
    return text


FILES: dict[Path, Callable[[], str]] = {ROOT / page: partial(page_text, page) for page, *_ in SENTENCES}
