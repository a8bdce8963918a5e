"""User code that computes something else than before the checkpoint: `resume` refuses it before anything changes, or the user agrees."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.preload import metrics_preloaded  # noqa: F401  a fixture
from support.runs import SIMULATED, Command, Said, events, newest, partrain, resume, round_file, summary, train

import partrain as partrain_api
from partrain import checkpoint

NET = """
import json, os, sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import layers

PLACE = 0


class Net(torch.nn.Sequential):
    def __init__(self):
        kinds = PLACE, layers.PLACE, json.loads((HERE / "net.json").read_text()), int(os.environ.get("PLACE", "0"))
        super().__init__(torch.nn.Linear(2, 8), (torch.nn.ReLU, torch.nn.Tanh)[any(kinds)](), torch.nn.Linear(8, 3))
"""
TASK = """
import torch

import partrain


class Scaled(partrain.Task):
    accuracy = True

    def loss(self, answers, targets):
        return torch.nn.functional.cross_entropy(answers, targets) * 1.0

    def correct(self, answers, targets):
        return (answers.argmax(1) == targets).sum()


def margin(answers, targets):
    return answers.max(1).values.mean() * 1.0
"""
CAUSES = {"net.py": ("PLACE = 0", "PLACE = 1"), "layers.py": ("0", "1"), "net.json": ("0", "1"), "": ("", "")}
"""Each changes the network: the file that the job names, a module beside it, a file that it reads, an environment variable."""


def write_code(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"net.py": NET, "layers.py": "PLACE = 0\n", "net.json": "0", "own.py": TASK}.items():
        (folder / name).write_text(text)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    before = path.stat().st_mtime
    path.write_text(text.replace(old, new))
    os.utime(path, (before + 2, before + 2))  # Python compares seconds and sizes with those of its compiled file


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed")
    write_code(folder)
    return train(folder, 'model={name="net.py:Net"}', SIMULATED)


@pytest.mark.representative
@pytest.mark.parametrize("cause", CAUSES)
def test_a_changed_network_is_not_trained_on(run: Path, cause: str) -> None:
    """The run folder keeps each byte, also if a former round is resumed; restored code goes on."""
    before, folder = contents(run), run.parent
    if cause:
        change(folder / cause, *CAUSES[cause])
    for words in ((run, "--until", "rounds=6"), (round_file(run, 1),)):
        said = command(folder, "resume", *words, environment={} if cause else {"PLACE": "1"})
        assert (said.code, said.errors) == (71, ["user-code"]), said
        assert "[model] name: `net.py:Net`: the network built now gives other answers than the one that was trained" in said.err
        assert (f"changed since: {cause}: restore" if cause else "an environment variable, or another") in said.err
        assert "`partrain resume --accept-changes`" in said.err
        assert contents(run) == before
    if cause:
        change(folder / cause, *reversed(CAUSES[cause]))


def command(folder: Path, *words: object, environment: dict[str, str] | None = None) -> Said:
    with Command((*words, "--quiet"), folder / "said", environment or {}) as started:
        return started.wait()


def test_who_agrees_trains_on_and_the_run_remembers(tmp_path: Path) -> None:
    write_code(tmp_path)
    run = train(tmp_path, 'model={name="net.py:Net"}', SIMULATED)
    change(tmp_path / "net.py", *CAUSES["net.py"])
    said = resume(run, "--until", "rounds=6", "--accept-changes")
    what = "[model] name: `net.py:Net`: the network built now gives other answers than the one that was trained"
    assert f"warning: {what}" in said.err
    assert events(run, "start")[-1]["accepted"] == [what]
    assert checkpoint.read(run / "checkpoint.h5").manifest["accepted"] == [f"after round 4: {what}"]
    said = resume(run, "--until", "rounds=7")
    assert said.err == "", "the code is that of the newest checkpoint"
    assert events(run, "start")[-1]["accepted"] == []
    assert len(checkpoint.read(run / "checkpoint.h5").manifest["accepted"]) == 1
    assert partrain("evaluate", run, "--newest", "--json", "--trust-code").code == 0


def test_the_code_of_before_gives_the_bits_of_one_piece(tmp_path: Path) -> None:
    write_code(tmp_path)
    run = train(tmp_path, 'model={name="net.py:Net"}', SIMULATED)
    resume(round_file(run, 2), "--out", tmp_path / "again", "--accept-changes", "--trust-code")
    assert newest(tmp_path / "again") == newest(run)


@pytest.mark.usefixtures("metrics_preloaded")
def test_a_task_and_a_metric_that_judge_otherwise_are_told(tmp_path: Path) -> None:
    write_code(tmp_path)
    own = 'task={name="own.py:Scaled", metrics=["own.py:margin"], lower_is_better=["margin"]}'
    run = train(tmp_path, own, SIMULATED)
    before, was = contents(run), summary(run)["metrics"] | {"loss": summary(run)["loss"]}
    change(tmp_path / "own.py", "mean() * 1.0", "mean() * 1.5")
    said = resume(run, "--until", "rounds=6", code=71)
    assert "changed since: own.py: restore" in said.err
    assert contents(run) == before
    change(tmp_path / "own.py", "targets) * 1.0", "targets) * 1.5")
    resume(run, "--until", "rounds=6", "--accept-changes")
    what = (
        r"\[task\]: `own.py:Scaled`, `own.py:margin`: (\w+) of the held-out items is (\S+) now, and was (\S+) when the checkpoint"
    )
    told = {match[1]: match for match in re.finditer(what, "\n".join(events(run, "start")[-1]["accepted"]))}
    assert told.keys() == {"loss", "margin"}
    assert [match[1] for match in re.finditer(what, said.err)] == ["margin"]
    for number, match in told.items():
        assert [float(match[2]), float(match[3])] == pytest.approx([1.5 * was[number], was[number]], rel=1e-5)


def test_a_requeued_job_and_python_are_told_too(tmp_path: Path) -> None:
    """SLURM starts a job again by its own command. In Python the run is not even loaded."""
    write_code(tmp_path)
    run = train(tmp_path, 'model={name="net.py:Net"}', SIMULATED)
    (run / "checkpoint.h5").write_bytes(round_file(run, 2).read_bytes())  # as if it had been killed
    (run / "summary.json").unlink()
    change(tmp_path / "net.json", "0", "1")
    again = command(
        tmp_path, "run", tmp_path / "job.toml", "--out", run, environment={"SLURM_RESTART_COUNT": "1", "SLURM_JOB_ID": "7"}
    )
    assert (again.code, again.errors) == (71, ["user-code"]), again
    assert "goes on, with the job of its checkpoint" in again.err
    with pytest.raises(partrain_api.Failure, match="gives other answers") as caught:
        partrain_api.load(run, trust_code=True)
    assert caught.value.code == 71
    assert newest(run) == round_file(run, 2).read_bytes()


PACKAGE = """
import torch


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 3))
"""


def write_package(folder: Path) -> Path:
    (folder / "changing").mkdir(parents=True)
    (folder / "changing/__init__.py").write_text("")
    (folder / "changing/model.py").write_text(PACKAGE)
    return folder / "changing/model.py"


def test_a_package_that_trains_otherwise_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers stay the same, so the run goes on; its repeated rounds give other numbers, and only the change is named as the cause."""
    file = write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    run = train(tmp_path, 'model={name="changing.model:Net"}', SIMULATED)
    change(file, "Dropout(0.1)", "Dropout(0.5)")
    said = resume(round_file(run, 2))
    warning = "changing/model.py changed after the checkpoint was written: the run may go on in another way"
    assert [line for line in said.err.splitlines() if "warning" in line] == [f"partrain: warning: {warning}"]


