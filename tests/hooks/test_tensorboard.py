"""TensorBoard's own reader finds a run's numbers, those of a resumed run, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import events, partrain, resume, round_file, summary, write_job

pytestmark = pytest.mark.slow


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def check(run: Path) -> None:
    """The curves are those of the events: one judgement per round, and a row for the first and the last round at least."""
    found, judged = curves(run), events(run, "judgement")
    assert found["judged/loss"] == [(each["item_iterations"], pytest.approx(each["loss"])) for each in judged]
    assert found["judged/accuracy"][-1][1] == pytest.approx(summary(run)["metrics"]["accuracy"])
    steps = [step for step, _ in found["train/loss"]]
    assert steps == sorted(set(steps))
    assert steps[-1] == summary(run)["item_iterations"]
    assert found["test/loss"][-1] == (steps[-1], pytest.approx(summary(run)["test"]["loss"]))
    assert found["round"][-1][1] == summary(run)["rounds"]
    assert all(step == 48 * number for step, number in found["round"])  # two workers, three iterations of eight items
    assert found["lr"][-1][1] == pytest.approx(0.05)
    assert set(found) > {"items_per_second", "waiting_share", "bytes", "seconds", "distance"}


def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path, "stop.rounds=6"), "--out", run, "-q", "--log", "tensorboard").code == 0
    check(run)
    assert len(curves(run)["judged/loss"]) == 6
    resume(round_file(run, 3), "--until", "rounds=5", "--log", "tensorboard")  # rounds 4 and 5 are trained again, 6 is gone
    check(run)
    assert len(curves(run)["judged/loss"]) == 5
    assert len(list((run / "tensorboard").iterdir())) == 2


def test_a_run_that_was_not_logged_before(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path, "stop.rounds=2"), "--out", run, "-q").code == 0
    resume(run, "--until", "rounds=4", "--log", "tensorboard")
    check(run)
    assert len(curves(run)["judged/loss"]) == 4


def test_hyperparameters(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    assert partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "-q", "--log", "tensorboard").code == 0
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    data: plugin_data_pb2.HParamsPluginData = metadata.parse_session_start_info_plugin_data(content)
    assert data.hparams["optimizer.lr"].number_value == 0.05
    assert data.hparams["workers"].string_value == "2 cpu"


def test_it_imports_neither_tensorflow_nor_torch() -> None:
    code = "import sys, partrain.hooks.tensorboard; print([*{'tensorflow', 'torch', 'grpc'} & set(sys.modules)])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
