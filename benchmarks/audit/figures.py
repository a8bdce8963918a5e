"""Numbers of `compare`, `bench` and `report`, recomputed from events.jsonl."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.audit.case import Case
from benchmarks.audit.trainings import Trainings, events, partrain

JOB = """
name = "figures"
seed = 3
model = {name = "mlp"}
dataset = {kind = "synthetic", function = "spirals", items = 1200, validation = 200}
optimizer = {name = "adam", lr = 0.05, batch_size = 32}
sync = {rule = "average", iterations = 10}
workers = [{count = COUNT}]
stop = {rounds = 60, judge_every = 1, loss = 0.3}
"""
TARGET = 0.3
"""Judged loss that ends a run of this job."""
SHOWN = 0.006
"""Bound of a printed number relative to it: three digits, of which the last is rounded."""
MICROSECOND = 1e-6
"""Bound where summary.json rounds to a microsecond the seconds of runs that take one or more, relative to them."""
ROUNDED = 1e-9
"""Bound of ratios of sums in double precision, relative to them."""


def cases() -> Iterator[Case]:
    what = "`compare`, runs of 1 and of 2 workers: rounds, seconds, items, times to the target, waiting, bytes, distance"
    yield Case(what, "", "sums over events.jsonl, relative", 1e-9, compared)
    what = "summary.json: item-iterations, items per second, seconds of each kind of work"
    yield Case(what, "", "sums over events.jsonl, relative", 1e-5, summarized)
    what = "`report`: time, items, items per second, waiting, mixing, bytes per round, speed-up, as printed"
    yield Case(what, "", "sums over events.jsonl, relative", SHOWN, reported)
    yield Case(
        "`bench`: items per second, speed-up, efficiency", "", "ratios of its seconds and items, relative", ROUNDED, benched
    )


def runs(trainings: Trainings) -> list[Path]:
    """Train with one worker and with two to the same target."""
    folders = []
    for count in 1, 2:
        folder = trainings.folder / f"figures-{count}"
        if not folder.exists():
            folder.mkdir()
            (folder / "job.toml").write_text(JOB.replace("COUNT", str(count)))
            partrain("run", folder / "job.toml", "--out", folder / "run", "--quiet")
        folders.append(folder / "run")
    return folders


def by_hand(run: Path) -> dict[str, float]:
    """Recompute the numbers of a run from its events."""
    lines = events(run)
    rounds = [event for event in lines if event["event"] == "round"]
    judged = [event for event in lines if event["event"] == "judgement"]
    spent = {kind: sum(event[kind] for event in rounds) for kind in ("compute", "wait", "mix")}
    ends = [event["seconds"]["train"] for event in lines if event["event"] == "end"]
    last = max(event["round"] for event in rounds)
    items = sum(event["items"] for event in rounds)
    distances = [event["distance"] for event in rounds if event["round"] == last and event["distance"] is not None]
    if judged[-1]["loss"] > TARGET or judged[-2]["loss"] <= TARGET or abs(judged[-1]["seconds"] - ends[-1]) > 0.05:
        raise RuntimeError(f"{run} did not end at its target: {judged[-2:]}")
    return {
        "rounds": last,
        "seconds": ends[-1],
        "items": items,
        "seconds_to_target": ends[-1],
        "items_to_target": judged[-1]["item_iterations"],
        "loss": judged[-1]["loss"],
        "waiting": spent["wait"] / sum(spent.values()),
        "mixing": spent["mix"] / sum(spent.values()),
        "bytes_per_round": float(np.mean([event["bytes"] for event in rounds])),
        **({"distance": float(np.mean(distances))} if distances else {}),
        "rate": items / ends[-1],
    }


def off(told: float, expected: float) -> float:
    """Give the difference relative to the expected number."""
    return abs(told - expected) / abs(expected) if expected else abs(told)


def compared(trainings: Trainings) -> float:
    folders = runs(trainings)
    rows = json.loads(partrain("compare", *folders, "--json"))["rows"]
    names = "rounds", "seconds", "items", "seconds_to_target", "items_to_target", "loss", "waiting", "bytes_per_round", "distance"
    pairs = [(row, by_hand(folder)) for row, folder in zip(rows, folders, strict=True)]
    if ["distance" in expected for _, expected in pairs] != [False, True] or rows[0]["distance"]:
        raise RuntimeError("one worker has no distance, and two have one")
    for _, expected in pairs:  # summary.json has microseconds
        expected.update({name: round(expected[name], 6) for name in ("seconds", "seconds_to_target") if name in expected})
    return max(off(row[name][0], expected[name]) for row, expected in pairs for name in names if name in expected)


def summarized(trainings: Trainings) -> float:
    differences = []
    for folder in runs(trainings):
        summary = json.loads((folder / "summary.json").read_text())
        totals: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for event in events(folder):
            if event["event"] == "round":
                for name in "compute", "wait", "mix", "items", "iterations":
                    totals[event["rank"]][name] += event[name]
        seconds = summary["seconds"]["train"]
        for worker in summary["workers"]:
            own = totals[worker["rank"]]
            told = {"compute": worker["seconds"]["compute"], "wait": worker["seconds"]["wait"], "mix": worker["seconds"]["sync"]}
            differences += [abs(value - own[name]) for name, value in told.items()]
            differences += [worker["item_iterations"] - own["items"], worker["iterations"] - own["iterations"]]
            differences += [off(worker["items_per_second"], own["items"] / seconds)]
        differences += [summary["item_iterations"] - sum(own["items"] for own in totals.values())]
    return float(np.abs(differences).max())


def reported(trainings: Trainings) -> float:
    folders = runs(trainings)
    page = trainings.folder / "figures.html"
    partrain("report", *folders, "--output", page, "--force")
    text = page.read_text()
    rows = {cells[0]: cells[1:] for cells in map(cells_of, re.findall(r"<tr>.*?</tr>", text, re.S)) if len(cells) == 3}
    numbers = [by_hand(folder) for folder in folders]
    one, two = numbers
    differences = []
    names = {
        "training time": "seconds",
        "item-iterations": "items",
        "items per second": "rate",
        "rounds": "rounds",
        "bytes per round": "bytes_per_round",
    }
    for shown, name in names.items():
        differences += [off(value_of(cell), own[name]) for cell, own in zip(rows[shown], numbers, strict=True) if cell != "-"]
    differences += [abs(value_of(rows[shown][1]) - two[name]) for shown, name in (("waiting", "waiting"), ("mixing", "mixing"))]
    speedup = one["seconds_to_target"] / two["seconds_to_target"]
    differences += [abs(value_of(rows["speed-up"][1]) - speedup)]
    return max(differences)


def cells_of(row: str) -> list[str]:
    return [html.unescape(re.sub(r"<.*?>", "", cell)) for cell in re.findall(r"<t[dh].*?</t[dh]>", row, re.S)]


def value_of(cell: str) -> float:
    """Read a printed number: `1.23 s`, `52%`, `46.08 kB`, `12,345`, `1.2k`."""
    number, unit = re.fullmatch(r"([\d.,]+)\s*(\S*)", cell).groups()  # type: ignore[union-attr]
    factor = {"%": 0.01, "kB": 1e3, "MB": 1e6, "k": 1e3, "M": 1e6}.get(unit, 1.0)
    return float(number.replace(",", "")) * factor


def benched(trainings: Trainings) -> float:
    folder = trainings.folder / "bench"
    folder.mkdir()
    (folder / "job.toml").write_text(JOB.replace("COUNT", "1"))
    result: dict[str, Any] = json.loads(partrain("bench", folder / "job.toml", "--workers", "1,2", "--seeds", "1", "--json"))
    differences = []
    for one, two in result["variants"].values():
        for row in one, two:
            rates = np.divide(row["items"], row["seconds"])
            differences += [off(*pair) for pair in zip(row["items_per_second"], rates, strict=True)]
            if row["speed_up"]:
                ratios = np.divide(one["seconds"], row["seconds"])
                differences += [off(*pair) for pair in zip(row["speed_up"], ratios, strict=True)]
                if row["efficiency"]:
                    differences += [off(*pair) for pair in zip(row["efficiency"], ratios / row["workers"], strict=True)]
    if len(differences) < 6:
        raise RuntimeError(f"no speed-up is compared: {result}")
    return max(differences)
