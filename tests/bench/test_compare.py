"""Jobs and run folders side by side."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.histories import made_run, round_of, start, write_events
from support.runs import SIMULATED, Command, Said, events, eventually, partrain, round_file, summary, train, write_job
from support.watched import summary_of

from partrain.bench.assertions import verdict
from partrain.bench.compare import labels
from partrain.bench.compare_table import describe_values
from partrain.runs.selection import differences, parse_condition


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
    assert row["bytes_per_round"] == [sum(event["bytes"] for event in rounds) / len(rounds)]
    assert row["staleness"] == []
    busy = sum(event[key] for event in rounds for key in ("compute", "wait", "mix"))
    rounded = (
        4e-6 / busy
    )  # the summary's seconds are whole microseconds: two in the part, six in the whole, each wrong by half of one
    assert row["waiting"] == [pytest.approx(sum(event["wait"] for event in rounds) / busy, abs=rounded)]


def test_rounds_that_workers_sit_out_are_told_and_blame_no_worker(tmp_path: Path) -> None:
    job = write_job(tmp_path, SIMULATED, "workers.0.count=4", "sync.clients=1", "stop={rounds=6}")
    said = partrain("run", job, "--out", tmp_path / "run")
    trained = dict.fromkeys(range(4), 0) | Counter(event["rank"] for event in events(tmp_path / "run", "round") if event["items"])
    shares = [worker.get("participation", 1.0) for worker in summary(tmp_path / "run")["workers"]]
    assert shares == [pytest.approx(trained[rank] / 6, abs=1e-4) for rank in range(4)]
    assert sum(trained.values()) == 6
    assert f"each worker trained in {min(shares):.0%} to {max(shares):.0%} of the rounds" in said.out
    assert "leave it out" not in said.out
    (row,) = compared(tmp_path / "run")["rows"]
    assert row["participation"] == [pytest.approx(0.25)]
    assert "participation" in partrain("compare", tmp_path / "run").out


@pytest.mark.parametrize("text", ["[1, 2]", "{}", '{"status": "reached", "rounds": "many"}', "null", "not JSON"])
def test_a_damaged_summary_is_one_clear_line(tmp_path: Path, text: str) -> None:
    run = made_run(tmp_path / "run")
    (run / "summary.json").write_text(text)
    said = partrain("compare", run)
    assert said.code == 66
    assert "no readable summary.json" in said.err
    assert "Traceback" not in said.err


def test_a_damaged_event_is_one_clear_line(tmp_path: Path) -> None:
    run = write_events(tmp_path / "run", start(), round_of(0, 1, compute="long"))
    (run / "summary.json").write_text(json.dumps({**summary_of(), "test": {}}))
    said = partrain("compare", run)
    assert said.code == 66
    assert "an event `round` has a wrong value; restore the file" in said.err


@pytest.mark.representative
def test_jobs_are_trained_with_every_seed(tmp_path: Path) -> None:
    one = write_job(tmp_path / "one", SIMULATED)
    other = write_job(tmp_path / "other", SIMULATED, 'sync={rule="async", iterations=3, visits=2}', "stop.loss=1e-9")
    result = compared(one, other, "--seeds", 2)
    first, second = sorted(result["rows"], key=lambda row: row["label"])
    assert [row["runs"] for row in (first, second)] == [2, 2]
    assert result["table"]["head"][:3] == ["run", "runs", "status"]
    assert {row[1] for row in result["table"]["rows"]} == {"2"}
    assert result["table"]["note"].startswith("medians of 2 runs each (least-most); best first by judged accuracy")
    assert (first["statuses"], second["statuses"]) == (["finished"] * 2, ["not-reached"] * 2)
    assert second["seconds_to_target"] == []
    assert len(second["staleness"]) == 2
    assert set(result["differ"]) == {"sync.rule", "sync.visits", "stop.loss"}
    assert result["differ"]["sync.rule"] == {"one/job": "average", "other/job": "async"}
    assert (result["finished"], result["planned"]) == (4, 4)
    assert len(set(first["loss"])) == 2, "each seed has a run of its own"


def test_what_differs() -> None:
    jobs = {
        "a": {"name": "a", "sync": {"rule": "average", "iterations": 3}, "workers": [{"count": 2}]},
        "b": {"name": "b", "sync": {"rule": "bsp", "iterations": 3}, "workers": [{"count": 2}, {"device": "cuda"}]},
    }
    assert differences(jobs) == {"sync.rule": {"a": "average", "b": "bsp"}, "workers.1.device": {"b": "cuda"}}
    assert differences({"a": jobs["a"]}) == {}


def test_the_table_names_rules_and_differences(tmp_path: Path) -> None:
    run, other = train(tmp_path / "one", SIMULATED), train(tmp_path / "two", SIMULATED, 'sync.rule="bsp"')
    said = partrain("compare", run, other)
    lines = said.out.splitlines()
    assert lines[0].split()[:2] == ["run", "status"]
    assert {line.split()[0]: "bsp" in line.split() for line in lines[2:4]} == {"one/run": False, "two/run": True}
    (differing,) = [line for line in lines if "sync.rule: " in line]
    assert 'one/run "average"' in differing
    assert 'two/run "bsp"' in differing


def test_what_most_jobs_have_is_said_once() -> None:
    assert describe_values(dict.fromkeys("abc", 0.2) | {"d": 0.1}, "abcde") == "0.2, but d 0.1, e -"
    assert describe_values({"a": 1, "b": 1, "c": 2}, "abcd") == "a 1, b 1, c 2"
    assert describe_values({"a": "x"}, "abcd") == 'a "x"'


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    said = partrain("compare", tmp_path)
    assert said.code == 66
    assert "has no checkpoint.h5, and no run below it has" in said.err


def test_runs_that_have_not_ended_or_never_began(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED)
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text(lines[-1])
    assert "ended before training started" in partrain("compare", run).err
    (run / "summary.json").unlink()
    said = partrain("compare", run)
    assert (said.code, "still training, or was killed" in said.err) == (66, True)


@pytest.mark.slow
def test_a_folder_stands_for_all_its_runs_and_what_is_no_run_is_left_out(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("a", "b"):
        train(tmp_path / name, SIMULATED).rename(runs.mkdir(exist_ok=True) or runs / name)
    (runs / "runner.json").write_text("{}")  # of a workflow, as is the next one: no remark
    (runs / "notes.txt").write_text("")
    (runs / "empty").mkdir()
    (runs / "workflow.toml").write_text('name = "x"\n[[steps]]\nname = "a"\njob = "a.toml"\n')
    said = partrain("compare", *sorted(runs.iterdir()), "--json")
    assert [row["label"] for row in json.loads(said.out)["rows"]] == ["a", "b"]
    assert said.err.splitlines() == [
        f"partrain: left out: {runs}/empty has no checkpoint.h5, and no run below it has",
        f"partrain: left out: {runs}/notes.txt is neither a job nor a run",
    ]
    assert compared(runs)["rows"] == json.loads(said.out)["rows"]
    assert "runner.json is neither a job nor a run" in refused(runs / "runner.json").err
    partrain("compare", runs, "--output", tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text().startswith("| run | status | judged accuracy | ")
    assert "the suffix says the format" in partrain("compare", runs, "--output", tmp_path / "table.doc").err


def test_labels_tell_paths_apart(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "x").mkdir(parents=True)
    one, other, folder = tmp_path / "jobs/x.toml", tmp_path / "old/x.toml", tmp_path / "jobs/x"
    assert labels([one]) == ["x"]
    assert labels([one, tmp_path / "jobs/y.toml"]) == ["x", "y"]
    assert labels([one, other]) == ["jobs/x", "old/x"]
    assert labels([one, folder]) == ["x.toml", "x"]
    assert labels([one, one, tmp_path / "jobs/../jobs/x.toml"]) == ["x", "x (2)", "x (3)"]
    assert labels([one, one, tmp_path / "x (2).toml"]) == ["x", "x (3)", "x (2)"]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a.toml", "a (2)", ".."]), min_size=1, max_size=4)))
def test_no_two_labels_are_alike(paths: list[list[str]]) -> None:
    found = labels([Path("/nowhere", *parts) for parts in paths])
    assert len(set(found)) == len(found) == len(paths)


def test_a_checkpoint_stands_for_its_run_folder(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED)
    (folder,) = compared(run)["rows"]
    for checkpoint in (run / "checkpoint.h5", round_file(run, 2)):
        assert compared(checkpoint)["rows"] == [folder]


def refused(*words: object) -> Said:
    """The one line on stderr that says why, before anything is trained."""
    said = partrain("compare", *words)
    assert said.out == ""
    assert len(said.err.splitlines()) == 1, said.err
    return said


def test_checkpoints_that_stand_for_nothing(tmp_path: Path) -> None:
    run, stray = train(tmp_path, SIMULATED), tmp_path / "elsewhere" / "stray.h5"
    stray.parent.mkdir()
    stray.write_bytes((run / "checkpoint.h5").read_bytes())
    said = refused(stray)
    assert (said.code, "is not in a run folder" in said.err) == (66, True)
    said = refused(run / "checkpoints" / "missing.h5")
    assert (said.code, "no such file" in said.err) == (66, True)


@pytest.mark.parametrize("command", ["compare", "bench"])
@pytest.mark.parametrize("override", ["seed=5", " seed = 5", '"seed"=5'])
def test_a_seed_that_would_be_lost_is_refused(tmp_path: Path, command: str, override: str) -> None:
    said = partrain(command, write_job(tmp_path), "--set", override)
    assert (said.code, said.out, said.errors) == (78, "", ["bad-job"])
    assert said.err.count("\n") == 1
    assert "--seeds N" in said.err


def test_an_override_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED)
    said = refused(run, "--set", "stop.rounds=9")
    assert (said.code, "overrides apply to jobs" in said.err) == (78, True)
    assert compared(run, tmp_path / "job.toml", "--set", "stop.rounds=9", "--seeds", 1)["differ"] == {
        "seed": {"run": 3},
        "stop.rounds": {"run": 4, "job": 9},
    }


def test_warnings_are_shown_once_as_run_shows_them(tmp_path: Path) -> None:
    job = write_job(tmp_path, SIMULATED, 'sync={rule="swap", iterations=3}', "workers=[{count=3}]")
    alone = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    warning = next(line for line in alone.err.splitlines() if "odd number" in line)
    assert partrain("compare", job, "--seeds", 2).err.count(warning) == 1


@pytest.mark.parametrize(("number", "code", "as_json"), [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, True)])
def test_a_signal_leaves_the_table_of_what_is_finished(tmp_path: Path, number: signal.Signals, code: int, as_json: bool) -> None:
    quick, slow = write_job(tmp_path / "quick"), write_job(tmp_path / "slow", "stop.rounds=1000000")
    words = ("compare", quick, slow, "--seeds", 2, *["--json"] * as_json)
    with Command(words, tmp_path / "out") as command:
        eventually(lambda: "seed 0: finished" in (tmp_path / "out" / "0.err").read_text(), "the first run to be over")
        command.interrupt(number)
        said = command.wait()
    assert said.code == code, said
    if as_json:
        result = json.loads(said.out)
        assert [row["label"] for row in result["rows"]] == ["quick/job"]
        assert (result["code"], result["finished"], result["planned"], result["without"]) == (code, 1, 4, ["slow/job"])
    else:
        assert said.out.splitlines()[2].split()[:2] == ["quick/job", "finished"]
        assert "interrupted: the table holds 1 of 4 runs, none of slow/job" in said.out.splitlines()
    assert "Traceback" not in said.err


def test_a_line_below_the_table_names_what_kept_the_workers_of_a_run_from_computing(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED)
    content = json.loads((run / "summary.json").read_text())
    for worker in content["workers"]:
        worker |= {"seconds": {"compute": 1.0, "wait": 9.0, "sync": 0.0}, "core_wait": 0.0}
    (run / "summary.json").write_text(json.dumps(content))
    *_, note, limit = partrain("compare", run).out.splitlines()
    assert note.startswith("one run each")
    assert limit.startswith("run: workers waited 90% of their time: ")


def test_assertions_hold_for_each_run(tmp_path: Path) -> None:
    run, other = train(tmp_path / "one", SIMULATED), train(tmp_path / "two", SIMULATED, "stop.rounds=2")
    said = partrain("compare", run, other, "--assert", "rounds == 4", "--assert", "seconds.train > 0")
    assert said.code == 1
    assert said.err == "partrain: two/run: `rounds == 4` does not hold: rounds is 2\n"
    assert said.out.splitlines()[0].startswith("run")
    assert partrain("compare", run, other, "--assert", "rounds >= 2", "--assert", "rule == 'average'").code == 0
    told = json.loads(partrain("compare", run, other, "--assert", "rounds == 4", "--json").out)
    assert [(each["label"], each["holds"]) for each in told["asserts"]] == [("one/run", True), ("two/run", False)]
    assert told["code"] == 1


@pytest.mark.slow
def test_an_assertion_about_a_job_is_about_the_median_of_its_seeds(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.rounds=2")
    losses = sorted(compared(job, "--seeds", 3)["rows"][0]["loss"])
    between = (losses[1] + losses[2]) / 2
    assert partrain("compare", job, "--seeds", 3, "--assert", f"loss < {between}").code == 0
    said = partrain("compare", job, "--seeds", 3, "--assert", f"loss > {between}")
    assert said.code == 1
    assert "(medians of 3 seeds)" in said.err


def test_a_number_that_one_seed_lacks_fulfils_nothing() -> None:
    runs = [{"loss": 1.0, "status": "reached"}, {"loss": None, "status": "diverged"}]
    for text in ("loss < 9", "loss >= 0", "status == 'reached'"):
        assert not verdict("job", parse_condition(text), runs)["holds"]
    assert verdict("job", parse_condition("loss < 9"), runs[:1])["holds"]


@pytest.mark.parametrize(("words", "says"), [
    (("--assert", "test.accuracy =>"), "expected a condition"),
    (("--assert", "tst.accuracy > 0.5"), "did you mean `test.accuracy`?"),
    (("--sort", "los"), "did you mean `loss`?"),
    (("--md", "--json"), "give one of"),
])  # fmt: skip
def test_a_wrong_word_is_reported_before_the_training(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    for path in (write_job(tmp_path / "job"), train(tmp_path / "trained", SIMULATED)):
        said = partrain("compare", path, *words)
        assert said.code == 2
        assert says in said.err
        assert "seed 0" not in said.err


def test_a_name_that_only_the_training_could_tell_wrong_costs_no_result(tmp_path: Path) -> None:
    said = partrain("compare", write_job(tmp_path), "--seeds", 1, "--assert", "test.acuracy > 0.5")
    assert said.code == 2
    assert "did you mean `test.accuracy`?" in said.err
    assert "average" in said.out


def test_order_form_and_what_changed(tmp_path: Path) -> None:
    paths = [
        train(tmp_path / name, SIMULATED, f"stop.rounds={rounds}") for name, rounds in {"one": 3, "two": 1, "six": 2}.items()
    ]
    assert [row["label"] for row in compared(*paths, "--sort", "rounds")["rows"]] == ["two/run", "six/run", "one/run"]
    assert [row["label"] for row in compared(*paths, "--sort", "-seconds.train")["rows"]] == [
        row["label"] for row in sorted(compared(*paths)["rows"], key=lambda row: -row["seconds"][0])
    ]
    head, _, *lines = partrain("compare", *paths, "--only-changed", "--md").out.splitlines()
    assert head.startswith("| run | judged accuracy | ")
    assert head.endswith(" | stop.rounds |")
    assert {line.split(" | ")[0]: line.split(" | ")[-1] for line in lines} == {
        "| one/run": "3 |",
        "| two/run": "1 |",
        "| six/run": "2 |",
    }
    rows = list(csv.DictReader(io.StringIO(partrain("compare", *paths, "--csv").out)))
    assert {(row["job"], row["rounds"], row["stop.rounds"]) for row in rows} == {
        ("one/run", "3", "3"), ("two/run", "1", "1"), ("six/run", "2", "2"),
    }  # fmt: skip
