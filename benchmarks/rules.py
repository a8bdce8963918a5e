"""Every sync rule on MNIST to 97 % of held-out items: two real workers, many simulated ones, one slow among four.

    python benchmarks/rules.py real                two worker processes, wall-clock seconds, seeds in turn: on an idle machine only
    python benchmarks/rules.py simulated 4 8       so many simulated workers, simulated seconds (an iteration takes 1 ms, each
                                                   message or meeting 0.3 ms): the same figures on any machine
    python benchmarks/rules.py straggler           four simulated workers, then one of them four times slower

One budget for all rules: 320,000 item-iterations, over which the learning rate warms up (a tenth) and falls linearly to zero. For
each rule and number of workers the learning rate is the best of 1/2, 1 and 2 times the one of its job in jobs/rules, by
simulated seconds to the target on seed 1000 (rprop, whose full batches take ten times the work, is run as its job has it, and
with two workers only: with more it does the same). Then the seeds 0, 1, ... are run.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from runs import machine

from partrain.bench import spread
from partrain.bench.compare import facts
from partrain.console import Display
from partrain.job import load
from partrain.launch.run import Stage, new_folder, run
from partrain.rules import AnyRule
from partrain.view import View

JOBS = Path(__file__).parents[1] / "jobs" / "rules"
RULES = ("average", "bsp", "slowmo", "diloco", "fednova", "easgd", "easgd-async", "gossip", "push-sum", "async", "hogwild",
         "threshold", "topk", "fp16", "choco", "sparseloco", "swap", "rprop")  # fmt: skip
BUDGET, CADENCE = 320_000, 12_800
"""Item-iterations of a run, and between two judgements."""
FACTORS = (0.5, 1.0, 2.0)
HEAD = ("rule", "workers", "lr", "reached", "seconds to target", "item-iterations to target", "judged", "test",
        "bytes / round / worker", "waiting", "staleness", "distance")  # fmt: skip
assert AnyRule


def settings(name: str, workers: int, factor: float, simulated: bool, speed: str = "[1.0]") -> tuple[list[str], float]:
    """What is changed in a rule's job, and the learning rate (of rprop the step size) that comes out."""
    job = tomllib.loads((JOBS / f"{name}.toml").read_text())
    sync = job["sync"]
    full = sync["rule"] == "rprop"
    rate = factor * (sync["step"] if full else job["optimizer"]["lr"])
    iterations = sync.get("iterations", 10)
    visits = sync.get("visits", 1)
    per_round = 55_000 * iterations if full else workers * iterations * visits * job["optimizer"]["batch_size"]
    limit = "rounds=20" if full else f"item_iterations={BUDGET}"
    changes = [
        f"sync.step={rate}" if full else f"optimizer.lr={rate}",
        f"sync.iterations={iterations}",
        f'workers=[{{device="cpu", count={workers}}}]',
        f"stop={{accuracy=0.97, {limit}, judge_every={max(1, round(CADENCE / per_round))}}}",
    ]
    if simulated:
        changes.append(f'transport={{kind="simulated", delay=[0.0003], speed={speed}}}')
    return changes, rate


def train(name: str, changes: list[str], seed: int, scratch: str) -> dict[str, Any]:
    """What came of one run."""
    folder = new_folder(Path(scratch) / f"{name}-{seed}-{time.monotonic_ns()}", name)
    outcome = run(load(JOBS / f"{name}.toml", [*changes, f"seed={seed}"]), Stage(folder, Display(View()), started=time.time()))
    if outcome.failure and outcome.failure.code != 76:
        raise outcome.failure
    if outcome.summary["status"] == "stopped":
        raise KeyboardInterrupt
    return facts(folder)


def tuned(name: str, workers: int, scratch: str) -> float:
    """The factor whose run on a seed of its own reaches the target first, or else comes nearest."""
    if name == "rprop":
        return 1.0

    def merit(factor: float) -> tuple[float, float]:
        found = train(name, settings(name, workers, factor, simulated=True)[0], 1000, scratch)
        return found["seconds_to_target"] or math.inf, -(found["accuracy"] or 0.0)

    return min(FACTORS, key=merit)


def row(name: str, workers: int, rate: float, found: list[dict[str, Any]]) -> str:
    """A line of the table."""

    def values(key: str) -> list[float]:
        return [float(one[key]) for one in found if one[key] is not None]

    def middle(key: str, digits: str) -> str:
        return f"{statistics.median(values(key)):{digits}}" if values(key) else "-"

    reached = sum(one["status"] == "reached" for one in found)
    whole = reached == len(found)
    cells = [name, str(workers), f"{rate:g}", f"{reached}/{len(found)}",
             spread(values("seconds_to_target")) if whole else "not reached",
             spread(values("items_to_target"), ",.0f") if whole else "-", spread(values("accuracy"), ".4f"),
             middle("test_accuracy", ".4f"), middle("bytes", ",.0f"), middle("waiting", ".0%"), middle("staleness", ".2f"),
             middle("distance", ".1e")]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def head(title: str, seeds: int) -> None:
    print(f"\n{title}; {seeds} seeds; {machine()}\n\n| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)


def real(seeds: int, scratch: str) -> None:
    """Two processes: rules in turn, seeds outermost, so that what the machine does meanwhile falls on all alike."""
    head("Two real workers, wall-clock seconds", seeds)
    plans = {name: settings(name, 2, tuned(name, 2, scratch), simulated=False) for name in RULES}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in RULES}
    for seed in range(seeds):
        for name, (changes, _) in plans.items():
            found[name].append(train(name, changes, seed, scratch))
    for name, (_, rate) in plans.items():
        print(row(name, 2, rate, found[name]), flush=True)


def simulated(counts: list[int], seeds: int, scratch: str) -> None:
    for workers in counts:
        head(f"{workers} simulated workers, simulated seconds", seeds)
        for name in RULES[:-1]:
            changes, rate = settings(name, workers, tuned(name, workers, scratch), simulated=True)
            print(row(name, workers, rate, [train(name, changes, seed, scratch) for seed in range(seeds)]), flush=True)


def straggler(seeds: int, scratch: str) -> None:
    """What a worker four times slower costs: seconds to target with it over those without, seed by seed."""
    head("Four simulated workers, all alike and with one of them four times slower", seeds)
    for name in ("average", "bsp", "easgd", "easgd-async", "gossip", "push-sum", "async", "hogwild"):
        factor = tuned(name, 4, scratch)
        times = []
        for label, speed in (("", "[1.0]"), (", one slow", "[1.0, 1.0, 1.0, 0.25]")):
            changes, rate = settings(name, 4, factor, simulated=True, speed=speed)
            found = [train(name, changes, seed, scratch) for seed in range(seeds)]
            times.append([one["seconds_to_target"] for one in found])
            print(row(name + label, 4, rate, found), flush=True)
        ratios = [slow / even for even, slow in zip(*times, strict=True) if slow and even]
        print(f"<!-- {name}: slowed down {spread(ratios)} times -->", flush=True)


def main(words: list[str]) -> None:
    numbers = [int(word) for word in words if word.isdigit()]
    with tempfile.TemporaryDirectory() as scratch:
        match words[0] if words else "":
            case "real":
                real(numbers[0] if numbers else 5, scratch)
            case "simulated":
                simulated(numbers or [4, 8, 16, 64], 3, scratch)
            case "straggler":
                straggler(numbers[0] if numbers else 3, scratch)
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
