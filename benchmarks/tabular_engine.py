"""The network `tabular` in compiled code: items per second of one core, against autograd, torch's products alone, and TabM.

    .venv-peers/bin/python benchmarks/tabular_engine.py [TURNS]     # records the results; `make real-data` installs what it needs

A mini-batch has 20 numbers and two columns of words, of 5 and 300. All ways train in turn with one thread: forward and backward pass, loss of
two classes, AdamW. Times are those of the processor, so other processes disturb little. *torch's products alone*: the products of the layers, forward
and backward, by torch's `mm`; a ratio above 1 means that partrain's own products are faster. TabM: TabM-mini of pytabkit (its authors' code) with as many
members, embeddings of 8 (PLR lite), and three layers that have about as many weights; without pytabkit the column is left out.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from recording import record
from torch import Tensor, nn

from partrain.models import Interface
from partrain.models.sections import TabularNetwork
from partrain.models.tabular import build
from partrain.optim.sections import AdamW
from partrain.tasks.task import Classification
from partrain.training.feed import Piece
from partrain.training.gradient import engine_for
from partrain.training.replica import Replica, row_layout
from partrain.training.section import Engine

NUMBERS, WORDS = 20, (5, 300)
CASES = [(128, 1, 64), (128, 1, 256), (128, 1, 1024), (128, 8, 64), (128, 8, 256), (64, 8, 32)]
"""Width, members, batch."""
BATCHES = 8
"""Mini-batches of a piece."""
SECONDS = 0.4
"""Of a measurement, about."""


def measured(train: Callable[[], None]) -> Callable[[], float]:
    """Return a function that measures the seconds of one call of `train`."""
    train()
    began = time.thread_time()
    train()
    calls = max(1, round(SECONDS / (time.thread_time() - began)))

    def seconds() -> float:
        began = time.thread_time()
        for _ in range(calls):
            train()
        return (time.thread_time() - began) / calls

    return seconds


def partrain(
    section: TabularNetwork, items: Tensor, targets: Tensor, batch: int, *, compiled: bool
) -> tuple[Callable[[], None], nn.Module]:
    """Training of a piece by partrain, and the network."""
    module = build(section, Interface((NUMBERS + len(WORDS),), 2, "classification", categories=(0,) * NUMBERS + WORDS))
    optimizer = AdamW(name="adamw", lr=0.001)
    layout = row_layout(module, optimizer)
    replica = Replica(module, layout, torch.zeros(layout.numbers), optimizer)
    engine, reason = engine_for(replica, Classification(), 1, Engine(compiled=compiled))
    assert not reason, reason
    piece = Piece([batch] * BATCHES, items, targets)

    def train() -> None:
        for _ in engine.train(piece, [0.001] * BATCHES, 0):
            pass

    return train, module


def tabm(weights: int, members: int, items: Tensor, targets: Tensor, batch: int) -> Callable[[], None] | None:
    """Training of a piece by TabM; None without pytabkit."""
    try:
        from pytabkit.models.nn_models.tabm import Model
    except ImportError:
        return None
    features = NUMBERS * 8 + sum(WORDS)
    width = next(width for width in range(16, 1000, 4) if width * (features + 2 * width) >= weights)
    network = Model(
        n_num_features=NUMBERS,
        cat_cardinalities=[*WORDS],
        n_classes=2,
        backbone={"type": "MLP", "n_blocks": 3, "d_block": width, "dropout": 0.1},
        bins=None,
        num_embeddings={
            "type": "PeriodicEmbeddings",
            "d_embedding": 8,
            "n_frequencies": 16,
            "frequency_init_scale": 0.1,
            "lite": True,
        },
        arch_type="plain" if members == 1 else "tabm-mini",
        k=None if members == 1 else members,
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.001)
    numbers, words = items[:, :NUMBERS].contiguous(), items[:, NUMBERS:].long()

    def train() -> None:
        for first in range(0, len(items), batch):
            part = slice(first, first + batch)
            answers = network(numbers[part], words[part])
            loss = nn.functional.cross_entropy(answers.flatten(0, 1), targets[part].repeat_interleave(members))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return train


def products(module: nn.Module, rows: int) -> Callable[[], None]:
    """The products of the large layers for so many rows: forward, and both of the backward pass."""
    shapes = [
        tuple(layer.weight.shape) for layer in module.modules() if isinstance(layer, nn.Linear) and min(layer.weight.shape) > 8
    ]
    layers = [(torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)) for outputs, inputs in shapes]

    def multiply() -> None:
        for x, weight, delta in layers:
            torch.mm(x, weight.T)
            torch.mm(delta.T, x)
            torch.mm(delta, weight)

    return multiply


def main(turns: int) -> None:
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for width, members, batch in CASES:
        section = TabularNetwork(name="tabular", width=width, hidden=2 * width, members=members)
        columns = [torch.randint(count, (batch * BATCHES,)).float() for count in WORDS]
        items = torch.cat([torch.randn(batch * BATCHES, NUMBERS), torch.stack(columns, 1)], 1)
        targets = torch.randint(2, (batch * BATCHES,))
        compiled, module = partrain(section, items, targets, batch, compiled=True)
        autograd, _ = partrain(section, items, targets, batch, compiled=False)
        weights = sum(
            layer.weight.numel() for layer in module.modules() if isinstance(layer, nn.Linear) and min(layer.weight.shape) > 8
        )
        peer = tabm(weights, members, items, targets, batch)
        trainings = {"compiled": compiled, "autograd": autograd, "products": products(module, batch * members)}
        clocks = {name: measured(train) for name, train in (trainings | ({"TabM": peer} if peer else {})).items()}
        seconds: list[dict[str, float]] = [{name: clock() for name, clock in clocks.items()} for _ in range(turns)]
        row: dict[str, Any] = {"width": width, "members": members, "batch": batch}
        row["items per second"] = [batch * BATCHES / turn["compiled"] for turn in seconds]
        row["compiled / autograd"] = [turn["autograd"] / turn["compiled"] for turn in seconds]
        row["torch's products alone / compiled"] = [turn["products"] * BATCHES / turn["compiled"] for turn in seconds]
        if peer:
            row["compiled / TabM"] = [turn["TabM"] / turn["compiled"] for turn in seconds]
        print({key: statistics.median(value) if isinstance(value, list) else value for key, value in row.items()}, flush=True)
        rows.append(row)
    record("tabular-engine", "The network `tabular` in compiled code, one core", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
