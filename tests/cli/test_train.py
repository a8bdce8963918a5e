"""The command line: one line for every failure, its exit code, and one JSON document where that was asked for."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.cores import two_cores
from support.runs import Command, newest, partrain, round_file, sabotage, train, write_job

from partrain import checkpoint
from partrain.version import __version__

MISSING, DAMAGED, RUN, JOB = "missing.h5", "damaged.h5", "run", "job.toml"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job, its run and files that are no good."""
    folder = tmp_path_factory.mktemp("place")
    run = train(folder, "stop.rounds=2")
    (folder / DAMAGED).write_bytes(newest(run)[:-1])
    (folder / "text.h5").write_text("round 7")
    (folder / "bad.toml").write_text('name = "x"\n[modle]\nname = "mlp"\n')
    (folder / "broken.toml").write_text("name = \n")
    (folder / "empty").mkdir()
    (folder / "file").touch()
    (folder / "taken" / "checkpoints").mkdir(parents=True)
    (folder / "taken" / "summary.json").mkdir()
    cuda = write_job(folder / "gpu", "workers.0.device='cuda:7'")
    own = sabotage(folder / "own", "")
    assert partrain("run", own, "--out", folder / "own" / "run", "-q").code == 0
    cuda.rename(folder / "cuda.toml")
    return folder


FAILURES = [
    (["run", "nowhere.toml"], 66, "no-input"),
    (["run", "empty"], 66, "no-input"),
    (["run", "bad.toml"], 78, "bad-job"),
    (["run", "broken.toml"], 78, "bad-job"),
    (["run", "cuda.toml"], 78, "bad-job"),
    (["run", JOB, "--set", "optimizer.lr=fast"], 78, "bad-job"),
    (["run", JOB, "--set", "optimizer.rate=1"], 78, "bad-job"),
    (["run", JOB, "--set", "nonsense"], 78, "bad-job"),
    (["run", JOB, "--out", RUN], 73, "cannot-create"),
    (["run", JOB, "--out", "file"], 73, "cannot-create"),
    (["run", JOB, "--out", "file/run"], 73, "cannot-create"),
    (["run", JOB, "--out", "/proc/run"], 73, "cannot-create"),
    (["run", JOB, "--out", "x" * 300], 73, "cannot-create"),
    (["run", JOB, "--out", "taken"], 73, "cannot-create"),
    (["validate", "nowhere.toml"], 66, "no-input"),
    (["resume", MISSING], 66, "no-input"),
    (["resume", "empty"], 66, "no-input"),
    (["resume", DAMAGED], 65, "bad-checkpoint"),
    (["resume", "own/run"], 77, "not-trusted"),
    (["resume", f"{RUN}/checkpoints/round-000001.h5", "--out", RUN], 73, "cannot-create"),
    (["inspect", MISSING], 66, "no-input"),
    (["inspect", DAMAGED], 65, "bad-checkpoint"),
    (["verify", MISSING], 66, "no-input"),
    (["verify", DAMAGED], 65, "bad-checkpoint"),
    (["verify", "text.h5"], 65, "bad-checkpoint"),
    (["verify", JOB], 66, "no-input"),
    (["evaluate", MISSING], 66, "no-input"),
    (["evaluate", DAMAGED], 65, "bad-checkpoint"),
    (["evaluate", "own/run"], 77, "not-trusted"),
    (["evaluate", RUN, "--input", "nowhere.npz"], 66, "no-input"),
    (["predict", MISSING, "--input", JOB], 66, "no-input"),
    (["predict", DAMAGED, "--input", JOB], 65, "bad-checkpoint"),
    (["predict", RUN, "--input", "nowhere.csv"], 66, "no-input"),
    (["predict", RUN, "--input", JOB], 66, "no-input"),
    (["predict", "own/run", "--input", JOB], 77, "not-trusted"),
    (["predict", RUN, "--input", JOB, "--job", "nowhere.toml"], 66, "no-input"),
    (["predict", RUN, "--input", JOB, "--job", "bad.toml"], 78, "bad-job"),
    (["export", DAMAGED, "--format", "onnx", "--output", "new"], 65, "bad-checkpoint"),
    (["export", RUN, "--format", "onnx", "--output", JOB], 73, "cannot-create"),
    (["export", "own/run", "--format", "onnx", "--output", "new"], 77, "not-trusted"),
    (["diff", RUN, DAMAGED], 65, "bad-checkpoint"),
    (["soup", RUN, "own/run", "--output", "new.h5"], 77, "not-trusted"),
    (["soup", RUN, DAMAGED, "--output", "new.h5"], 65, "bad-checkpoint"),
]


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    ("words", "code", "name"), FAILURES, ids=lambda part: " ".join(map(str, part))[:60] if isinstance(part, list) else ""
)
def test_failures(place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, name: str) -> None:
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    said = partrain(*words)
    assert (said.code, said.errors, said.out) == (code, [name], ""), said
    assert "Traceback" not in said.err
    told = partrain(*words, "--json")
    assert told.code == code
    error = json.loads(told.out)["error"]
    assert error.keys() == {"name", "code", "message"}
    assert (error["name"], error["code"]) == (name, code)
    assert f"partrain: error[{name}]: {error['message']}" in told.err
    assert sorted(place.rglob("*")) == before, "and nothing was made"


