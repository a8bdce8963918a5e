"""A full or closed stdout or stderr loses output, but the command completes and prints no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import warm
from support.cores import two_cores
from support.runs import Command, round_file, summary, train, write_job
from support.shared_runs import once

from partrain import checkpoint
from partrain.system.stdio import visible

COMMANDS = [
    (["--help"], 0),
    (["validate", "job.toml"], 0),
    (["validate", "job.toml", "--json"], 0),
    (["validate", "bad.toml"], 78),
    (["validate", "nowhere.toml", "--json"], 66),
    (["validate", "--typo", "--json"], 2),
    (["inspect", "run", "--tensors"], 0),
    (["verify", "run", "--json"], 0),
    (["diff", "run", "other.h5", "--json"], 1),
    (["predict", "run", "--input", "items.csv"], 0),
    (["data", "inspect", "job.toml"], 0),
    (["compare", "run"], 0),
    (["resume", "run", "--json"], 0),
    (["run", "job.toml", "--out", "again", "--set", "stop.rounds=1"], 0),
    (["run", "job.toml", "--out", "again", "--set", "stop.rounds=1", "--quiet"], 0),
    (["run", "job.toml", "--out", "again", "--set", "stop.rounds=1", "--json"], 0),
]
"""Words, and the code of the command where all is well with stdout."""


REPEATED = {"resume run --json", "run job.toml --out again --set stop.rounds=1 --quiet"}
"""Commands that train and, where the reader left, take the way of `run --json` or of `run`. There only `make soak` runs them."""


IMPORT_TORCH = "run", "resume", "predict", "data"
SLOW = {" ".join(words) for words, _ in COMMANDS if words[0] in IMPORT_TORCH} - {" ".join(COMMANDS[-1][0])}
"""Commands that train or import torch; the gate has one of them."""


def every_command(first: int, but: Container[str] = ()) -> pytest.MarkDecorator:
    """Give each command a buffered or an unbuffered stdout in turn; `make soak` gives it the other."""
    rows = []
    for number, (words, code) in enumerate(COMMANDS, first):
        for value, name in enumerate(("buffered", "unbuffered")):
            marks: Any = () if value == number % 2 and " ".join(words) not in but else pytest.mark.soak
            if not marks and " ".join(words) in SLOW:
                marks = pytest.mark.slow
            rows.append(pytest.param(words, code, "1" * value, id=f"{' '.join(words)}-{name}", marks=marks))
    return pytest.mark.parametrize(("words", "code", "unbuffered"), rows)


buffered = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        run = train(folder, "stop.rounds=2")
        (folder / "other.h5").write_bytes(round_file(run, 1).read_bytes())
        (folder / "bad.toml").write_text('name = "x"\n')
        (folder / "items.csv").write_text("x0,x1\n" + "1,2\n" * 3)

    return once(tmp_path_factory, "stdio", make)


def command(place: Path, words: list[str], stdout: int, unbuffered: str) -> tuple[int, list[str]]:
    """Run a command; return exit code and lines on stderr. One that imports torch is a fork: see `support.warm`."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with tempfile.TemporaryFile() as stderr:
        process: Any
        if words[0] in IMPORT_TORCH:
            process = warm.server().start(words, str(place), environment, (), [stdout, stderr.fileno()])
        else:
            program = [sys.executable, "-m", "partrain", *words]
            process = subprocess.Popen(program, cwd=place, stdout=stdout, stderr=stderr, env=environment)
        code = process.wait()
        stderr.seek(0)
        return code, stderr.read().decode().splitlines()


@pytest.mark.slow
@two_cores
@every_command(0)
def test_a_full_device(place: Path, tmp_path: Path, words: list[str], code: int, unbuffered: str) -> None:
    words = [str(tmp_path / word) if word == "again" else word for word in words]
    with open("/dev/full", "wb") as full:
        told, lines = command(place, words, full.fileno(), unbuffered)
    assert told == (code if code > 1 else 74), lines
    assert not any("Traceback" in line for line in lines)
    said = [line for line in lines if "stdout" in line]
    assert said == ["partrain: error[io]: cannot write to stdout: No space left on device"], lines
    if code < 2:
        assert lines == said
    if str(tmp_path / "again") in words:
        assert summary(tmp_path / "again")["status"] == "finished"


