"""`partrain runs`: list, show, tag, remove, collect garbage."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from support.histories import judgement, start, write_events
from support.runs import SIMULATED, partrain, train, write_job
from support.shared_runs import once

from partrain.launch.folder.run_folder import locked
from partrain.record.run_folder import RunFolder
from partrain.runs.listing import read_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs; `c` is the newest."""

    def make(folder: Path) -> None:
        for number, name in enumerate("abc"):
            run = train(folder / name, f"optimizer.lr={0.01 * 4**number}", f"name=job-{'x' if name == 'a' else 'y'}")
            (folder / "runs").mkdir(exist_ok=True)
            moved = run.rename(folder / "runs" / name)
            start, rest = (moved / "events.jsonl").read_text().split("\n", 1)  # all are of this process, which began once
            (moved / "events.jsonl").write_text(json.dumps(json.loads(start) | {"t": time.time() - 1000 + number}) + "\n" + rest)

    return once(tmp_path_factory, "three-runs", make)


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the runs, where the commands are given."""
    shutil.copytree(trained / "runs", tmp_path / "runs", copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def listed(*words: object) -> list[dict[str, Any]]:
    said = partrain("runs", *words, "--json")
    assert said.code == 0, said
    return list(json.loads(said.out)["runs"])


def names(*words: object) -> list[str]:
    return [Path(run["name"]).name for run in listed(*words)]


def never_began(folder: Path) -> None:
    """The folder of a run that was killed before its first checkpoint."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "events.jsonl").write_text('{"event":"fault","t":1.0,"what":"lost","rank":null}\n')


@pytest.mark.representative
def test_the_list_has_the_newest_first(place: Path) -> None:
    assert names() == names("list") == names(place) == ["c", "b", "a"]
    summary = json.loads((place / "c" / "summary.json").read_text())
    run = listed()[0]
    assert run["name"] == "runs/c"
    assert (run["rule"], run["workers"], run["status"], run["rounds"]) == ("average", 2, "finished", 4)
    assert (run["loss"], run["accuracy"]) == (summary["best"]["loss"], summary["best"]["metrics"]["accuracy"])
    assert run["seconds"] == summary["seconds"]["train"]
    inodes = {each.stat().st_ino: each.stat().st_size for each in (place / "c").rglob("*") if each.is_file()}
    assert run["size"] == sum(inodes.values())
    lines = partrain("runs").out.splitlines()
    assert lines[0].split() == ["name", "when", "rule", "workers", "status", "rounds", "loss", "accuracy", "seconds", "size"]
    assert [line.split()[0] for line in lines[2:]] == ["runs/c", "runs/b", "runs/a"]


def test_sorting_filtering_and_limits(place: Path) -> None:
    by_loss = sorted("abc", key=lambda name: json.loads((place / name / "summary.json").read_text())["best"]["loss"])
    assert names("--sort", "loss") == by_loss
    assert names("--sort", "-loss") == by_loss[::-1]
    assert names("--sort", "test.loss", "--limit", 2) == names("--sort", "test.loss")[:2]
    assert names("--sort", "optimizer.lr") == ["a", "b", "c"]
    assert names("--filter", "optimizer.lr > 0.02") == ["c", "b"]
    assert names("--filter", "seconds.train >= 0", "--filter", "item_iterations > 9 and rule == 'average'") == [
        "c",
        "b",
        "a",
    ]
    assert sorted(names("--sort", "workers.1.item_iterations")) == ["a", "b", "c"]
    assert names("--filter", "rounds<4") == []
    assert names("--status", "reached,finished") == ["c", "b", "a"]
    assert names("--status", "killed") == []
    (place / "b" / "summary.json").unlink()
    events = place / "b" / "events.jsonl"
    events.write_bytes(b"".join(line for line in events.read_bytes().splitlines(True) if b'"event":"end"' not in line))
    assert names("--sort", "test.loss")[-1] == "b", "a run without the number comes last"
    assert names("--sort", "-test.loss")[-1] == "b"
    assert names("--status", "killed") == ["b"]
    assert {"rounds": 4, "status": "killed"}.items() <= listed("--status", "killed")[0].items(), "from its events"


