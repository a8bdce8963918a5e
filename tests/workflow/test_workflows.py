"""Workflows as users run them: what runs, why, in which order, and what stands after an interruption."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.runs import JOB, Command, Said, descendants, eventually, newest, partrain, sabotage

STUDY = """
name = "study"

[[steps]]
name = "first"
job = "job.toml"
set = {"stop.rounds" = 3}
assert = ["rounds == 3", "test.accuracy >= 0.1"]

[[steps]]
name = "weights"
export = {checkpoint = "{first.checkpoint}", format = "safetensors", output = "net.safetensors"}

[[steps]]
name = "second"
job = "job.toml"
set = {"stop.rounds" = 2, seed = 4}
when = "{first.test.accuracy} > 0"

[[steps]]
name = "judge"
evaluate = {checkpoint = "{second.checkpoint}"}
assert = ["test.items == 40"]
"""
PROGRAM = """
name = "programs"

[[steps]]
name = "late"
command = ["{python}", "upper.py", "middle.txt", "{late.output}"]
outputs = ["late.txt"]
inputs = ["middle.txt"]

[[steps]]
name = "early"
command = ["{python}", "upper.py", "raw.txt", "middle.txt"]
inputs = ["raw.txt"]
outputs = ["middle.txt"]
""".replace("{python}", sys.executable)
UPPER = "import pathlib, sys\npathlib.Path(sys.argv[2]).write_text(pathlib.Path(sys.argv[1]).read_text().upper())\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a job, a program and its data; commands run in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "upper.py").write_text(UPPER)
    (tmp_path / "raw.txt").write_text("a")
    return tmp_path


def run(text: str, *words: object, code: int = 0) -> dict[str, str]:
    """Run a workflow; return the state of each step."""
    Path("study.toml").write_text(text)
    said = partrain("run", "study.toml", "--json", *words)
    assert said.code == code, said
    return {step["step"]: step["status"] for step in json.loads(said.out)["steps"]}


def plan(*words: object) -> dict[str, tuple[str, str]]:
    """Return what each step would do, and why."""
    said = partrain("run", "study.toml", "--dry-run", "--json", *words)
    assert said.code == 0, said
    return {step["step"]: (step["action"], step["reason"]) for step in json.loads(said.out)["steps"]}


def record(step: str, name: str = "study") -> dict[str, Any]:
    return dict(json.loads(Path("runs", name, step, "step.json").read_text()))


def alone(*sets: str) -> bytes:
    """Return the last checkpoint of the job, run by itself."""
    said = partrain("run", "job.toml", *(f"--set={one}" for one in sets), "--out", "alone", "--quiet")
    assert said.code == 0, said
    return newest(Path("alone"))


@pytest.mark.representative
def test_steps_run_once_and_again_only_after_a_change(place: Path) -> None:
    assert run(STUDY) == dict.fromkeys(("first", "weights", "second", "judge"), "done")
    assert Path("runs/study/weights/net.safetensors").stat().st_size > 100
    assert record("judge")["summary"]["test"]["items"] == 40
    assert set(run(STUDY).values()) == {"unchanged"}
    assert partrain("run", "study.toml").out.splitlines()[-1].startswith("nothing to do")

    changed = STUDY.replace("seed = 4", "seed = 5")
    Path("study.toml").write_text(changed)
    assert plan() == {
        "first": ("skip", "unchanged"),
        "weights": ("skip", "unchanged"),
        "second": ("run", "`seed` 4 → 5; the finished run stays as second.1"),
        "judge": ("maybe", "after second"),
    }
    former = newest(Path("runs/study/second"))
    assert run(changed) == {"first": "unchanged", "weights": "unchanged", "second": "done", "judge": "done"}
    assert newest(Path("runs/study/second.1")) == former != newest(Path("runs/study/second"))
    assert set(run(changed).values()) == {"unchanged"}
    run(changed, "--rerun", "second")
    assert not Path("runs/study/second.2").exists(), "the user named the run to replace"


def test_a_step_is_the_run_that_its_job_gives(place: Path) -> None:
    run(STUDY)
    assert Path("runs/study/first/checkpoint.h5").read_bytes() == alone("stop.rounds=3")


def test_what_does_not_change_a_result_runs_nothing(place: Path) -> None:
    run(STUDY)
    (place / "job.toml").write_text("# another comment\n" + JOB)
    os.utime("raw.txt")
    assert set(run(STUDY).values()) == {"unchanged"}
    assert run(STUDY.replace("rounds == 3", "rounds == 4"), code=1)["first"] == "failed", "conditions are checked anyway"


def test_dotted_keys_change_one_key_with_quotes_or_without(place: Path) -> None:
    """`stop.rounds = 2` leaves the other keys of `[stop]`; a table in braces replaces them, as `--set` does."""
    steps = '[[steps]]\nname = "a"\njob = "job.toml"\nset = {stop.rounds = 2, optimizer.lr = 0.1}\n'
    steps += '[[steps]]\nname = "b"\njob = "job.toml"\nset = {"stop.rounds" = 2, "optimizer.lr" = 0.1}\n'
    steps += '[[steps]]\nname = "c"\njob = "job.toml"\nset = {stop = {rounds = 2}}\n'
    steps += '[[steps]]\nname = "d"\njob = "job.toml"\nset = {stop.rounds = 2, "~stop.judge_every" = true}\n'
    run('name = "study"\n' + steps)
    assert record("a")["settings"] == record("b")["settings"]
    assert record("c")["settings"] == record("d")["settings"]
    assert (record("a")["settings"]["stop.judge_every"], "stop.judge_every" in record("c")["settings"]) == (1, False)


def test_a_command_that_reads_a_job_depends_on_its_data(place: Path) -> None:
    Path("data.csv").write_text("x,y\n" + "\n".join(f"{n},{n % 2}" for n in range(60)))
    head, _, tail = JOB.partition("[dataset]")
    job = head + '[dataset]\nkind = "csv"\npath = "data.csv"\ntarget = "y"\n\n[optimizer]' + tail.partition("[optimizer]")[2]
    Path("job.toml").write_text(job)
    text = 'name = "study"\n[[steps]]\nname = "convert"\ndata.convert = {source = "job.toml", output = "items"}\n'
    assert run(text) == {"convert": "done"}
    assert run(text) == {"convert": "unchanged"}
    Path("data.csv").write_text(Path("data.csv").read_text() + "\n60,0\n")
    assert plan()["convert"] == ("run", "data.csv changed")


@pytest.mark.slow
def test_the_end_shows_the_runs_side_by_side(place: Path) -> None:
    """A `compare` step writes its table and the end prints it; without one, the jobs that learn the same are compared."""
    jobs = "".join(
        f'[[steps]]\nname = "{name}"\njob = "job.toml"\nset = {{"stop.rounds" = {n}}}\n' for name, n in (("a", 1), ("b", 2))
    )
    folders = '["{a.folder}", "{b.folder}"]'
    Path("study.toml").write_text(f'name = "study"\n{jobs}')
    assert "\none run each; best first by judged accuracy" in partrain("run", "study.toml").out
    Path("study.toml").write_text(
        f'name = "study"\n{jobs}[[steps]]\nname = "table"\ncompare = {{paths = {folders}, output = "t.md"}}\n'
        f'[[steps]]\nname = "page"\nreport = {{runs = {folders}, output = "r.html", items = false}}\n'
    )
    said = partrain("run", "study.toml")
    assert said.code == 0, said
    lines = said.out.splitlines()
    assert lines[lines.index("table:") + 1].split()[:2] == ["run", "status"]
    assert said.out.count("one run each") == 1
    written = Path("runs/study/table/t.md").read_text().splitlines()
    assert {line.split(" | ")[0] for line in written[2:]} == {"| a", "| b"}
    assert "Result on" not in Path("runs/study/page/r.html").read_text()


def test_an_output_that_is_gone_is_made_again_to_the_same_bits(place: Path) -> None:
    run(STUDY)
    before = Path("runs/study/first/checkpoint.h5").read_bytes()
    Path("runs/study/first/checkpoint.h5").unlink()
    assert plan()["first"] == ("run", "runs/study/first/checkpoint.h5 is missing; the finished run stays as first.1")
    assert run(STUDY) == {"first": "done", "weights": "unchanged", "second": "unchanged", "judge": "unchanged"}
    assert Path("runs/study/first/checkpoint.h5").read_bytes() == before


def test_programs_run_in_the_order_of_their_files(place: Path) -> None:
    assert run(PROGRAM) == {"late": "done", "early": "done"}
    assert Path("runs/programs/late/late.txt").read_text() == "A"
    assert Path("middle.txt").read_text() == "A"
    assert set(run(PROGRAM).values()) == {"unchanged"}
    (place / "raw.txt").write_text("b")
    assert run(PROGRAM) == {"late": "done", "early": "done"}
    (place / "raw.txt").write_text("B")
    assert run(PROGRAM) == {"late": "unchanged", "early": "done"}, "the same output: what reads it need not run"
    (place / "upper.py").write_text(UPPER + "\n")
    assert run(PROGRAM) == {"late": "done", "early": "done"}, "the program is an input too"


def test_a_program_named_python_is_the_python_that_runs_partrain(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    words = ["python", "-c", "import sys; open('which.txt', 'w').write(sys.prefix)"]
    assert run(f'name = "study"\n[[steps]]\nname = "a"\ncommand = {json.dumps(words)}\n') == {"a": "done"}
    assert Path("which.txt").read_text() == sys.prefix


def test_a_promise_that_is_not_kept(place: Path) -> None:
    text = 'name = "study"\n[[steps]]\nname = "a"\ncommand = ["true"]\noutputs = ["nothing.txt"]\n'
    assert run(text, code=1) == {"a": "failed"}
    assert "did not write" in record("a")["message"]


def test_conditions_decide(place: Path) -> None:
    text = STUDY.replace("> 0", "< 0")
    assert run(text) == {"first": "done", "weights": "done", "second": "skipped", "judge": "skipped"}
    shown = json.loads(partrain("flow", "show", "study.toml", "--json").out)
    assert [step["state"].partition(" (")[0] for step in shown["steps"]][:3] == ["done", "done", "skipped"]
    text = STUDY.replace("test.accuracy >= 0.1", "test.accuracy >= 2")
    assert run(text, code=1)["weights"] == "waiting"
    assert run(text, "--keep-going", code=1) == {"first": "failed", "weights": "blocked", "second": "blocked", "judge": "blocked"}


def test_a_failure_hides_no_step_that_does_not_need_it(place: Path) -> None:
    steps = [f'[[steps]]\nname = "{name}"\ncommand = ["{program}"]\n' for name, program in (("a", "false"), ("b", "true"))]
    Path("two.toml").write_text('name = "two"\n' + "".join(steps))
    said = partrain("run", "two.toml", "--jobs", 1)
    assert "b has not started, though it needs no failed step: partrain run --keep-going also runs such steps" in said.err
    assert "has not started" not in partrain("run", "two.toml", "--keep-going").err


def test_an_unknown_number_is_named_with_those_that_there_are(place: Path) -> None:
    run(STUDY.replace("rounds == 3", "test.acuracy > 0"), code=1)
    said = partrain("run", "study.toml", "--quiet")
    assert "`test.acuracy` was not recorded; recorded: status" in said.err
    assert said.errors == ["step-failed"]


def test_selected_steps(place: Path) -> None:
    run(STUDY)
    assert run(STUDY, "--rerun", "first")["first"] == "done"
    assert run(STUDY.replace("rounds\" = 2", "rounds\" = 1"), "--only", "first") == {
        "first": "unchanged", "weights": "given", "second": "given", "judge": "given",
    }  # fmt: skip
    assert run(STUDY.replace('rounds" = 3', 'rounds" = 2').replace("rounds == 3", "rounds < 9"), "--start-at", "second") == {
        "first": "given", "weights": "given", "second": "unchanged", "judge": "unchanged",
    }  # fmt: skip
    said = partrain("run", "study.toml", "--only", "frist")
    assert (said.code, 'did you mean "first"?' in said.err) == (2, True)


def test_a_failed_step_is_tried_again_from_where_it_stood(place: Path) -> None:
    (place / "once.py").write_text(
        "import pathlib, sys\nmark = pathlib.Path('mark')\nif not mark.exists():\n    mark.touch()\n    sys.exit(3)\n"
    )
    text = f'name = "study"\n[[steps]]\nname = "a"\ncommand = ["{sys.executable}", "once.py"]\n'
    assert run(text, code=3) == {"a": "failed"}
    assert plan()["a"] == ("run", "failed: exit code 3; see runs/study/a/log.txt")
    (place / "mark").unlink()
    assert run(text, "--retries", "1") == {"a": "done"}
    assert record("a")["attempts"] == 2


@pytest.mark.slow
def test_a_step_goes_on_after_the_process_that_starts_steps_was_killed(place: Path) -> None:
    """A worker kills it: the step and what runs beside it end with it, and start again from their checkpoints."""
    job = sabotage(place, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)", call=8)
    (place / "done").touch()
    expected = alone()
    (place / "done").unlink()
    assert run('name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\n') == {"a": "done"}
    assert job.exists()
    assert (place / "done").exists(), "the fault came"
    assert record("a")["attempts"] == 2
    assert newest(place / "runs/study/a") == expected


def test_several_jobs_are_a_workflow(place: Path) -> None:
    (place / "jobs").mkdir()
    for number in 1, 2:
        (place / "jobs" / f"job{number}.toml").write_text(JOB.replace("seed = 3", f"seed = {number}"))
    said = partrain("run", "jobs", "job.toml", "--set", "stop.rounds=1", "--json")
    assert {step["step"]: step["status"] for step in json.loads(said.out)["steps"]} == dict.fromkeys(
        ("job1", "job2", "job"), "done"
    )
    assert json.loads(Path("runs/batch/job1/summary.json").read_text())["rounds"] == 1
    assert Path("runs/batch/job/checkpoint.h5").read_bytes() == alone("stop.rounds=1")


TUNING = """
name = "tuning"

