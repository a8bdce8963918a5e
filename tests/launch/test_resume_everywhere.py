"""A run that is interrupted at any round ends in the same bytes: workers x optimizers x networks. `make soak` has the whole product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pairwise import named, pairwise
from support.runs import newest, partrain, resume, round_file

ROUNDS = 4
JOB = """
name = "interrupted"
seed = 5
model = {model}
dataset = {{kind = "npz", path = "items.npz", validation = 20, test_items = 20}}
optimizer = {optimizer}
sync = {{rule = "average", iterations = 3}}
workers = [{{count = {workers}}}]
stop = {{rounds = {rounds}}}
checkpoint = {{commit = "every", keep = 10}}
"""
OPTIMIZERS = {
    "sgd": '{name = "sgd", lr = 0.05, momentum = 0.9, batch_size = 8, schedule = "cosine"}',
    "adamw": '{name = "adamw", lr = 0.01, batch_size = 8}',
    "muon": '{name = "muon", lr = 0.02, adamw_lr = 0.003, batch_size = 8}',
}
NETWORKS = {
    "mlp": ('{name = "mlp", hidden = [12]}', (6,)),
    "BatchNorm cnn": ('{name = "cnn", channels = [4, 6], dense = [8], batch_norm = true}', (2, 9, 8)),
    "lstm with dropout": ('{name = "lstm", hidden = 6, layers = 2, dropout = 0.25}', (5, 3)),
}


@pytest.mark.representative
@pairwise(workers=named(1, 2, 4), optimizer=OPTIMIZERS, network=NETWORKS, interrupted=named(*range(1, ROUNDS)))
def test_resume(tmp_path: Path, workers: int, optimizer: str, network: tuple[str, tuple[int, ...]], interrupted: int) -> None:
    model, shape = network
    draw = np.random.default_rng(1)
    targets = draw.integers(0, 3, 140)
    inputs = draw.normal(size=(140, *shape)) + targets.reshape(-1, *[1] * len(shape))
    np.savez(tmp_path / "items.npz", inputs=inputs.astype(np.float32), targets=targets)
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(model=model, optimizer=optimizer, workers=workers, rounds=ROUNDS))
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert said.code == 0, said
    resume(round_file(tmp_path / "run", interrupted), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(tmp_path / "run")
    assert newest(tmp_path / "run") != round_file(tmp_path / "run", interrupted).read_bytes()
