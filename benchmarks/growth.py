"""How the cost of a round grows: with parameters, workers, local iterations, items, and simulated workers, each beside its physical bound.

    python benchmarks/growth.py [CURVE...] [--most NUMBER]    # parameters, optimizers, workers, iterations, items, simulated; records each

The overhead of a round is all of its time that is no local iteration: waiting, mixing, judging once, records and checkpoints. Its bound
is one copy of the network in memory, as a worker of two has to read and write two halves. Runs of one size differ by their seed.
`--most` leaves out larger sizes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from recording import record
from runs import partrain

from partrain.bench.mixing import copy_us

SEEDS = 3
MNIST = """\
name = "growth"
model = {{name = "mlp", hidden = [{hidden}]}}
dataset = {{name = "mnist", validation = 100}}
optimizer = {{{optimizer}, lr = 1e-5, batch_size = {batch}}}
sync = {{rule = "average", iterations = {iterations}}}
workers = [{{count = {workers}}}]
transport = {{kind = "{transport}"}}
stop = {{rounds = {rounds}, judge_every = {rounds}}}
"""
ITEMS = """\
name = "growth"
model = {{name = "mlp", hidden = [16]}}
dataset = {{kind = "npy", inputs = "inputs.npy", targets = "targets.npy", validation = 100}}
task = {{kind = "classification"}}
optimizer = {{name = "sgd", lr = 1e-5, batch_size = 64}}
sync = {{rule = "average", iterations = 10}}
workers = [{{count = 2}}]
stop = {{rounds = {rounds}, judge_every = {rounds}}}
"""


def measured(text: str, folder: Path) -> list[dict[str, float]]:
    """Train a job by several seeds: seconds of training, of computing by the slowest worker, rounds, seconds of the whole run."""
    job = folder / "growth.toml"
    job.write_text(text)
    runs = []
    for seed in range(SEEDS):
        summary = partrain(job, f"seed={seed}")
        compute = max(worker["seconds"]["compute"] for worker in summary["workers"])
        runs.append({**summary["seconds"], "compute": compute, "rounds": summary["rounds"]})
    return runs


def overheads(runs: list[dict[str, float]]) -> list[float]:
    """Microseconds of each round that are no local iteration."""
    return [(run["train"] - run["compute"]) / run["rounds"] * 1e6 for run in runs]


def rounds_us(runs: list[dict[str, float]]) -> list[float]:
    """Microseconds of each round."""
    return [run["train"] / run["rounds"] * 1e6 for run in runs]


def mnist(folder: Path, **settings: Any) -> list[dict[str, float]]:
    """Train an MLP on MNIST."""
    plain = {
        "optimizer": 'name = "sgd"',
        "hidden": 13,
        "batch": 1,
        "iterations": 1,
        "workers": 2,
        "transport": "shared",
        "rounds": 300,
    }
    return measured(MNIST.format(**plain | settings), folder)


def parameters(most: float, folder: Path) -> Iterator[dict[str, Any]]:
    for hidden in (13, 126, 1258, 12579, 125786):
        count = 795 * hidden + 10
        if count <= most:
            runs = mnist(folder, hidden=hidden, rounds=max(10, min(300, 30_000_000 // count)))
            yield {"parameters": count, "overhead of a round, us": overheads(runs), "one copy, us": copy_us(count)}


def optimizers(most: float, folder: Path) -> Iterator[dict[str, Any]]:
    """An iteration with one item moves little but parameters: forward reads them, backward writes gradients, the step does the rest."""
    for hidden in (1258, 25157, 125786):
        count = 795 * hidden + 10
        for text, step in (('name = "sgd"', 3), ('name = "sgd", momentum = 0.9', 5), ('name = "adam"', 7)):
            if count <= most:
                runs = mnist(folder, optimizer=text, hidden=hidden, workers=1, iterations=5, rounds=10)
                times = [run["compute"] / run["rounds"] / 5 * 1e6 for run in runs]
                passes = (2 + step) / 2  # a copy is two
                yield {
                    "parameters": count,
                    "iteration, us": times,
                    "memory traffic, us": copy_us(count) * passes,
                    "optimizer": text,
                }


def workers(most: float, folder: Path) -> Iterator[dict[str, Any]]:
    cores, alone = len(os.sched_getaffinity(0)), statistics.median(rounds_us(mnist(folder, workers=1, batch=64)))
    for count in (1, 2, 4, 8, 16, 32, 64):
        if count <= most:
            runs = mnist(folder, workers=count, batch=64, rounds=200)
            bound = alone * max(1.0, count / cores)
            yield {"workers": count, "time of a round, us": rounds_us(runs), "iterations of all, shared by the cores, us": bound}


def iterations(most: float, folder: Path) -> Iterator[dict[str, Any]]:
    for count in (1, 2, 5, 10, 20, 50, 100):
        if count <= most:
            runs = mnist(folder, hidden=126, batch=64, iterations=count, rounds=max(30, 1000 // count))
            yield {"iterations": count, "overhead of a round, us": overheads(runs), "one copy, us": copy_us(126 * 795 + 10)}


def items(most: float, folder: Path) -> Iterator[dict[str, Any]]:
    for count in (10**3, 10**4, 10**5, 10**6, 10**7, 10**8):
        if count <= most:
            inputs = np.lib.format.open_memmap(folder / "inputs.npy", "w+", np.float32, (count, 4))
            targets = np.lib.format.open_memmap(folder / "targets.npy", "w+", np.int64, (count,))
            for first in range(0, count, 10**6):
                part = np.random.default_rng(first).standard_normal((min(10**6, count - first), 4), dtype=np.float32)
                inputs[first : first + len(part)], targets[first : first + len(part)] = part, part[:, 0] > 0
            runs = measured(ITEMS.format(rounds=200), folder)
            seconds = [run["total"] for run in runs]
            yield {
                "items": count,
                "whole run of 200 rounds, s": seconds,
                "one pass over the numbers of a permutation, s": 8 * count / 5e9,
            }


def simulated(most: float, folder: Path) -> Iterator[dict[str, Any]]:
    alone = statistics.median(rounds_us(mnist(folder, workers=1, batch=8)))
    for count in (1, 10, 100, 1000, 10_000):
        if count <= most:
            runs = mnist(folder, workers=count, batch=4, transport="simulated", rounds=max(3, 300 // count))
            real = [run["total"] - run["startup"] for run in runs]  # training seconds are simulated
            times = [seconds / run["rounds"] * 1e6 for seconds, run in zip(real, runs, strict=True)]
            yield {"simulated workers": count, "time of a round, us": times, "their iterations alone, us": alone * count}


Curve = Callable[[float, Path], Iterator[dict[str, Any]]]
CURVES: dict[str, tuple[str, Curve]] = {
    "parameters": ("A round by parameters: two workers, one iteration", parameters),
    "optimizers": ("A local iteration by parameters and optimizer: one worker, one item", optimizers),
    "workers": ("A round by workers: one iteration of batch 64", workers),
    "iterations": ("A round by local iterations: two workers, batch 64", iterations),
    "items": ("A run by items, mapped from a file", items),
    "simulated": ("A round by simulated workers", simulated),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", choices=[*CURVES, []], help="default: all")
    parser.add_argument("--most", type=float, default=float("inf"))
    given = parser.parse_args()
    for name in given.curves or CURVES:
        title, curve = CURVES[name]
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for row in curve(given.most, Path(folder)):
                rows.append(row)
                print(name, row, flush=True)
        x, y, bound, *series = rows[0]
        chart = {"x": x, "y": y, "bound": bound, "log": ["x", "y"]} | ({"series": series[0]} if series else {})
        record(f"growth-{name}", title, rows, chart=chart)


if __name__ == "__main__":
    main()
