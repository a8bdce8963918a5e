"""Numbers of held-out and of later rows must not reach a training: the files are poisoned there, and everything learned is compared.

The two runs are both partrain's; that they must be equal is what the documentation says, and follows from no code.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.audit import network as user_code
from benchmarks.audit.case import EQUAL, Case
from benchmarks.audit.trainings import Trainings, events, held_out_batches, partrain, seen_by_worker

ROWS, HELD_OUT, TEST_SHARE = 120, 20, 0.2
NUMBERS = ["f1", "f2", "f3", "f4", "f5"]
HEAD = ["id", *NUMBERS, "city", "shop", "sold", "price", "grade"]
POISON = 1e6
LEARNED = "model/", "training/", "optimizer/", "workers/", "rule/", "history/loss", "history/lr", "history/item_iterations"
"""Arrays of a checkpoint that a training computes without its held-out items."""
SPLIT = f"validation = {HELD_OUT}, test_share = {TEST_SHARE}"
SERIES, WINDOW, STEPS, LATER = 120, 6, 2, 12
"""Rows of a series, of a window and of its forecast; items held out, and as many to test on."""

JOB = """
name = "leaks"
seed = 5
model = {{{model}}}
dataset = {{{dataset}}}
optimizer = {{{optimizer}, lr = 0.05, batch_size = 8}}
sync = {{rule = "average", iterations = 5}}
workers = [{{count = 2}}]
stop = {{rounds = 4}}
{more}
"""
TABULAR = 'name = "tabular", width = 16, hidden = 16'
WORDS = (
    'one_hot = ["city"], categories = ["shop"], dates = ["sold"], missing = {f1 = "median", f2 = "mean", "*" = "mean"}, '
    'missing_indicator = ["f1"]'
)
SGD = 'name = "sgd", clip_norm = 0.001'
"""Steps so small that unscaled and huge numbers do not diverge."""
Row = dict[str, Any]


def cases() -> Iterator[Case]:
    peer = "", "the training on the file before"
    names = "means, deviations, fills, words, network, optimizer"
    regression = f'kind = "csv", path = "items.csv", target = "price", drop = ["id", "grade"], {WORDS}, {SPLIT}'
    classes = f'kind = "csv", path = "items.csv", target = "grade", drop = ["id", "price"], {WORDS}, {SPLIT}'
    what = f"held-out and test rows poisoned, regression of a table: {names}"
    yield Case(what, *peer, EQUAL, partial(of_table, dataset=regression, more=""))
    what = f"held-out and test rows poisoned, classes of a table, balanced: {names}, class weights"
    balanced = 'task = {class_weights = "balanced"}\npartition = {sampling = "balanced"}'
    yield Case(what, *peer, EQUAL, partial(of_table, dataset=classes, more=balanced))
    what = f"test file poisoned, regression of a table: {names}"
    yield Case(what, *peer, EQUAL, partial(of_test_file, dataset=regression.replace(SPLIT, f"validation = {HELD_OUT}")))
    what = "held-out and test items poisoned, arrays: means, deviations, network, optimizer"
    yield Case(what, *peer, EQUAL, of_arrays)
    for words, how in ("", ""), (", difference = 1", ", differences"):
        what = f"series{how}, rows from the first held-out forecast on poisoned: means, deviations, network, optimizer"
        yield Case(what, *peer, EQUAL, partial(of_series, words=words, lag=int(bool(words))))
        what = f"series{how}, rows poisoned from the middle of the held-out items on: inputs and answers of items that end before"
        yield Case(what, *peer, EQUAL, partial(of_windows, words=words, lag=int(bool(words))))
        what = f"series{how}, unscaled, rows poisoned from the middle of the training on: inputs of items that end before"
        yield Case(what, *peer, EQUAL, partial(of_training_windows, words=words, lag=int(bool(words))))


def train(folder: Path, dataset: str, optimizer: str = 'name = "adamw"', model: str = TABULAR, more: str = "") -> Path:
    """Train in a folder that holds the files; return the run folder."""
    (folder / "job.toml").write_text(JOB.format(model=model, dataset=dataset, optimizer=optimizer, more=more))
    partrain("run", folder / "job.toml", "--out", folder / "run", "--quiet")
    return folder / "run"


def differences(run: Path, other: Path) -> float:
    """Count the arrays and the numbers of the codec that differ between two checkpoints."""
    contents = [learned(each) for each in (run, other)]
    if len(contents[0]) < 8:
        raise RuntimeError(f"{run}: only {sorted(contents[0])} is compared")
    names = contents[0].keys() | contents[1].keys()
    unequal = sorted(name for name in names if contents[0].get(name) != contents[1].get(name))
    for name in unequal:
        print(f"  {name}: {contents[0].get(name)!r:.120} | {contents[1].get(name)!r:.120}")
    return float(len(unequal))


def learned(run: Path) -> dict[str, Any]:
    """Read everything that a training computes from its items."""
    found: dict[str, Any] = {"losses": [event["loss"] for event in events(run) if event["event"] == "round"]}
    with h5py.File(run / "checkpoint.h5") as file:
        arrays: dict[str, h5py.Dataset] = {}
        file.visititems(lambda name, each: arrays.update({name: each}) if isinstance(each, h5py.Dataset) else None)
        found |= {name: each[()].tobytes() for name, each in arrays.items() if name.startswith(LEARNED)}
        manifest = json.loads(file["manifest"][()])
        found |= {f"codec {name}": value for name, value in (manifest["codec"] or {}).items()}
        found |= {name: value for name, value in manifest.items() if "weights" in name}
        return found


def table() -> list[Row]:
    """Make rows of numbers, words, dates and missing values."""
    draw = np.random.default_rng(4)
    rows = []
    for number in range(ROWS):
        features = draw.normal(size=5).round(3).tolist()
        cells = [value if draw.random() > 0.1 else "" for value in features]
        city, shop = draw.choice(["ulm", "jena", "kiel"]), draw.choice(list("abcd"))
        date = f"{draw.integers(2000, 2020)}-0{draw.integers(1, 9)}-11"
        grade = ["low", "middle", "middle", "high"][number % 4]
        price = round(3 * sum(features) + 50, 3)
        rows.append(dict(zip(HEAD, [number, *cells, city, shop, date, price, grade], strict=True)))
    return rows


def poisoned(row: Row) -> Row:
    """Change all values of a row: huge numbers, values missing that were there, other words, dates with times, another class."""
    number = row["id"]
    changed: Row = {name: "" if (number + index) % 2 else POISON * (number + 1) for index, name in enumerate(NUMBERS)}
    grade = {"low": "high", "middle": "low", "high": "low"}[row["grade"]]
    date = f"17{10 + number % 80}-12-24"
    city = {"ulm": "jena", "jena": "kiel", "kiel": "ulm"}[row["city"]]  # the words of one-hot columns are those of the file
    return row | changed | {"city": city, "shop": f"new{number % 3}", "sold": date, "price": -POISON * number, "grade": grade}


def write(folder: Path, rows: list[Row], name: str = "items.csv") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows(rows)


@cache
def outside_of_training(trainings: Trainings) -> frozenset[int]:
    """Learn from `forward` which of ROWS rows a job of this seed and SPLIT does not train on."""
    folder = trainings.folder / "leaks-split"
    rows = [row | dict.fromkeys(NUMBERS, 0.5) for row in table()]
    write(folder, rows)
    shutil.copy(user_code.__file__, folder / "network.py")
    inputs = json.dumps(["id", *NUMBERS])
    dataset = f'kind = "csv", path = "items.csv", target = "grade", inputs = {inputs}, standardise = false, {SPLIT}'
    run = train(folder, dataset, SGD, f'name = "network.py:Network", record = "{folder}"')
    return seen_outside(folder, run)


def seen_outside(folder: Path, run: Path) -> frozenset[int]:
    """Give the items that no worker trained on. Raise RuntimeError if these are not as many as the job asks for."""
    log = run / "events.jsonl"
    in_training = {item for worker in seen_by_worker(folder, log) for batch in worker for item in batch}
    outside = {item for batch in held_out_batches(folder, log) for item in batch}
    if len(outside) != HELD_OUT + TEST_SHARE * ROWS or in_training & outside:
        raise RuntimeError(f"{len(outside)} items were judged or tested on, {len(in_training & outside)} of them trained on")
    return frozenset(outside)


def of_table(trainings: Trainings, dataset: str, more: str) -> float:
    folder, outside = trainings.folder / f"leaks-{len(more)}", outside_of_training(trainings)
    runs = []
    for name, change in ("clean", dict), ("poisoned", poisoned):
        write(folder / name, [change(row) if row["id"] in outside else row for row in table()])
        runs.append(train(folder / name, dataset, more=more))
    return differences(*runs)


def of_test_file(trainings: Trainings, dataset: str) -> float:
    runs = []
    for name, change in ("clean", dict), ("poisoned", poisoned):
        folder = trainings.folder / "leaks-test-file" / name
        write(folder, table())
        write(folder, [change(row) for row in table()[::3]], "test.csv")
        runs.append(train(folder, f'{dataset}, test_path = "test.csv"'))
    return differences(*runs)


def of_arrays(trainings: Trainings) -> float:
    """Poison the held-out items of an array. Which these are `forward` tells of the array as it is."""
    draw, folder = np.random.default_rng(6), trainings.folder / "leaks-arrays"
    inputs = np.column_stack([np.arange(ROWS), draw.normal(size=(ROWS, 5))]).astype(np.float32)
    targets = draw.normal(size=(ROWS, 3)).astype(np.float32)
    dataset = 'kind = "npz", path = "items.npz"'
    for name in "split", "clean", "poisoned":
        (folder / name).mkdir(parents=True)
    split = f"{dataset}, validation = {HELD_OUT}, test_share = {TEST_SHARE}"
    np.savez(folder / "split" / "items.npz", inputs=inputs, targets=targets)
    shutil.copy(user_code.__file__, folder / "split" / "network.py")
    model = f'name = "network.py:Network", record = "{folder / "split"}"'
    run = train(folder / "split", f"{split}, standardise = false, standardise_target = false", SGD, model)
    outside = sorted(seen_outside(folder / "split", run))
    runs = []
    for name in "clean", "poisoned":
        if name == "poisoned":
            inputs[outside] = POISON * draw.normal(size=(len(outside), 6))
            targets[outside] = POISON * draw.normal(size=(len(outside), 3))
        np.savez(folder / name / "items.npz", inputs=inputs, targets=targets)
        runs.append(train(folder / name, split, model='name = "mlp", hidden = [8]'))
    return differences(*runs)


def write_series(folder: Path, poisoned_from: int) -> None:
    """Write a series with holes and an untouched clock. From a row on the numbers are others, and other ones are missing."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(8)
    lines = ["clock,y"]
    for row in range(SERIES):
        value = math.sin(row / 3) + row / 50 + float(draw.normal()) / 10
        hole = row % 17 == 5
        if row >= poisoned_from:
            value, hole = POISON * float(draw.normal()), row % 5 == 2
        lines.append(f"{row},{'' if hole else round(value, 4)}")
    (folder / "series.csv").write_text("\n".join(lines) + "\n")


