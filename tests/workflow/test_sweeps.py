"""Sweeps: which runs there are, how they are ranked, and what other steps see of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError
from support.runs import JOB, partrain, round_file
from support.watched import summary_of

from partrain import train as partrain_train
from partrain.errors import BadJob
from partrain.job.sweep import SweepSection, Trial
from partrain.runs.ranking import Combination, Ranking
from partrain.workflow.actions import Action
from partrain.workflow.sweep import SweepAction

STUDY = """
name = "study"

[[steps]]
name = "search"
job = "job.toml"
set = {"stop.rounds" = 3}
sweep = {"optimizer.lr" = [0.05, 1e-9], "optimizer.momentum" = [0.9], seeds = 2, by = "test.accuracy"}
assert = ["test.accuracy > 0.1"]

[[steps]]
name = "longer"
job = "job.toml"
set = {"model.from" = "{search.checkpoint}", "stop.rounds" = 1}
"""


def sweep(**settings: Any) -> SweepSection:
    return SweepSection.model_validate(settings)


def test_a_grid_has_every_combination() -> None:
    trials = sweep(**{"a.b": [1, 2], "c": ["x", "y"]}).runs(0)
    assert [trial.settings for trial in trials] == [
        {"a.b": 1, "c": "x"}, {"a.b": 1, "c": "y"}, {"a.b": 2, "c": "x"}, {"a.b": 2, "c": "y"},
    ]  # fmt: skip
    assert {trial.seed for trial in trials} == {None}


def test_runs_are_named_by_their_settings() -> None:
    def names(**settings: Any) -> list[str]:
        return list(sweep(**settings).named_runs(3))

    assert names(**{"optimizer.lr": [0.1, 1e-9], "sync.rule": ["average"]}, seeds=2)[1:3] == [
        "lr=0.1,rule=average,seed=4",
        "lr=1e-09,rule=average",
    ]
    assert names(**{"model.hidden": [[16], [64, 32]], "model.bias": [True]}) == ["hidden=16,bias=true", "hidden=64-32,bias=true"]
    assert names(**{"a.x": [1], "b.x": [2]}) == ["a.x=1,b.x=2"], "last parts that are alike"
    assert names(a=[-1, 1]) == ["a=-1", "a=1"]
    assert names(a=[1], k_folds=2) == ["a=1,fold=1-2", "a=1,fold=2-2"]
    drawn = names(a=[1, 2], trials=2, seeds=2)
    assert [name.partition("-")[2] for name in drawn] == ["0001", "0001,seed=4", "0002", "0002,seed=4"]
    assert len(set(names(a=[1, 1, 1, "1", [1]]))) == 5
    long = names(a=["x" * 300, "x" * 300 + "y"])
    assert len(set(long)) == 2
    assert max(map(len, long)) < 130


def test_a_run_is_the_same_with_more_seeds() -> None:
    """A combination trained with the job's seed alone does not train again."""
    before, after = (sweep(a=[1, 2], seeds=count).named_runs(3) for count in (1, 2))
    assert {name: run.overrides for name, run in before.items()}.items() <= {n: run.overrides for n, run in after.items()}.items()
    assert [after[name].overrides["seed"] for name in after if name not in before] == [4, 4]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_other_draws_have_other_names(sampler: str) -> None:
    """More or fewer `trials` leave the draws as they are; with other values each run would be another one under the old name."""

    def names(seed: int = 3, **settings: Any) -> set[str]:
        table = {"a": {"low": 0.0, "high": 1.0}, "b": [1, 2], "trials": 2, "sampler": sampler} | settings
        return set(sweep(**table).named_runs(seed))

    before = names()
    assert before < names(trials=5)
    assert before == names() > names(trials=1)
    for others in (names(b=[1, 2, 3]), names(a={"low": 0.0, "high": 2.0}), names(seed=4)):
        assert not before & others
    assert (before & names(by="accuracy") == before) is (sampler == "random"), "a study by another number draws otherwise"


def test_a_name_is_of_one_value_alone() -> None:
    """`a/b` and `a-b` are both `a-b` as a folder; each keeps its own, whichever comes first and whether the other is there."""

    def by_value(*values: str) -> dict[str, str]:
        return {run.settings["x"]: name for name, run in sweep(x=list(values)).named_runs(0).items()}

    both = by_value("a/b", "a-b")
    assert both["a-b"] == "x=a-b" != both["a/b"]
    assert both == by_value("a-b", "a/b") == by_value("a/b") | by_value("a-b")


