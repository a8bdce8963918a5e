"""`partrain bench --suite mixing`: the time of a meeting, by rule and network size, compared with the time of a copy in memory.

Two workers meet after every iteration of one item. A worker mixes half of a vector: it reads two halves and writes two, which
moves as many bytes as one copy of the vector. So no meeting that moves the vector through memory takes less time than that copy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from partrain.bench import Case, incomplete_rows, measure, spread
from partrain.display.text_table import table
from partrain.job.load import LoadedJob, parse
from partrain.launch.folder.outcome import Outcome
from partrain.number_format import counted
from partrain.record.events import RoundEvent
from partrain.record.run_folder import RunFolder

HIDDEN = {13: 400, 126: 400, 1258: 100, 12579: 30}
"""Hidden units of the networks, of 10 thousand to 10 million parameters, and number of rounds of each."""
RULES = ("average", "bsp", "easgd", "gossip")
WARM = 10
"""Warm-up rounds, not counted."""

JOB = """\
name = "mixing"
seed = {seed}
model = {{name = "mlp", hidden = [{hidden}]}}
dataset = {{name = "mnist", validation = 100}}
optimizer = {{name = "sgd", lr = 1e-6, batch_size = 1}}
sync = {{rule = "{rule}", iterations = 1, optimizer_state = "local"}}
workers = [{{count = 2}}]
stop = {{rounds = {rounds}, judge_every = {rounds}}}
"""


def bench(seeds: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Measure all rules and sizes; after a signal, return the results so far."""
    sides = list(product(HIDDEN, RULES))
    cases = [Case(f"{rule}, {_parameters(hidden):,} parameters", partial(_job, hidden, rule)) for hidden, rule in sides]
    rows, progress = measure(cases, seeds, note, _meetings)
    copies = {hidden: copy_us(_parameters(hidden)) for hidden in HIDDEN}
    meetings = [
        {
            "rule": rule,
            "parameters": _parameters(hidden),
            **{name: row.values(name) for name in ("waiting", "mixing")},
            "copy": copies[hidden],
        }
        for (hidden, rule), row in zip(sides, rows, strict=True)
    ]
    return {"seeds": seeds, **progress, "meetings": meetings}


def render(result: dict[str, Any], width: int | None = None) -> list[str]:
    """Render the table. `width`: columns of the terminal; None: any number."""
    head = ("rule", "parameters", "waiting", "mixing", "copy", "meeting / copy")
    rows = []
    for row in result["meetings"]:
        ratios = [sum(pair) / row["copy"] for pair in zip(row["waiting"], row["mixing"], strict=True)]
        times = (spread(row["waiting"], ".0f"), spread(row["mixing"], ".0f"), f"{row['copy']:.0f}", spread(ratios, ".1f"))
        rows.append([row["rule"], f"{row['parameters']:,}", *times])
    title = f"Microseconds of a meeting of two workers, medians over rounds, {counted(result['seeds'], 'seed')}."
    return [title, "", *table(head, rows, width), *incomplete_rows(result)]


def _parameters(hidden: int) -> int:
    return (784 + 1 + 10) * hidden + 10


def _job(hidden: int, rule: str, seed: int) -> LoadedJob:
    text = JOB.format(seed=seed, hidden=hidden, rule=rule, rounds=HIDDEN[hidden])
    return parse(text, Path.cwd(), "mixing", local=True)


def _meetings(outcome: Outcome) -> dict[str, Any]:
    """Return the median microseconds that a worker waited and mixed in a round."""
    records = [event.record for event in RunFolder(outcome.folder).events() if isinstance(event, RoundEvent)]
    counted_in = [record for record in records if record.round > WARM]
    return {
        "waiting": statistics.median(record.wait for record in counted_in) * 1e6,
        "mixing": statistics.median(record.mix for record in counted_in) * 1e6,
    }


def copy_us(numbers: int) -> float:
    """Measure the microseconds of one copy of a vector: the minimum of several."""
    import torch

    source, target, least = torch.ones(numbers), torch.zeros(numbers), float("inf")
    for _ in range(50):
        began = time.perf_counter()
        target.copy_(source)
        least = min(least, time.perf_counter() - began)
    return least * 1e6
