"""The microseconds of one local iteration of an MLP on one core, by phase; beside them its matrix products alone.

    python benchmarks/iteration.py [mnist|adam|seeds|wide] [--iterations N] [--blocks N]

A worker trains without processes, on random items: 784-128-10 at batch 64 under SGD (`mnist`) or Adam (`adam`), 784-1024-10 (`wide`),
and the function fit of `jobs/function-fit.toml` at batch 1 (`seeds`). "whole" is an iteration without clocks, "feed" and "engine and step" are the parts of a round with clocks around them. "products" are the
same matrix products by torch on buffers that exist already, between the worker's feed and its optimizer step. A figure is the median of
a block, in the best of the blocks. PYTHONPATH decides whose package runs: start two trees in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import Adam
from partrain.rules.average import Average
from partrain.system import malloc
from partrain.tasks.task import Classification, Regression
from partrain.training.batches import Batches, Samples
from partrain.training.evaluate import Evaluator
from partrain.training.feed import Piece
from partrain.training.gradient import Trained
from partrain.training.replica import Replica, row_layout
from partrain.training.round_plan import RoundPlan
from partrain.training.worker import Callbacks, LocalWorker

ROUND = 10
CASES: dict[str, tuple[AnyOptimizer, list[int], type[nn.Module]]] = {
    "mnist": (Sgd(lr=1e-3, momentum=0.9, schedule="linear", warmup=0.1), [784, 128, 10], nn.ReLU),
    "adam": (Adam(name="adam", lr=1e-4), [784, 128, 10], nn.ReLU),
    "wide": (Sgd(lr=1e-3, momentum=0.9), [784, 1024, 10], nn.ReLU),
    "seeds": (Sgd(lr=5e-5, momentum=0.5, batch_size=1), [1, 50, 50, 1], nn.Tanh),
}


def worker(name: str) -> LocalWorker:
    """Make the worker of a case."""
    optimizer, widths, activation = CASES[name]
    torch.manual_seed(0)
    images = widths[0] == 784
    layers: list[nn.Module] = [nn.Flatten()] if images else []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    module = nn.Sequential(*layers[: -1 if images else None])
    layout = row_layout(module, optimizer)
    replica = Replica(module, layout, torch.zeros(layout.numbers), optimizer)
    if images:
        samples = Samples(torch.randint(0, 256, (55_000, 28, 28), dtype=torch.uint8), torch.randint(0, 10, (55_000,)), 1 / 255)
    else:
        samples = Samples(torch.randn(5000, widths[0]), torch.rand(5000, 1), 1.0)
    batches = Batches(np.arange(len(samples.targets)), optimizer.batch_size, ROUND, whole_passes=False, seed=0, rank=0)
    task = Classification() if images else Regression()
    plan = RoundPlan(0, Average(), optimizer, batches, [ROUND * optimizer.batch_size], seed=0, horizon=1 << 40)
    made = LocalWorker(replica, samples, plan, Evaluator(module, task), seed=0)
    beats = np.zeros(2, np.int64)

    def heartbeat() -> None:
        beats[0] += 1

    def on_iterations(_: int) -> None:
        beats[1] = made.tally.total_items + made.tally.items

    made.callbacks = Callbacks(heartbeat, on_iterations)
    return made


def whole(made: LocalWorker, iterations: int) -> float:
    """Time iterations without clocks inside: seconds each."""
    spans = []
    for number in range(1, iterations // ROUND + 1):
        made.begin(number, number * ROUND)
        began = time.perf_counter()
        made.train()
        spans.append((time.perf_counter() - began) / ROUND)
    return statistics.median(spans)


def phases(made: LocalWorker, iterations: int) -> dict[str, float]:
    """Time the feed and the engine with its steps: seconds per iteration. The rest of an iteration is what the loop itself takes."""
    spans: dict[str, list[float]] = defaultdict(list)
    pieces, train = made._feed.pieces, made._engine.train

    def fed(count: int) -> Iterator[Piece]:
        seconds, given = 0.0, pieces(count)
        while True:
            began = time.perf_counter()
            piece = next(given, None)
            seconds += time.perf_counter() - began
            if piece is None:
                spans["feed"].append(seconds / count)
                return
            yield piece

    def trained(piece: Piece, rates: Sequence[float], iteration: int) -> Trained:
        began = time.perf_counter()
        trained = list(train(piece, rates, iteration))
        spans["engine and step"].append((time.perf_counter() - began) / len(rates))
        return iter(trained)

    made._feed.pieces, made._engine.train = fed, trained  # type: ignore[method-assign]
    whole(made, iterations)
    made._feed.pieces, made._engine.train = pieces, train  # type: ignore[method-assign]
    return {phase: statistics.median(values) for phase, values in spans.items()}


def taken(made: LocalWorker, count: int) -> Iterator[Tensor]:
    """Yield the inputs of the next mini-batches."""
    for piece in made._feed.pieces(count):
        if piece.numbers is not None:
            piece = Piece(piece.sizes, *made.samples.batch(made.samples.index(piece.numbers)))
        yield from (inputs for inputs, _ in piece.batches())


def products(made: LocalWorker, iterations: int) -> float:
    """Time the matrix products alone, between the feed and the step of the worker."""
    layers = [layer for layer in made.module.children() if isinstance(layer, nn.Linear)]
    count, spans, views = made.batches.batch_size, [], made.replica.gradient_views
    outs = [torch.empty(count, layer.out_features) for layer in layers]
    backs = [torch.rand(count, layer.out_features).mul_(1e-6) for layer in layers]
    with torch.no_grad():
        for number in range(1, iterations // ROUND + 1):
            made.begin(number, number * ROUND)
            for inputs in taken(made, ROUND):
                began, flat = time.perf_counter(), inputs.flatten(1)
                kept = [flat, *outs]
                for layer, x, out in zip(layers, kept, outs, strict=False):
                    torch.addmm(layer.bias, x, layer.weight.t(), out=out)
                for index in reversed(range(len(layers))):
                    torch.mm(backs[index].t(), kept[index], out=views[2 * index])
                    if index:
                        torch.mm(backs[index], layers[index].weight, out=backs[index - 1])
                spans.append(time.perf_counter() - began)
                made.optimizer.step(views, 1e-9)
    return statistics.median(spans)


def main() -> None:
    """Measure one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES, nargs="?", default="mnist")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    malloc.keep_freed_memory()
    made, best = worker(options.case), defaultdict[str, float](lambda: float("inf"))
    whole(made, 10 * ROUND)
    for _ in range(options.blocks):
        figures = {"whole": whole(made, options.iterations), "products": products(made, options.iterations)}
        for phase, seconds in {**figures, **phases(made, options.iterations)}.items():
            best[phase] = min(best[phase], seconds)
    best["all beside products"] = best["whole"] - best["products"]
    print(f"{options.case}: {made.batches.batch_size / best['whole']:,.0f} items/s")
    for phase, seconds in best.items():
        print(f"    {phase:24} {seconds * 1e6:7.1f} us")


if __name__ == "__main__":
    main()