def test_a_killed_run_is_ranked_by_the_number_of_its_newest_session(tmp_path: Path) -> None:
    """Also if it was undefined in every judgement: no other number takes its place."""
    first, auroc = start(1), {"rounds": 9, "patience_by": "auroc"}
    again = start(1, stop=auroc, resumed_from=1, lower_is_better=False)
    metrics = [{"accuracy": 0.9}, {"accuracy": 0.5, "auroc": 0.7}]
    events = [first, judgement(1, 1.0, 0.5, metrics=metrics[0]), again, judgement(2, 2.0, 0.9, metrics=metrics[1])]
    result = read_run(write_events(tmp_path / "resumed", *events)).result
    assert (result.round, result.by, result.rank) == (2, "auroc", -0.7)
    never = write_events(tmp_path / "never", start(1, stop=auroc), judgement(1, 1.0, 0.5, metrics=metrics[0], best=False))
    assert (read_run(never).result.by, read_run(never).result.rank) == ("auroc", None)


@pytest.mark.parametrize(("words", "says"), [
    (("--filter", "accurcy > 0.9"), "did you mean `accuracy`?"),
    (("--filter", "accuracy >"), "expected a condition"),
    (("--filter", "{a.loss} > 1"), "steps of a workflow"),
    (("--sort", "tset.accuracy"), "did you mean `test.accuracy`?"),
    (("--status", "reachd"), "did you mean `reached`?"),
    (("--md", "--csv"), "give one of"),
])  # fmt: skip
def test_what_does_not_fit_is_a_usage_error(place: Path, words: tuple[str, ...], says: str) -> None:
    said = partrain("runs", *words)
    assert said.code == 2
    assert says in said.err


def test_only_changed_shows_the_settings_that_differ(place: Path) -> None:
    runs = listed("--only-changed")
    assert [run["changed"] for run in runs] == [{"optimizer.lr": 0.16}, {"optimizer.lr": 0.04}, {"optimizer.lr": 0.01}]
    head = partrain("runs", "--only-changed").out.splitlines()[0].split()
    assert "rule" not in head, "all have the same"
    assert {"name", "loss", "optimizer.lr"} <= set(head)


@pytest.mark.parametrize(("key", "shown"), [("test.loss", "test.loss"), ("-optimizer.lr", "optimizer.lr"), ("tags", "tags")])
def test_the_list_shows_what_it_is_sorted_by(place: Path, key: str, shown: str) -> None:
    for more in ([], ["--only-changed"]):
        head, _, *rows = [line.split() for line in partrain("runs", "--sort", key, *more).out.splitlines()]
        assert head.count(shown) == 1, head
        table = list(csv.DictReader(io.StringIO(partrain("runs", "--sort", key, *more, "--csv").out)))
        assert [row["name"] for row in table] == [row[0] for row in rows]
        assert [run[shown] or "" for run in listed("--sort", key, *more)] == [
            float(row[shown]) if row[shown] else "" for row in table
        ]
    if shown == "test.loss":
        summary = json.loads((place / "c" / "summary.json").read_text())
        assert next(run for run in listed("--sort", key) if run["name"] == "runs/c")[shown] == summary["test"]["loss"]


def test_markdown_and_csv(place: Path) -> None:
    lines = partrain("runs", "--md", "--only-changed").out.splitlines()
    assert lines[0].startswith("| name | when | ")
    assert lines[0].endswith(" | optimizer.lr |")
    assert len({line.count("|") for line in lines}) == 1
    rows = list(csv.DictReader(io.StringIO(partrain("runs", "--csv").out)))
    assert [row["name"] for row in rows] == ["runs/c", "runs/b", "runs/a"]
    assert float(rows[0]["loss"]) == listed()[0]["loss"]


