"""How often the sentences on workers are right: whether more of them paid, and what kept them from computing. On an idle machine.

    python benchmarks/verdicts_workers.py paid 24 8       # 24 jobs, drawn with seed 8; records results/verdicts-paid.json
    python benchmarks/verdicts_workers.py causes 8 8      # 8 jobs of each kind; records results/verdicts-causes.json

`paid`: each job trains with one worker and with two, and `report` compares the two runs; `bench` would compare three such pairs of runs.
Three further pairs, all with other seeds, tell how it is: `paid` is right if two workers come to the result that both reach sooner in the median of these.

`causes`: each job has one thing that keeps its workers from computing, or none. The sentence is right if it names that thing, and, where
it gives advice (mix less often, fewer workers), if the advice makes the run at least as fast, by item-iterations per second.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from recording import record

import partrain
from partrain.record import added_speed
from partrain.record.waiting import cause
from partrain.report.history import RunHistory, read_history
from partrain.report.verdict import compare, verdict
from partrain.system.cores import usable_cores

PAIRS = 3
"""Further pairs of runs that tell whether more workers pay."""
JUDGED = 6_400
"""Item-iterations between two judgements."""
AS_FAST = 0.95
"""Ratio of two speeds from which advice did not make a run slower."""


def drawn(draw: random.Random) -> dict[str, Any]:
    """Draw the tables of a job whose workers may or may not help."""
    batch, iterations = draw.choice([16, 64, 256]), draw.choice([1, 3, 10, 40])
    optimizer = {"name": draw.choice(["sgd", "adam"]), "batch_size": batch}
    optimizer["lr"] = draw.choice([0.001, 0.004] if optimizer["name"] == "adam" else [0.02, 0.1])
    function = draw.choice(["spirals", "waves", "checkerboard", "mnist-1d"])
    return {
        "model": {"name": "mlp", "hidden": draw.choice([[32], [64, 64], [256, 256]])},
        "dataset": {"kind": "synthetic", "function": function, "items": 8000, "validation": 2000},
        "optimizer": optimizer,
        "sync": {"rule": "average", "iterations": iterations},
    }


def run(tables: dict[str, Any], workers: Any, items: int, folder: Path, seed: int, **more: Any) -> RunHistory:
    """Train for about this many item-iterations, judged at equal distances whatever the number of workers."""
    count = workers if isinstance(workers, int) else sum(group.get("count", 1) for group in workers)
    share = count * tables["optimizer"]["batch_size"] * tables["sync"]["iterations"]
    stop = {"item_iterations": max(2 * share, items), "judge_every": max(1, JUDGED // share)}
    trained = partrain.train(
        **tables, workers=workers, stop=stop, seed=seed, out=folder / f"{len(list(folder.iterdir()))}", **more
    )
    return read_history(trained.folder, trained.folder.name)


def paid(count: int, seed: int) -> None:
    """Compare what one pair of runs tells, and what three pairs tell, with further pairs."""
    draw, told = random.Random(seed), Counter[tuple[str, bool | None, bool]]()
    for number in range(count):
        tables, items = drawn(draw), draw.choice([150_000, 400_000])
        with tempfile.TemporaryDirectory() as scratch:
            pairs = [
                [run(tables, workers, items, Path(scratch), 100 * number + pair) for workers in (1, 2)]
                for pair in range(2 * PAIRS)
            ]
        known = [compare(both, alone) for alone, both in pairs]
        ratios = [[pair.speedup for pair in some if pair] for some in (known[:1], known[:PAIRS], known[PAIRS:])]
        print(number, verdict(pairs[0][::-1]), ratios[1:], sep="\t", flush=True)
        for name, first in zip(("one pair", "three pairs"), ratios, strict=False):
            shortest = min((min(pair.seconds, pair.alone) for pair in known[: len(first)] if pair), default=0.0)
            if ratios[2]:
                told[name, added_speed.paid(first, shortest) if first else None, median(ratios[2]) > 1] += 1
    rows = []
    for name in ("one pair", "three pairs"):
        for answer, words in ((True, "paid"), (False, "did not pay"), (None, "unknown")):
            row: dict[str, Any] = {"of": name, "told": words} | {
                truth: told[name, answer, truth == "sooner"] for truth in ("sooner", "later")
            }
            right = row["sooner"] if answer else row["later"]
            rows.append(row | ({} if answer is None else {"right": right / max(1, row["sooner"] + row["later"])}))
            print(rows[-1])
    record(
        "verdicts-paid",
        f"Whether two workers paid, against the median of {PAIRS} further pairs of runs ({count} drawn jobs)",
        rows,
    )


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep cores busy with other processes."""
    others = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(processes)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _spin() -> None:
    while True:
        pass


def speed(history: RunHistory) -> float:
    """Return the item-iterations per second of a run."""
    return float(history.summary["item_iterations"]) / float(history.summary["seconds"]["train"])


Case = tuple[str, bool]
"""The sentence, and whether it was right."""


