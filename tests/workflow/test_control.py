"""Workflows that are stopped, resumed, timed out and tried again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.runs import JOB, Command, Said, eventually, partrain

from partrain.system.environment import boot_seconds
from partrain.workflow import runner
from partrain.workflow.resources import FreeResources, Resources

LONG = (
    JOB.replace("rounds = 4", "rounds = 100000").replace("judge_every = 1", "judge_every = 50").replace("keep = 1000", "keep = 2")
)
STUDY = """
name = "study"

[[steps]]
name = "quick"
command = ["true"]

[[steps]]
name = "train"
job = "job.toml"

[[steps]]
name = "judge"
evaluate = {checkpoint = "{train.checkpoint}"}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(LONG)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def committed(run: Path) -> bool:
    return (run / "events.jsonl").exists() and '"commit"' in (run / "events.jsonl").read_text()


def status(step: str) -> str:
    return str(json.loads(Path("runs/study", step, "step.json").read_bytes())["status"])


@pytest.mark.representative
@pytest.mark.parametrize("path", ["runs/study", "runs/study/train", "runs"])
def test_stop_ends_the_workflow_and_resume_goes_on(path: str, place: Path) -> None:
    """The folder of the workflow, that of the step that trains, and the folder of all runs."""
    with Command(("run", "study.toml"), place) as command:
        eventually(lambda: committed(place / "runs/study/train"), "a checkpoint")
        said = partrain("stop", path)
        ended = command.wait()
    assert (said.code, ended.code) == (0, 143), (said, ended)
    assert "failed" not in ended.err + ended.out
    assert "resume runs/study" in ended.err
    assert status("train") == "stopped"
    assert not Path("runs/study/judge").exists()
    (place / "job.toml").write_text(LONG.replace("100000", "20000").replace("rounds = 20000", "rounds = 100000"))

    with Command(("resume", "runs/study"), place) as command:
        eventually(lambda: (place / "runs/study/train/events.jsonl").read_text().count('"start"') == 2, "the run goes on")
        partrain("stop", "runs/study")
        command.wait()
    assert status("train") == "stopped"


def test_a_folder_without_a_workflow_or_a_run(place: Path) -> None:
    (place / "empty").mkdir()
    assert partrain("stop", "empty").code == 66
    Path("empty/runner.json").write_text("{}")
    said = partrain("resume", "empty")
    assert said.code == 78
    assert "does not name the files" in said.err


def test_options_of_a_run_are_not_for_a_workflow(place: Path) -> None:
    (place / "study.toml").write_text(STUDY.partition('\n[[steps]]\nname = "train"')[0])
    assert partrain("run", "study.toml").code == 0
    said = partrain("resume", "runs/study", "--until", "rounds=3")
    assert said.code == 2
    assert "--until" in said.err


def program(**keys: str) -> Said:
    lines = "\n".join(f"{key} = {value}" for key, value in keys.items())
    Path("study.toml").write_text(f'name = "study"\n[[steps]]\nname = "a"\n{lines}\n')
    return partrain("run", "study.toml")


def test_a_step_that_takes_too_long_is_ended(place: Path) -> None:
    """It would go on for longer than a test may."""
    said = program(command='["sleep", "1000"]', timeout="0.3")
    assert said.code == 1, said
    assert "a: it took longer than its timeout of 0.3 s" in said.err


