"""`partrain watch --once`, and how runs are found and read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.runs import SIMULATED, partrain, train, write_job
from support.shared_runs import once
from support.watched import append, end, events_of, fault, judgement, summary_of, write

from partrain.launch.folder.run_folder import locked
from partrain.record.events import encode
from partrain.watch.layout import SORTS, curve_lines, run_lines
from partrain.watch.once import once_lines, read_once, rows_of
from partrain.watch.runs import Runs
from partrain.watch.track import POINTS, Track
from partrain.watch.watched import ODD, WatchedRun


def text_of(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_one_run_is_the_live_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = once(tmp_path_factory, "reported", train) / "run"
    said = partrain("watch", run, "--once")
    assert said.code == 0, said.err
    assert "clouds | average | round 4/4  finished (rounds)" in said.out
    assert "item-iterations" in said.out


def test_several_runs_have_a_line_each(tmp_path: Path) -> None:
    train(tmp_path / "a", SIMULATED)
    write(tmp_path / "b", events_of())
    said = partrain("watch", tmp_path, "--once")
    assert [line.split()[:3] for line in said.out.splitlines()] == [
        ["run", "status", "round"],
        ["a/run", "finished", "4/4"] if "a/run" in said.out.splitlines()[1] else ["b", "killed", "20/100"],
        ["b", "killed", "20/100"] if "a/run" in said.out.splitlines()[1] else ["a/run", "finished", "4/4"],
    ]
    told = {row["folder"]: row for row in json.loads(partrain("watch", tmp_path, "--json").out)}
    assert told[str(tmp_path / "b")]["status"] == "killed"
    assert told[str(tmp_path / "a/run")]["item_iterations"] == 192


def test_nothing_to_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = partrain("watch")
    assert said.code == 66
    assert "runs: no such folder" in said.err
    assert "holds no run yet" in partrain("watch", "latest", "--once").err
    assert partrain("watch", ".", "--once").out == "no run yet\n"


def test_latest_is_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("new", "old")):
        os.utime(write(tmp_path / "runs" / name / "1", events_of(name=name)) / "events.jsonl", (2e9 - number, 2e9 - number))
    assert partrain("watch", "latest", "--once").out.startswith("new | average")


def test_a_summary_older_than_the_events_is_not_believed(tmp_path: Path) -> None:
    """A resumed run was killed: its summary is that of the session before."""
    run = write(tmp_path / "run", events_of(), summary_of())
    os.utime(run / "summary.json", (1, 1))
    (row,) = rows_of(read_once(tmp_path))
    assert row.status == "killed"


def test_training_stopping_and_killed(tmp_path: Path) -> None:
    run = write(tmp_path, events_of())
    with locked(run):
        (row,) = rows_of(read_once(tmp_path))
        assert row.status == "training"
        assert row.rate == pytest.approx(384)
    (row,) = rows_of(read_once(tmp_path))
    assert row.status == "killed"
    append(run, [end("stopped")])
    (row,) = rows_of(read_once(tmp_path))
    assert row.status == "stopped"


def test_events_appear_as_they_come_and_anew_after_a_resume(tmp_path: Path) -> None:
    folder = write(tmp_path, events_of(20))
    run = WatchedRun(folder, "run")
    run.look()
    assert not run.read(60)
    assert run.row.round == 20
    append(folder, events_of(22)[-5:])
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"event":"round","t":')
    assert not run.read(60)
    assert run.row.round == 22
    assert len(run.track.points()) == 11
    write(folder, events_of(6))
    assert not run.read(60)
    assert run.row.round == 6
    assert len(run.track.points()) == 3


def test_hostile_texts_have_no_escapes(tmp_path: Path) -> None:
    bad = "\x1b[31m[bold red]\x07\x9b2J\u202e"
    write(tmp_path / "a", [*events_of(name=bad, rule=bad), fault(bad)])
    write(tmp_path / "b", events_of(), summary_of(status=bad))
    write(tmp_path / "c\x1b]0;x\x07", events_of())
    for root in tmp_path, tmp_path / "a":
        lines = once_lines(read_once(root), 0.0, 100, 30)
        assert all(line.isprintable() for line in lines)
        assert any("[31m[" in line for line in lines)


def test_a_file_that_is_no_event(tmp_path: Path) -> None:
    write(tmp_path / "a", events_of(4))
    with (tmp_path / "a/events.jsonl").open("ab") as file:
        file.write(b'nothing\n[]\n{"event":"round"}\n\xff\n')
    append(tmp_path / "a", events_of(6)[-5:])
    (row,) = rows_of(read_once(tmp_path))
    assert row.round == 6


@pytest.mark.slow
def test_odd_values(tmp_path: Path) -> None:
    """A file that no partrain wrote is shown as far as that goes."""
    odd: list[Any] = [None, "x", [], {}, -1e308, 10**30, True]
    sound = [json.loads(encode(each)) for each in [*events_of(4), fault("x"), end("finished", 4)]]
    cases = [(event, key, value) for event in sound for key in event for value in odd]
    for number, (event, key, value) in enumerate(cases):
        lines = "".join(json.dumps(each if each is not event else {**event, key: value}) + "\n" for each in sound)
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run/events.jsonl").write_text(lines)
        content = {**summary_of(), [*summary_of()][number % 8]: value}
        (tmp_path / "run/summary.json").write_text(json.dumps(content))
        for name, kept in ("run", True), ("run", False):
            if not kept:
                (tmp_path / name / "summary.json").unlink()
            runs = read_once(tmp_path)
            assert once_lines(runs, 0.0, 100, 30)
            (run,) = runs.runs.values()
            run.read(60)
            with suppress(*ODD):  # the screen says so
                run_lines(run.shown(), 0.0, 100, 20)
            curve_lines([(run.track, "cyan", "")], "items", log=True, width=100, height=10)


def test_steps_of_a_workflow(tmp_path: Path) -> None:
    """Records describe the steps that train nothing. The others, and the trials of a sweep, are runs."""
    for name, status in ("report", "done"), ("train", "running"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "step.json").write_text(json.dumps({"status": status, "command": ["predict", "x"], "seconds": 2.5}))
    write(tmp_path / "train", events_of())
    for trial in "0", "1":
        write(tmp_path / "sweep" / trial, events_of(), summary_of())
    steps = "".join(f'[[steps]]\nname = "{name}"\n' for name in ("report", "train", "sweep", "later", "../x"))
    (tmp_path / "workflow.toml").write_text(steps)
    rows = {row.name: row for row in rows_of(read_once(tmp_path))}
    assert {name: row.status for name, row in rows.items()} == {
        "report": "done", "train": "killed", "sweep/0": "reached", "sweep/1": "reached", "later": "waiting",
    }  # fmt: skip
    assert rows["report"].rule == "predict"


def test_runs_that_appear_and_go(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.look(0.0)
    assert rows_of(runs) == []
    write(tmp_path / "a/1", events_of(), summary_of())
    runs.look(1e6)
    assert [row.name for row in rows_of(runs)] == ["a/1"]
    (tmp_path / "a/1/events.jsonl").unlink()
    runs.look(2e6)
    assert rows_of(runs) == []


def test_finished_runs_are_not_read(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / f"sweep/{number}", events_of(4), summary_of(loss=1 / (number + 1)))
    runs = read_once(tmp_path)
    assert not any(run.has_events for run in runs.runs.values())
    assert rows_of(runs, "loss")[0].name == "sweep/39"
    assert {tuple(row.name for row in rows_of(runs, sort)) for sort in SORTS}
    wanted = runs.runs[tmp_path / "sweep/7"]
    assert not runs.read([wanted], 60)
    assert wanted.has_events
    assert wanted.row.round == 20  # the summary counts


def test_a_curve_is_bounded_and_ends_with_the_newest_judgement() -> None:
    track = Track()
    for round_ in range(1, 50_001):
        track.add(judgement(round_))
    points = track.points()
    assert POINTS // 2 <= len(points) <= POINTS + 1
    assert points[-1].rounds == 50_000
    assert all(one.rounds < other.rounds for one, other in pairwise(points))


@pytest.mark.parametrize("width", [20, 40, 60, 80, 140])
@pytest.mark.parametrize("height", [1, 3, 8, 20])
def test_nothing_is_wider_or_higher_than_its_place(width: int, height: int, tmp_path: Path) -> None:
    run = WatchedRun(write(tmp_path, [*events_of(workers=12), fault("out of memory " * 20, rank=3)]), "run")
    run.look()
    run.read(60)
    for log in True, False:
        for scale in "seconds", "rounds", "items":
            curves = text_of(
                curve_lines([(run.track, "red", "1"), (run.track, "cyan", "")], scale, log=log, width=width, height=height)
            )
            assert len(curves) <= max(height, 1)
            assert max(map(len, curves)) <= width
    lines = text_of(run_lines(run.state, 0.0, width, height))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_slow_workers_come_first_if_not_all_fit(tmp_path: Path) -> None:
    run = WatchedRun(write(tmp_path, events_of(workers=12)), "run")
    run.read(60)
    lines = text_of(run_lines(run.state, 0.0, 100, 10))
    assert [line.split()[0] for line in lines[-4:]] == ["#", "1", "0", "and"] or lines[-1].startswith("and ")
    assert next(line for line in lines if line.startswith("  1 cpu")).split()[2:4] == ["slow", "1.5x"]


def test_curves_over_judgements(tmp_path: Path) -> None:
    run = WatchedRun(write(tmp_path, events_of()), "run")
    run.read(60)
    lines = text_of(curve_lines([(run.track, "cyan", "")], "rounds", log=True, width=80, height=8))
    assert lines[0].split() == ["judged", "loss,", "logarithmic", "judged", "accuracy"]
    assert lines[1].split()[0] == "1.6200┤" or lines[1].startswith("  1.6200┤")
    assert lines[-1].split() == ["0", "20", "rounds", "0", "20", "rounds"]
    assert any("\u2800" < each < "\u28ff" for each in "".join(lines))


def test_looking_does_not_disturb_a_start(tmp_path: Path) -> None:
    run = WatchedRun(write(tmp_path, events_of()), "run")
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            run.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(50):
            with locked(tmp_path):
                pass
    finally:
        ended.set()
        thread.join()


def test_without_textual_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['textual'] = None\n"
        "from pathlib import Path\nfrom partrain.errors import Failure\nfrom partrain.watch.start import show\n"
        "try: show(Path('.'))\nexcept Failure as failure: print(failure.render())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "pip install 'partrain[watch]'" in done.stdout
    assert "--once" in done.stdout


def test_once_imports_neither_textual_nor_torch(tmp_path: Path) -> None:
    write(tmp_path / "a", events_of())
    code = "import sys; sys.argv = ['partrain', 'watch', '.', '--once']; from partrain.cli.main import main\ntry: main()\nfinally: print({'textual', 'torch', 'numpy', 'h5py'} & set(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == "set()\n"


def test_the_list_shows_a_resumed_run_as_it_ended(tmp_path: Path) -> None:
    """`resume --out --until`: the speed of this folder's rounds alone, and no goal that lies behind."""
    job = write_job(tmp_path, "stop.rounds=3")
    assert partrain("run", job, "--out", tmp_path / "a", "-q").code == 0
    assert partrain("resume", tmp_path / "a", "--until", "rounds=5", "--out", tmp_path / "b", "-q").code == 0
    said = partrain("watch", tmp_path / "b", "--once", "--json")
    assert said.code == 0, said
    (row,) = json.loads(said.out)
    workers = json.loads((tmp_path / "b/summary.json").read_bytes())["workers"]
    assert row["items_per_second"] == pytest.approx(sum(worker["items_per_second"] for worker in workers))
    assert row["items_per_second"] < row["item_iterations"] / row["seconds"]
    lines = partrain("watch", tmp_path / "b", "--once").out
    assert "5/3" not in lines