def test_tensors_of_another_shape_are_a_change_of_code(tmp_path: Path) -> None:
    write_code(tmp_path)
    run = train(tmp_path, 'model={name="net.py:Net"}', SIMULATED)
    before = contents(run)
    change(tmp_path / "net.py", "torch.nn.Linear(8, 3)", "torch.nn.Linear(8, 5)")
    what = "[model] name: `net.py:Net`: tensor `2.weight`: shape (3, 8) in the checkpoint, shape (5, 8) in the job's model; 1 more differ"
    for words in (("resume", run, "--until", "rounds=6", "--accept-changes", "--quiet"), ("evaluate", run)):
        said = partrain(*words)
        assert (said.code, said.errors) == (71, ["user-code"]), said
        assert said.err == f"partrain: error[user-code]: {what}: changed since: net.py: restore the code as it was in training\n"
    assert contents(run) == before


def test_the_best_is_chosen_anew_once_changed_code_is_accepted(tmp_path: Path) -> None:
    """The former best, by far the better one here, stays in a file of its own; commands take the best of the code as it is."""
    write_code(tmp_path)
    run = train(tmp_path, 'model={name="net.py:Net"}', SIMULATED)
    former, number = (run / "best.h5").read_bytes(), checkpoint.read(run / "best.h5").round
    change(tmp_path / "net.py", *CAUSES["net.py"])
    said = resume(run, "--until", "rounds=6", "--accept-changes")
    assert f"judged round {number} the best: its checkpoint is now best-until-round-000004.h5" in said.err
    assert (run / "best-until-round-000004.h5").read_bytes() == former
    best = checkpoint.read(run / "best.h5")
    assert best.round in (5, 6)
    assert summary(run)["best"]["round"] == best.round
    assert partrain("evaluate", run, "--json", "--trust-code").code == 0
    first = next(event for event in events(run, "judgement") if event["round"] > 4)
    assert first["best"]
    assert partrain("runs", "remove", run, "--yes").code == 0
    assert not run.exists()