def first_held_out(lag: int) -> int:
    """Give the first row that a held-out item forecasts.

    A window starts at each row. The last LATER items are to test on; the LATER items before the first row that these forecast are held out.
    """
    items = SERIES - lag - WINDOW - STEPS + 1
    return items - 2 * LATER - (STEPS - 1) + WINDOW + lag


def of_forecaster(trainings: Trainings, name: str, words: str, poisoned_from: int) -> tuple[Path, Path]:
    """Train on the series with poison from a row on; return the folder with what `forward` saw, and the run folder."""
    folder = trainings.folder / "leaks-series" / name
    if not (folder / "run").exists():
        write_series(folder, poisoned_from)
        shutil.copy(user_code.__file__, folder / "network.py")
        dataset = (
            f'kind = "series", path = "series.csv", target = "y", columns = ["clock", "y"], window = {WINDOW}, steps = {STEPS}, '
            f'validation = {LATER}, test_items = {LATER}, missing = "forward"{words}'
        )
        model = f'name = "network.py:Forecaster", record = "{folder}", size = {2 * WINDOW}'
        train(folder, dataset, SGD, model)
    return folder, folder / "run"


def of_series(trainings: Trainings, words: str, lag: int) -> float:
    _, clean = of_forecaster(trainings, f"clean{lag}", words, SERIES)
    _, other = of_forecaster(trainings, f"poisoned{lag}", words, first_held_out(lag))
    _, earlier = of_forecaster(trainings, f"poisoned-earlier{lag}", words, first_held_out(lag) - 1)
    if learned(clean) == learned(earlier):
        raise RuntimeError("poison in the last row trained on changes nothing: nothing is compared")
    return differences(clean, other)


