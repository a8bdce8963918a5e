"""How often the course that a run tells at its end is right: each job is trained again for twice its rounds.

    python benchmarks/verdicts.py 60 8      # 60 drawn jobs, drawn with seed 8; records results/verdicts.json

`improving` is right if the twice as long run has a judged loss below the least of the run, by more than 2 % of the range of its losses;
`past its best` is right if it has not. A rate that falls, falls over all rounds of each run.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recording import record

import partrain

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


def main(count: int, seed: int) -> None:
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


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
