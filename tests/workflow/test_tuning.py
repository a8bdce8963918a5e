"""Sweeps whose trials learn from those before: their settings are Optuna's, and depend on no clock."""

from __future__ import annotations

import json
import shutil
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import optuna
import pytest
from support.runs import JOB, partrain
from support.shared_runs import once

from partrain.record.event_log import read_events
from partrain.record.events import JudgementEvent
from partrain.record.run_folder import RunFolder
from partrain.seeds import derive
from partrain.workflow.tuning import recorded

SWEEP = """
[sweep]
"optimizer.lr" = {low = 1e-5, high = 1.0, log = true}
"optimizer.momentum" = [0.0, 0.9]
"model.hidden" = [[4], [16]]
trials = 12
sampler = "tpe"
"""
TEXT = (
    JOB.replace("count = 2", "count = 1").replace("rounds = 4", "rounds = 12").replace("judge_every = 1", "judge_every = 3")
    + SWEEP
)


def tuned(folder: Path, more: str, *words: object) -> Path:
    """Run the sweep; return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "job.toml").write_text(TEXT + more)
    said = partrain("run", folder / "job.toml", "--out", folder / "out", "--quiet", *words)
    assert said.code == 0, said
    return folder / "out/job"


@pytest.fixture
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep whose trials ran one after the other, poor ones pruned."""
    return once(tmp_path_factory, "tuned", lambda folder: tuned(folder, 'prune = "median"\n')) / "out/job"


def ranking(folder: Path) -> Any:
    return json.loads((folder / "sweep.json").read_bytes())


def drawn(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each run, by its name."""
    return {row["runs"][0]: row["settings"] for row in ranking(folder)["rows"]}


def judged(folder: Path) -> dict[int, float]:
    """Return the judged losses of a run by round."""
    events = [event for event in read_events(folder / "events.jsonl") if isinstance(event, JudgementEvent) and event.regular]
    return {event.round: event.loss for event in events if event.loss is not None}


def pruned(folder: Path) -> dict[str, int]:
    """Return the rounds at which runs were poor, by the runs' names."""
    return {path.parent.name: json.loads(path.read_bytes())["round"] for path in folder.glob("*/pruned.json")}


def own_end(run: Path) -> str:
    """Return the status in a run's own summary."""
    return str(json.loads((run / "summary.json").read_bytes())["status"])


@pytest.mark.slow
def test_the_settings_are_those_that_optuna_draws(one_by_one: Path) -> None:
    """A loop with Optuna alone, told the same losses, draws the same settings."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=derive(3, "sweep") % 2**32))
    ended = pruned(one_by_one)
    for name, settings in sorted(drawn(one_by_one).items()):
        trial = study.ask()
        assert settings == {
            "optimizer.lr": trial.suggest_float("optimizer.lr", 1e-5, 1.0, log=True),
            "optimizer.momentum": [0.0, 0.9][trial.suggest_categorical("optimizer.momentum", [0, 1])],
            "model.hidden": [[4], [16]][trial.suggest_categorical("model.hidden", [0, 1])],
        }
        if name in ended:
            for round, loss in judged(one_by_one / name).items():
                if round <= ended[name]:
                    trial.report(loss, round)
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, json.loads((one_by_one / name / "summary.json").read_bytes())["loss"])


@pytest.mark.slow
def test_a_run_ends_early_if_it_is_worse_than_the_median_before(one_by_one: Path) -> None:
    """The rule of Optuna's MedianPruner, worked out by hand: the best loss so far against the median of whole trials."""
    ended, whole = pruned(one_by_one), list[dict[int, float]]()
    assert ended, "no run was poor: the test shows nothing"
    for name in sorted(drawn(one_by_one)):
        losses = judged(one_by_one / name)
        poor = [
            round
            for round, loss in losses.items()
            if len(whole) >= 5
            and min(value for other, value in losses.items() if other <= round) > statistics.median(each[round] for each in whole)
        ]
        assert ended.get(name) == (poor[0] if poor else None), name
        if not poor:
            whole.append(losses)


@pytest.mark.slow
def test_a_poor_run_is_ranked_last_and_never_the_best(one_by_one: Path) -> None:
    """A poor run that ended by itself, before the sweep could end it, has a rank."""
    rows, poor = ranking(one_by_one)["rows"], pruned(one_by_one)
    ended = {name: round for name, round in poor.items() if own_end(one_by_one / name) == "stopped"}
    medians = [row["median"] for row in rows]
    known = medians[: len(rows) - len(ended)]
    assert all(a <= b for a, b in pairwise(known))
    assert medians[len(known) :] == [None] * len(ended)
    assert {row["runs"][0]: row["pruned"][0] for row in rows[len(known) :]} == ended
    for name in poor:
        record = json.loads((one_by_one / name / "step.json").read_bytes())
        assert (record["status"], record["summary"].get("pruned", {}).get("round")) == ("done", ended.get(name)), name


@pytest.mark.parametrize(("status", "shown", "number"), [("finished", "finished", 0.25), ("stopped", "pruned", None)])
def test_only_a_run_that_its_sweep_ended_is_pruned(status: str, shown: str, number: float | None, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"status": status, "reason": "", "loss": 0.25, "metrics": {}}))
    (tmp_path / "pruned.json").write_text('{"round": 6, "value": 1.1}')
    assert RunFolder(tmp_path).summary["status"] == shown
    assert recorded(tmp_path, "loss") == number


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_draws_the_same_again(one_by_one: Path, tmp_path: Path) -> None:
    """So are the poor runs. Which of them end by themselves before the sweep ends them depends on the clock."""
    shutil.copytree(one_by_one.parent.parent, tmp_path / "copy")
    place = tmp_path / "copy/out/job"
    names = sorted(drawn(one_by_one))
    for name in (names[6], names[8], names[11]):
        shutil.rmtree(place / name)
    again = tuned(tmp_path / "copy", 'prune = "median"\n')
    assert (drawn(again), pruned(again)) == (drawn(one_by_one), pruned(one_by_one))


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_trials_at_once_are_drawn_from_the_same_results(jobs: int, tmp_path: Path) -> None:
    """Two at once learn from all but the last trial, whether the machine runs two of them at once or not."""
    place = tuned(tmp_path / "sweep", "max_concurrent = 2\n", "--jobs", jobs)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=derive(3, "sweep") % 2**32))
    asked: list[tuple[str, optuna.Trial]] = []
    for name, settings in sorted(drawn(place).items()):
        if len(asked) >= 2:
            former, trial = asked[-2]
            study.tell(trial, json.loads((place / former / "summary.json").read_bytes())["best"]["loss"])
        trial = study.ask()
        asked.append((name, trial))
        assert settings["optimizer.lr"] == trial.suggest_float("optimizer.lr", 1e-5, 1.0, log=True)
        for key in ("optimizer.momentum", "model.hidden"):
            trial.suggest_categorical(key, [0, 1])


