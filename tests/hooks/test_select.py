"""Hooks are chosen by name, and nothing of them is imported before the run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import SIMULATED, partrain, train, write_job

from partrain.hooks import select

PACKAGES = {"tensorboard", "mlflow", "wandb", "prometheus_client"}


@pytest.mark.parametrize("command", ["run", "resume"])
def test_an_unknown_hook(tmp_path: Path, command: str) -> None:
    file = train(tmp_path / "old", SIMULATED, "stop.rounds=1") if command == "resume" else write_job(tmp_path)
    said = partrain(command, file, "--log", "tensorbord")
    assert said.code == 2
    assert said.err.splitlines()[-1] == (
        "Error: Invalid value for --log: there is no hook `tensorbord`; known: mlflow, tensorboard, wandb"
    )
    assert not (tmp_path / "runs").exists()


def test_prometheus_is_no_hook(tmp_path: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--log", "prometheus")
    assert said.code == 2
    assert (
        said.err.splitlines()[-1] == "Error: Invalid value for --log: Prometheus fetches its numbers: give --metrics-port instead"
    )


def test_an_installation_older_than_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "GROUP", "partrain.older")
    with pytest.raises(ValueError, match="does not declare `mlflow`: its code is newer than its installation; install it again"):
        select.find_hooks(["mlflow"])


@pytest.mark.parametrize(("option", "name"), [("--log", "wandb"), ("--metrics-port", "prometheus")])
def test_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str) -> None:
    monkeypatch.setitem(select.OURS, name, "not_installed")
    said = partrain("run", write_job(tmp_path), option, "wandb" if option == "--log" else 0)
    assert said.code == 66
    missing = f"`{name}` needs the package not_installed, which is not installed: pip install 'partrain[{name}]'"
    assert said.err.splitlines()[-1] == f"partrain: error[no-input]: {missing}"


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "--metrics-port", port)
    assert said.code == 73
    assert said.err == (
        f"partrain: error[cannot-create]: --metrics-port: 127.0.0.1 port {port}: address already in use; "
        "give another port, or 0 for a free one\n"
    )
    assert not (tmp_path / "run").exists()


def test_a_host_that_is_none_of_this_machine(tmp_path: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "--metrics-port", 0, "--metrics-host", "192.0.2.1")
    assert (said.code, said.errors) == (73, ["cannot-create"])


def test_a_workflow_serves_no_metrics(tmp_path: Path) -> None:
    """Several trainings at once cannot share a port; `--log` is for them, too: tests/workflow/test_control.py."""
    job = write_job(tmp_path)
    said = partrain("run", job, job, "--metrics-port", "0")
    assert said.code == 2
    assert "this option is for a job, not for a workflow" in said.err


@pytest.mark.parametrize("words", [[], ["--log", "tensorboard", "--log", "mlflow", "--log", "wandb", "--metrics-port", "0"]])
def test_the_coordinator_imports_nothing_of_a_hook(tmp_path: Path, words: list[str]) -> None:
    """The training is refused at its last check before the run starts: the folder is taken."""
    run = train(tmp_path, SIMULATED, "stop.rounds=1")
    code = "import json, sys; from partrain.cli.main import main\ntry: main()\nfinally: print(json.dumps([*sys.modules]))"
    argv = [sys.executable, "-c", code, "run", tmp_path / "job.toml", "--out", run, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert not modules & (PACKAGES | {"torch"})
    assert ("partrain.hooks" in modules) == bool(words)
