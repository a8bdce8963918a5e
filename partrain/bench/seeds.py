"""`partrain bench --suite seeds`: the function fit for which an older parallel trainer reported 10,000 times fewer items.

The suite measures it twice. As published: items in increasing x, contiguous partitions. Corrected: items shuffled, the mixed network
judged on held-out items. The older trainer stopped as soon as one worker fitted its own partition: in both tables, the recorded
training losses give that stop. Counts are exact.

The older trainer compared the loss of a pass with its target, and averaged after at most 3 or 5 passes. Here a round is one pass, so
its record holds the loss of a pass. The older gradient was (o - t); our gradient of the squared error is twice that. Learning
rates are halved to give the same steps. The older momentum excluded biases, and its passes went in order. Ours differ, so the
rows of one worker differ from the published ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from partrain.bench import Case, Row, incomplete_rows, measure, spread
from partrain.checkpoint import read
from partrain.checkpoint.files import round_path
from partrain.display.text_table import table, wrapped
from partrain.inference.network import evaluate_at_end
from partrain.job.load import LoadedJob, parse
from partrain.launch.folder.outcome import Outcome
from partrain.number_format import counted
from partrain.record.events import RoundEvent
from partrain.record.run_folder import RunFolder

TARGET = 0.005
READINGS = {
    "published": ("As published (order = given; older stop: the lowest training error of a worker)", ["older"]),
    "corrected": ("Corrected (shuffled; judged stop: the mixed network's error on held-out items)", ["older", "judged"]),
}
"""Title and stops of each table."""


@dataclass(frozen=True)
class Scenario:
    """One row of the published table."""

    threads: int
    rate: float
    size: int | None
    """Items in each partition; None: all."""
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
    """Measure both readings; after a signal, return the results so far. `cap` limits the item-iterations of each worker."""
    cases = [
        Case(f"{reading}: {scenario.label}", partial(_job, scenario, reading, cap))
        for reading in READINGS
        for scenario in SCENARIOS
    ]
    rows, progress = measure(cases, seeds, note, _older_stop)
    measured = iter(rows)
    tables = {
        reading: [_numbers(scenario, next(measured), stops) for scenario in SCENARIOS] for reading, (_, stops) in READINGS.items()
    }
    return {"cap": cap, "seeds": seeds, "target": TARGET, **progress, **tables}


def render(result: dict[str, Any], width: int | None = None) -> list[str]:
    """Render both tables and the explanation. `width`: columns of the terminal; None: any number."""
    head = (
        "threads, learning rate",
        "published",
        "counted right",
        "stop",
        "reached",
        "round",
        "items/worker",
        "seconds",
        "error",
        "test",
    )
    lines = [
        f"Function fit to an error of {result['target']}, at most {result['cap']:,} items per worker, {counted(result['seeds'], 'seed')}."
    ]
    for reading, (title, stops) in READINGS.items():
        rows = [_cells(row, stop) for row in result[reading] if row["runs"] for stop in stops]
        lines += ["", f"{title}:", *table(head, rows, width)]
    return [*lines, *incomplete_rows(result), "", *wrapped(WHY.splitlines(), width), *wrapped(_found(result), width)]


def _found(result: dict[str, Any]) -> list[str]:
    """Describe the result of this measurement."""
    stops = [
        row["older"]
        for scenario, row in zip(SCENARIOS, result["published"], strict=True)
        if scenario.threads > 1 and row["older"]["reached"]
    ]
    above = sum(statistics.median(stop["test"]) > result["target"] for stop in stops)
    lines = [
        f"Here: of the {len(stops)} parallel rows that the older stop ended as published, {above} have a mixed network that misses the target on test items."
    ]
    for alone, row in ((0, 1), (0, 2), (3, 4), (5, 6)):
        pair = [result["corrected"][row], result["corrected"][alone]]
        if not all(side["runs"] for side in pair):
            continue
        if all(side["judged"]["reached"] == side["runs"] for side in pair):
            many, single = (statistics.median(side["judged"]["items_per_worker"]) for side in pair)
            lines.append(
                f"Corrected, {pair[0]['label']}: each worker needed {many / single:.2f} times the items of one worker alone."
            )
        else:
            reached = " against ".join(f"{side['judged']['reached']}/{side['runs']}" for side in pair)
            lines.append(
                f"Corrected, {pair[0]['label']}: not reached within {result['cap']:,} items per worker ({reached} alone)."
            )
    return lines


def _job(scenario: Scenario, reading: str, cap: int, seed: int) -> LoadedJob:
    corrected = reading == "corrected"
    # Held-out items are split off first: the partitions keep their share of the rest.
    size = scenario.size and (scenario.size * 9 // 10 if corrected else scenario.size)
    text = JOB.format(
        seed=seed,
        validation=500 if corrected else 0,
        order="shuffled" if corrected else "given",
        rate=scenario.rate / 2,
        threads=scenario.threads,
        size=f"partition_size = {size}" if size else "",
        judged=f"loss = {TARGET}\njudge_every = 1" if corrected else "",
        cap=cap * scenario.threads,
    )
    return parse(text, Path.cwd(), "seeds", local=True)


def _older_stop(outcome: Outcome) -> dict[str, Any]:
    """Return where the older trainer would have stopped: after the first round in which a worker's training loss is at most TARGET.

    Without such a round, it is the end of the run, not reached. The test loss comes from the mixed network in the round's
    checkpoint.
    """
    records = (event.record for event in RunFolder(outcome.folder).events() if isinstance(event, RoundEvent))
    stop: dict[str, Any] = {"reached": False, "items_per_worker": 0}
    for number, group in groupby(records, lambda record: record.round):
        workers = list(group)
        loss = min(record.loss for record in workers)
        stop |= {"reached": loss <= TARGET, "round": number, "seconds": workers[0].seconds, "loss": loss}
        stop["items_per_worker"] += max(record.items for record in workers)
        if stop["reached"]:
            break
    if "round" in stop:  # else the first round diverged
        content = read(round_path(outcome.folder, stop["round"]))
        test = evaluate_at_end(parse(content.job, outcome.folder, "seeds", local=True), content)[0]
        stop["test"] = test and test.loss
    return {"older": stop}


def _numbers(scenario: Scenario, row: Row, stops: Sequence[str]) -> dict[str, Any]:
    """Return the row of a table: the numbers of each of the `stops`, over all runs."""
    names = ("round", "items_per_worker", "seconds", "loss", "test")
    judged = (row.values("rounds"), row.items_per_worker, row.seconds, row.values("loss"), row.values("test", "loss"))
    by_stop: dict[str, dict[str, Any]] = {
        "older": {name: row.values("older", name) for name in names} | {"reached": int(sum(row.values("older", "reached")))},
        "judged": dict(zip(names, judged, strict=True)) | {"reached": row.reached},
    }
    facts = {
        "label": scenario.label,
        "published": scenario.published,
        "corrected": scenario.corrected,
        "runs": len(row.summaries),
    }
    return facts | {stop: by_stop[stop] for stop in stops}


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
