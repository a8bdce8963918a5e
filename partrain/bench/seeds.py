"""`partrain bench --suite seeds`: the function fit for which an older parallel trainer reported 10,000 times fewer items.

The suite measures it twice. As published: items in increasing x, contiguous partitions. Corrected: items shuffled, the mixed network
judged on held-out items. The older trainer stopped as soon as one worker fitted its own partition. In both, the recorded losses of the
workers give that stop. Counts are exact.

A round is one pass, so the recorded loss of a round is that of a pass, as the older trainer compared it with the target. There, a
round was up to 3 or 5 passes of several threads. The older gradient was (o - t); ours of the squared error is twice that. Learning
rates are halved to give the same steps. The older momentum left biases out, and its passes went in order. Ours has neither, so the
rows of one worker differ from the published ones.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from partrain.bench import Case, Row, incomplete_rows, measure, spread
from partrain.checkpoint import read
from partrain.checkpoint.files import round_path
from partrain.display.event_log import read_events
from partrain.display.events import RoundEvent
from partrain.display.number_format import counted
from partrain.display.text_table import table, wrapped
from partrain.inference.network import evaluate_test_items
from partrain.job.load import LoadedJob, parse
from partrain.records import RoundRecord

TARGET = 0.005


@dataclass(frozen=True)
class Scenario:
    """One row of the published table."""

    threads: int
    rate: float
    size: int | None
    """Items of each partition; None = all."""
    published: int
    """Item-iterations per thread as published."""
    corrected: int
    """Item-iterations per thread, counted correctly: the single-thread counter had added up 1 + 2 + ... + passes."""

    @property
    def label(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads > 1)}, {self.rate:g}"


SCENARIOS = (
    Scenario(1, 1e-4, None, 154_380_000, 1_240_000),
    Scenario(2, 1e-4, 3200, 17_600, 17_600),
    Scenario(4, 1e-4, 2000, 10_000, 10_000),
    Scenario(1, 1e-3, None, 15_000, 10_000),
    Scenario(2, 1e-3, 3200, 8_000, 8_000),
    Scenario(1, 1e-2, None, 5_000, 5_000),
    Scenario(2, 1e-2, 3200, 3_200, 3_200),
)

JOB = """\
name = "seeds"
seed = {seed}

[model]
name = "mlp"
hidden = [50, 50]
activation = "tanh"
output_activation = "tanh"
init_range = 0.2

[dataset]
kind = "synthetic"
function = "seeds"
items = 5000
test_items = 1000
validation = {validation}

[partition]
order = "{order}"

[optimizer]
name = "sgd"
lr = {rate}
momentum = 0.5
batch_size = 1

[sync]
rule = "average"
passes = 1
optimizer_state = "reset"
weights = "equal"

[[workers]]
device = "cpu"
count = {threads}
{size}

[stop]
{judged}
item_iterations = {cap}

[checkpoint]
commit = "every"
keep = 1_000_000
"""

WHY = """\
Why the two differ. As published, items lie in increasing x, so each partition is one stretch of a smooth hump, and the older stop comes
when the luckiest worker's own training error falls to the target: on the flattest stretches a constant does that in a pass or two
(the target is half the variance of all items). The error reported was that worker's; the network returned was the mean of all. The
10,000 times fewer items of the published table are that rule times a counter that added up 1 + 2 + ... + passes in the single-thread
rows (124 times too many). Judged on held-out items, the mean of N networks moves like one network at the same learning rate, only
steadier."""


def bench(cap: int, seeds: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Measure both readings, after a signal as far as they came; `cap` limits the item-iterations of each worker."""
    readings = ("published", "corrected")
    cases = [Case(f"{reading}: {one.label}", partial(_job, one, reading, cap)) for reading in readings for one in SCENARIOS]
    rows, progress = measure(cases, seeds, note, older_stop)
    half = len(SCENARIOS)
    numbers = {
        reading: [_numbers(one, reading, row) for one, row in zip(SCENARIOS, part, strict=True)]
        for reading, part in zip(readings, (rows[:half], rows[half:]), strict=True)
    }
    return {"cap": cap, "seeds": seeds, "target": TARGET, **progress, **numbers}


def render(result: dict[str, Any], width: int | None = None) -> list[str]:
    """Render both tables and the explanation. `width`: columns of the terminal; None = any number."""
    head = ("threads, learning rate", "published", "counted right", "stop", "reached", "round", "items/worker", "seconds", "its error",
            "test error")  # fmt: skip
    lines = [
        f"Function fit to an error of {result['target']}, at most {result['cap']:,} items per worker, {counted(result['seeds'], 'seed')}."
    ]
    for reading, title in (
        ("published", "As published (order = given; older stop: the lowest training error of any worker)"),
        ("corrected", "Corrected (shuffled; judged stop: the mixed network's error on held-out items)"),
    ):
        rows = [_cells(row, stop) for row in result[reading] if row["runs"] for stop in ("older", "judged") if stop in row]
        lines += ["", f"{title}:", *table(head, rows, width)]
    return [*lines, *incomplete_rows(result), "", *wrapped(WHY.splitlines(), width), *wrapped(_found(result), width)]