def windows(folder: Path, run: Path, kind: str) -> set[tuple[float, ...]]:
    """Read what `forward` wrote of each item."""
    pids = [worker["pid"] for worker in events(run)[0]["workers"]]
    files = [folder / f"{kind}{pid}.txt" for pid in pids]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return {tuple(float(number) for number in line.split()) for line in lines}


def of_windows(trainings: Trainings, words: str, lag: int) -> float:
    """Count held-out items that end before the poison, and differ; and all in training that differ. Each judgement answers all of them."""
    start = first_held_out(lag) + LATER
    runs = [of_forecaster(trainings, name, words, row) for name, row in ((f"clean{lag}", SERIES), (f"middle{lag}", start))]
    trained = [windows(*each, "") for each in runs]
    clean, other = (windows(*each, "held-out-") for each in runs)
    judgements = sum(event["event"] == "judgement" for event in events(runs[0][1]))
    if len(clean) != (judgements + 1) * LATER:  # the test items are answered once
        raise RuntimeError(
            f"{len(clean)} answers to {LATER} held-out items in {judgements} judgements, and to {LATER} test items"
        )
    return float(len(trained[0] ^ trained[1]) + max(0, judgements * (LATER - STEPS + 1) - len(clean & other)))


def of_training_windows(trainings: Trainings, words: str, lag: int) -> float:
    """Count items whose targets end before the poison in the middle of the training, and whose inputs differ."""
    start = SERIES // 2
    sets = [
        windows(*of_forecaster(trainings, name, f"{words}, standardise = false", row), "")
        for name, row in ((f"unscaled{lag}", SERIES), (f"unscaled-middle{lag}", start))
    ]
    ends_before = start - lag - WINDOW - STEPS + 1
    return float(max(0, ends_before - len(sets[0] & sets[1])))