[[steps]]
name = "base"
job = "job.toml"
set = {"stop.rounds" = 3}

[[steps]]
name = "tuned"
job = "job.toml"
set = {"model.from" = "{base.checkpoint}", "stop.rounds" = 2, seed = 9}
"""


def test_a_job_starts_from_the_result_of_another_step(place: Path) -> None:
    assert run(TUNING) == {"base": "done", "tuned": "done"}
    assert record("tuned", "tuning")["summary"]["loss"] < record("base", "tuning")["summary"]["loss"]
    assert run(TUNING) == {"base": "unchanged", "tuned": "unchanged"}
    told = run(TUNING.replace('rounds" = 3', 'rounds" = 4'))
    assert told == {"base": "done", "tuned": "done"}, "other weights to start from are a change"


def test_flow_show(place: Path) -> None:
    Path("study.toml").write_text(STUDY)
    tree = partrain("flow", "show", "study.toml").out.splitlines()
    assert tree[:3] == ["study", "└─ first: to do (has not run yet)", "   ├─ weights: to do (after first)"]
    assert "   └─ second: to do (after first; if {first.test.accuracy} > 0)" in tree
    diagram = partrain("flow", "show", "study.toml", "--mermaid").out.splitlines()
    assert diagram[0] == "flowchart TD"
    assert "    s0 --> s1" in diagram
    run(STUDY)
    told = json.loads(partrain("flow", "show", "study.toml", "--json").out)
    assert [(step["step"], step["needs"], step["state"]) for step in told["steps"]] == [
        ("first", [], "done"), ("weights", ["first"], "done"), ("second", ["first"], "done"), ("judge", ["second"], "done"),
    ]  # fmt: skip


LONG = STUDY.replace('"stop.rounds" = 3', '"stop.rounds" = 100').replace("rounds == 3", "rounds == 100")


def started(place: Path, text: str = LONG) -> Command:
    (place / "study.toml").write_text(text)
    return Command(("run", "study.toml"), place)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_a_signal_stops_after_the_round_and_the_same_command_goes_on_to_the_bit(place: Path, number: signal.Signals) -> None:
    with started(place) as command:
        eventually((place / "runs/study/first/checkpoint.h5").exists, "a checkpoint")
        os.kill(command.process.pid, number)  # a terminal's Ctrl-C reaches the runner only: steps have sessions of their own
        said = command.wait()
    assert said.code == 128 + number, said
    assert "the same command continues" in said.err
    assert record("first")["status"] == "stopped"
    assert plan()["first"] == ("run", "was stopped")
    finish(place)


@pytest.mark.slow
def test_a_killed_runner_leaves_no_process_and_the_same_command_goes_on_to_the_bit(place: Path) -> None:
    with started(place) as command:
        eventually((place / "runs/study/first/checkpoint.h5").exists, "a checkpoint")
        command.process.kill()
        command.process.wait()
        eventually(lambda: not processes_in(place), "its processes to be gone")
    assert record("first")["status"] == "running"
    assert plan()["first"] == ("run", "was interrupted")
    finish(place)


def finish(place: Path) -> None:
    """Run the workflow to its end; the interrupted step has the bits of an undisturbed run."""
    assert set(run(LONG).values()) == {"done"}
    assert record("first")["command"][0] == "resume"
    assert Path("runs/study/first/checkpoint.h5").read_bytes() == alone("stop.rounds=100")
    assert set(run(LONG).values()) == {"unchanged"}


def processes_in(place: Path) -> list[str]:
    """Return the command lines of processes that work in a folder, without those of this process: its forkserver serves all tests."""
    found, ours = [], descendants(os.getpid()) | {os.getpid()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == place and int(entry.name) not in ours:
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_the_second_runner_says_who_holds_the_folder(place: Path) -> None:
    with started(place) as command:
        eventually((place / "runs/study/first/events.jsonl").exists, "the first step")
        said = partrain("run", "study.toml")
        os.kill(command.process.pid, signal.SIGINT)
        command.wait()
    assert said.code == 73
    assert f"is in use by process {command.process.pid} on " in said.err


@pytest.mark.slow
def test_cores_are_never_oversubscribed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    steps = [f'[[steps]]\nname = "s{n}"\njob = "job.toml"\nset = {{"stop.rounds" = 60, seed = {n}}}\n' for n in range(4)]
    assert set(run('name = "study"\n' + "\n".join(steps)).values()) == {"done"}
    spans = [(record(f"s{n}")["started"], record(f"s{n}")["started"] + record(f"s{n}")["seconds"]) for n in range(4)]
    together = [sum(begin <= t < end for begin, end in spans) for t, _ in spans]
    assert max(together) == 2, "jobs of two workers each share four cores"


def test_a_thousand_steps_are_planned(place: Path) -> None:
    steps = [
        f'[[steps]]\nname = "s{n}"\njob = "job.toml"\nset = {{seed = {n}}}\nneeds = {[f"s{n - 1}"] if n else []}\n'
        for n in range(1000)
    ]
    Path("study.toml").write_text('name = "study"\n' + "\n".join(steps))
    planned = plan()
    assert len(planned) == 1000
    assert planned["s999"] == ("run", "after s998")


BAD = [
    ('name = "study"\n[[steps]]\nname = "a"\n', "study.toml:2:1: step \"a\" does nothing"),
    ('name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\ncommand = ["x"]\n', "does 2 things: job, command"),
    ('name = "study"\n[[steps]]\nname = "a"\ncomand = ["x"]\n', "did you mean `command`?"),
    ('name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\nset = {"optimizer.rate" = 1}\n', "study.toml:5:8: unknown key `rate`"),
    ('name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\nset = {"stop.rounds" = "x"}\n', "study.toml:5:24: `rounds`: expected an integer"),
    ('name = "study"\n[[steps]]\nname = "a"\ncommand = ["x"]\nset = {seed = 1}\n', "`set` belongs to a `job`"),
    ('name = "study"\n[[steps]]\nname = "a"\ncommand = ["x"]\n[[steps]]\nname = "a"\ncommand = ["x"]\n', 'step "a" is there twice'),
    ('name = "study"\n[[steps]]\nname = "a"\ncommand = ["{b.output}"]\n', 'no step "b"'),
    ('name = "study"\n[[steps]]\nname = "a"\ncommand = ["x"]\nwhen = "import os"\n', "expected a condition"),
    ('name = "study"\n[[steps]]\nname = "a"\nexport = {checkpoint = "x", formt = "onnx", output = "y"}\n', "did you mean `format`?"),
    ('name = "study"\n[[steps]]\nname = "a"\ndata = {convrt = {}}\n', "`data` is a group of commands"),
    ('name = "study"\n[[steps]]\nname = "a"\ncommand = ["x"]\nneeds = ["b"]\n[[steps]]\nname = "b"\ncommand = ["x"]\nneeds = ["a"]\n', "a → b → a"),
    ('name = "study"\n[[steps]]\nname = "a"\ncommand = ["x"]\noutputs = ["o"]\n[[steps]]\nname = "b"\ncommand = ["x"]\noutputs = ["./o"]\n', 'step "a" writes ./o too'),
    ('name = "st/udy"\n[[steps]]\nname = "a"\ncommand = ["x"]\n', "`name`: expected"),
    ('name = "study"\nstep = []\n[[steps]]\nname = "a"\ncommand = ["x"]\n', "did you mean `steps`?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_errors_are_found_before_anything_starts(place: Path, text: str, message: str) -> None:
    Path("study.toml").write_text(text)
    said = partrain("run", "study.toml")
    assert said.code == 78, said
    assert message in said.err
    assert not Path("runs").exists()


def test_a_missing_job_is_missing_input(place: Path) -> None:
    Path("study.toml").write_text('name = "study"\n[[steps]]\nname = "a"\njob = "jop.toml"\n')
    said = partrain("run", "study.toml")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert "study.toml:4:7: no such file" in said.err


def test_options_of_workflows_do_not_go_with_a_job(place: Path) -> None:
    assert partrain("run", "job.toml", "--dry-run").code == 2
    Path("study.toml").write_text(STUDY)
    assert partrain("run", "study.toml", "--set", "seed=1").code == 2


def test_a_folder_of_the_user_is_not_cleared(place: Path) -> None:
    Path("runs/study/first").mkdir(parents=True)
    Path("runs/study/first/thesis.txt").write_text("mine")
    assert run(STUDY, code=73)["first"] == "failed"
    assert Path("runs/study/first/thesis.txt").read_text() == "mine"


def test_lines_without_a_terminal(place: Path) -> None:
    Path("study.toml").write_text(STUDY)
    said: Said = partrain("run", "study.toml")
    assert said.code == 0, said
    lines = [line.split(" in ")[0] for line in said.out.splitlines()]
    assert [line[8:] for line in lines[:2]] == ["  first: running", "  first: done"], "behind the time of day"
    assert lines[-1] == "runs/study: 4 steps"


KILLED = """
name = "study"

