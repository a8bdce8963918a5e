"""Jobs and run folders side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import events, partrain, summary, train, write_job

from partrain.bench.compare import differences


def compared(*words: object) -> dict[str, object]:
    said = partrain("compare", *words, "--json")
    assert said.code == 0, said
    return dict(json.loads(said.out))


def test_a_run_folder_gives_its_figures(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.loss=9")
    (row,) = compared(run)["rows"]
    rounds = events(run, "round")
    assert (row["rule"], row["reached"], row["runs"], row["workers"]) == ("average", 1, 1, [2])
    assert row["seconds_to_target"] == [summary(run)["seconds"]["train"]]
    assert row["items_to_target"] == [summary(run)["item_iterations"]]
    assert row["test_accuracy"] == [summary(run)["test"]["accuracy"]]
    assert row["bytes"] == [sum(event["bytes"] for event in rounds) / len(rounds)]
    assert row["staleness"] == []
    busy = sum(event[key] for event in rounds for key in ("compute", "wait", "mix"))
    assert row["waiting"] == [pytest.approx(sum(event["wait"] for event in rounds) / busy)]


def test_jobs_are_trained_with_every_seed(tmp_path: Path) -> None:
    one = write_job(tmp_path / "one")
    other = write_job(tmp_path / "other", 'sync={rule="async", iterations=3, visits=2}', "stop.loss=1e-9")
    result = compared(one, other, "--seeds", 2)
    first, second = result["rows"]
    assert [row["runs"] for row in (first, second)] == [2, 2]
    assert (first["statuses"], second["statuses"]) == (["finished"] * 2, ["not-reached"] * 2)
    assert second["seconds_to_target"] == []
    assert len(second["staleness"]) == 2
    assert set(result["differ"]) == {"sync.rule", "sync.visits", "stop.loss"}
    assert result["differ"]["sync.rule"] == {"job": "average", "job-2": "async"}


def test_what_differs() -> None:
    jobs = {
        "a": {"name": "a", "sync": {"rule": "average", "iterations": 3}, "workers": [{"count": 2}]},
        "b": {"name": "b", "sync": {"rule": "bsp", "iterations": 3}, "workers": [{"count": 2}, {"device": "cuda"}]},
    }
    assert differences(jobs) == {"sync.rule": {"a": "average", "b": "bsp"}, "workers.1.device": {"b": "cuda"}}
    assert differences({"a": jobs["a"]}) == {}


def test_the_table_names_rules_and_differences(tmp_path: Path) -> None:
    run, other = train(tmp_path / "one"), train(tmp_path / "two", 'sync.rule="bsp"')
    said = partrain("compare", run, other)
    lines = said.out.splitlines()
    assert lines[0].split()[:2] == ["job", "rule"]
    assert [line.split()[1] for line in lines[2:4]] == ["average", "bsp"]
    assert any('sync.rule: run "average", run-2 "bsp"' in line for line in lines), said.out


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    said = partrain("compare", tmp_path)
    assert said.code == 66
    assert "is it a run folder?" in said.err


def test_runs_that_have_not_ended_or_never_began(tmp_path: Path) -> None:
    run = train(tmp_path)
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text(lines[-1])
    assert "ended before it began" in partrain("compare", run).err
    (run / "summary.json").unlink()
    said = partrain("compare", run)
    assert (said.code, "under way, or was killed" in said.err) == (66, True)
