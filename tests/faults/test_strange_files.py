"""Pipes, links and texts nested deep, where a command expects a file of its own: nothing blocks, nothing is followed, one line tells."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from support.runs import Command, Said, partrain, train, write_job
from support.shared_runs import once

from partrain import checkpoint
from partrain.errors import InputOutputFailed
from partrain.system.regular_file import open_regular, open_to_append, parse_json, read_json

VICTIM = "not of the run\n"


@pytest.fixture
def run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run; its job lies beside it."""
    made = once(tmp_path_factory, "strange-files", lambda folder: train(folder, "stop.rounds=2"))
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def timed(*words: object, folder: Path) -> tuple[int, str]:
    """Exit code and output of a command, a process that must end by itself."""
    with Command(words, folder) as command:
        return both(command.wait())


def here(*words: object) -> tuple[int, str]:
    """The same of a command in this process, which an exception that it does not handle would leave."""
    return both(partrain(*words))


def both(said: Said) -> tuple[int, str]:
    return said.code, said.out + said.err


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_lies_where_a_run_writes_is_replaced(tmp_path: Path, kind: str) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_text(VICTIM)
    for name in ("summary.json.part", "job.toml.part"):
        os.mkfifo(run / name) if kind == "pipe" else (run / name).symlink_to(victim)
    code, said = timed("run", write_job(tmp_path, "stop.rounds=1"), "--out", run, "-q", folder=tmp_path)
    assert code == 0, said
    assert json.loads((run / "summary.json").read_text())["status"] == "finished"
    assert victim.read_text() == VICTIM
    assert not list(run.glob("*.part"))


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_log_that_is_no_file_is_refused(tmp_path: Path, run: Path, kind: str) -> None:
    log, victim = run / "events.jsonl", tmp_path / "victim"
    whole = log.read_bytes()
    log.unlink()
    victim.write_bytes(whole)
    os.mkfifo(log) if kind == "pipe" else log.symlink_to(victim)
    code, said = timed("resume", run, "--until", "rounds=3", "-q", folder=tmp_path)
    if kind == "pipe":
        assert code in (66, 74), said
        assert "is a pipe or a device" in said
    assert victim.read_bytes() == whole
    assert "Traceback" not in said


READERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("runs",): ("summary.json", "tags.txt"),
    ("runs", "show", "RUN"): ("events.jsonl", "tags.txt"),
    ("report", "RUN", "-o", "page.html"): ("events.jsonl", "job.toml"),
    ("watch", "RUN", "--once"): ("events.jsonl",),
    ("compare", "RUN", "RUN"): ("summary.json",),
    ("plot", "loss", "RUN"): ("summary.json",),
}
"""Files that are pipes in the gate, by the commands that meet them: each reader of a file once."""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(words, name, id=f"{' '.join(words)}-{name}", marks=() if name in names else pytest.mark.soak)
        for words, names in READERS.items()
        for name in ("events.jsonl", "summary.json", "job.toml", "tags.txt")
    ],
)
def test_no_command_waits_for_a_pipe_in_a_run_folder(tmp_path: Path, words: tuple[str, ...], name: str, run: Path) -> None:
    (tmp_path / "runs").mkdir()
    run = run.rename(tmp_path / "runs" / "one")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    _, said = timed(*(run if word == "RUN" else word for word in words), folder=tmp_path)
    assert "Traceback" not in said


def test_a_link_in_place_of_the_checkpoints_is_not_followed(tmp_path: Path, run: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (run / "checkpoints").rename(elsewhere)
    (run / "checkpoints").symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())
    with pytest.raises(InputOutputFailed):
        checkpoint.write(run / "checkpoints" / "round-000009.h5", b"x")
    said = partrain("resume", run, "--until", "rounds=3", "-q")
    assert (said.code, said.errors) == (74, ["io"]), said
    assert sorted(elsewhere.iterdir()) == before
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "checkpoints").symlink_to(elsewhere)
    (elsewhere / before[0].name).unlink()
    for path in elsewhere.iterdir():
        path.unlink()
    said = partrain("run", tmp_path / "job.toml", "--out", tmp_path / "new", "-q")
    assert (said.code, said.errors) == (73, ["cannot-create"])
    assert "is a link, which is not followed" in said.err