@pytest.mark.parametrize(("sweep", "message"), [
    ('"optimizer.lr" = [0.1, 1.0]\nsampler = "tpe"', "needs `trials`"),
    ('"optimizer.lr" = [0.1, 1.0]\nprune = "median"', '`prune` belongs to `sampler` = "tpe"'),
    ('"optimizer.lr" = [0.1, 1.0]\nmax_concurrent = 2', '`max_concurrent` belongs to `sampler` = "tpe"'),
    ('"optimizer.lr" = [0.1]\ntrials = 2\nsampler = "tpe"\nprune = "median"\nseeds = 2', "goes with `seeds = 1` only"),
    ('"optimizer.lr" = [0.1]\ntrials = 2\nsampler = "tpe"\nprune = "median"\nby = "test.accuracy"', "needs a `by` that is judged"),
    ('"optimizer.lr" = [0.1]\ntrials = 2\nsampler = "tpe"\nzip = {seed = [1, 2]}', "`zip` lists combinations"),
    ('"optimizer.lr" = {low = -1.0, high = 1.0}\ntrials = 2\nsampler = "tpe"', "lr"),
])  # fmt: skip
def test_wrong_tables(sweep: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(f"{JOB}\n[sweep]\n{sweep}\n")
    said = partrain("run", tmp_path / "job.toml", "--out", tmp_path / "out")
    assert said.code == 78, said
    assert message in said.err
    assert not (tmp_path / "out").exists()


def test_without_optuna_the_sweep_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from partrain.workflow import load

    monkeypatch.setattr(load, "find_spec", lambda name: None)
    (tmp_path / "job.toml").write_text(TEXT)
    said = partrain("run", tmp_path / "job.toml", "--out", tmp_path / "out")
    assert (said.code, "pip install 'partrain[tune]'" in said.err) == (78, True), said
