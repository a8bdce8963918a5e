"""Tiny networks of every kind of task, each trained once."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
from support.runs import JOB, train
from support.sample_tables import passengers, sales
from support.shared_runs import once

from partrain.inference.network import TrainedNetwork, load_network
from partrain.inference.open import load_job, open_checkpoint

USERS = '''"""A network of the user's own."""
from pathlib import Path

from torch import nn

class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3))
'''
WORDS = ["red", "green", "blue"]
TEXT = "a rose is a rose is a rose. " * 40


def table(path: Path, rows: int = 120) -> None:
    """Write a table of size in meters and color. The price grows by 1000 per meter, and the size decides the kind."""
    draw = random.Random(1)
    lines = ["size,colour,price,kind"]
    for _ in range(rows):
        size = draw.uniform(0, 10)
        lines.append(f"{size:.4f},{draw.choice(WORDS)},{5000 + 1000 * size:.3f},{'large' if size > 5 else 'small'}")
    path.write_text("\n".join(lines) + "\n")


def series(path: Path, rows: int = 300) -> None:
    lines = ["month,spots"] + [f"{row},{100 + 40 * math.sin(row / 4):.4f}" for row in range(rows)]
    path.write_text("\n".join(lines) + "\n")


def dataset(**keys: object) -> str:
    return f"dataset={inline(keys)}"


def inline(value: object) -> str:
    """Write a value as TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {inline(one)}' for key, one in value.items())} }}"
    return json.dumps(value)


JOBS: dict[str, tuple[str, ...]] = {
    "clouds": ("model.batch_norm=true",),
    "again": ("model.batch_norm=true", "seed=4"),
    "apart": ('sync={rule="easgd", elasticity=0.4, iterations=3}',),
    "own": ('model={name="users.py:Net", width=5}',),
    "tabular": (
        dataset(kind="csv", path="table.csv", target="kind", one_hot=["colour"], drop=["price"], validation=20, test_items=20),
    ),
    "prices": (
        dataset(kind="csv", path="table.csv", target="price", one_hot=["colour"], drop=["kind"], validation=20,
                standardise_target=True),
        "stop.rounds=60",
    ),
    "spots": (
        dataset(kind="series", path="series.csv", target="spots", window=12, steps=2, validation=40),
        'model={name="lstm", hidden=8}',
        'optimizer={name="adam", lr=0.01, batch_size=8}',
        "stop.rounds=60",
    ),
    "windows": (
        dataset(kind="series", path="series.csv", target="spots", window=12, steps=2, validation=40),
        'model={name="autoencoder", hidden=[8], code=2}',
    ),
    "rose": (
        dataset(kind="text", path="text.txt", length=16, stride=1, validation=10),
        'model={name="transformer", layers=1, width=16, heads=2}',
        'optimizer={name="adam", lr=0.01, batch_size=8}',
        "stop.rounds=60",
    ),
    "titanic": (
        dataset(kind="csv", path="passengers.csv", target="survived", categories=["port"], one_hot=["sex"], dates=["born", "seen"],
                drop=["fare", "weight"],
                missing={"age": "median", "port": "category", "sex": "category", "born": "mean"},
                missing_indicator=["age", "port", "born"], validation=20, test_items=20),
        'model={name="tabular", width=16, hidden=16, blocks=1}',
        'optimizer={name="adam", lr=0.01, batch_size=8}',
    ),
    "both": (
        dataset(kind="csv", path="passengers.csv", target=["fare", "weight"], categories=["sex", "port"], drop=["born", "seen"],
                missing={"age": 30.0, "port": "category"},
                one_hot=["survived"], validation=20),
        'model={name="tabular", width=16, hidden=16, blocks=1}',
    ),
    "sales": (
        dataset(kind="series", path="sales.csv", target=["made", "sold"], columns=["sold"], window=8, steps=3, difference=[1, 4],
                season=4, time="day", validation=20),
        'model={name="lstm", hidden=8}',
        'optimizer={name="adam", lr=0.01, batch_size=8}',
    ),
    "holes": (
        dataset(kind="series", path="sales.csv", target="sold", window=8, season=4, missing="interpolate", validation=20),
        'model={name="mlp", hidden=[4]}',
    ),
    "changes": (
        dataset(kind="series", path="sales.csv", target="made", columns=["sold"], window=8, difference=2, validation=20),
        'model={name="autoencoder", hidden=[8], code=2}',
    ),
    "codes": ('model={name="autoencoder", hidden=[4], code=1}',),
}  # fmt: skip


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the run folder of a job by its name; trains on the first call."""

    def made(name: str, folder: Path) -> None:
        (folder / "users.py").write_text(USERS)
        (folder / "text.txt").write_text(TEXT)
        table(folder / "table.csv")
        series(folder / "series.csv")
        passengers(folder / "passengers.csv")
        sales(folder / "sales.csv")
        train(folder, *JOBS[name], "stop.judge_every=1000", text=JOB)

    return lambda name: once(tmp_path_factory, f"network-{name}", partial(made, name)) / "run"


@pytest.fixture(scope="session")
def network_of(run_of: Callable[[str], Path]) -> Callable[[str], TrainedNetwork]:
    """Return the trained network of a job."""

    @cache
    def network(name: str) -> TrainedNetwork:
        path, content = open_checkpoint(run_of(name))
        return load_network(load_job(content, path, trusted=True), content)

    return network
