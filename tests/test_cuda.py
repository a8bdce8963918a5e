"""CUDA workers, alone and beside CPU workers in one job. Run with `make test-gpu` where there is a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from partrain.console import Display
from partrain.job import parse
from partrain.launch.run import Outcome, Stage, new_folder, run
from partrain.view import View

pytestmark = pytest.mark.gpu

JOB = """
name = "mixed"
[model]
name = "mlp"
hidden = [32]
batch_norm = true
[dataset]
kind = "synthetic"
function = "blobs"
items = 4400
features = 8
noise = 0.5
validation = 400
[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
batch_size = 16
[sync]
rule = "average"
iterations = 5
{workers}
[stop]
rounds = 12
judge_every = 4
"""

CPUS = '[[workers]]\ndevice = "cpu"\ncount = 2\npartition_size = 500\n'
GPU = '[[workers]]\ndevice = "cuda:0"\npartition_size = 3000\niterations = 50\n'


def train(folder: Path, workers: str, *changes: str) -> Outcome:
    loaded = parse(JOB.format(workers=workers), folder, here=True, overrides=changes)
    outcome = run(loaded, Stage(new_folder(folder / "run", "mixed"), Display(View())))
    assert outcome.failure is None
    return outcome


def test_a_gpu_gets_ten_times_the_items_beside_two_processors(tmp_path: Path) -> None:
    done = train(tmp_path, CPUS + GPU)
    assert [worker["item_iterations"] for worker in done.summary["workers"]] == [12 * 5 * 16, 12 * 5 * 16, 12 * 50 * 16]
    assert done.summary["metrics"]["accuracy"] > 0.9


@pytest.mark.parametrize("workers", [GPU.replace("3000", "4000"), CPUS + GPU])
def test_the_same_job_gives_the_same_bits(tmp_path: Path, workers: str) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        outcome = train(tmp_path / name, workers)
        assert outcome.checkpoint is not None
        from partrain.checkpoint import read

        files.append(read(outcome.checkpoint).arrays)
    assert all((files[0][path] == files[1][path]).all() for path in files[0] if path.startswith(("model/", "workers/")))


def test_gradients_are_averaged_across_kinds_of_device(tmp_path: Path) -> None:
    workers = CPUS.replace("500", "1000") + GPU.replace("3000", "2000").replace("iterations = 50", "iterations = 5")
    done = train(tmp_path, workers, 'sync.rule="bsp"')
    assert done.summary["metrics"]["accuracy"] > 0.8
