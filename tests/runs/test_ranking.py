"""The ranking of a sweep is one: the same rows in the same order wherever it is shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.histories import made_run
from support.runs import partrain
from support.watched import summary_of

from partrain.errors import InputMissing
from partrain.runs.ranking import Combination, Ranking

TESTED = {"0.1": (0.6, 0.7), "0.2": (0.9, 0.8), "0.3": (0.5, 0.5)}
"""Test accuracy of two seeds by learning rate. The judged loss ranks the other way round."""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    folder, rows = tmp_path / "runs/job/sweep/job", []
    for lr, values in TESTED.items():
        for seed, value in enumerate(values):
            run = made_run(folder / f"lr={lr},seed={seed}", job=f"seed = {seed}\n[optimizer]\nlr = {lr}\n")
            judged = {"round": 3, "loss": 0.5 - 0.1 * TESTED[lr][0], "metrics": {}, "by": "loss", "lower": True}
            content = summary_of(status="finished") | {
                "best": judged,
                "metrics": {},
                "test": {"accuracy": value},
                "judged_round": 3,
            }
            (run / "summary.json").write_text(json.dumps(content))
        rows.append(Combination({"optimizer.lr": float(lr)}, list(values), [f"lr={lr},seed={seed}" for seed in range(2)]))
    (folder / "sweep.json").write_text(json.dumps(Ranking.of(folder, "test.accuracy", rows, largest=True).content))
    (folder / "step.json").write_text("{}")
    return folder


def test_compare_groups_the_runs_and_ranks_as_the_sweep(sweep: Path) -> None:
    said = partrain("compare", sweep, "--json")
    assert said.code == 0, said
    result = json.loads(said.out)
    assert [row["label"] for row in result["rows"]] == [f"optimizer.lr = {lr}" for lr in ("0.2", "0.1", "0.3")]
    assert [row["test_accuracy"] for row in result["rows"]] == [[0.9, 0.8], [0.6, 0.7], [0.5, 0.5]]
    assert result["table"]["note"] == "medians of 2 runs each (least-most); sorted by test.accuracy; * is the best of its column"
    assert result["differ"] == {}, "the labels show the settings of the sweep"
    assert [row["label"] for row in json.loads(partrain("compare", sweep.parents[1], "--json").out)["rows"]] == [
        row["label"] for row in result["rows"]
    ], "also from a folder above"


def test_another_order_is_named(sweep: Path) -> None:
    result = json.loads(partrain("compare", sweep, "--sort", "loss", "--json").out)
    assert [row["label"][-3:] for row in result["rows"]] == ["0.2", "0.1", "0.3"]
    assert "; sorted by loss; " in result["table"]["note"]
    result = json.loads(partrain("compare", sweep, "--sort", "rounds", "--json").out)
    assert ("rounds" in result["table"]["head"], "; sorted by rounds; " in result["table"]["note"]) == (True, True)


def test_its_own_files_in_a_pattern_are_no_remark(sweep: Path) -> None:
    said = partrain("compare", *sorted(sweep.iterdir()))
    assert (said.code, said.err) == (0, "")
    assert "one run each; best first by judged loss" in said.out


def test_a_report_shows_the_same_ranking(sweep: Path, tmp_path: Path) -> None:
    said = partrain("report", sweep, "--no-items", "-o", tmp_path / "r.html")
    assert said.code == 0, said
    head, rows = Ranking.read(sweep).cells
    assert head[:4] == ["rank", "optimizer.lr", "runs", "status"]
    assert [row[1] for row in rows] == ["0.2", "0.1", "0.3"]
    lines = [line.split() for line in said.out.splitlines()]
    assert [line[1] for line in lines if line[:1] and line[0] in "123"] == ["0.2", "0.1", "0.3"]
    assert "best first by judged" not in said.out + (page := (tmp_path / "r.html").read_text())
    assert "Medians of 2 runs each (least-most); sorted by test.accuracy; * is the best of its column." in page
    assert "Best of 3 combinations: optimizer.lr = 0.2, with test.accuracy 0.8500, the median of 2 runs" in said.out


def test_level_combinations_are_named() -> None:
    ranking = Ranking.of(Path("s"), "accuracy", [Combination({"lr": lr}, [1.0], ["1"]) for lr in (1, 2, 3)], largest=True)
    assert "the first 3 are level, in the order of the sweep" in ranking.notes
    assert ranking.best == Path("s/1")


ROW = '{"by": "loss", "largest": false, "rows": [{"settings": {%s}, "runs": ["%s"], "values": [%s], "pruned": [%s]}]}'


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", ROW % ("", "1", "", ""), ROW % ("", "..", "1", ""), ROW % ("", "a/b", "1", ""), ROW % ("", "1", "1", "1e999"),
     ROW % ('"a": "\\ud800"', "1", "1", ""), '{"by": "loss", "largest": false, "rows": []}'],
)  # fmt: skip
def test_a_damaged_ranking_is_one_line(sweep: Path, text: str) -> None:
    (sweep / "sweep.json").write_text(text)
    with pytest.raises(InputMissing, match="not the ranking of a sweep"):
        Ranking.read(sweep)
    said = partrain("compare", sweep, "--json")
    assert (said.code, said.err.count("not the ranking of a sweep")) == (0, 1), said
    assert len(json.loads(said.out)["rows"]) == 6, "the runs are there"
    assert partrain("report", sweep, "--no-items").code == 66


def test_long_settings_and_trials_that_are_gone(sweep: Path) -> None:
    """The rows that are left are compared; a run outside the ranking is a row of its own, after a note."""
    content = json.loads((sweep / "sweep.json").read_text())
    for row in content["rows"]:
        row["settings"] |= {"model.hidden": list(range(100))}
    (sweep / "sweep.json").write_text(json.dumps(content))
    shutil.rmtree(sweep / "lr=0.3,seed=0")
    for seed in range(2):
        shutil.rmtree(sweep / f"lr=0.1,seed={seed}")
    shutil.copytree(sweep / "lr=0.2,seed=0", sweep / "lr=0.9,seed=0")
    said = partrain("compare", sweep, "--json")
    assert said.code == 0, said
    assert f"{sweep / 'lr=0.9,seed=0'} is not in the ranking of its sweep" in said.err
    rows = json.loads(said.out)["rows"]
    assert sorted(row["runs"] for row in rows) == [1, 1, 2]


def test_a_pruned_trial_is_no_finished_run(sweep: Path) -> None:
    for seed in range(2):
        run = sweep / f"lr=0.3,seed={seed}"
        (run / "pruned.json").write_text('{"round": 2}')
        content = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps(content | {"status": "stopped", "reason": "SIGINT"}))
    result = json.loads(partrain("compare", sweep, "--json").out)
    assert [row["statuses"] for row in result["rows"]] == [["finished"] * 2, ["finished"] * 2, ["pruned"] * 2]
    assert "sorted by test.accuracy; pruned runs are last" in result["table"]["note"]
