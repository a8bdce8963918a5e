"""Tables as people bring them: `partrain init` and `partrain run` against scikit-learn's trees and network, on the same test rows.

    python benchmarks/tables.py                     # all tables, 5 seeds, one worker and two
    python benchmarks/tables.py --tables digits --seeds 2 --rows 2000 --draw 7

Breast cancer, digits and diabetes come with scikit-learn. The others are drawn here by the schemas of the real ones: Titanic (words, holes,
names), diamonds (ordered words, whole prices), California (places, skewed numbers). A row is a table: median accuracy or R2 over the seeds.
A seed chooses the test rows (a fifth) and all seeds of training. The scikit-learn side fills holes, scales numbers, and makes words
one-hot (trees: codes); its network trains once as it comes (500 epochs at most), once with `early_stopping`.
Defaults of `init` were chosen on other draws (`--draw 1000`) and other splits (`--first 100`) than those reported.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from runs import machine

Columns = dict[str, list[Any]]
"""Cells of a table by column; None where there is no value."""


def titanic(draw: np.random.Generator, rows: int) -> tuple[Columns, str]:
    """Passengers: class, sex, age with holes, fare of long tail, cabin mostly missing, ticket and name unlike any other."""
    klass = draw.choice([1, 2, 3], rows, p=[0.24, 0.21, 0.55])
    female = draw.random(rows) < 0.36
    age = np.clip(draw.normal(40 - 5 * klass, 13, rows), 0.4, 80)
    siblings, parents = draw.poisson(0.5, rows), draw.poisson(0.4, rows)
    fare = np.exp(draw.normal(5.2 - klass, 0.5)) * (1 + 0.3 * (siblings + parents))
    deck = [None if draw.random() < (0.25 if k == 1 else 0.92) else "ABCDE"[draw.integers(5)] for k in klass]
    port = draw.choice(["S", "C", "Q"], rows, p=[0.72, 0.19, 0.09])
    title = ["Mrs" if f and a > 25 else "Miss" if f else "Master" if a < 13 else "Mr" for f, a in zip(female, age, strict=True)]
    family = siblings + parents
    score = 2.7 * female - 0.9 * (klass - 2) - 0.03 * (age - 30) + 1.6 * (age < 13) - 0.5 * np.maximum(family - 3, 0)
    score += 0.4 * (port == "C") - 1.2 * (female & (klass == 3)) + 0.5 * np.array([one is not None for one in deck]) - 1.0
    survived = draw.random(rows) < 1 / (1 + np.exp(-score))
    holes = draw.random(rows) < 0.2
    return {
        "PassengerId": list(range(1, rows + 1)),
        "Survived": survived.astype(int).tolist(),
        "Pclass": klass.tolist(),
        "Name": [f"Person {number}, {one}." for number, one in enumerate(title)],
        "Title": title,
        "Sex": ["female" if one else "male" for one in female],
        "Age": [None if hole else round(float(one), 1) for one, hole in zip(age, holes, strict=True)],
        "SibSp": siblings.tolist(),
        "Parch": parents.tolist(),
        "Fare": [round(float(one), 4) for one in fare],
        "Deck": deck,
        "Embarked": [None if draw.random() < 0.004 else str(one) for one in port],
    }, "Survived"


def diamonds(draw: np.random.Generator, rows: int) -> tuple[Columns, str]:
    """Stones: carat of long tail, cut, color and clarity as words, sizes that follow the carat, whole prices."""
    carat = np.clip(np.exp(draw.normal(-0.4, 0.58, rows)), 0.2, 5)
    carat = np.where(draw.random(rows) < 0.35, np.maximum(np.round(carat * 2) / 2, 0.3), carat)
    cuts, colors, clear = (
        ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        list("DEFGHIJ"),
        ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    )
    cut = draw.choice(5, rows, p=[0.03, 0.09, 0.22, 0.26, 0.4])
    color = draw.choice(7, rows, p=[0.13, 0.18, 0.18, 0.21, 0.15, 0.1, 0.05])
    clarity = draw.choice(8, rows, p=[0.02, 0.17, 0.24, 0.23, 0.15, 0.09, 0.07, 0.03])
    depth, width = draw.normal(61.7, 1.4, rows), draw.normal(57.5, 2.2, rows)
    x = 6.5 * carat ** (1 / 3) * (1 + draw.normal(0, 0.004, rows))
    y = x * (1 + draw.normal(0, 0.004, rows))
    z = depth / 100 * (x + y) / 2
    log = 8.35 + 1.75 * np.log(carat) + 0.035 * cut - 0.075 * color - 0.012 * color * (carat > 1) + 0.12 * clarity
    log += 0.1 * (carat >= 1) - 0.03 * abs(depth - 61.7) / 1.4 * (cut < 2) + draw.normal(0, 0.09, rows)
    return {
        "carat": np.round(carat, 2).tolist(),
        "cut": [cuts[one] for one in cut],
        "color": [colors[one] for one in color],
        "clarity": [clear[one] for one in clarity],
        "depth": np.round(depth, 1).tolist(),
        "table": np.round(width).tolist(),
        "price": np.clip(np.exp(log), 326, 18823).astype(int).tolist(),
        **{name: np.round(one, 2).tolist() for name, one in (("x", x), ("y", y), ("z", z))},
    }, "price"


def california(draw: np.random.Generator, rows: int) -> tuple[Columns, str]:
    """Blocks of houses: places along a slanted coast with two cities, skewed numbers, holes, nearness to the sea as a word."""
    along = draw.random(rows)
    city = draw.choice(3, rows, p=[0.3, 0.4, 0.3])
    latitude = np.where(
        city == 0, draw.normal(37.7, 0.25, rows), np.where(city == 1, draw.normal(34.0, 0.3, rows), 32.6 + 9 * along)
    )
    coast = -124.2 + (41.5 - latitude) * 0.78
    inland = np.abs(np.where(city == 2, draw.exponential(1.4, rows), draw.exponential(0.35, rows)))
    longitude = coast + inland
    income = np.clip(draw.lognormal(1.25, 0.45, rows), 0.5, 15)
    age = np.clip(draw.normal(29 - 4 * (inland > 1), 12, rows), 1, 52).round()
    people = draw.lognormal(7.0, 0.7, rows).round() + 3
    homes = np.maximum(people / draw.lognormal(1.08, 0.2, rows), 1).round()
    rooms = homes * np.clip(draw.normal(5 + 0.3 * (income - 4), 1, rows), 1.5, 12)
    bedrooms = homes * np.clip(draw.normal(1.07, 0.1, rows), 0.7, 2)
    near = [np.exp(-((latitude - a) ** 2 + (longitude - b) ** 2) / 0.18) for a, b in ((37.77, -121.3), (34.05, -118.4))]
    price = 0.37 * income**1.05 + 1.1 * near[0] + 0.85 * near[1] + 0.6 * np.exp(-inland * 2) + 0.006 * age
    price += 0.25 * np.sin(latitude * 4) * np.exp(-inland) - 0.25 * np.log(people / homes / 3) + 0.1 * np.log(rooms / homes)
    price = np.clip(price * draw.lognormal(0, 0.17, rows), 0.15, 5.0)
    ocean = np.where(inland < 0.12, "NEAR OCEAN", np.where(inland < 0.7, "<1H OCEAN", "INLAND"))
    return {
        "longitude": np.round(longitude, 2).tolist(),
        "latitude": np.round(latitude, 2).tolist(),
        "housing_median_age": age.tolist(),
        "total_rooms": rooms.round().tolist(),
        "total_bedrooms": [None if draw.random() < 0.01 else round(float(one)) for one in bedrooms],
        "population": people.tolist(),
        "households": homes.tolist(),
        "median_income": np.round(income, 4).tolist(),
        "ocean_proximity": ocean.tolist(),
        "median_house_value": (price * 1e5).round().astype(int).tolist(),
    }, "median_house_value"


def bundled(name: str) -> Callable[[np.random.Generator, int], tuple[Columns, str]]:
    """Return a maker of a table that comes with scikit-learn."""

    def make(draw: np.random.Generator, rows: int) -> tuple[Columns, str]:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        names = getattr(found, "feature_names", [f"x{number}" for number in range(found.data.shape[1])])
        columns = {str(one): found.data[:rows, at].tolist() for at, one in enumerate(names)}
        return columns | {"target": found.target[:rows].tolist()}, "target"

    return make


TABLES: dict[str, tuple[Callable[[np.random.Generator, int], tuple[Columns, str]], int, bool]] = {
    "titanic-like": (titanic, 891, True),
    "diamonds-like": (diamonds, 20_000, False),
    "california-like": (california, 20_000, False),
    "breast_cancer": (bundled("breast_cancer"), 569, True),
    "digits": (bundled("digits"), 1797, True),
    "diabetes": (bundled("diabetes"), 442, False),
}
"""Tables: their maker, rows, and whether the target is a class."""


def write(path: Path, columns: Columns, rows: np.ndarray[Any, Any]) -> None:
    """Write rows of a table as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows([["" if (cell := column[row]) is None else cell for column in columns.values()] for row in rows])