AFTER = [
    ["evaluate", RUN, "--split", "best"],
    ["predict", RUN],
    ["predict", RUN, "--input", JOB, "--output", "new.doc"],
    ["export", RUN, "--format", "pickle", "--output", "new"],
    ["diff", RUN],
    ["soup", RUN, "--output", "new.pt"],
]


@pytest.mark.parametrize(
    "words",
    [[], ["fly"], ["run"], ["run", JOB, "--fast"], ["verify"], ["resume", RUN, "--until"], ["bench", "--threads", "0"], *AFTER],
)
def test_usage(place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(place)
    said = partrain(*words)
    assert said.code == 2
    assert "Traceback" not in said.err
    assert said.errors == []


def test_debug_shows_where(place: Path) -> None:
    said = partrain("verify", place / DAMAGED, "--debug")
    assert (said.code, said.errors) == (65, ["bad-checkpoint"])
    assert "Traceback" in said.err


@two_cores
def test_validate(place: Path) -> None:
    said = partrain("validate", place / JOB, place / "bad.toml")
    assert said.code == 78
    assert f"{place / JOB}: ok" in said.out
    assert "bad.toml:2:2" in said.out
    assert partrain("validate", place / JOB).code == 0
    assert json.loads(partrain("validate", place / JOB, "--json").out) == {"problems": []}
    told = json.loads(partrain("validate", place / "bad.toml", "--json").out)["problems"]
    assert any("modle" in problem["message"] for problem in told)


@two_cores
def test_validate_reports_all_jobs_though_a_file_is_missing(place: Path) -> None:
    good, bad, missing = place / JOB, place / "bad.toml", place / "nowhere.toml"
    said = partrain("validate", good, missing, bad)
    assert (said.code, said.errors) == (78, ["no-input"])
    assert all(part in said.out for part in (f"{good}: ok", f"{missing}: 1 error\n", "bad.toml:2:2"))
    told = json.loads(partrain("validate", good, missing, bad, "--json").out)["problems"]
    assert {problem["place"] for problem in told} == {str(missing), str(bad)}
    assert told[0]["message"].startswith("no such file: ")
    said = partrain("validate", missing, good, good)
    assert (said.code, said.out.count("ok")) == (66, 2)


@pytest.mark.parametrize("command", ["validate", "run"])
def test_an_override_that_does_not_fit_hides_nothing(place: Path, command: str) -> None:
    sets = [word for each in ("optimzer.lr=1", "workers.0.cuont=2", "workers.5.count=2") for word in ("--set", each)]
    said = partrain(command, place / JOB, *sets)
    assert said.code == 78
    for what in ("`workers` has no element `5`", "unknown key `cuont`", "unknown table [optimzer]"):
        assert what in said.out + said.err


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 100, 700])
def test_a_limit_of_file_sizes_is_told(tmp_path: Path, blocks: int) -> None:
    """It holds for memory files, too: those of the data, the board and the workers' rows."""
    job = write_job(tmp_path, "model.hidden=[4096]")
    words = [sys.executable, "-m", "partrain", "run", job, "--out", tmp_path / "run", "--quiet"]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1024 * blocks, resource.RLIM_INFINITY))
    said = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert said.returncode == 74, said
    assert re.search(r"^partrain: error\[io\]: cannot make a shared memory of [0-9,]+ bytes: .* \(ulimit -f\)", said.stderr, re.M)
    assert "Traceback" not in said.stderr


def test_inspect(place: Path) -> None:
    outline = json.loads(partrain("inspect", place / RUN, "--json").out)
    assert (outline["job"], outline["round"]) == ("clouds", 2)
    assert outline["tensors"]["model"]["0.weight"]["shape"] == [16, 2]
    text = partrain("inspect", place / RUN / "checkpoint.h5").out
    assert "0.weight" in text
    assert "float32 (16, 2)" in text
    size = (place / RUN / "checkpoint.h5").stat().st_size
    assert outline["bytes"] < outline["file_bytes"] == size
    assert f"\nfile_bytes  {size:,}\n" in text
    assert f"\nbytes  {outline['bytes']:,}, in the arrays\n" in text
    assert partrain("inspect", place / "own" / "run").code == 0, "no code is needed, so none must be trusted"


def test_verify(place: Path) -> None:
    told = json.loads(partrain("verify", place / RUN, "--json").out)
    assert (told["round"], len(told["sha256"])) == (2, 64)
    assert ": ok, round 2, sha256 " in partrain("verify", place / RUN).out


def test_evaluate(place: Path) -> None:
    told = json.loads(partrain("evaluate", place / RUN, "--json").out)
    assert told["validation"].keys() == told["test"].keys() >= {"items", "loss", "accuracy", "classes", "confusion"}
    assert (told["round"], told["validation"]["items"], told["test"]["items"]) == (2, 30, 40)
    said = partrain("evaluate", place / RUN)
    assert "validation (30 items): loss " in said.out
    assert partrain("evaluate", place / "own" / "run", "--trust-code").code == 0


