"""A folder in which the files and runs exist that README.md and docs/ name: small ones, so that all commands of a page run in seconds."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import random
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict
from PIL import Image
from support.runs import partrain, write_job

from partrain.config.overrides import override
from partrain.config.toml_source import TomlSource
from partrain.workflow.kinds import is_workflow

ROOT = Path(__file__).parents[2]
BAD_ROWS = "1.0,2.0\n" + "big," * 13 + "last\n"
"""Rows of `new.csv` that cannot be read."""


def make(root: Path) -> None:
    """Fill a folder. Command lines are executed in `root/here`; jobs of docs/ also name `../datasets`, `../jobs` and `../runs`."""
    here = root / "here"
    here.mkdir()
    for folder in root, here:
        (folder / "datasets").symlink_to(ROOT / "datasets")
        write_jobs(folder / "jobs")
    (root / "runs").symlink_to(here / "runs")
    with chdir(here):
        write_tables()
        write_arrays()
        write_jobs_of_pages()
        train_runs()


def write_jobs(folder: Path) -> None:
    """Copy jobs/, with two rounds, no target and no CUDA device."""
    shutil.copytree(ROOT / "jobs", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*.toml"):
        if not is_workflow(path):
            shorten(path)


def shorten(path: Path) -> None:
    source = TomlSource.read(path)
    path.write_text(override(source, ["stop={rounds=2, judge_every=1}"]).text.replace('"cuda:0"', '"cpu"'), encoding="utf-8")


def write_tables() -> None:
    """Wines with a name each, houses, passengers by month, frauds, news, numbers of pixels, levels at two stations, visits of clinics."""
    draw = random.Random(1)
    header, *rows = Path("datasets/wine/wine.csv").read_text(encoding="utf-8").splitlines()
    measured, _, target = header.rpartition(",")
    table = [f"{measured},{target},name", *(f"{row},wine {number}" for number, row in enumerate(rows))]
    Path("data.csv").write_text("\n".join(table) + "\n")
    Path("labelled.csv").write_text("\n".join(table[:30]) + "\n")
    new = [f"{row.rpartition(',')[0]},wine {number}" for number, row in enumerate(rows)]
    Path("new.csv").write_text("\n".join([f"{measured},name", *new[:6]]) + "\n")
    Path("bad-rows.csv").write_text("\n".join([f"{measured},name", *new[:3]]) + "\n" + BAD_ROWS + new[-1] + "\n")
    sizes = [draw.uniform(5, 30) for _ in range(80)]
    houses = [f"{size:.1f},{draw.choice(['blue', 'red'])},{10 * size + draw.random():.2f}" for size in sizes]
    Path("houses.csv").write_text("\n".join(["size,colour,price", *houses]) + "\n")
    swings = [(100 + 2 * month) * (1 + 0.2 * math.sin(math.pi * month / 6)) + draw.gauss(0, 4) for month in range(180)]
    months = [f"{1949 + month // 12}-{month % 12 + 1:02},{value:.1f}" for month, value in enumerate(swings)]
    Path("passengers.csv").write_text("\n".join(["month,passengers", *months]) + "\n")
    sums = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(120)]
    frauds = [f"{one:.3f},{two:.3f},{'fraud' if one + two > 1 else 'honest'}" for one, two in sums]
    Path("fraud.csv").write_text("\n".join(["one,two,kind", *frauds]) + "\n")
    incomes = [f"{one:.3f},{number % 9},{one + two:.3f}" for number, (one, two) in enumerate(sums)]
    Path("survey.csv").write_text("\n".join(["age,households,income", *incomes]) + "\n")
    news = [f"{one:.3f},{two:.3f},{int(one > 0)},{int(two > 0)},{int(one > two)}" for one, two in sums]
    Path("news.csv").write_text("\n".join(["one,two,sports,politics,science", *news]) + "\n")
    pixels = [",".join(str(draw.random()) for _ in range(784)) for _ in range(3)]
    Path("pixels.csv").write_text("\n".join([",".join(f"pixel {number}" for number in range(784)), *pixels]) + "\n")
    sales = [
        f"{10 * size + draw.random():.2f};{draw.choice(['gas', 'oil'])};{draw.choice(['Rome', 'Oslo'])};2024-{1 + number % 12:02}-05;{size:.1f};a {'large' if number % 3 else 'small'} house with a garden"
        for number, size in enumerate(sizes * 2)
    ]
    for name in "sales", "sales-2023", "sales-2024":
        Path(f"{name}.csv").write_text("\n".join(["price;heating;city;sold;size;description", *sales]) + "\n", encoding="latin-1")
    load = [f"{math.sin(hour / 4) + draw.gauss(0, 0.1):.3f},{draw.gauss(10, 3):.1f}" for hour in range(600)]
    Path("load.csv").write_text("\n".join(["load,temperature", *load]) + "\n")
    Path("raw.csv").write_text("1,2\n")
    topics = [("sport", "ball goal team match"), ("money", "bank stock price fund")] * 150
    texts = [" ".join(draw.choice([*words.split(), "the", "of"]) for _ in range(12)) for _, words in topics]
    lines = [f"{number},{topic},{text}" for number, ((topic, _), text) in enumerate(zip(topics, texts, strict=True))]
    Path("topics.csv").write_text("\n".join(["number,topic,body", *lines]) + "\n")
    for number, ((topic, _), text) in enumerate(zip(topics, texts, strict=True)):
        Path("texts", topic).mkdir(parents=True, exist_ok=True)
        Path("texts", topic, f"{number}.txt").write_text(text)
    days = [(datetime.date(2023, 9, 5) + datetime.timedelta(day), day) for day in range(300)]
    levels = [
        f"{station},{date},{3 + at + math.sin(day * math.tau / 7) + draw.gauss(0, 0.1):.4f}"
        for at, station in enumerate("AB")
        for date, day in days
    ]
    Path("stations.csv").write_text("\n".join(["station,date,level", *levels]) + "\n")
    for table, clinics in ("visits", range(20)), ("new-clinics", range(20, 24)):
        visits = [(f"clinic {clinic}", draw.random(), draw.random()) for clinic in clinics for _ in range(12)]
        lines = [f"{clinic},{a:.3f},{b:.3f},{'well' if a > b else 'ill'}" for clinic, a, b in visits]
        Path(f"{table}.csv").write_text("\n".join(["clinic,a,b,outcome", *lines]) + "\n")
    Path("prepare.py").write_text('import shutil\n\nshutil.copy("raw.csv", "clean.csv")\n')


def write_arrays() -> None:
    """Numbers, two inputs for each item, texts of unequal length, label maps, small pictures in color; photos in folders."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(600, 4)).astype(np.float32)
    images = draw.normal(size=(600, 1, 4, 4)).astype(np.float32)
    np.savez("items.npz", inputs=numbers, targets=numbers.argmax(1), image=images, meta=numbers[:, :3])
    lengths = draw.integers(2, 6, 100)
    tokens = draw.integers(0, 9, lengths.sum())
    texts = {"inputs": tokens, "offsets": np.concatenate([[0], lengths.cumsum()]), "targets": lengths % 2}
    np.savez("texts.npz", **texts, **{f"test_{name}": array for name, array in texts.items()})
    Path("book.txt").write_text(
        Path("datasets/as-you-like-it/as-you-like-it.txt").read_text(encoding="utf-8")[:60_000], encoding="utf-8"
    )
    for name, array in ("x", numbers), ("y", numbers[:, 0]):
        np.save(f"{name}.npy", array)
        np.save(f"{name}-test.npy", array[:60])
    reviews = {"embedding": numbers.tolist(), "label": numbers.argmax(1).tolist()}
    DatasetDict({split: Dataset.from_dict(reviews) for split in ("train", "validation")}).save_to_disk("reviews")
    maps = draw.integers(0, 3, (560, 6, 6)).astype(np.uint8)
    np.savez("cells.npz", inputs=maps[:, None].astype(np.float32), targets=maps)
    np.savez("colors.npz", inputs=draw.normal(size=(24, 3, 32, 32)).astype(np.float32), targets=np.arange(24) % 3)
    for kind, shade in ("cat", 60), ("dog", 190):
        (Path("photos") / kind).mkdir(parents=True)
        for number in range(30):
            pixels = draw.integers(shade - 30, shade + 30, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(f"photos/{kind}/{number}.jpg")


def write_jobs_of_pages() -> None:
    """Jobs that commands name: those that other pages write, and copies of a small one."""
    for words in (["first.toml"], ["--from", "data.csv", "--target", "cultivator", "my.toml"],
                  ["--from", "datasets/wine/wine.csv", "--target", "cultivator", "wine.toml"],
                  ["--from", "houses.csv", "--target", "price", "houses.toml"],
                  ["--from", "visits.csv", "--target", "outcome", "--group", "clinic", "visits.toml"],
                  ["--from", "topics.csv", "--target", "topic", "topics.toml"]):  # fmt: skip
        said = partrain("init", *words)
        assert said.code == 0, said
    Path("few").mkdir()
    for copy in "job.toml", "a.toml", "b.toml", "few/c.toml":
        text = Path("wine.toml").read_text(encoding="utf-8")
        Path(copy).write_text(text.replace('"datasets/', '"../datasets/') if "/" in copy else text, encoding="utf-8")
        shorten(Path(copy))


def train_runs() -> None:
    """Runs that commands name."""
    every = 'checkpoint={commit="every", keep=9}'
    short = "stop={rounds=2, judge_every=1}"
    for job, run, *sets in (("first", "first", short), ("wine", "wine"), ("wine", "one", short, "workers.0.count=1"),
                            ("wine", "two", short, "workers.0.count=2"), ("houses", "houses", short), ("topics", "topics", short), ("visits", "visits", short), ("jobs/mnist", "mnist", every),
                            ("jobs/mnist-digits-0-4", "mnist-digits-0-4")):  # fmt: skip
        words = [word for each in sets for word in ("--set", each)]
        said = partrain("run", f"{job}.toml", "--out", f"runs/{run}", "--quiet", *words)
        assert said.code == 0, said
    shutil.copy("runs/mnist/job.toml", "moved.toml")
    data = f"dataset={{kind='npz', path='{Path('items.npz').absolute()}', validation=30}}"
    assert partrain("data", "convert", write_job(Path("converting"), data), "-o", "items.items").code == 0


def publish_weights(cache: Path) -> str:
    """Put a file of random weights where torch keeps those of ResNet-18; return its digest."""
    import torch

    from partrain.checkpoint.pretrained import find
    from partrain.models.image_sections import TorchVision
    from partrain.system.torchvision import import_torchvision

    path = cache / "hub/checkpoints" / Path(find(TorchVision(name="torchvision:resnet18", pretrained=True)).url).name
    path.parent.mkdir(parents=True)
    torch.save(import_torchvision("torchvision.models").resnet18(weights=None).state_dict(), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def program(folder: Path, name: str, text: str) -> None:
    """Write a program of the shell that stands in for one of another system."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


def numbers_of(run: Path) -> set[str]:
    """The names of the numbers that a run was judged by."""
    return set(json.loads((run / "summary.json").read_text())["metrics"])