def test_a_run_that_is_training_is_told_by_its_lock(place: Path) -> None:
    (place / "a" / "summary.json").unlink()
    with locked(place / "a"):
        assert RunFolder(place / "a").is_training
        assert names("--status", "training") == ["a"]
        said = partrain("runs", "remove", "runs/a", "--yes")
        assert said.code == 73
        assert "in use" in said.err
        assert partrain("runs", "gc", "--keep", 0, "--yes").code == 0
        assert (place / "a" / "checkpoint.h5").exists()
    assert not RunFolder(place / "a").is_training


def test_a_folder_for_a_command_that_there_is_not(place: Path) -> None:
    assert "Did you mean 'show'" in partrain("runs", "shwo", "runs/a").err
    assert partrain("runs", "nowhere").code == 66
    os.chdir(place)
    assert partrain("runs").out == "no runs in runs\n", "a user without runs made no mistake"


def test_seconds_of_a_simulated_clock_say_so(tmp_path: Path) -> None:
    job = write_job(tmp_path, SIMULATED, "stop.rounds=1")
    said = partrain("run", job, "--out", tmp_path / "run")
    assert " simulated s of training" in said.out, said
    head, _, line = partrain("runs", "list", tmp_path).out.splitlines()
    assert line[: head.index("seconds") + len("seconds")].endswith(" simulated")
    (shown,) = [line for line in partrain("runs", "show", tmp_path / "run").out.splitlines() if line.startswith("  seconds")]
    assert [" simulated" in part for part in shown.split(",")] == [False, True, False]
    assert isinstance(listed("list", tmp_path)[0]["seconds"], float)


def test_show_has_all_facts(place: Path) -> None:
    said = partrain("runs", "show", "runs/a")
    facts = {line[:17].strip(): line[17:].strip() for line in said.out.splitlines()[1:]}
    assert facts["job"] == "job-x"
    assert facts["workers"] == "2 on cpu"
    assert facts["checkpoints"].endswith("round-000004.h5")
    told = json.loads(partrain("runs", "show", "runs/a", "--json").out)
    assert told["summary"] == json.loads((place / "a" / "summary.json").read_text())
    several = partrain("runs", "show", "runs")
    assert (several.code, "runs holds runs of 2 jobs, so name one of them: runs/a, runs/c" in several.err) == (66, True)
    (place / "again").mkdir()
    (place / "c").rename(place / "again/c")
    assert "runs/again stands for runs/again/c" in partrain("runs", "show", "runs/again").err
    assert partrain("runs", "show", "runs/a/checkpoint.h5").out == said.out
    assert partrain("runs", "show", "runs/none").code == 66


def test_tags(place: Path) -> None:
    assert partrain("runs", "tag", "runs/a", "base", "good", "base").out == "runs/a: tags base, good\n"
    assert names("--tag", "good") == ["a"]
    assert partrain("runs", "tag", "runs/a", "good", "--remove").out == "runs/a: tags base\n"
    assert listed("--tag", "base")[0]["tags"] == ["base"]
    assert partrain("runs", "tag", "runs/a", "two words").code == 2
    assert "tags" in partrain("runs").out.splitlines()[0]


def test_remove_asks_or_needs_yes(place: Path) -> None:
    said = partrain("runs", "remove", "runs/a")
    assert said.code == 2
    assert "--yes" in said.err
    assert (place / "a").exists()
    said = partrain("runs", "remove", "runs/a", "runs/b", "--yes")
    assert said.code == 0
    assert not (place / "a").exists()
    assert names() == ["c"]


def test_remove_refuses_what_is_no_run_before_it_removes_any(place: Path) -> None:
    (place / "notes").mkdir()
    (place / "notes" / "thoughts.txt").touch()
    for other in ("runs/notes", "runs", "runs/none"):
        assert partrain("runs", "remove", "runs/a", other, "--yes").code == 66
    assert (place / "a").exists()
    assert (place / "notes" / "thoughts.txt").exists()