def test_zipped_lists_go_together() -> None:
    trials = sweep(zip={"a": [1, 2], "b": [3, 4]}, c=[5, 6]).runs(0)
    assert [tuple(trial.settings[key] for key in "abc") for trial in trials] == [(1, 3, 5), (2, 4, 5), (1, 3, 6), (2, 4, 6)]


def test_seeds_follow_that_of_the_job() -> None:
    assert [trial.overrides for trial in sweep(a=[1], seeds=3).runs(7)] == [
        {"a": 1},
        {"a": 1, "seed": 8},
        {"a": 1, "seed": 9},
    ]


def test_each_seed_of_each_combination_has_every_fold() -> None:
    trials = sweep(a=[1, 2], seeds=2, k_folds=3).runs(7)
    assert [(trial.settings["a"], trial.seed, trial.fold) for trial in trials] == [
        (a, seed, fold) for a in (1, 2) for seed in (None, 8) for fold in ("1/3", "2/3", "3/3")
    ]
    assert [trial.number for trial in trials] == [0] * 6 + [1] * 6
    assert trials[0].overrides == {"a": 1, "dataset.validation": 0, "dataset.fold": "1/3"}
    assert len(sweep(k_folds=3).runs(0)) == 3, "folds alone are a sweep"
    assert not sweep(k_folds=3).is_empty


def test_random_trials_lie_in_their_ranges_and_are_the_same_each_time() -> None:
    section = sweep(
        lr={"low": 1e-4, "high": 1.0, "log": True},
        hidden={"low": 4.0, "high": 64.0, "whole": True},
        rule=["a", "b"],
        trials=200,
    )
    trials = section.runs(0)
    rates = [trial.settings["lr"] for trial in trials]
    assert all(1e-4 <= rate <= 1 for rate in rates)
    assert 60 < sum(rate < 1e-2 for rate in rates) < 140, "half of a logarithmic range"
    assert all(isinstance(trial.settings["hidden"], int) and 4 <= trial.settings["hidden"] <= 64 for trial in trials)
    assert {trial.settings["rule"] for trial in trials} == {"a", "b"}
    assert section.runs(0) == trials != section.runs(1)


