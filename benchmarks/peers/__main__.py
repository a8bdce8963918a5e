"""`tune` finds each peer's shortest plan; `run` measures all peers and partrain in turn, seed by seed: `make bench-peers` does both.

`--target 0.98` asks for another test accuracy, with plans and a record of its own.

FANN needs `apt-get install libfann-dev`, brain.js needs node; a peer whose software is missing is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.recording import record

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLANS = HERE / "plans.json"
FANN = Path(sys.executable).parent / "peer-fann"
USUAL = 0.975
"""Test accuracy of the target."""
LENGTHS = [round(600 * 1.05**step / 20) * 20 for step in range(63)]
"""Lengths of plans, in batches of all workers together: bisection tries six of them."""
FAR = 0.004
OURS = "partrain (2 workers)"
SCHEDULED, CONSTANT, AVERAGED = (0.1, 0.15, 0.2, 0.3), (0.02, 0.05, 0.1, 0.15), (0.14, 0.2, 0.28, 0.4)


@dataclass(frozen=True)
class Peer:
    """A program, and its arguments beside the plan's. Peers with equal `plan` compute the same numbers and share a plan."""

    name: str
    plan: str
    program: str
    rates: tuple[float, ...]
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    momentum: float = 0.9
    workers: int = 1

    def missing(self) -> str:
        """Why it cannot run, or nothing."""
        if self.program == "fann" and not FANN.is_file():
            return "no cc or no libfann-dev when `make bench-peers` installed the peers"
        if self.program == "brain" and not (shutil.which("node") and (HERE / "node_modules/brain.js").is_dir()):
            return "no node, or no brain.js in benchmarks/peers/node_modules"
        absent = [package for package in self.needs if not any(distributions(name=package))]
        return f"no package {', '.join(absent)}" if absent else ""

    def train(self, length: int, rate: float, seed: int) -> dict[str, float]:
        """One run: seconds of training and of the whole process, test accuracy, item-iterations."""
        iterations, began = length // self.workers, time.perf_counter()
        if self.program == "partrain":
            done = partrain(self.workers, iterations, rate, seed)
        else:
            plan = {"iterations": iterations, "rate": rate, "momentum": self.momentum, "batch": 64, "seed": seed}
            if self.program == "fann":
                command = [str(FANN), *map(str, plan.values())]
            else:
                start = (
                    ["node", str(HERE / "brain.mjs")]
                    if self.program == "brain"
                    else [sys.executable, "-m", f"{__package__}.{self.program}"]
                )
                command = [*start, *self.arguments, *(f"--{key}={value}" for key, value in plan.items())]
            # numpy's products are slow with the kernels that some machines choose by these variables.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
            ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            if ended.returncode:
                raise RuntimeError(f"{self.name}: {ended.stderr[-2000:]}")
            done = json.loads(ended.stdout.splitlines()[-1])
        return done | {"whole": time.perf_counter() - began}


def partrain(workers: int, iterations: int, rate: float, seed: int) -> dict[str, float]:
    """jobs/mnist.toml with a fixed length, judged once at its end."""
    stop = f"stop={{rounds={iterations // 10}, judge_every={iterations // 10}}}"
    words = [stop, f'workers=[{{device="cpu", count={workers}}}]', f"optimizer.lr={rate}", f"seed={seed}"]
    summary = runs.partrain(ROOT / "jobs/mnist.toml", *words)
    seconds, accuracy = summary["seconds"]["train"], summary["test"]["accuracy"]
    return {"seconds": seconds, "accuracy": accuracy, "items": summary["item_iterations"]}