def partrain(folder: Path, target: str, seed: int, workers: int, sets: list[str]) -> list[float]:
    """Train what `init` writes for train.csv, on a machine of as many cores; return accuracy or R2 on test.csv of the run, and of its refit."""
    call = [sys.executable, "-m", "partrain"]
    cores = sorted(os.sched_getaffinity(0))

    def run(*words: str) -> str:
        here = partial(os.sched_setaffinity, 0, cores[:workers]) if words[0] == "init" else None
        done = subprocess.run([*call, *words], cwd=folder, capture_output=True, text=True, preexec_fn=here)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        return done.stdout

    run("init", "--from", "train.csv", "--target", target, "--force", "job.toml")
    out = f"run-{workers}"
    extra = [part for one in sets for part in ("--set", one)]
    # The test rows are in a file of their own, so none are split off from the others.
    changes = ["--set", f"seed={seed}", "--set", f"workers.0.count={workers}", "--set", "dataset.test_share=0.0", *extra]
    run("run", "job.toml", "-q", "--out", out, *changes)
    run("refit", out, "-q", "--out", f"refit-{workers}")
    found = [
        json.loads(run("evaluate", which, "--input", "test.csv", "--json"))["test.csv"] for which in (out, f"refit-{workers}")
    ]
    return [float(scores["accuracy"] if "accuracy" in scores else scores["r2"]) for scores in found]


