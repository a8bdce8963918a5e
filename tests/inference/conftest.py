"""Tiny networks of every kind of task, each trained once."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from support.onnx_registry import keep_onnx_registry
from support.runs import JOB, SIMULATED, train
from support.sample_tables import passengers, sales
from support.shared_runs import once

from partrain.inference.network import TrainedNetwork, load_network
from partrain.inference.open import load_job, open_checkpoint

USERS = '''"""A network of the user's own."""
from pathlib import Path

import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3))

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 4)
        self.last = nn.Linear(7, 2)

    def forward(self, image, numbers):
        return self.last(torch.cat([self.first(image.flatten(1)).relu(), numbers], 1))

class Maps(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))
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


def clinics(path: Path) -> None:
    """Write a table of 12 clinics of unlike size, in no order. All rows of clinic 3 are ill; every ninth row has no `b`."""
    draw = random.Random(2)
    rows = []
    for clinic in range(12):
        for row in range(8 + clinic):
            a, b = draw.random(), draw.random()
            ill = clinic == 3 or a - b > 0.3 * (row % 2) - 0.1
            rows.append(f"clinic {clinic},{a:.3f},{b if row % 9 else '':.4},{'yes' if ill else 'no'}")
    draw.shuffle(rows)
    path.write_text("\n".join(["clinic,a,b,ill", *rows]) + "\n")


def stations(path: Path) -> None:
    """Write a table of the levels of three stations, the rows of all days together: station 12 ended early, 7 began late."""
    days = {5: range(90), 12: range(40), 7: range(50, 90)}
    lines = ["station,day,level"] + [
        f"{station},{day},{station + math.sin(day / 3 + station):.4f}"
        for day in range(90)
        for station, own in days.items()
        if day in own
    ]
    path.write_text("\n".join(lines) + "\n")


def arrays(folder: Path, items: int = 60) -> None:
    """Write NPZ files: images with label maps, two inputs, labels that are right or wrong each, tokens, sequences of unequal length."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (items, 1, 4, 4), np.uint8)
    bright = (images.mean((1, 2, 3)) > 127).astype(int)
    numbers = draw.normal(3, 2, (items, 3))
    np.savez(folder / "images.npz", inputs=images, targets=bright)
    np.savez(folder / "maps.npz", inputs=images, targets=(images[:, 0] // 90).astype(np.uint8))
    np.savez(folder / "pair.npz", image=images, numbers=numbers, targets=bright)
    np.savez(folder / "labels.npz", inputs=numbers, targets=(numbers > 3).astype(int))
    tokens = draw.integers(0, 5, (items, 6))
    np.savez(folder / "tokens.npz", inputs=tokens, targets=tokens[:, 0] % 2)
    lengths = draw.integers(1, 7, items)
    words = np.concatenate([row[:length] for row, length in zip(tokens, lengths, strict=True)])
    np.savez(folder / "unequal.npz", inputs=words, offsets=np.cumsum([0, *lengths]), targets=tokens[:, 0] % 2)


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
        'model={name="tabular", width=16, hidden=16, blocks=1, members=2}',
    ),
    "clinics": (
        dataset(kind="csv", path="clinics.csv", target="ill", group="clinic", missing="drop", validation=40, test_share=0.25),
        'task={metrics=["auroc", "f1"]}',
    ),
    "stations": (
        dataset(kind="series", path="stations.csv", target="level", group="station", time="day", window=6, steps=2,
                validation=20, test_items=20),
        'model={name="lstm", hidden=8}',
        'optimizer={name="adam", lr=0.01, batch_size=8}',
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
    "pixels": (dataset(kind="npz", path="images.npz", validation=10, standardise="channel"),),
    "maps": (dataset(kind="npz", path="maps.npz", validation=10), 'model={name="users.py:Maps"}'),
    "pair": (dataset(kind="npz", path="pair.npz", inputs=["image", "numbers"], validation=10), 'model={name="users.py:Pair"}'),
    "labels": (dataset(kind="npz", path="labels.npz", validation=10), 'task={kind="multi-label", threshold=0.3}'),
    "tokens": (dataset(kind="npz", path="tokens.npz", tokens=True, validation=10), 'model={name="gru", hidden=8}'),
    "unequal": (
        dataset(kind="npz", path="unequal.npz", tokens=True, offsets="offsets", validation=10),
        'model={name="transformer", layers=1, width=16, heads=2}',
    ),
    "ragged": (
        dataset(kind="npz", path="unequal.npz", tokens=True, offsets="offsets", validation=10),
        'model={name="lstm", hidden=8, layers=2, bidirectional=true}',
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
        clinics(folder / "clinics.csv")
        stations(folder / "stations.csv")
        arrays(folder)
        train(folder, *JOBS[name], "stop.judge_every=1000", SIMULATED, text=JOB)

    return lambda name: once(tmp_path_factory, f"network-{name}", partial(made, name)) / "run"


@pytest.fixture
def onnx_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_onnx_registry(monkeypatch)


@pytest.fixture(scope="session")
def network_of(run_of: Callable[[str], Path]) -> Callable[[str], TrainedNetwork]:
    """Return the trained network of a job."""

    @cache
    def network(name: str) -> TrainedNetwork:
        path, content = open_checkpoint(run_of(name))
        return load_network(load_job(content, path, trusted=True), content)

    return network