[[steps]]
name = "search"
job = "job.toml"
set = {"stop.rounds" = 40}
sweep = {"optimizer.lr" = [0.05, 0.02], seeds = 2}

[[steps]]
name = "longer"
job = "job.toml"
set = {"model.from" = "{search.checkpoint}", "stop.rounds" = 120}

[[steps]]
name = "mean"
soup = {checkpoints = ["{search.checkpoint}", "{longer.checkpoint}"], output = "mean.h5"}

[[steps]]
name = "weights"
export = {checkpoint = "{longer.checkpoint}", format = "safetensors", output = "net.safetensors"}
"""


@pytest.mark.soak
def test_a_workflow_killed_at_twenty_random_moments_ends_in_the_same_bits(place: Path) -> None:
    def results() -> dict[str, bytes]:
        files = [*Path("runs").rglob("checkpoint.h5"), *Path("runs").rglob("mean.h5"), *Path("runs").rglob("*.safetensors")]
        return {str(file): file.read_bytes() for file in sorted(files)}

    run(KILLED)
    undisturbed = results()
    assert len(undisturbed) == 7
    shutil.rmtree("runs")
    moments, killed = random.Random(0), 0
    for _ in range(20):
        with started(place, KILLED) as command:
            time.sleep(moments.uniform(0.3, 1.5))
            killed += command.process.poll() is None
            command.process.kill()
            command.process.wait()
            eventually(lambda: not processes_in(place), "its processes to be gone")
    assert killed >= 3
    assert set(run(KILLED).values()) <= {"done", "unchanged"}
    assert results() == undisturbed