def peers(columns: Columns, target: str, kinds: bool, train: Any, test: Any, seed: int) -> dict[str, float]:
    """Train scikit-learn's estimators on the same rows, and return their accuracy or R2 on the test rows."""
    import pandas as pd
    from sklearn import ensemble, neural_network
    from sklearn.compose import TransformedTargetRegressor as Scaled
    from sklearn.compose import make_column_selector as of
    from sklearn.compose import make_column_transformer as by
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    frame = pd.DataFrame(columns).drop(columns=[name for name in ("PassengerId", "Name") if name in columns])
    x, y = frame.drop(columns=target), frame[target]
    words, numbers = of(dtype_exclude="number"), of(dtype_include="number")
    codes = by((OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), words), ("passthrough", numbers))
    onehot = by(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
    )
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trees = (ensemble.HistGradientBoostingClassifier if kinds else ensemble.HistGradientBoostingRegressor)(random_state=seed)
        found["trees"] = make_pipeline(codes, trees).fit(x.iloc[train], y.iloc[train]).score(x.iloc[test], y.iloc[test])
        network = neural_network.MLPClassifier if kinds else neural_network.MLPRegressor
        for name, early in (("mlp", False), ("mlp, early", True)):
            one: Any = network(random_state=seed, max_iter=500, early_stopping=early)
            one = one if kinds else Scaled(one, transformer=StandardScaler())
            found[name] = make_pipeline(onehot, one).fit(x.iloc[train], y.iloc[train]).score(x.iloc[test], y.iloc[test])
    return {name: float(value) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rows", type=int, default=20_000, help="rows at most")
    parser.add_argument("--draw", type=int, default=0, help="seed of the drawn tables")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--set", action="append", default=[], help="a change of the job, for development")
    parser.add_argument("--no-peers", action="store_true")
    asked = parser.parse_args()
    counts = [int(one) for one in asked.workers.split(",")]
    own = [f"{what} x{count}" for count in counts for what in ("partrain", "refit")]
    print(
        f"{machine()}; seeds {asked.first}-{asked.first + asked.seeds - 1}, draw {asked.draw}, at most {asked.rows:,} rows",
        flush=True,
    )
    print(
        "| table | rows | metric | trees | MLP | MLP, stopped early | "
        + " | ".join(own)
        + " |\n"
        + "|---" * (6 + len(own))
        + "|",
        flush=True,
    )
    for name in asked.tables.split(","):
        make, most, kinds = TABLES[name]
        columns, target = make(np.random.default_rng([asked.draw, len(name)]), min(most, asked.rows))
        total = len(columns[target])
        scores: dict[str, list[float]] = {}
        for seed in range(asked.first, asked.first + asked.seeds):
            order = np.random.default_rng(seed).permutation(total)
            test, train = order[: total // 5], order[total // 5 :]
            with tempfile.TemporaryDirectory() as scratch:
                write(Path(scratch, "train.csv"), columns, train)
                write(Path(scratch, "test.csv"), columns, test)
                for count in counts:
                    for what, score in zip(
                        ("partrain", "refit"), partrain(Path(scratch), target, seed, count, asked.set), strict=True
                    ):
                        scores.setdefault(f"{what} x{count}", []).append(score)
            for peer, value in ({} if asked.no_peers else peers(columns, target, kinds, train, test, seed)).items():
                scores.setdefault(peer, []).append(value)
        middle = {key: statistics.median(values) for key, values in scores.items()}
        cells = [f"{middle.get(peer, math.nan):.4f}" for peer in ("trees", "mlp", "mlp, early")]
        cells += [f"{middle[key]:.4f} ({min(scores[key]):.3f}-{max(scores[key]):.3f})" for key in own]
        print(f"| {name} | {total:,} | {'accuracy' if kinds else 'R2'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