@pytest.mark.slow
@two_cores
@every_command(1, but=REPEATED)
def test_a_closed_pipe(place: Path, tmp_path: Path, words: list[str], code: int, unbuffered: str) -> None:
    words = [str(tmp_path / word) if word == "again" else word for word in words]
    read, write = os.pipe()
    os.close(read)
    try:
        told, lines = command(place, words, write, unbuffered)
    finally:
        os.close(write)
    assert told == code, lines
    assert not any("Traceback" in line or "Broken" in line for line in lines)
    if code < 2:
        assert lines == []
    if str(tmp_path / "again") in words:
        assert summary(tmp_path / "again")["status"] == "finished"


RUN = "run job.toml --out again --set stop.rounds=1"
CLOSED = {
    f"{words}-{closed}": pytest.param(
        words, code, closed, marks=(pytest.mark.soak if "<" not in closed else pytest.mark.slow) if words == RUN else ()
    )
    for words, code in [("validate job.toml", 0), (RUN, 0), ("run job.toml --out run --json", 73), ("inspect nowhere.h5", 66)]
    for closed in [">&-", "2>&-", "<&- >&- 2>&-"]
}
"""A training in the gate has all three closed: the files that it opens then take the numbers of all of them."""


@pytest.mark.representative
@pytest.mark.parametrize(("words", "code", "closed"), CLOSED.values(), ids=CLOSED)
def test_closed_altogether(place: Path, tmp_path: Path, words: str, code: int, closed: str) -> None:
    shell = f"exec {sys.executable} -m partrain {words.replace('again', str(tmp_path / 'again'))} {closed}"
    told = subprocess.run(["sh", "-c", shell], cwd=place, capture_output=True, check=False)
    assert told.returncode == code
    if closed == "2>&-" and code:
        assert b"error[" not in told.stdout  # which was meant for stderr
    if "again" in words:
        assert summary(tmp_path / "again")["status"] == "finished"


@buffered
@pytest.mark.parametrize(("words", "code"), [("run job.toml --out run", 73), ("inspect nowhere.h5", 66), ("validate --typo", 2)])
def test_a_full_stderr(place: Path, words: str, code: int, unbuffered: str) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        told = subprocess.run(
            [sys.executable, "-m", "partrain", *words.split()], cwd=place, stderr=full, env=environment, check=False
        )
    assert told.returncode == code


@two_cores
def test_what_is_written_is_as_it_was(place: Path) -> None:
    """Output keeps the encoding that the user asked for."""
    job = write_job(place / "größe")
    told = subprocess.run(
        [sys.executable, "-m", "partrain", "validate", job],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )
    assert (told.returncode, told.stdout) == (0, f"{job}: ok\n".encode("latin-1")), told


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mEVIL\x9b31m\u202e"


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--tensors"], ["verify"]])
def test_a_terminal_obeys_no_text_of_a_checkpoint(tmp_path: Path, place: Path, words: list[str]) -> None:
    """All digests are right: versions and folders are what an author wants."""
    content = checkpoint.read(place / "other.h5")
    manifest = content.manifest | {"folder": f"/{ESCAPES}", "versions": {"partrain": ESCAPES}}
    path = tmp_path / "evil.h5"
    path.write_bytes(checkpoint.encode(replace(content, manifest=manifest)))
    with Command((*words, path), tmp_path) as command:
        said = command.wait()
    text = said.out + said.err
    assert said.code == 0, text
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    if words == ["inspect"]:
        assert "\\x1b[31mEVIL" in text


def test_control_characters_become_visible() -> None:
    assert visible("a\tb\r\nc\n") == "a\tb\r\nc\n"
    assert visible("a\rb\x00\x1b[2J\x7f\x85\u202e") == "a\\rb\\x00\\x1b[2J\\x7f\\x85\\u202e"
    assert visible("größe – 数") == "größe – 数"
