"""Whole runs with workers on an accelerator, alone and beside CPU workers in one job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.runs import Command, events, newest, partrain, resume, round_file, sabotage, summary, train, write_job
from support.shared_runs import once

from partrain import checkpoint

pytestmark = pytest.mark.device
JOB = """
name = "mixed"
seed = 3
[model]
name = "mlp"
hidden = [32]
batch_norm = true
dropout = 0.1
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
rounds = 6
judge_every = 2
[checkpoint]
commit = "every"
keep = 1000
"""
TWO = '[[workers]]\ndevice = "cpu"\ncount = 2\npartition_size = {}\n'
ONE = '[[workers]]\ndevice = "DEVICE"\npartition_size = {}\niterations = {}\n'
ALONE, BESIDE = JOB.format(workers=ONE.format(4000, 50)), JOB.format(workers=TWO.format(500) + ONE.format(3000, 50))
TEXTS = [ALONE, BESIDE]
NAMES = ["alone", "beside two processors"]


def on(text: str, device: torch.device) -> str:
    return text.replace("DEVICE", str(device))


@pytest.fixture
def run_of(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Callable[[str], Path]:
    """Give the run of a job that several tests read."""
    return lambda text: (
        once(tmp_path_factory, f"{NAMES[TEXTS.index(text)]} on a device", lambda folder: train(folder, text=on(text, device)))
        / "run"
    )


def same_arrays(run: Path, other: Path) -> bool:
    one, two = (checkpoint.read(folder / "checkpoint.h5").arrays for folder in (run, other))
    return one.keys() == two.keys() and all(one[path].tobytes() == two[path].tobytes() for path in one)


def test_an_accelerator_gets_ten_times_the_items_beside_two_processors(run_of: Callable[[str], Path]) -> None:
    run = run_of(BESIDE)
    done = summary(run)
    assert [worker["item_iterations"] for worker in done["workers"]] == [6 * 5 * 16, 6 * 5 * 16, 6 * 50 * 16]
    assert done["metrics"]["accuracy"] > 0.9
    for event in events(run, "round"):
        assert event["compute"] > 0
        assert event["mix"] >= 0


def test_replicas_of_a_device_have_the_bits_of_processes(tmp_path: Path, device: torch.device) -> None:
    """BatchNorm and dropout: they train in turn, each drawing as its own process would."""
    processes, replicas = (
        train(
            tmp_path / key, f'workers=[{{device="{device}", {key}=2, iterations=10}}, {{device="cpu"}}]', text=on(BESIDE, device)
        )
        for key in ("count", "replicas")
    )
    assert same_arrays(processes, replicas)


@pytest.mark.representative
@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
@pytest.mark.parametrize(
    "sets", [[], ['optimizer={name="adam", lr=0.01, batch_size=16}', 'sync.buffers="local"']], ids=["sgd", "adam"]
)
def test_the_same_job_gives_the_same_bits_and_so_does_a_resumed_one(
    tmp_path: Path, device: torch.device, run_of: Callable[[str], Path], text: str, sets: list[str]
) -> None:
    again = train(tmp_path, *sets, text=on(text, device))
    run = train(tmp_path / "first", *sets, text=on(text, device)) if sets else run_of(text)
    assert same_arrays(run, again)
    resume(round_file(run, 4), "--out", tmp_path / "resumed")
    assert newest(tmp_path / "resumed") == newest(run)


@pytest.mark.representative
def test_the_network_is_judged_exported_and_asked_on_the_cpu(run_of: Callable[[str], Path]) -> None:
    run = run_of(BESIDE)
    said = partrain("evaluate", run, "--split", "validation", "--json")
    assert said.code == 0, said
    assert json.loads(said.out)["validation"]["loss"] == pytest.approx(summary(run)["best"]["loss"], rel=1e-3)


@pytest.mark.representative
def test_gradients_are_averaged_across_kinds_of_device(tmp_path: Path, device: torch.device) -> None:
    text = on(JOB.format(workers=TWO.format(1000) + ONE.format(2000, 5)), device)
    assert summary(train(tmp_path, 'sync.rule="bsp"', text=text))["metrics"]["accuracy"] > 0.8


@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
def test_bfloat16(tmp_path: Path, device: torch.device, text: str) -> None:
    run = train(tmp_path, 'engine.precision="bfloat16"', text=on(text, device))
    assert summary(run)["metrics"]["accuracy"] > 0.9
    assert all(array.dtype != "float16" for array in checkpoint.read(run / "checkpoint.h5").arrays.values())


def test_each_worker_takes_the_next_device(tmp_path: Path, device: torch.device) -> None:
    """On one device all share it; on several they take turns."""
    run = train(tmp_path, text=JOB.format(workers=f'[[workers]]\ndevice = "{device.type}"\ncount = 3\n'))
    (start,) = events(run, "start")
    count = torch.accelerator.device_count()
    assert [worker["device"] for worker in start["workers"]] == [f"{device.type}:{rank % count}" for rank in range(3)]


def test_a_device_that_is_not_there(tmp_path: Path, device: torch.device) -> None:
    job = write_job(tmp_path, f"workers.0.device='{device.type}:99'")
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (78, ["bad-job"])
    assert f"no device {device.type}:99 on this machine (devices: cpu, {device.type}:0" in said.err


def test_out_of_memory(tmp_path: Path, device: torch.device) -> None:
    deed = "torch.empty(1 << 50, device=self[0].weight.device)"
    job = sabotage(tmp_path, deed, f"workers.0.device='{device}'", call=8)
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (71, ["user-code"])
    assert "out of memory" in said.err


@pytest.mark.usefixtures("emulated")
def test_a_device_that_fails_in_the_middle(tmp_path: Path, device: torch.device, run_of: Callable[[str], Path]) -> None:
    """A new process replays the round, with the bits of a run without the fault; a device that fails again and again ends the run."""
    job, whole = write_job(tmp_path, text=on(BESIDE, device)), run_of(BESIDE)
    with Command(("run", job, "--out", tmp_path / "once", "-q"), tmp_path, {"EMULATED_FAIL_AT": "4500"}) as command:
        assert command.wait().code == 0
    (replay,) = events(tmp_path / "once", "replay")
    assert "emulated device error at operation 4500" in replay["what"]
    assert same_arrays(tmp_path / "once", whole)
    words = ("run", job, "--out", tmp_path / "often", "-q", "--set", "faults.max_replays=1")
    with Command(words, tmp_path, {"EMULATED_FAIL_AT": "1500"}) as command:
        said = command.wait()
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "Traceback" not in said.err
    resume(tmp_path / "often" / "checkpoint.h5", "--out", tmp_path / "resumed")
    assert same_arrays(tmp_path / "resumed", whole)


@pytest.mark.usefixtures("emulated")
def test_items_that_would_fill_the_device_come_batch_by_batch(
    tmp_path: Path, device: torch.device, run_of: Callable[[str], Path]
) -> None:
    run, job = run_of(ALONE), write_job(tmp_path, text=on(ALONE, device))
    with Command(("run", job, "--out", tmp_path / "run", "-q"), tmp_path, {"EMULATED_MEMORY": "250000"}) as command:
        assert command.wait().code == 0
    assert same_arrays(tmp_path / "run", run)


def test_devices_are_listed(device: torch.device) -> None:
    assert f"{device}  " in partrain("ls", "devices").out
    assert str(device) in partrain("doctor").out


def test_the_shipped_job_goes_on_from_the_cpu_to_a_device_and_back(tmp_path: Path, device: torch.device) -> None:
    job, run = Path(__file__).parents[2] / "jobs" / "mnist-mixed.toml", tmp_path / "run"
    words = ("--quiet", "--set", "stop={rounds=2}", "--set", "workers.0.count=1", "--set", "partition.uncovered='allow'")
    said = partrain("run", job, "--out", run, *words, "--set", f"workers.1.device='{device}'")
    assert said.code in (0, 1), said
    resume(run / "checkpoint.h5", "--out", tmp_path / "same", "--until", "rounds=4")
    resume(run / "checkpoint.h5", "--out", tmp_path / "cpu", "--until", "rounds=4", "--set", "workers.1.device='cpu'")
    on_device, on_cpu = (summary(tmp_path / name)["metrics"]["accuracy"] for name in ("same", "cpu"))
    assert on_device > 0.9
    assert on_device == pytest.approx(on_cpu, abs=0.01)
    again = partrain("resume", tmp_path / "cpu" / "checkpoint.h5", "--quiet", "--out", tmp_path / "back", "--until", "rounds=5",
                     "--set", f"workers.1.device='{device}'")  # fmt: skip
    assert again.code in (0, 1), again
