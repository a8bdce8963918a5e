"""Workers of different speed: what `[partition] balance = "rate"` gains, and whether a fast worker should get iterations or items per batch.

    python benchmarks/balance.py 3      # runs of each kind, in turn; records results/balance.json

The devices are two emulated ones (tests/support/emulated), whose operations take 2 and 2 r times as long: they sleep, so that two
cores are enough. The last pair are two CPU workers, one of which shares its core with a busy process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recording import record
from runs import machine, shown

EMULATED = Path(__file__).parents[1] / "tests" / "support" / "emulated"
ROUNDS, SETTLED = 34, 21
"""Rounds of a run, and the first of those that are compared: balance is found by then."""
JOB = """
name = "unequal"
[model]
name = "mlp"
hidden = [64]
[dataset]
kind = "synthetic"
function = "blobs"
items = 21000
features = 64
noise = 2.0
validation = 1000
[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
batch_size = 64
[sync]
rule = "average"
iterations = {iterations}
[partition]
balance = "{balance}"
{workers}
[stop]
rounds = {rounds}
judge_every = {judge_every}
"""
DEVICES = '[[workers]]\ndevice = "emulated:0"\n{fast}[[workers]]\ndevice = "emulated:1"\n{slow}'
CORES = '[[workers]]\ncpus = "0"\n[[workers]]\ncpus = "1"\n'


@contextmanager
def slowness(*factors: float) -> Iterator[None]:
    """Slow the emulated devices down."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(EMULATED), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    os.environ["EMULATED_SLOWNESS"] = ",".join(map(str, factors))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def busy_core(core: int) -> Iterator[None]:
    """Keep a core busy."""
    process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(
    workers: str, *, balance: str = "none", iterations: int = 60, judge_every: int = ROUNDS, seed: int = 0
) -> list[dict[str, Any]]:
    """Train, and return the events."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        job.write_text(
            JOB.format(workers=workers, balance=balance, iterations=iterations, rounds=ROUNDS, judge_every=judge_every)
        )
        words = ["run", str(job), "--out", f"{folder}/run", "-q", "--set", f"seed={seed}"]
        done = subprocess.run([sys.executable, "-m", "partrain", *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return [json.loads(line) for line in (Path(folder) / "run" / "events.jsonl").read_text().splitlines()]


def settled(events: list[dict[str, Any]], since: int = SETTLED) -> tuple[float, float]:
    """Item-iterations per second, and the share of waiting, of the rounds that are compared: those from `since` on."""
    rounds = [event for event in events if event["event"] == "round" and event["round"] >= since]
    ends = [event["seconds"] for event in rounds]
    first = sum(event["items"] for event in rounds if event["round"] == since)
    wait = sum(event["wait"] for event in rounds)
    return (sum(event["items"] for event in rounds) - first) / (max(ends) - min(ends)), wait / (
        wait + sum(event["compute"] + event["mix"] for event in rounds)
    )


def main(pairs: int) -> None:
    print(f"workers of different speed, {pairs} runs each; {machine()}")
    rows: list[dict[str, Any]] = []
    both = DEVICES.format(fast="", slow="")
    cases = [(f"emulated, ratio {ratio:g}", both, slowness(2, 2 * ratio)) for ratio in (1.5, 4, 20)]
    for name, workers, place in [*cases, ("CPU, one core shared", CORES, busy_core(1))]:
        speeds: dict[str, list[float]] = {"none": [], "rate": []}
        waits: dict[str, list[float]] = {"none": [], "rate": []}
        with place:
            for seed in range(pairs):
                for balance in speeds:
                    speed, wait = settled(run(workers, balance=balance, seed=seed))
                    speeds[balance].append(speed)
                    waits[balance].append(wait)
        gain = [rate / none for rate, none in zip(speeds["rate"], speeds["none"], strict=True)]
        print(f"{name}: waiting {shown(waits['none'])} -> {shown(waits['rate'])}, items per second x {shown(gain)}", flush=True)
        rows.append(
            {
                "workers": name,
                "waiting": waits["none"],
                "waiting, balanced": waits["rate"],
                "balanced / not, items per second": gain,
            }
        )
    # The fast one is four times as fast: four times the iterations, or four times the items per batch.
    ways = {"iterations x 4": "iterations = 80\n", "items per batch x 4": "batch_size = 256\n"}
    losses: dict[str, list[float]] = {way: [] for way in ways}
    with slowness(2, 8):
        for seed in range(pairs):
            for way, fast in ways.items():
                events = run(DEVICES.format(fast=fast, slow=""), iterations=20, judge_every=5, seed=seed)
                losses[way].append([event["loss"] for event in events if event["event"] == "judgement"][3])
    for way, values in losses.items():
        print(f"the fast one gets {way}: judged loss in round 20 {shown(values)}", flush=True)
        rows.append({"workers": f"the fast one gets {way}", "judged loss in round 20": values})
    record(
        "balance",
        "Workers of different speed",
        rows,
        notes=[f'Rounds {SETTLED} to {ROUNDS} of `balance = "rate"` and of equal shares. Wanted: waiting of at most 5 %.'],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