@pytest.mark.parametrize(("settings", "message"), [
    ({"a": 3}, "`a` needs a list"),
    ({"a": []}, "`a` needs a list"),
    ({"a": {"low": 1.0, "high": 2.0}}, "`trials` says how many"),
    ({"trials": 3}, "`trials` draws from lists and ranges"),
    ({"zip": {"a": [1], "b": [1, 2]}}, "of equal length"),
    ({"a": {"low": 2.0, "high": 1.0}, "trials": 1}, "`low` must be below `high`"),
    ({"a": {"low": 0.0, "high": 1.0, "log": True}, "trials": 1}, "`low` must be below `high`"),
    ({"a": [0] * 200, "b": [0] * 200}, "40,000 runs"),
    ({"k_folds": 1}, "greater than or equal to 2"),
    ({"k_folds": 5, "a": [0] * 4000}, "20,000 runs"),
    ({"k_folds": 5, "dataset.fold": ["1/2", "2/2"]}, "no choice to `dataset.fold`"),
    ({"k_folds": 5, "zip": {"dataset.validation": [10, 20]}}, "no choice to `dataset.validation`"),
    ({"k_folds": 5, "a": [1], "trials": 2, "sampler": "tpe", "prune": "median"},
     "`prune` compares single runs, and `k_folds` has several"),
])  # fmt: skip
def test_what_cannot_be_swept(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        sweep(**settings)


def test_the_direction_follows_from_the_name() -> None:
    smallest = "loss", "test.rmse", "seconds.train", "metrics.mse", "metrics.perplexity"
    assert [by for by in (*smallest, "test.accuracy", "metrics.f1") if not sweep(a=[1], by=by).maximizes] == list(smallest)
    assert sweep(a=[1], by="loss", largest=True).maximizes


def test_ranking(tmp_path: Path) -> None:
    values = {"1": 0.9, "2": 0.7, "3": 0.85, "4": 0.86, "5": None, "6": None}
    for name, value in values.items():
        (tmp_path / name).mkdir()
        content = summary_of() | {"status": "finished", "loss": 0.5, "metrics": {}, "best": None, "test": {"accuracy": value}}
        (tmp_path / name / "summary.json").write_text(json.dumps(content))
        (tmp_path / name / "job.toml").write_text("")
    trials = {name: Trial({"lr": index // 2, "rule": "average"}, index % 2, index // 2) for index, name in enumerate(values)}
    action = SweepAction(sweep(a=[1], by="test.accuracy"), trials, cast(Action, None))
    ranking = action.ranked(tmp_path)
    assert [row.settings["lr"] for row in ranking.rows] == [1, 0, 2], "medians 0.855, 0.8, none"
    head, lines = ranking.cells
    kept = [head.index(name) for name in ("rank", "lr", "rule", "test accuracy")]
    assert [[line[place].strip() for place in kept] for line in lines] == [
        ["1", "1", "average", "0.8550 (0.8500-0.8600)*"], ["2", "0", "average", "0.8000 (0.7000-0.9000)"], ["3", "2", "average", "-"],
    ]  # fmt: skip
    other = SweepAction(sweep(a=[1], by="rounds"), trials, cast(Action, None))
    head, lines = other.ranked(tmp_path).cells
    assert head[:4] == ["rank", "lr", "rule", "rounds"]
    assert ranking.difference == "The 2 best of 2 (test.accuracy 0.855 to 0.8) differ in lr (1, 0)."
    assert ranking.notes[0] == "medians of 2 runs each (least-most); sorted by test.accuracy; * is the best of its column"


def test_what_the_best_share() -> None:
    def ranking(rows: list[Combination]) -> Ranking:
        return Ranking(Path("sweep"), "loss", largest=False, rows=rows)

    rows = [Combination({"lr": lr, "rule": rule}, [loss], ["1"]) for loss, lr, rule in [
        (0.1, 1, "a"), (0.2, 2, "a"), (0.3, 1, "b"), (0.4, 2, "b"), (0.5, 3, "a"), (0.6, 3, "b"),
    ]]  # fmt: skip
    assert ranking(rows).difference == "The 2 best of 6 (loss 0.1 to 0.2) share rule = a and differ in lr (1, 2)."
    assert ranking([Combination({"lr": lr}, [lr / 10], ["1"]) for lr in (1, 2, 3)]).difference == ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def run(text: str, *words: object, code: int = 0) -> dict[str, str]:
    Path("study.toml").write_text(text)
    said = partrain("run", "study.toml", "--json", *words)
    assert said.code == code, said
    return {step["step"]: step["status"] for step in json.loads(said.out)["steps"]}


@pytest.mark.slow
def test_a_sweep_in_a_workflow(place: Path) -> None:
    runs = [f"search/lr={lr},momentum=0.9{seed}" for lr in ("0.05", "1e-09") for seed in ("", ",seed=4")]
    assert run(STUDY) == dict.fromkeys([*runs, "search", "longer"], "done")
    ranking = json.loads(Path("runs/study/search/sweep.json").read_text())
    assert [row["settings"]["optimizer.lr"] for row in ranking["rows"]] == [0.05, 1e-9]
    assert ranking["best"] in ("lr=0.05,momentum=0.9", "lr=0.05,momentum=0.9,seed=4")
    best = Path("runs/study/search") / ranking["best"]
    used = json.loads(Path("runs/study/longer/step.json").read_text())["command"]
    assert any(str(place / best / "checkpoint.h5") in word for word in used)
    assert set(run(STUDY).values()) == {"unchanged"}

    more = run(STUDY.replace("[0.05, 1e-9]", "[1e-8, 0.05, 1e-9]"))
    assert [status for name, status in more.items() if "/" in name] == ["done"] * 2 + ["unchanged"] * 4, "a value in front"
    assert (more["search"], more["longer"]) == ("done", "unchanged"), "the best is the same one"


def test_runs_are_ordinary_runs(place: Path) -> None:
    run(STUDY)
    sets = ("stop.rounds=3", "optimizer.lr=0.05", "optimizer.momentum=0.9", "seed=4", "sweep={}")
    said = partrain("run", "job.toml", *(f"--set={each}" for each in sets), "--out", "alone", "--quiet")
    assert said.code == 0, said
    assert (
        round_file(Path("alone"), 3).read_bytes()
        == Path("runs/study/search/lr=0.05,momentum=0.9,seed=4/checkpoint.h5").read_bytes()
    )


TPE = '"optimizer.lr" = [0.05, 0.1]\nsampler = "tpe"\n'


@pytest.mark.slow
@pytest.mark.parametrize("sweeps", [
    ['"optimizer.lr" = [0.05, 0.1, 0.2]', '"optimizer.lr" = [0.1]', '"optimizer.lr" = [0.4, 0.1, 0.05]'],
    ['"optimizer.lr" = [0.1]\nseeds = 3', '"optimizer.lr" = [0.1]\nseeds = 2', '"optimizer.lr" = [0.1, 0.2]\nseeds = 2'],
    ['"optimizer.lr" = {low = 0.1, high = 0.2}\ntrials = 2', '"optimizer.lr" = {low = 0.1, high = 0.3}\ntrials = 2'],
    [TPE + "trials = 3", TPE + "trials = 2", TPE + "trials = 4", TPE.replace("0.1", "0.1, 0.2") + "trials = 2", TPE + "trials = 4"],
], ids=["grid", "seeds", "random", "tpe"])  # fmt: skip
def test_a_sweep_that_changes_trains_as_announced_and_loses_no_run(place: Path, sweeps: list[str]) -> None:
    if any("tpe" in sweep for sweep in sweeps):
        pytest.importorskip("optuna")
    text = JOB.replace("count = 2", "count = 1").replace("rounds = 4", "rounds = 1")
    before: dict[Path, bytes] = {}
    for sweep in sweeps:
        (place / "job.toml").write_text(f"{text}[sweep]\n{sweep}\n")
        announced = json.loads(partrain("run", "job.toml", "-n", "--json").out)["steps"]
        said = partrain("run", "job.toml", "--json")
        assert said.code == 0, said
        happened = {step["step"]: step["status"] for step in json.loads(said.out)["steps"]}
        assert happened == {step["step"]: {"run": "done", "skip": "unchanged"}[step["action"]] for step in announced}
        assert before == {path: path.read_bytes() for path in before}
        before = {path: path.read_bytes() for path in place.glob("runs/job/sweep/*/*/checkpoint.h5")}
    if "tpe" in sweep:
        assert {status for name, status in happened.items() if "/" in name} == {"unchanged"}, "the first study is there still"


@pytest.mark.slow
def test_a_run_with_a_tag_is_never_replaced(place: Path) -> None:
    """Neither by a sweep or step whose settings change nor by --rerun; `-n` says so beforehand."""
    (place / "job.toml").write_text(JOB.replace("count = 2", "count = 1").replace("rounds = 4", "rounds = 1"))
    study = 'name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\n'
    assert run(study) == {"a": "done"}
    assert partrain("runs", "tag", "runs/study/a", "paper").code == 0
    before = Path("runs/study/a/checkpoint.h5").read_bytes()
    assert run(study) == {"a": "unchanged"}
    for text, words in ((study, ("--rerun", "a")), (study + "set = {seed = 4}\n", ())):
        said = run(text, *words, code=73)
        (row,) = json.loads(partrain("run", "study.toml", "-n", "--json", *words).out)["steps"]
        assert (said["a"], row["action"]) == ("failed", "refuse")
        assert "has the tag `paper`" in row["reason"]
    assert Path("runs/study/a/checkpoint.h5").read_bytes() == before
    assert partrain("runs", "tag", "runs/study/a", "paper", "--remove").code == 0
    assert run(study + "set = {seed = 4}\n") == {"a": "done"}


@pytest.mark.slow
def test_a_step_that_was_a_sweep_leaves_its_runs(place: Path) -> None:
    (place / "job.toml").write_text(JOB.replace("count = 2", "count = 1").replace("rounds = 4", "rounds = 1"))
    study = 'name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\n'
    run(study + 'sweep = {"optimizer.lr" = [0.05]}\n')
    before = Path("runs/study/a/lr=0.05/checkpoint.h5").read_bytes()
    assert run(study) == {"a": "done"}
    assert Path("runs/study/a/lr=0.05/checkpoint.h5").read_bytes() == before


@pytest.mark.slow
def test_a_smaller_sweep_keeps_the_runs_of_a_larger_one_without_a_rank(place: Path) -> None:
    run(STUDY)
    folder = Path("runs/study/search")
    before = {path: path.read_bytes() for path in folder.glob("*/checkpoint.h5")}
    assert len(before) == 4
    run(STUDY.replace("[0.05, 1e-9]", "[1e-9]"))
    assert {path: path.read_bytes() for path in before} == before
    ranking = json.loads((folder / "sweep.json").read_text())
    assert [row["runs"] for row in ranking["rows"]] == [["lr=1e-09,momentum=0.9", "lr=1e-09,momentum=0.9,seed=4"]]


@pytest.mark.slow
def test_a_step_that_reads_the_runs_of_a_sweep_depends_on_each(place: Path) -> None:
    """The ranking by the training loss is the same after a change of the test items; what a step reads of the runs is not."""
    text = STUDY[: STUDY.index('[[steps]]\nname = "longer"')].replace('by = "test.accuracy"', 'by = "loss"')
    text += '[[steps]]\nname = "read"\ncommand = ["sh", "-c", "cat {search.folder}/../*/summary.json > all.txt"]\noutputs = ["all.txt"]\n'
    assert run(text)["read"] == "done"
    assert run(text)["read"] == "unchanged"
    changed = text.replace('"stop.rounds" = 3', '"stop.rounds" = 3, "dataset.test_items" = 50')
    assert run(changed)["read"] == "done"


def test_a_job_is_checked_with_the_values_that_a_sweep_gives_it(place: Path) -> None:
    (place / "job.toml").write_text(JOB.replace("count = 2", "count = 2\npartition_size = 10000"))
    assert (
        run('name = "study"\n[[steps]]\nname = "s"\njob = "job.toml"\nsweep = {"workers.0.partition_size" = [100, 120]}\n')["s"]
        == "done"
    )


def test_validate_tries_the_values_of_a_sweep(place: Path) -> None:
    text = (place / "job.toml").read_text()
    (place / "wrong.toml").write_text(text + "\n[sweep]\noptimizer.lrr = [0.1, 0.2]\n")
    said = partrain("validate", place / "wrong.toml")
    assert said.code == 78
    assert "unknown key `lrr` in [optimizer]" in said.out


@pytest.mark.slow
def test_the_name_of_a_sweep_means_its_best_run(place: Path) -> None:
    text = (
        STUDY[: STUDY.index('[[steps]]\nname = "longer"')]
        .replace("seeds = 2", "seeds = 1")
        .replace("test.accuracy", "accuracy", 1)
    )
    run(text)  # the newest run, of the rate 1e-9, is the worst
    best = "runs/study/search/lr=0.05,momentum=0.9"
    for folder in ("runs/study", "runs/study/search"):
        said = partrain("evaluate", folder)
        assert f"{folder} is a sweep; this is its best run: {best}" in " ".join(said.err.split()), said
        shown = partrain("runs", "show", folder)
        assert shown.out.splitlines()[0] == best


@pytest.mark.representative
def test_a_job_with_a_sweep(place: Path) -> None:
    (place / "job.toml").write_text(JOB + '\n[sweep]\n"optimizer.lr" = [0.05, 1e-9]\nby = "loss"\n')
    assert partrain("validate", "job.toml").code == 0
    said = partrain("run", "job.toml")
    assert said.code == 0, said
    assert "job: 2 combinations, 2 runs" in said.out
    assert "best: runs/job/sweep/job/lr=0.05" in said.out
    assert partrain("run", "job.toml", "--set", "sweep={}", "--out", "one", "--quiet").code == 0
    assert (place / "one/checkpoint.h5").exists()
    with pytest.raises(BadJob, match="has a \\[sweep\\]"):
        partrain_train("job.toml", out="two")


@pytest.mark.slow
def test_an_own_metric_of_which_lower_is_better_ranks_the_smallest_first(place: Path) -> None:
    (place / "own.py").write_text(
        "def cost(probabilities, labels):\n    return (probabilities.argmax(1) != labels).double().mean()\n"
    )
    task = '\n[task]\nmetrics = ["own.py:cost"]\nlower_is_better = ["cost"]\n'
    (place / "job.toml").write_text(JOB + task + '[sweep]\n"optimizer.lr" = [1e-9, 0.05]\nby = "metrics.cost"\n')
    said = partrain("run", "job.toml")
    assert said.code == 0, said
    assert "best: runs/job/sweep/job/lr=0.05" in said.out


FOLDS = """
name = "study"

[[steps]]
name = "search"
job = "job.toml"
set = {"stop.rounds" = 3}
sweep = {"optimizer.lr" = [1e-9, 0.05], k_folds = 3}

[[steps]]
name = "final"
job = "job.toml"
set = {"optimizer.lr" = "{search.settings.optimizer.lr}", "dataset.validation" = 0, stop = {rounds = 2}}
"""


@pytest.mark.slow
def test_cross_validation_and_the_best_settings_on_all_items(place: Path) -> None:
    assert set(run(FOLDS).values()) == {"done"}
    ranking = json.loads(Path("runs/study/search/sweep.json").read_text())
    assert [row["settings"]["optimizer.lr"] for row in ranking["rows"]] == [0.05, 1e-9]
    assert [len(set(row["values"])) for row in ranking["rows"]] == [3, 3]
    sets = ("stop.rounds=3", "optimizer.lr=0.05", "dataset.validation=0", 'dataset.fold="2/3"', "sweep={}")
    assert partrain("run", "job.toml", *(f"--set={each}" for each in sets), "--out", "alone", "--quiet").code == 0
    assert round_file(Path("alone"), 3).read_bytes() == Path("runs/study/search/lr=0.05,fold=2-3/checkpoint.h5").read_bytes()
    loss = json.loads(Path("alone/summary.json").read_text())["loss"]
    assert ranking["rows"][0]["values"][1] == loss, "the loss of held-out items"
    assert "lr = 0.05" in Path("runs/study/final/job.toml").read_text()
    assert set(run(FOLDS).values()) == {"unchanged"}


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ('by = "acuracy"\n"optimizer.lr" = [0.1, 0.2]', "6: no trial will record `acuracy`"),
        ('"optimizer.lrr" = [0.1, 0.2]', "1: unknown key `lrr`"),
        ('"optimizer.lr" = [0.1, "fast"]', "18: `lr`: expected a number"),
    ],
)
def test_errors_of_a_sweep_in_a_job_are_at_its_lines(place: Path, sweep: str, message: str) -> None:
    job = Path("job.toml").read_text().rstrip()
    Path("swept.toml").write_text(f"{job}\n[sweep]\n{sweep}\n")
    for command in "validate", "run":
        said = partrain(command, "swept.toml")
        assert said.code == 78, said
        assert f"swept.toml:{job.count(chr(10)) + 3}:{message}" in said.err + said.out


@pytest.mark.parametrize(("text", "message"), [
    (FOLDS.replace("k_folds = 3", "k_folds = 300"), "study.toml:8:51: 300 folds are more than the 230 items"),
    (FOLDS.replace("k_folds = 3", "k_folds = 1"), "study.toml:8:51: `k_folds`"),
    (FOLDS.replace('"optimizer.lr" = "{', '"optimizer.rate" = "{'), "study.toml:13:8: unknown key `rate`"),
    (STUDY.replace('"optimizer.lr" = [', '"optimizer.rate" = ['), "study.toml:8:10: unknown key `rate`"),
    (STUDY.replace("[0.05, 1e-9]", '["fast"]'), "`lr`: expected a number"),
    (STUDY.replace("test.accuracy", "metrics.acuracy", 1), 'study.toml:8:87: no trial will record `metrics.acuracy`'),
    (STUDY.replace("test.accuracy", "cost", 1), "study.toml:8:87: no trial will record `cost`"),
    (STUDY.replace("[0.05, 1e-9]", "0.05"), "`optimizer.lr` needs a list of values"),
])  # fmt: skip
def test_errors_are_found_before_anything_starts(place: Path, text: str, message: str) -> None:
    Path("study.toml").write_text(text)
    said = partrain("run", "study.toml")
    assert said.code == 78, said
    assert message in said.err
    assert said.err.count(message.split(": ")[-1]) <= 3, "once, not for each run"
    assert not Path("runs").exists()
