"""The ranking of a sweep against the order of its runs' summaries, by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.audit.case import EQUAL, Case
from benchmarks.audit.leaks import table, write
from benchmarks.audit.trainings import Trainings, partrain

JOB = """
name = "sweep"
seed = 3
model = {name = "mlp", hidden = [8]}
dataset = {kind = "csv", path = "items.csv", target = "grade", inputs = ["f1", "f2", "f3", "f4", "f5"], missing = "mean", validation = 40}
optimizer = {name = "sgd", lr = 0.01, batch_size = 8}
sync = {rule = "average", iterations = 5}
workers = [{count = 1}]
stop = {rounds = 6}
task = {metrics = ["f1", "cost.py:cost"], lower_is_better = ["cost"]}
sweep = {"optimizer.lr" = [0.001, 0.2, 2.0], by = "BY"}
"""
COST = '''
def cost(probabilities, labels):
    """A share of wrong answers that counts a label by its number."""
    wrong = probabilities.argmax(1) != labels
    return (wrong * (labels + 1)).double().mean()
'''
BEST_FIRST = {
    "loss": ("loss", False),
    "metrics.accuracy": ("accuracy", True),
    "metrics.f1": ("built-in metric f1", True),
    "metrics.cost": ("own metric in `lower_is_better`", False),
}
"""Numbers to rank by: their names in the table, and True where the largest is the best."""


def cases() -> Iterator[Case]:
    for by, (name, largest) in BEST_FIRST.items():
        ranks = partial(wrong_ranks, by=by, largest=largest)
        yield Case(f"sweep, ranks of trials by {name}", "", "order of their summaries", EQUAL, ranks)


def wrong_ranks(trainings: Trainings, by: str, largest: bool) -> float:
    """Count ranks whose number differs from that of the sorted summaries, and recorded numbers that differ; trained once for all."""
    folder = trainings.folder / "sweep"
    write(folder, table())
    (folder / "cost.py").write_text(COST)
    (folder / "job.toml").write_text(JOB.replace("BY", by))
    partrain("run", folder / "job.toml", "--out", folder / "run", "--quiet")
    (file,) = folder.glob("run/*/sweep.json")
    ranking = json.loads(file.read_text())
    numbers = {path.parent.name: number(path, by) for path in file.parent.glob("*/summary.json")}
    if len(numbers) != 3 or len(set(numbers.values())) < 2:
        raise RuntimeError(f"nothing is ranked by {by}: {numbers}")
    order = sorted(numbers.values(), reverse=largest)
    ranked = [numbers[run] for row in ranking["rows"] for run in row["runs"]]
    recorded = [value for row in ranking["rows"] for value in row["values"]]
    medians = [row["median"] for row in ranking["rows"]]
    wrong = sum(left != right for each in (ranked, recorded, medians) for left, right in zip(each, order, strict=True))
    return float(wrong + (numbers[ranking["best"]] != order[0]))


def number(path: Path, by: str) -> float:
    """Read the number from a summary."""
    summary = json.loads(path.read_text())
    value = summary["loss"] if by == "loss" else summary["metrics"][by.partition(".")[2]]
    return float(value)