def peers() -> Iterable[Peer]:
    for threads in 1, 2:
        words, ending = (f"--threads={threads}",), f" ({threads} thread{'s' * (threads > 1)})"
        for method, rates, title in (
            ("constant", CONSTANT, "torch constant rate"),
            ("linear", SCHEDULED, "torch"),
            ("compile", SCHEDULED, "torch.compile"),
        ):
            plan = "torch constant rate" if method == "constant" else "torch"
            yield Peer(title + ending, plan, "torch_loop", rates, ("torch",), (f"--method={method}", *words))
        yield Peer("JAX and optax" + ending, "JAX", "jax_scan", SCHEDULED, ("jax", "optax"), words)
        yield Peer(
            "scikit-learn MLPClassifier constant rate" + ending, "scikit-learn", "sklearn_mlp", CONSTANT, ("scikit-learn",), words
        )
    yield Peer("Keras on JAX", "Keras", "keras_jax", SCHEDULED, ("keras", "jax"))
    for title, plan, method, package, rates in (
        ("torch hogwild", "torch hogwild", "hogwild", "torch", SCHEDULED),
        ("torch DDP", "torch DDP", "ddp", "torch", AVERAGED),
        ("torch PeriodicModelAverager", "local SGD", "averager", "torch", AVERAGED),
        ("accelerate LocalSGD", "local SGD", "accelerate", "accelerate", AVERAGED),
        ("torchft LocalSGD", "torchft LocalSGD", "local_sgd", "torchft", AVERAGED),
        ("torchft DiLoCo", "torchft DiLoCo", "diloco", "torchft", (0.05, 0.1, 0.2, 0.4)),
    ):
        yield Peer(f"{title} (2 processes)", plan, "torch_pair", rates, (package,), (f"--method={method}",), workers=2)
    yield Peer("brain.js", "brain.js", "brain", (0.01, 0.02, 0.05, 0.1), momentum=0.1)
    yield Peer("FANN", "FANN", "fann", (0.1, 0.2, 0.5, 1.0), momentum=0.0)
    yield Peer("partrain (1 worker)", "partrain (1 worker)", "partrain", SCHEDULED)
    yield Peer(OURS, OURS, "partrain", (0.1, 0.15, 0.2, 0.25), workers=2)


def plan_of(peer: Peer, target: float) -> str:
    """The name of a peer's plan to a target."""
    return peer.plan if target == USUAL else f"{peer.plan} to {target:.1%}"