def test_all_files_of_a_run_have_the_modes_of_the_umask(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.rounds=1")
    before = os.umask(0o027)  # a fork of a process that has imported torch would have that process's
    try:
        code, said = here("run", job, "--out", tmp_path / "run", "-q")
    finally:
        os.umask(before)
    assert code == 0, said
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files} == {path.name: "0o640" for path in files}
    assert any(path.suffix == ".h5" for path in files)


@pytest.mark.parametrize("command", [("verify",), ("inspect",), ("evaluate",), ("resume",), ("diff", "CKPT"), ("resume", "--job", "JOB")])  # fmt: skip
@pytest.mark.parametrize(
    "text", ["x=" + "[" * 5000, "x=" + "{a=" * 5000, "a" + ".b" * 50_000 + " = 1"], ids=["lists", "tables", "key"]
)
def test_a_job_that_is_nested_deep(tmp_path: Path, run: Path, command: tuple[str, ...], text: str) -> None:
    """One by a real process: its stack is another."""
    received = tmp_path / "received.h5"
    content = checkpoint.read(run / "checkpoint.h5")
    received.write_bytes(checkpoint.encode(replace(content, job=text)))
    words = command[0], received, *({"CKPT": received, "JOB": tmp_path / "job.toml"}.get(word, word) for word in command[1:])
    code, said = timed(*words, folder=tmp_path) if (command, text[:3]) == (("resume",), "x=[") else here(*words)
    assert code in ((0,) if command[0] in ("verify", "inspect", "diff") else (65, 78)), said
    assert len(said.splitlines()) < 100, "and no traceback of thousands of lines"
    assert "Traceback" not in said


@pytest.mark.parametrize("name", ["events.jsonl", "summary.json", "job.toml"])
def test_files_of_a_run_that_are_nested_deep(tmp_path: Path, run: Path, name: str) -> None:
    (run / name).write_text(("x=" if name == "job.toml" else "") + "[" * 100_000 + "\n")
    for words in (
        ("runs", tmp_path),
        ("runs", "show", run),
        ("report", run, "-o", tmp_path / "page.html"),
        ("watch", run, "--once"),
        ("plot", "loss", run),
    ):
        code, said = timed(*words, folder=tmp_path) if (words[0], name) == ("report", "events.jsonl") else here(*words)
        assert code != 70, said
        assert "Traceback" not in said


def test_the_header_of_a_network_file_that_is_nested_deep(tmp_path: Path) -> None:
    header = b"[" * 200_000
    (tmp_path / "start.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    code, said = timed("run", write_job(tmp_path, "model.from='start.safetensors'"), "-q", folder=tmp_path)
    assert (code, "is no whole safetensors file" in said) == (66, True), said


def test_workflows_that_are_nested_deep(tmp_path: Path) -> None:
    (tmp_path / "flow.toml").write_text("[[steps]]\nname = 'x'\njob = " + "[" * 5000)
    code, said = timed("run", "flow.toml", folder=tmp_path)
    assert code == 78, said
    assert len(said.splitlines()) < 20


def test_json_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json("[" * 100_000)
    (tmp_path / "x").write_text("[1]")
    assert read_json(tmp_path / "x") == [1]
    os.mkfifo(tmp_path / "pipe")
    for call in (open_regular, open_to_append):
        with pytest.raises(OSError, match=r"No such device|pipe or a device"):
            call(tmp_path / "pipe")
        with pytest.raises(IsADirectoryError):
            call(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    with pytest.raises(OSError, match="symbolic links"):
        open_to_append(tmp_path / "link")
