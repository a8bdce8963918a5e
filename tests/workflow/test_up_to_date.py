"""Tests of what is up to date. After a change of a file, a study ends with the files of a clean run, and runs no step that it need not run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import JOB, Command, eventually, partrain

STUDY = """
name = "study"

[[steps]]
name = "prepare"
command = ["{python}", "upper.py", "raw.txt", "{prepare.output}"]
inputs = ["raw.txt"]
outputs = ["clean.txt"]

[[steps]]
name = "count"
command = ["{python}", "upper.py", "{prepare.output}", "{count.output}"]
outputs = ["clean.txt", "beside.txt"]

[[steps]]
name = "parts"
command = ["{python}", "parts.py", "parts/*.csv"]
inputs = ["parts/*.csv"]
outputs = ["out-*.csv"]

[[steps]]
name = "train"
job = "job.toml"
set = {stop.rounds = 2}

[[steps]]
name = "search"
job = "job.toml"
set = {stop.rounds = 2}
sweep = {"optimizer.lr" = [0.05, 0.1]}

[[steps]]
name = "weights"
export = {checkpoint = "{train.best}", format = "safetensors", output = "net.safetensors"}

[[steps]]
name = "judge"
evaluate = {checkpoint = "{search.checkpoint}"}
""".replace("{python}", sys.executable)
UPPER = """import pathlib, sys
text = pathlib.Path(sys.argv[1]).read_text().upper()
pathlib.Path(sys.argv[2]).write_text(text)
if "count" in sys.argv[2]:
    pathlib.Path("beside.txt").write_text(str(len(text)))
"""
PARTS = """import os, pathlib
for path in sorted(pathlib.Path("parts").glob("*.csv")):
    pathlib.Path(os.environ["PARTRAIN_STEP_FOLDER"], f"out-{path.name}").write_text(path.read_text() * 2)
"""
INPUTS = "raw.txt", "upper.py", "parts/a.csv", "parts.py"
OUTPUTS = (
    "prepare/clean.txt", "count/clean.txt", "../../beside.txt", "parts/out-a.csv", "train/checkpoint.h5", "train/best.h5",
    "search/lr=0.05/checkpoint.h5", "search/sweep.json", "weights/net.safetensors",
)  # fmt: skip


def sources(folder: Path) -> Path:
    (folder / "parts").mkdir(parents=True)
    (folder / "job.toml").write_text(JOB)
    (folder / "study.toml").write_text(STUDY)
    (folder / "upper.py").write_text(UPPER)
    (folder / "parts.py").write_text(PARTS)
    (folder / "raw.txt").write_text("a")
    for name in "ab":
        (folder / f"parts/{name}.csv").write_text(name)
    return folder


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that has run, moved elsewhere."""
    folder = sources(tmp_path_factory.mktemp("done") / "project")
    with chdir(folder):
        assert set(states().values()) == {"done"}
    return folder.rename(folder.with_name("moved"))


@pytest.fixture
def place(done: Path) -> Iterator[Path]:
    """A copy of it, where it ran: a checkpoint names the folder of its job."""
    place = done.with_name("project")
    shutil.copytree(done, place, symlinks=True)
    with chdir(place):
        yield place
    shutil.rmtree(place)


class chdir:
    def __init__(self, folder: Path) -> None:
        self._folder, self._before = folder, Path.cwd()

    def __enter__(self) -> None:
        os.chdir(self._folder)

    def __exit__(self, *_: object) -> None:
        os.chdir(self._before)


def states(*words: object, study: str = "study.toml") -> dict[str, str]:
    said = partrain("run", study, "--json", *words)
    assert said.code == 0, said
    return {step["step"]: step["status"] for step in json.loads(said.out)["steps"]}


def results(folder: Path) -> dict[str, bytes]:
    """The promised files of a study."""
    return {name: (folder / "runs/study" / name).read_bytes() for name in OUTPUTS}


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n#")


def replaced(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"other")


def moved_away(path: Path) -> None:
    path.rename(path.with_name("away"))


def test_a_copied_project_is_up_to_date(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done, tmp_path / "copy")
    with chdir(tmp_path / "copy"):
        assert set(states().values()) == {"unchanged"}


def test_a_study_by_any_path_is_up_to_date(place: Path) -> None:
    (place / "sub").mkdir()
    assert set(states("--out", place / "runs/study").values()) == {"unchanged"}
    with chdir(place / "sub"):
        assert set(states("--out", "../runs/study", study="../study.toml").values()) == {"unchanged"}