def test_remove_leaves_files_that_are_not_of_the_run(place: Path) -> None:
    (place / "a" / "data.csv").touch()
    said = partrain("runs", "remove", "runs/a", "--yes")
    assert [each.name for each in (place / "a").iterdir()] == ["data.csv"]
    assert "data.csv" in said.out


def test_gc_removes_what_never_committed(place: Path) -> None:
    never_began(place / "lost")
    never_began(place / "kept")
    partrain("runs", "tag", "runs/kept", "look")
    said = partrain("runs", "gc", "--dry-run")
    assert said.out.startswith("runs/lost: committed no checkpoint\n1 run, ")
    assert (place / "lost").exists()
    said = partrain("runs", "gc")
    assert (
        said.code,
        "1 run would be removed: runs/lost; without a terminal to ask, add --yes; --dry-run lists" in said.err,
    ) == (2, True)
    freed = sum(each.stat().st_size for each in (place / "lost").rglob("*") if each.is_file())
    told = json.loads(partrain("runs", "gc", "--yes", "--json").out)
    assert told == {"removed": [{"name": "runs/lost", "size": freed, "left": []}], "bytes": freed}
    assert sorted(names()) == ["a", "b", "c", "kept"]
    assert partrain("runs", "gc").out == "nothing to remove\n"


def test_nothing_is_left_of_a_run(place: Path) -> None:
    (place / "a" / "job.hmac").touch()
    assert partrain("runs", "remove", "runs/a", "--yes").code == 0
    assert not (place / "a").exists()


def test_gc_keeps_the_newest_and_the_best(place: Path) -> None:
    runs = {Path(run["name"]).name: run for run in listed()}
    best = max("bc", key=lambda name: runs[name]["accuracy"])
    other = "c" if best == "b" else "b"
    assert partrain("runs", "gc", "--keep", 1, "--older-than", 1, "--dry-run").out == "nothing to remove\n"
    partrain("runs", "gc", "--keep", 0, "--yes")
    assert names("--sort", "name") == sorted(["a", best]), f"`a` is the only one of its job; {other} was neither kept nor best"


def test_gc_keeps_the_best_by_the_number_that_chose_its_network(place: Path) -> None:
    for name, best, newest in (("b", 0.95, 0.1), ("c", 0.9, 0.94)):
        summary = json.loads((place / name / "summary.json").read_text())
        summary["best"]["metrics"]["accuracy"], summary["metrics"]["accuracy"] = best, newest
        (place / name / "summary.json").write_text(json.dumps(summary))
    partrain("runs", "gc", "--keep", 0, "--yes")
    assert names("--sort", "name") == ["a", "b"]


def test_runs_of_a_workflow(place: Path) -> None:
    job = write_job(place.parent / "jobs", SIMULATED, "stop.rounds=1")
    text = f'name = "study"\n[[steps]]\nname = "tried"\njob = "{job}"\nsweep = {{"optimizer.lr" = [0.1, 0.2], by = "loss"}}\n'
    (place.parent / "study.toml").write_text(text)
    said = partrain("run", "study.toml", "--quiet")
    assert said.code == 0, said
    trials = [run["name"] for run in listed("runs/study")]
    assert len(trials) == 2
    said = partrain("runs", "remove", trials[0], "--yes")
    assert said.code == 2
    assert "belongs to the workflow in runs/study" in " ".join(said.err.split())
    assert partrain("runs", "gc", "runs/study", "--keep", 0, "--yes").out == "nothing to remove\n"
    assert len(listed("runs/study")) == 2


@pytest.mark.parametrize("width", [60, 100])
def test_tables_fit_the_terminal(place: Path, width: int) -> None:
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    for words in (["runs"], ["compare", "runs/a", "runs/b"]):
        subprocess.run([sys.executable, "-m", "partrain", *words], stdout=terminal, env=environment, check=True)
        lines = os.read(reader, 1 << 16).decode().splitlines()
        assert max(map(len, lines)) <= width
        heads = sum(line.startswith(("name ", "run ")) for line in lines)
        assert heads > (width == 60), "each part has the first column"
    os.close(reader)
    os.close(terminal)