def tune(chosen: list[Peer], seeds: int, lengths: list[int], plans: dict[str, Any], target: float) -> None:
    """The shortest length at which some of four learning rates has a median test accuracy of the target; of these rates the best.

    A rate that is FAR below the best one at a length is not tried at the next ones.
    """
    for name, peer in {plan_of(peer, target): peer for peer in reversed(chosen)}.items():
        if reason := peer.missing():
            print(f"{name}: not installed: {reason}", flush=True)
            continue
        low, high, began, rates = 0, len(lengths) - 1, time.perf_counter(), list(peer.rates)
        plan = None
        # The work of two processes depends on no other one's, hogwild's but for its order: only one thread each runs twice at once.
        with ThreadPoolExecutor(2 // peer.workers) as pool:
            while low <= high:
                length = lengths[middle := (low + high) // 2]
                chosen_seeds = range(1000, 1000 + seeds)
                found = {rate: [pool.submit(peer.train, length, rate, seed) for seed in chosen_seeds] for rate in rates}
                medians = {rate: statistics.median(run.result()["accuracy"] for run in of) for rate, of in found.items()}
                best = max(medians, key=lambda rate: medians[rate])
                rates = [rate for rate in rates if medians[rate] > medians[best] - FAR]
                print(f"{name}, {length} batches: {medians}", flush=True)
                reached = medians[best] >= target
                if reached or plan is None or not plan["reached"]:
                    plan = {"length": length, "rate": best, "accuracy": medians[best], "reached": reached}
                low, high = (low, middle - 1) if reached else (middle + 1, high)
        plans[name] = plan | {"seeds": seeds, "rates": peer.rates}
        PLANS.write_text(json.dumps(plans, indent=1, sort_keys=True) + "\n")
        print(f"{name}: {plan}, {time.perf_counter() - began:.0f} s", flush=True)


def run(chosen: list[Peer], seeds: int, plans: dict[str, Any], target: float) -> None:
    """All that can run, in turn; partrain's two workers always."""
    reasons = {peer: peer.missing() or ("" if plan_of(peer, target) in plans else "not tuned") for peer in chosen}
    ready = [peer for peer in chosen if not reasons[peer]]
    results: dict[str, list[dict[str, float]]] = {peer.name: [] for peer in ready}
    for seed in range(seeds):
        for peer in ready:
            plan = plans[plan_of(peer, target)]
            results[peer.name].append(peer.train(plan["length"], plan["rate"], seed))
            print(f"seed {seed}, {peer.name}: {results[peer.name][-1]}", flush=True)
    rows: list[dict[str, Any]] = []
    for peer in chosen:
        if reasons[peer]:
            rows.append(
                {"peer": peer.name, "plan": reasons[peer] if reasons[peer] == "not tuned" else f"not installed: {reasons[peer]}"}
            )
            continue
        plan, own = plans[plan_of(peer, target)], results[peer.name]
        row: dict[str, Any] = {
            "peer": peer.name,
            "plan": f"{plan['length']} batches, rate {plan['rate']}{'' if plan['reached'] else '; never reached'}",
        }
        columns = {
            "test accuracy": "accuracy",
            "item-iterations": "items",
            "training seconds": "seconds",
            "whole process, seconds": "whole",
        }
        row |= {column: [done[key] for done in own] for column, key in columns.items()}
        for column, key in ("training / partrain", "seconds"), ("whole / partrain", "whole"):
            row[column] = [done[key] / ours[key] for done, ours in zip(own, results[OURS], strict=True)]
        rows.append(row)
    tuned = sorted({plans[plan_of(peer, target)]["seeds"] for peer in ready})
    versions = {package: version(package) for peer in ready for package in peer.needs}
    versions |= json.loads((HERE / "package.json").read_text())["dependencies"]
    record(
        "peers" if target == USUAL else f"peers-{target:.1%}".rstrip("%"),
        f"Peers on MNIST, tuned to {target:.1%} test accuracy",
        rows,
        notes=[
            f"MLP 784-128-10, SGD with batches of 64; linear warm-up over a tenth, then linear decay to zero, unless the peer's name "
            f"says constant rate. Ratios are peer / {OURS}, seed by seed. Judging is outside of the peers' training seconds, but "
            "partrain's include it; compiling belongs to the whole process, with torch.compile's cache on disk warm from the second seed on.",
            f"Seeds that a plan was tuned on: {', '.join(map(str, tuned))}.",
            "FANN and brain.js train item by item, on squared error; FANN with sigmoids, brain.js with leaky ReLU also at its outputs.",
            "Releases: FANN of Debian's libfann-dev, "
            + ", ".join(f"{name} {release}" for name, release in versions.items())
            + ".",
        ],
        chart={"x": "training seconds", "y": "peer", "log": ["x"]},
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("what", choices=["tune", "run"])
    parser.add_argument("--seeds", type=int, help="tune: 3, from 1000 on; run: 10, from 0 on")
    parser.add_argument("--only", default="", help="beginnings of names of peers, with commas between them")
    parser.add_argument("--lengths", type=int, default=len(LENGTHS), help="of tune: only the first so many lengths")
    parser.add_argument("--target", type=float, default=USUAL)
    given = parser.parse_args()
    plans = json.loads(PLANS.read_text()) if PLANS.is_file() else {}
    chosen = [peer for peer in peers() if peer.name.startswith(tuple(given.only.split(",")))]
    if given.what == "tune":
        tune(chosen, given.seeds or 3, LENGTHS[: given.lengths], plans, given.target)
    else:
        run(
            [*(peer for peer in chosen if peer.name != OURS), *(peer for peer in peers() if peer.name == OURS)],
            given.seeds or 10,
            plans,
            given.target,
        )


if __name__ == "__main__":
    main()