@pytest.mark.parametrize("file", [*INPUTS, *(f"runs/study/{name}" for name in OUTPUTS)])
def test_a_touched_file_runs_nothing(file: str, place: Path) -> None:
    os.utime(place / file)
    shutil.copy2(place / file, place / "copy-of-it")
    (place / file).unlink()
    shutil.copy(place / "copy-of-it", place / file)
    assert set(states().values()) == {"unchanged"}


@pytest.mark.parametrize("file", OUTPUTS)
@pytest.mark.parametrize("change", [Path.unlink, changed, replaced, moved_away])
def test_a_changed_output_is_made_again(change: Callable[[Path], object], file: str, done: Path, place: Path) -> None:
    """Only its own step, and those that read another content then."""
    change(place / "runs/study" / file)
    ran = [name for name, status in states().items() if status == "done"]
    maker = "count" if "beside" in file else file.rpartition("/")[0]
    assert ran == ([maker, "search"] if "/" in maker else [maker]), "a ranking takes a moment: it is made again"
    assert results(place) == results(done)


@pytest.mark.parametrize(("file", "runs"), [
    ("raw.txt", ["prepare", "count"]), ("upper.py", ["prepare", "count"]), ("parts/a.csv", ["parts"]), ("parts.py", ["parts"]),
])  # fmt: skip
def test_a_changed_input_has_the_results_of_a_clean_run(file: str, runs: list[str], place: Path) -> None:
    changed(place / file)
    assert [name for name, status in states().items() if status == "done"] == runs
    content = results(place)
    shutil.rmtree(place / "runs")
    states()
    assert results(place) == content


def test_a_further_file_of_a_pattern_runs_its_step(place: Path) -> None:
    (place / "parts/c.csv").write_text("c")
    said = partrain("run", "study.toml", "--dry-run")
    assert "reads parts/c.csv now" in said.out
    assert [name for name, status in states().items() if status == "done"] == ["parts"]
    assert (place / "runs/study/parts/out-c.csv").read_text() == "cc"


def test_best_is_never_another_checkpoint(place: Path) -> None:
    (place / "runs/study/train/best.h5").unlink()
    said = partrain("run", "study.toml", "--only", "weights")
    assert said.code == 66
    assert "best.h5 is missing" in said.err
    assert states()["train"] == "done"


def test_a_job_that_is_edited_meanwhile_is_trained_as_planned(place: Path) -> None:
    """The second step gets the text that was checked; after the edit is undone, nothing is to do."""
    steps = [f'[[steps]]\nname = "{name}"\njob = "job.toml"\nset = {{seed = {seed}}}\n' for name, seed in (("a", 3), ("b", 4))]
    (place / "two.toml").write_text('name = "two"\n' + "".join(steps))
    job = JOB.replace("rounds = 4", "rounds = 60")
    (place / "job.toml").write_text(job)
    with Command(("run", "two.toml", "--jobs", "1"), place) as command:
        eventually(lambda: (place / "runs/two/a/events.jsonl").exists(), "the first step")
        (place / "job.toml").write_text(job.replace("rounds = 60", "rounds = 1"))
        assert command.wait().code == 0
    ends: list[dict[str, Any]] = [json.loads((place / f"runs/two/{name}/summary.json").read_bytes()) for name in "ab"]
    assert [end["rounds"] for end in ends] == [60, 60]
    (place / "job.toml").write_text(job)
    assert set(states(study="two.toml").values()) == {"unchanged"}


def test_the_check_of_results(place: Path) -> None:
    said = partrain("flow", "check", "study.toml")
    assert (said.code, said.out.strip()) == (0, "runs/study: 9 steps, all up to date")
    changed(place / "raw.txt")
    said = partrain("flow", "check", "study.toml")
    assert said.code == 1
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["prepare", "count"]
    said = partrain("flow", "check", "study.toml", "--json")
    assert json.loads(said.out)["stale"]["prepare"] == "raw.txt changed"


def test_results_of_another_version_are_kept_and_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from partrain.workflow import actions

    Path("study.toml").write_text('name = "study"\n[[steps]]\nname = "a"\njob = "job.toml"\n')
    assert partrain("run", "study.toml", "--quiet").code == 0
    before = Path("runs/study/a/checkpoint.h5").read_bytes()
    made_by = actions.__version__
    monkeypatch.setattr(actions, "__version__", "9.9.9")
    assert f"unchanged, made by partrain {made_by}" in partrain("run", "study.toml", "-n").out
    assert partrain("flow", "check", "study.toml").code == 0
    again = json.loads(partrain("run", "study.toml", "--json").out)["steps"]
    assert [step["status"] for step in again] == ["unchanged"]
    assert Path("runs/study/a/checkpoint.h5").read_bytes() == before
    assert json.loads(partrain("run", "study.toml", "--json", "--rerun", "a").out)["steps"][0]["status"] == "done"