def test_evaluate_what_does_not_fit(place: Path, tmp_path: Path) -> None:
    whole = checkpoint.read(place / RUN / "checkpoint.h5")
    for job in (whole.job.replace("[16]", "[17]"), whole.job.replace("noise = 0.7", "noise = 0.8")):
        (tmp_path / "other.h5").write_bytes(checkpoint.encode(replace(whole, job=job)))
        said = partrain("evaluate", tmp_path / "other.h5")
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said
    bare = checkpoint.Content(whole.arrays, whole.job, {"run": "x", "round": 2})
    (tmp_path / "bare.h5").write_bytes(checkpoint.encode(bare))
    for command in "evaluate", "resume":
        said = partrain(command, tmp_path / "bare.h5")
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said


@pytest.mark.representative
def test_the_user_sees_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    said = partrain("run", JOB, "--verbose")
    assert said.code == 0
    (folder,) = (tmp_path / "runs" / "clouds").iterdir()
    lines = said.out.splitlines()
    assert lines[0].partition("  ")[2] == "clouds: 2 cpu workers, rule average, 99 parameters; until rounds 4"
    assert [line.split()[3:5] for line in lines[1:5]] == [["round", str(number)] for number in range(1, 5)]
    assert lines[5].startswith("finished (rounds): 4 rounds, 192 item-iterations")
    commands = [line.split() for line in lines if line.startswith("  partrain ")]
    assert [words[1] for words in commands] == ["predict", "refit", "evaluate", "export", "report", "inspect", "resume"]
    np.save("FILE.npy", np.zeros((1, 2), np.float32))
    for words in commands:
        words[:] = [word.replace("FILE", "FILE.npy") for word in words]
        assert partrain(*words[1:]).code == 0, words
    assert checkpoint.read(folder / "checkpoint.h5").round == 8


def test_two_runs_in_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path, "stop.rounds=1")
    for _ in range(2):
        assert partrain("run", JOB, "-q").code == 0
    assert len(list((tmp_path / "runs" / "clouds").iterdir())) == 2


def test_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint finds its job's files from wherever it is resumed."""
    folder = tmp_path / "here"
    sabotage(folder, "")
    monkeypatch.chdir(folder)
    assert partrain("run", JOB, "--out", RUN, "-q").code == 0
    monkeypatch.chdir(tmp_path)
    assert partrain("resume", round_file(Path("here") / RUN, 2), "--out", "there", "-q", "--trust-code").code == 0
    assert newest(tmp_path / "there") == newest(folder / RUN)


# As a process


@two_cores
def test_json_is_all_there_is(place: Path, tmp_path: Path) -> None:
    """Nothing else reaches stdout, not even by way of the workers."""
    with Command(("run", place / JOB, "--out", "run", "--json"), tmp_path) as command:
        said = command.wait()
    assert said.code == 0
    assert json.loads(said.out)["status"] == "finished"
    assert said.err == ""


@pytest.mark.parametrize("name", ["job.toml", "events.jsonl", "summary.json", "checkpoint.h5"])
def test_a_file_of_the_users_own_is_not_replaced(place: Path, tmp_path: Path, name: str) -> None:
    """A run writes a file of this name into its folder, here the one the job file lies in."""
    (tmp_path / name).write_bytes((place / JOB).read_bytes())
    with Command(("run", name, "--out", ".", "--set", "seed=5"), tmp_path) as command:
        said = command.wait()
    assert (said.code, said.errors) == (73, ["cannot-create"])
    assert f"{name} is not of a run" in said.err
    assert (tmp_path / name).read_bytes() == (place / JOB).read_bytes()


@pytest.mark.slow
def test_without_torch(place: Path) -> None:
    """What answers questions does not wait for it."""
    for words in (
        ["--help"],
        ["run", "--help"],
        ["validate", JOB],
        ["inspect", RUN],
        ["verify", RUN],
        ["resume", RUN],
        ["diff", RUN, RUN],
    ):
        code = f"import sys; sys.argv = ['partrain', *{words!r}]; from partrain.cli.main import main\ntry: main()\nfinally: sys.exit('torch' in sys.modules)"
        said = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)
        assert said.returncode == 0, (words, said.stderr)


def test_help_lists_what_works(place: Path) -> None:
    text = partrain("--help").out
    commands = "run", "resume", "validate", "inspect", "verify", "evaluate", "predict", "export", "diff", "soup"
    for command in commands:
        assert f"\n  {command} " in text
        assert partrain(command, "--help").code == 0
    said = partrain("--version")
    assert (said.code, said.out) == (0, f"partrain {__version__}\n")


def test_a_job_without_a_command(place: Path) -> None:
    said = partrain(place / JOB, "--quiet")
    assert said.code == 2
    assert said.err.splitlines()[-1] == f"Did you mean: partrain run {place / JOB} --quiet"
