"""Parts that the programs of the peers share: arguments, MNIST, batches, learning rates, and the line of JSON. They need no torch."""

from __future__ import annotations

import argparse
import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

MNIST = Path(__file__).parents[2] / "datasets" / "mnist"
SIZES = (784, 128, 10)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="")
    parser.add_argument("--iterations", type=int, required=True, help="of each worker")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def mnist() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test items: (n, 784) float32 in [0, 1], (n,) int64 labels."""
    images, labels, tests, answers = (
        np.frombuffer(gzip.decompress((MNIST / f"{part}-{kind}-ubyte.gz").read_bytes()), np.uint8, offset=offset)
        for part in ("train", "t10k")
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8))
    )
    inputs, tests = (array.reshape(-1, SIZES[0]).astype(np.float32) / np.float32(255) for array in (images, tests))
    return inputs, labels.astype(np.int64), tests, answers.astype(np.int64)


def batches(plan: argparse.Namespace, items: int, rank: int = 0, workers: int = 1) -> np.ndarray:
    """Indices (iterations, batch) of a worker's own part of the items, shuffled anew each pass."""
    random = np.random.default_rng([plan.seed, rank])
    own = np.arange(rank, items, workers)
    per_pass = len(own) // plan.batch
    passes = [random.permutation(own)[: per_pass * plan.batch] for _ in range(-(-plan.iterations // per_pass))]
    return np.concatenate(passes)[: plan.iterations * plan.batch].reshape(-1, plan.batch)


def rates(plan: argparse.Namespace) -> np.ndarray:
    """Learning rate of each iteration: linear warm-up over a tenth, linear decay to zero."""
    number, warm = np.arange(plan.iterations), max(1, plan.iterations // 10)
    return plan.rate * np.minimum((number + 1) / warm, (plan.iterations - number) / (plan.iterations - warm))


def layers(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights (in, out) and biases as torch.nn.Linear draws them: uniform within 1 / sqrt(in)."""
    random = np.random.default_rng([seed, 2])
    return [
        tuple(random.uniform(-1, 1, shape).astype(np.float32) / np.float32(wide**0.5) for shape in ((wide, thin), (thin,)))
        for wide, thin in pairwise(SIZES)
    ]


def finish(plan: argparse.Namespace, seconds: float, answers: Any, right: Any, workers: int = 1) -> None:
    """Print the result. `answers` are the classes given to the test items."""
    accuracy = float(np.mean(np.asarray(answers) == np.asarray(right)))
    print(json.dumps({"seconds": seconds, "accuracy": accuracy, "items": plan.iterations * plan.batch * workers}))
