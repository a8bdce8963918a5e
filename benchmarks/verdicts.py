"""How often the sentences at the end of a run are right, on drawn jobs.

    python benchmarks/verdicts.py course 60 8       # 60 jobs, drawn with seed 8; records results/verdicts.json
    python benchmarks/verdicts.py trivial 60 8      # records results/verdicts-trivial.json

`course`: each job is trained again for twice its rounds. `improving` is right if the twice as long run has a judged loss below the least of the run, by more than 2 % of the range of its losses;
`past its best` is right if it has not. A rate that falls, falls over all rounds of each run.

`trivial`: network and trivial answer are judged on 20,000 fresh rows by the number that compared them. `better` is right if the network is
better on these, `no better` if it is not, or by less than 1 % of the trivial answer's number.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from recording import record

import partrain
from partrain.record.result_lines import verdict

HELPED = 0.02
"""Share of the range of judged losses from which more rounds helped."""
COURSES = {"improving": True, "past its best": False, "(none)": None}
"""The course in summary.json, and whether more rounds should help then: None if it claims nothing."""


def drawn(count: int, seed: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Draw jobs: the tables of each, its rounds, and the rounds between two judgements."""
    draw = random.Random(seed)
    for number in range(count):
        function = draw.choice(["sine", "blobs", "xor", "spirals", "moons", "checkerboard", "waves", "mnist-1d"])
        items = draw.choice([150, 400, 1500])
        dataset = {"kind": "synthetic", "function": function, "items": items, "validation": max(30, items // 5)}
        if function not in ("checkerboard", "mnist-1d"):
            dataset["noise"] = draw.choice([0.1, 0.5, 1.5])
        optimizer = {"name": draw.choice(["adam", "sgd", "adamw"])}
        optimizer["lr"] = draw.choice([0.001, 0.003, 0.01, 0.03]) * (5 if optimizer["name"] == "sgd" else 1)
        optimizer["batch_size"] = draw.choice([8, 32])
        if draw.random() < 0.4:
            optimizer["schedule"] = draw.choice(["cosine", "linear"])
        rounds, judge_every = draw.choice([12, 25, 50, 100]), draw.choice([1, 1, 2, 4])
        tables = {
            "model": {"name": "mlp", "hidden": draw.choice([[8], [32], [64, 64]])},
            "dataset": dataset,
            "optimizer": optimizer,
            "sync": {"rule": "average", "iterations": draw.choice([2, 5, 15])},
            "workers": draw.choice([1, 2]),
            "transport": {"kind": "simulated"},
            "seed": number,
        }
        yield tables, rounds, judge_every


def course(count: int, seed: int) -> None:
    found = Counter[tuple[str, bool]]()
    with tempfile.TemporaryDirectory() as folder:
        for number, (tables, rounds, judge_every) in enumerate(drawn(count, seed)):
            runs = []
            for factor in (1, 2):
                stop = {"rounds": factor * rounds, "judge_every": judge_every}
                trained = partrain.train(**tables, stop=stop, out=Path(folder) / f"{number}-{factor}")
                runs.append(trained.folder)
            course = json.loads((runs[0] / "summary.json").read_text()).get("course", "(none)")
            losses, longer = map(judged, runs)
            helped = min(longer) < min(losses) - HELPED * (max(losses) - min(losses))
            found[course, helped] += 1
    rows = []
    for course, right in COURSES.items():
        cases = {helped: found[course, helped] for helped in (True, False)}
        row: dict[str, Any] = {"the run tells": course, "more rounds helped": cases[True], "did not": cases[False]}
        rows.append(row | ({} if right is None else {"right": cases[right] / max(1, sum(cases.values()))}))
        print(rows[-1])
    record("verdicts", f"What a run tells about more rounds, against twice the rounds ({count} drawn jobs)", rows)


def judged(folder: Path) -> list[float]:
    """Read the judged losses of a run."""
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [event["loss"] for event in events if event["event"] == "judgement" and event["loss"] is not None]


FRESH = 20_000
"""Fresh rows."""
MATERIAL = 0.01
"""Share of the trivial answer's number from which a difference counts against `no better`."""


class Problem(NamedTuple):
    """A drawn problem: a function that draws rows, and what a job needs beside them."""

    kind: str
    draw: Callable[[int, np.random.Generator], tuple[NDArray[Any], NDArray[Any]]]
    """Function that draws this number of items (n, d) and targets (n,) or (n, 1)."""


def table_problem(draw: random.Random) -> Problem:
    """Draw a table whose columns tell much, little or nothing of the target: one of equal or unequal classes, or a number."""
    width, strength = draw.choice([2, 8]), draw.choice([0.0, 0.2, 0.6, 2.0])
    kind = draw.choice(["classes", "unequal classes", "three classes", "numbers", "heavy tails"])
    weights = np.array([[draw.gauss(0, 1) for _ in range(3)] for _ in range(width)]) * strength / width**0.5

    def rows(count: int, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        items = generator.normal(size=(count, width))
        signal = items @ weights
        if kind in ("numbers", "heavy tails"):
            noise = generator.normal(size=count) if kind == "numbers" else generator.standard_t(2, size=count)
            return items.astype(np.float32), (signal[:, :1] + np.abs(signal[:, 1:2]) + noise[:, None]).astype(np.float32)
        logits = 2 * signal if kind == "three classes" else 2 * signal[:, :2] + [2.0 * (kind == "unequal classes"), 0.0]
        return items.astype(np.float32), (logits + generator.gumbel(size=logits.shape)).argmax(1)

    return Problem(kind, rows)


def of_table(draw: random.Random, number: int, folder: Path) -> tuple[str, dict[str, Any], float, float]:
    """Train on a drawn table. Returns its kind, the comparison that the run told, and both numbers on fresh rows."""
    problem, generator = table_problem(draw), np.random.default_rng(number)
    items, held = draw.choice([60, 200, 800]), draw.choice([40, 100, 300])
    inputs, targets = problem.draw(items + held, generator)
    tested = draw.random() < 0.5
    dataset: Any = {"inputs": inputs, "targets": targets, "validation": held}
    if tested:
        dataset |= {"test_items": held // 2, "validation": held // 2}
    trained = partrain.train(**settings(draw, number), dataset=dataset, out=folder)
    ((name, told),) = json.loads((folder / "summary.json").read_text())["comparisons"].items()
    assert name == "constant"
    inputs, fresh = problem.draw(FRESH, generator)
    if told["by"] == "mae":
        return problem.kind, told, np.abs(trained.predict(inputs) - fresh.ravel()).mean(), np.abs(targets.mean() - fresh).mean()
    if told["by"] == "accuracy":
        commonest = np.bincount(targets).argmax()
        return problem.kind, told, (trained.predict(inputs) == fresh).mean(), (commonest == fresh).mean()
    scores = trained.predict_proba(inputs)[:, 1]
    ranks = scores.argsort().argsort()[fresh == 1]
    above = ranks.sum() - len(ranks) * (len(ranks) - 1) / 2
    return problem.kind, told, above / (len(ranks) * (FRESH - len(ranks))), 0.5


def of_series(draw: random.Random, number: int, folder: Path) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    """Train on a drawn series; yield the same for each rule that forecasts, on the rows that follow."""
    generator, season = np.random.default_rng(number), 12
    kind = draw.choice(["nearly a random walk", "autoregressive", "seasonal", "seasonal with outages"])
    noise = generator.normal(size=FRESH + 1500)
    match kind:
        case "nearly a random walk" | "autoregressive":
            values, kept = noise.copy(), 0.7 if kind == "autoregressive" else 0.97
            for at in range(1, len(values)):
                values[at] += kept * values[at - 1]
        case _:
            values = 2 * np.sin(np.arange(len(noise)) * 2 * np.pi / season) + draw.choice([0.3, 1.0]) * noise
    if kind == "seasonal with outages":
        values[generator.random(len(values)) < 0.01] += 40
    rows = draw.choice([300, 600, 1500])
    for name, part in (("known", values[:rows]), ("fresh", values[rows:])):
        (folder.parent / f"{name}-{number}.csv").write_text("\n".join(["y", *(f"{value:.5f}" for value in part), ""]))
    held, table = rows // draw.choice([10, 5]), {"target": "y", "window": 14, "season": season}
    dataset = {"kind": "series", "path": str(folder.parent / f"known-{number}.csv"), "validation": held, **table}
    trained = partrain.train(**settings(draw, number), dataset=dataset, out=folder)
    fresh = trained.evaluate(folder.parent / f"fresh-{number}.csv")
    for name, told in json.loads((folder / "summary.json").read_text())["comparisons"].items():
        yield kind, told, fresh["mae"], fresh[name]["mae"]


def settings(draw: random.Random, number: int) -> dict[str, Any]:
    """Draw the tables of a job beside its data."""
    return {
        "model": {"name": "mlp", "hidden": draw.choice([[4], [32]])},
        "optimizer": {"name": "adam", "lr": draw.choice([0.001, 0.01]), "batch_size": 16},
        "sync": {"rule": "average", "passes": 1},
        "workers": draw.choice([1, 2]),
        "transport": {"kind": "simulated"},
        "stop": {"rounds": draw.choice([4, 30])},
        "seed": number,
    }


def trivial(count: int, seed: int) -> None:
    draw, told, kinds = random.Random(seed), Counter[tuple[str, bool]](), Counter[tuple[str, str, bool]]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            run = Path(folder) / str(number)
            cases = of_series(draw, number, run) if number % 3 == 2 else [of_table(draw, number, run)]
            for kind, comparison, network, other in cases:
                gain = (other - network if comparison["by"] == "mae" else network - other) / other
                words = verdict(comparison)
                right = gain > 0 if words == "better" else gain < MATERIAL if words == "no better" else gain > 0
                told[words, bool(right)] += 1
                kinds[kind, words, bool(right)] += 1
    rows: list[dict[str, Any]] = []
    for words in ("better", "no better", "unsure"):
        yes, no = told[words, True], told[words, False]
        better, worse = (no, yes) if words == "no better" else (yes, no)
        row: dict[str, Any] = {"the run tells": words, "better on fresh rows": better, "not better": worse}
        rows.append(row | ({} if words == "unsure" else {"right": yes / max(1, yes + no)}))
        print(rows[-1])
    print(*sorted(kinds.items()), sep="\n")
    record(
        "verdicts-trivial",
        f"Whether a run's network is better than a trivial answer, against {FRESH:,} fresh rows ({count} drawn jobs)",
        rows,
    )


if __name__ == "__main__":
    {"course": course, "trivial": trivial}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