def test_a_training_that_takes_too_long_leaves_a_checkpoint(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that leaps as soon as there is a checkpoint to be found."""
    monkeypatch.setattr(runner, "boot_seconds", lambda: boot_seconds() + 1000 * committed(place / "runs/study/a"))
    said = program(job='"job.toml"', timeout="1000")
    assert said.code == 143, said
    assert "timeout of 1000 s" in said.err
    assert Path("runs/study/a/checkpoint.h5").exists()


def test_each_attempt_keeps_its_log(place: Path) -> None:
    code = "import os, pathlib; p = pathlib.Path('tries'); n = int(p.read_text()) if p.exists() else 0; p.write_text(str(n + 1)); print('try', n); exit(3 if n < 2 else 0)"
    Path("flaky.py").write_text(code)
    said = program(command=json.dumps([sys.executable, "flaky.py"]), retries="2")
    assert said.code == 0, said
    logs = {path.name: path.read_text() for path in Path("runs/study/a").glob("log*.txt")}
    assert {name: text.splitlines()[-1] for name, text in logs.items()} == {
        "log-1.txt": "try 0",
        "log-2.txt": "try 1",
        "log.txt": "try 2",
    }


def test_a_program_has_its_environment(place: Path) -> None:
    assert program(command='["sh", "-c", "echo $WORD > out.txt"]', outputs='["out.txt"]', env='{WORD = "x"}').code == 0
    assert Path("out.txt").read_text() == "x\n"
    said = program(command='["sh", "-c", "echo $WORD > out.txt"]', outputs='["out.txt"]', env='{WORD = "y"}')
    assert "`env.WORD` x → y" in said.out


@pytest.mark.parametrize("key", ['env = {A = "b"}', "cores = 2", "memory = 5", 'devices = ["cuda:0"]', 'outputs = ["x"]'])
def test_keys_of_a_program_are_not_for_a_job(key: str, place: Path) -> None:
    Path("study.toml").write_text(f'name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\n{key}\n')
    said = partrain("run", "study.toml")
    assert said.code == 78
    assert "belongs to a `command`" in said.err


def test_a_trial_that_fails_hides_no_ranking(place: Path) -> None:
    """Its failure is the sweep's exit code; the others are ranked."""
    (place / "net.py").write_text(
        "from torch import nn\n\n\ndef net(width):\n    if width == 3:\n        raise RuntimeError('too narrow')\n    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3))\n"
    )
    job = JOB.replace('name = "mlp"\nhidden = [16]', 'name = "net.py:net"\nwidth = 8')
    (place / "job.toml").write_text(job + '\n[sweep]\n"model.width" = [4, 3, 8]\n')
    said = partrain("run", "job.toml")
    assert said.code != 0
    assert "too narrow" in said.err
    assert "3 combinations, 3 runs" in said.out
    assert "best: runs/job/sweep/job/width=" in said.out
    rows = json.loads(Path("runs/job/sweep/job/sweep.json").read_bytes())["rows"]
    assert [row["settings"]["model.width"] for row in rows][-1] == 3
    again = partrain("run", "job.toml")
    assert again.code == said.code, "the failed one is tried again"


def test_the_trainings_of_a_sweep_are_logged_as_one_group(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    (place / "job.toml").write_text(JOB.replace("rounds = 4", "rounds = 2") + '\n[sweep]\n"optimizer.lr" = [0.05, 0.1]\n')
    assert partrain("run", "job.toml", "--log", "mlflow", "--out", "out", "-q").code == 0
    client = MlflowClient((place / "out/mlruns").as_uri())
    (experiment,) = [found for found in client.search_experiments() if found.name == "job"]
    assert sorted(str(run.info.run_name) for run in client.search_runs([experiment.experiment_id])) == ["lr=0.05", "lr=0.1"]


def test_hooks_are_checked_before_a_workflow_begins(place: Path) -> None:
    said = partrain("run", "study.toml", "--log", "nothing")
    assert (said.code, "there is no hook `nothing`" in said.err) == (2, True)
    assert not Path("runs").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (("--param", "lr"), "expected NAME=VALUE"),
    (("--param", "l=1"), 'did you mean "lr"?'),
])  # fmt: skip
def test_parameters(arguments: tuple[str, ...], message: str, place: Path) -> None:
    """A text that is one parameter is its value: a number stays one."""
    (place / "job.toml").write_text(JOB)
    head = 'name = "study"\nparams = {lr = 0.25, words = ["a", "b"]}\n'
    steps = '[[steps]]\nname = "a"\njob = "job.toml"\nset = {"optimizer.lr" = "{params.lr}"}\n'
    Path("study.toml").write_text(f'{head}{steps}[[steps]]\nname = "b"\ncommand = ["echo", "rate {{params.lr}}"]\n')
    assert partrain("run", "study.toml").code == 0
    assert "lr = 0.25\n" in Path("runs/study/a/job.toml").read_text()
    assert "rate 0.25\n" in Path("runs/study/b/log.txt").read_text()
    said = partrain("run", "study.toml", "--param", "lr=0.5")
    assert (said.code, "`optimizer.lr` 0.25 → 0.5" in said.out) == (0, True)
    assert partrain("resume", "runs/study").out.splitlines()[0].endswith(": 2 unchanged"), "with the parameters of the newest run"
    wrong = partrain("run", "study.toml", *arguments)
    assert (wrong.code, message in wrong.err) == (2, True)
    Path("study.toml").write_text(head + steps.replace("params.lr", "params.rate"))
    unknown = partrain("run", "study.toml")
    assert unknown.code == 78
    assert "study.toml:6:25: no parameter `rate`" in unknown.err


def test_programs_share_the_memory() -> None:
    """One that needs more than there is runs alone."""
    free = FreeResources(8, 100.0)
    assert free.fits(Resources(1, memory=500))
    free.take("a", Resources(1, memory=60))
    assert [free.fits(Resources(1, memory=memory)) for memory in (0, 40, 41)] == [True, True, False]
    free.give_back("a")
    assert free.fits(Resources(1, memory=41))