def others(draw: random.Random, folder: Path, seed: int) -> Case:
    """Train next to busy processes."""
    tables = calm(draw)
    with busy(draw.choice([1, 2, 3])):
        sentence = cause(run(tables, 2, long(tables), folder, seed).summary)
    return sentence, "other programs used the cores" in sentence


def too_many(draw: random.Random, folder: Path, seed: int) -> Case:
    """Train with more workers than cores."""
    tables, cores = calm(draw), usable_cores()
    history = run(tables, cores + draw.choice([1, 2, 4]), long(tables), folder, seed)
    sentence = cause(history.summary)
    return sentence, "fewer workers may be as fast" in sentence and speed(
        run(tables, cores, long(tables), folder, seed)
    ) >= AS_FAST * speed(history)


def nothing(draw: random.Random, folder: Path, seed: int) -> Case:
    """Train where nothing keeps the workers from computing."""
    tables = calm(draw)
    sentence = cause(run(tables, 2, long(tables), folder, seed).summary)
    return sentence, not sentence


def often(draw: random.Random, folder: Path, seed: int) -> Case:
    """Mix a large network after each iteration of a small batch."""
    tables = drawn(draw)
    tables["model"]["hidden"], tables["optimizer"]["batch_size"], tables["sync"]["iterations"] = (
        [draw.choice([512, 1024])] * 2,
        8,
        1,
    )
    history = run(tables, 2, 40_000, folder, seed)
    sentence = cause(history.summary)
    tables["sync"]["iterations"] = 16
    return sentence, "workers mixed" in sentence and speed(run(tables, 2, 40_000, folder, seed)) > speed(history)


def slow(draw: random.Random, folder: Path, seed: int) -> Case:
    """Slow one worker down, in simulated time."""
    tables, factor, rank = calm(draw), draw.choice([2.0, 3.0, 5.0]), draw.choice([0, 1, 2])
    tables["model"]["hidden"], tables["optimizer"]["batch_size"] = [32], 16  # many iterations: each takes a simulated millisecond
    pace = {"kind": "simulated", "speed": [1 / factor if worker == rank else 1.0 for worker in range(3)]}
    sentence = cause(run(tables, 3, 200_000, folder, seed, transport=pace).summary)
    return sentence, f"worker {rank} takes {factor:.1f} times as long" in sentence


def uneven(draw: random.Random, folder: Path, seed: int) -> Case:
    """Give one of the workers more iterations in each round."""
    tables, rank = calm(draw), draw.choice([0, 1])
    workers = [
        {"device": "cpu", "iterations": (2 if worker == rank else 1) * tables["sync"]["iterations"]} for worker in range(2)
    ]
    sentence = cause(run(tables, workers, long(tables), folder, seed).summary)
    return sentence, f"most for worker {rank}, which computes longest" in sentence


def jittery(draw: random.Random, folder: Path, seed: int) -> Case:
    """Let iterations take unequal time, in simulated time."""
    tables, spread = calm(draw), draw.choice([1.0, 1.5])
    tables["sync"]["iterations"] = draw.choice([1, 2, 3])
    pace = {"kind": "simulated", "jitter": [spread]}
    history = run(tables, 4, long(tables) // 4, folder, seed, transport=pace)
    sentence = cause(history.summary)
    tables["sync"]["iterations"] *= 8
    return sentence, "not always the same" in sentence and speed(
        run(tables, 4, long(tables) // 4, folder, seed, transport=pace)
    ) > speed(history)


def calm(draw: random.Random) -> dict[str, Any]:
    """Draw a job that mixes seldom."""
    tables = drawn(draw)
    tables["sync"]["iterations"] = draw.choice([40, 80])
    tables["model"]["hidden"], tables["optimizer"]["batch_size"] = draw.choice([[128, 128], [512, 512]]), draw.choice([64, 128])
    return tables


def long(tables: dict[str, Any]) -> int:
    """Return the item-iterations of some seconds."""
    return 600_000 if tables["model"]["hidden"][0] > 128 else 2_400_000


KINDS: dict[str, Callable[[random.Random, Path, int], Case]] = {
    "other programs": others,
    "more workers than cores": too_many,
    "one slow worker": slow,
    "one worker with more to do": uneven,
    "iterations of unequal time": jittery,
    "mixing too often": often,
    "nothing": nothing,
}


def causes(count: int, seed: int) -> None:
    """Compare the cause that a run tells with the one that it was given."""
    draw, rows = random.Random(seed), []
    for name, kind in KINDS.items():
        cases = []
        for number in range(count):
            with tempfile.TemporaryDirectory() as scratch:
                cases.append(kind(draw, Path(scratch), number))
            print(name, *cases[-1], sep="\t", flush=True)
        right, silent = (sum(map(bool, cases)) for cases in ([right for _, right in cases], [not words for words, _ in cases]))
        rows.append({"what kept the workers": name, "jobs": count, "silent": silent, "right": right})
        rows[-1] |= {"share right": right / max(1, count - silent if kind is not nothing else count)}
        print(rows[-1])
    record(
        "verdicts-causes",
        f"The cause of waiting that a run tells, against the one that it was given ({count} jobs of each kind)",
        rows,
    )


if __name__ == "__main__":
    {"paid": paid, "causes": causes}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