def _found(result: dict[str, Any]) -> list[str]:
    """Describe the result of this measurement."""
    older = [row["older"] for one, row in zip(SCENARIOS, result["published"], strict=True) if one.threads > 1]
    stopped = [stop for stop in older if stop["reached"]]
    above = sum(statistics.median(stop["test"]) > result["target"] for stop in stopped)
    lines = [
        f"Here: of the {len(stopped)} parallel rows with the older stop as published, {above} have a mixed network there that misses "
        "the target on test items."
    ]
    for alone, row in ((0, 1), (0, 2), (3, 4), (5, 6)):
        (one, one_runs), (many, many_runs) = (
            (each["judged"], each["runs"]) for each in (result["corrected"][alone], result["corrected"][row])
        )
        label = f"Corrected, {SCENARIOS[row].label}"
        if not (one_runs and many_runs):
            continue
        if one["reached"] == one_runs and many["reached"] == many_runs:
            ratio = statistics.median(many["items_per_worker"]) / statistics.median(one["items_per_worker"])
            lines.append(f"{label}: each worker needed {ratio:.2f} times the items of one worker alone.")
        else:
            reached = f"{many['reached']}/{many_runs} against {one['reached']}/{one_runs} alone"
            lines.append(f"{label}: not reached within {result['cap']:,} items per worker ({reached}).")
    return lines


def _job(one: Scenario, reading: str, cap: int, seed: int) -> LoadedJob:
    corrected = reading == "corrected"
    # Held-out items come off first: the partitions keep their share of what remains.
    size = one.size and (one.size * 9 // 10 if corrected else one.size)
    text = JOB.format(
        seed=seed,
        validation=500 if corrected else 0,
        order="shuffled" if corrected else "given",
        rate=one.rate / 2,
        threads=one.threads,
        size=f"partition_size = {size}" if size else "",
        judged=f"loss = {TARGET}\njudge_every = 1" if corrected else "",
        cap=cap * one.threads,
    )
    return parse(text, Path.cwd(), "seeds", here=True)


def older_stop(folder: Path) -> dict[str, Any]:
    """Return where the older trainer would have stopped: after the first round in which a worker's training loss is at most TARGET.

    Without such a round, it would have gone on to the last one. The test loss is that of the mixed network in the round's checkpoint.
    """
    rounds: dict[int, list[RoundRecord]] = defaultdict(list)
    for event in read_events(folder / "events.jsonl"):
        if isinstance(event, RoundEvent):
            rounds[event.record.round].append(event.record)
    items = 0
    for number, records in rounds.items():
        loss = min(record.loss for record in records)
        items += max(record.items for record in records)
        if loss <= TARGET or number == len(rounds):
            content = read(round_path(folder, number))
            test = evaluate_test_items(parse(content.job, folder, "seeds", here=True), content)
            older = {"reached": loss <= TARGET, "round": number, "items_per_worker": items, "seconds": records[0].seconds}
            return {"older": older | {"loss": loss, "test": test and test[0]}}
    return {}  # it diverged in the first round


def _numbers(one: Scenario, reading: str, row: Row) -> dict[str, Any]:
    names = ("round", "items_per_worker", "seconds", "loss", "test")
    older = {name: row.values("older", name) for name in names}
    found = {"label": one.label, "published": one.published, "corrected": one.corrected, "runs": len(row.summaries)}
    found["older"] = older | {"reached": int(sum(row.values("older", "reached")))}
    if reading == "corrected":
        judged = (row.values("rounds"), row.items_per_worker, row.seconds, row.values("loss"), row.values("test", "loss"))
        found["judged"] = {"reached": row.reached, **dict(zip(names, judged, strict=True))}
    return found


def _cells(row: dict[str, Any], name: str) -> Sequence[str]:
    stop = row[name]
    return [
        row["label"],
        f"{row['published']:,}",
        f"{row['corrected']:,}",
        name,
        f"{stop['reached']}/{row['runs']}" if stop["reached"] else "not reached",
        spread(stop["round"], ".0f"),
        spread(stop["items_per_worker"], ",.0f"),
        spread(stop["seconds"], ".1f"),
        spread(stop["loss"], ".5f"),
        spread(stop["test"], ".5f"),
    ]
