"""Before a command: what trains has its forkserver first, what does not never gets one, and none is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import Command

from partrain.errors import BadJob

PROGRAM = """\
import os, sys
from partrain import __main__
from partrain.launch import forkserver as prefork

start, servers = prefork.start, []

def watched():
    print("before:", *sorted({"typer", "pydantic", "torch", "numpy"} & sys.modules.keys()))
    context = start()
    servers.append(prefork.forkserver._forkserver._forkserver_pid)
    return context

prefork.start = watched
try:
    __main__.main()
finally:
    for server in servers:
        try:
            os.kill(server, 0)
        except ProcessLookupError:
            print("gone")
"""


def said(*words: object) -> list[str]:
    """What the program prints for a command line that comes to nothing."""
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text('name = "no job"\n')
    return path


@pytest.mark.parametrize("words", [["run"], ["resume"], ["run", "--typo"]])
def test_the_forkserver_is_first_and_does_not_outlive_a_command_that_fails(job: Path, words: list[str]) -> None:
    assert said(*words, job) == ["before:", "gone"]


@pytest.mark.parametrize("words", [["run"], ["run", "none.toml"], ["validate"], ["evaluate"], ["nothing"]])
def test_what_does_not_train_gets_no_forkserver(words: list[str]) -> None:
    assert said(*words) == []


def test_who_asks_for_help_does_not_wait_for_torch(job: Path) -> None:
    assert said("run", job, "--help")[0].startswith("Usage:")


@pytest.mark.parametrize(("words", "code", "message"), [
    (["valdate"], 2, "No such command 'valdate'. Did you mean 'validate', 'evaluate'?"),
    (["run"], 2, "Missing argument 'FILE...'."),
    (["run", "none.toml"], 66, "no such file: none.toml"),
])  # fmt: skip
def test_a_failure_is_one_json_document_too(words: list[str], code: int, message: str, tmp_path: Path) -> None:
    with Command((*words, "--json"), tmp_path) as command:
        said = command.wait()
    assert said.code == code
    assert json.loads(said.out)["error"] == {"name": {2: "usage", 66: "no-input"}[code], "code": code, "message": message}


def test_a_failure_is_one_line_whatever_a_file_is_called() -> None:
    failure = BadJob("no\nsuch\tfile: a  b\x1b[2J", "one\ntwo")
    assert failure.message == str(failure) == "no such file: a b [2J"
    assert failure.render() == "partrain: error[bad-job]: no such file: a b [2J\none\ntwo"
    assert BadJob("two  spaces").message == "two  spaces"


IMPATIENT = """\
import sys

class Interrupt:
    def find_spec(self, name, *rest):
        if name == "signal":
            raise KeyboardInterrupt

sys.modules.pop("signal", None)
sys.meta_path.insert(0, Interrupt())
import partrain.__main__
"""


def test_whoever_interrupts_our_first_lines_sees_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", IMPATIENT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
