"""Every command and every snippet of README.md and docs/ is executed, with small numbers, in a folder where the names of the pages exist.

Not executed are the scripts in benchmarks/, which take minutes, and names of commands without arguments (`partrain plot`). Code that is an
excerpt of a file is compared with that file (`test_docs.py`).
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import partrain as package
import pytest
import shellingham
from support import page_world
from support.machines import free_port
from support.runs import JOB, Command, Said, events, eventually, partrain, summary, write_job
from support.shared_runs import once
from test_docs import WRITTEN, blocks, excerpts, text_of, words_of
from torch import nn

from partrain.config.overrides import as_toml
from partrain.workflow.kinds import is_sweep, is_workflow

pytestmark = pytest.mark.slow

PAGES = ["README.md", *WRITTEN]

NAMES = {
    "": {
        "JOB.toml": "job.toml", "RUN": "runs/first", "KEY": "optimizer.lr", "FILE": "data.csv", "COLUMN": "cultivator", "N": "4",
        "A": "runs/one", "B": "runs/two", "ID": "first", "SHARED/DIR": "runs/shared", "jobs/": "few",
    },
    "docs/best-and-averages.md": {"new.csv": "pixels.csv"},
    "docs/series.md": {"FILE": "passengers.csv", "COLUMN": "passengers"},
    "docs/tasks-and-metrics.md": {"RUN": "runs/class-weights"},
}  # fmt: skip
"""Placeholders and files of the reader, by page ("" are all), and names that are there."""

SMALL = {
    "rounds=200": "rounds=4", "rounds=500": "rounds=4", "rounds=800": "rounds=4", "round-000040": "round-000001",
    "--seeds 3": "--seeds 1", "--seeds 5": "--seeds 1", "--items 30000": "--items 1000", "--tokens 200": "--tokens 9",
    "--probe": "--probe --seconds 0.2", "--metrics-port 9400": "--metrics-port 0", "cuda:0": "cpu",
    "trials = 20 ": "trials = 1 ", "trials = 40": "trials = 2", "seeds = 3": "seeds = 1", "k_folds = 5": "k_folds = 2", "[40, 10]": "[2, 1]",
    "rounds = 10\n": "rounds = 2\n", "depth = 20": "depth = 8",
    "size = [64, 64]\nvalidation = 500": "size = [16, 16]\nvalidation = 8", "batch_size = 64\nschedule": "batch_size = 8\nschedule",
    "PartrainRegressor()": "PartrainRegressor(rounds=2)",
    "--nproc-per-node 1": "--nproc-per-node 1 --local-addr 127.0.0.1", "--nnodes 1:4": "--nnodes 1:4 --rdzv-conf last_call_timeout=1",
    "--nproc-per-node=1": "--nproc-per-node=1 --local-addr=127.0.0.1",
}  # fmt: skip
"""Large numbers, devices and addresses of the pages, and those that the tests take."""

CODES = {"partrain diff A B": 1}
"""Exit codes that pages tell."""

EXCEPTIONS = {
    "make run": "installs .venv; other lines run jobs/mnist.toml, and test_init.py an installed wheel",
    "pip install .": "the same",
    "pip install '.[onnx,report]'": "the same",
    "python -m pytest tests/rules/test_slowmo.py tests/contract -k slowmo": "tests of the gate",
    "partrain checkpoint 1": "the first line of a file: see test_the_header_of_a_checkpoint",
    "partrain run --log NAME": "an option: docs/follow.md has whole lines",
    "partrain evaluate --input": "an option: docs/predict.md has whole lines",
    "partrain export --format onnx": "an option: docs/export.md has whole lines",
}
"""Lines that are not executed, and why."""


@pytest.fixture
def here(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder where the names of the pages exist, and the working folder."""
    world = once(tmp_path_factory, "pages", page_world.make)
    shutil.copytree(world, tmp_path / "world", symlinks=True)
    here = tmp_path / "world/here"
    (here.parent / "runs").unlink()
    (here.parent / "runs").symlink_to("here/runs")
    (here / "study.toml").write_text(blocks("docs/workflows.md", "toml")[0])
    (here / "play.toml").write_text(blocks("docs/text.md", "toml")[0])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))  # `--install-completion` writes there
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "/bin/bash"))
    with chdir(here):
        yield here


def real(text: str, page: str) -> str:
    """A text of a page with real names and small numbers."""
    for large, small in SMALL.items():
        text = text.replace(large, small)
    names = NAMES[""] | NAMES.get(page, {})
    found = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w.-])({found})(?![\w/-])", lambda name: names[name[1]], text)


# Commands

TYPED = re.compile(r"(?:\$ )?(?:\S*/)?((?:partrain|make|pip|python|cat|echo) .*)")
LINE = re.compile(r"^ {4}(?P<shown>.*)$|`(?P<ticked>(?:srun [^`]*)?partrain [a-z][^`]*)`|^(?P<end>)$", re.MULTILINE)


def commands(page: str) -> dict[str, list[str]]:
    """The command lines of a page in its order, and the lines that it shows as the output of each."""
    text = re.sub(r"^```(?!console).*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```console\n(.*?)^```", lambda block: textwrap.indent(block[1], "    "), text, flags=re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    output: list[str] = []
    for line in LINE.finditer(text):
        if line["shown"] and (typed := TYPED.fullmatch(line["shown"])):
            output = found.setdefault(re.sub(r" {2,}#.*", "", typed[1]), [])
        elif line["shown"]:
            output.append(line["shown"])
        elif line["ticked"] and not re.fullmatch(r"partrain [a-z]+( (inspect|convert|show))?", line["ticked"]):
            found.setdefault(line["ticked"], [])
        else:
            output = []
    return found


def execute(line: str, page: str) -> Said:
    """Execute a command line; the files that it names as its output are new."""
    before, _, command = real(line, page).rpartition(" | ")
    words = words_of(command[command.index("partrain ") :])
    for file in outputs(words):
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
    jobs = [Path(word) for word in words if word.endswith(".toml")]
    if words[0] == "run" and len(jobs) == 1 and not is_workflow(jobs[0]):
        words += ["--set", "stop={rounds=2}"]
    typed = subprocess.run(["bash", "-c", before], capture_output=True, check=True).stdout
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        if words[0] in ("stop", "checkpoint"):
            stack.enter_context(training(Path(words[1])))
        said = partrain(*words)
    assert [file for file in outputs(words) if not file.exists()] == [], (line, said)
    return said


def outputs(words: list[str]) -> list[Path]:
    named = [value for option, value in pairwise(words) if option in ("-o", "--output", "--out")]
    if words[0] == "init":
        named += [word for word in words if word.endswith(".toml")] or ["job.toml"]
    return list(map(Path, named))


@contextmanager
def training(run: Path) -> Iterator[None]:
    """Another terminal trains this run."""
    shutil.rmtree(run)
    job = write_job(Path("endless"), "stop={rounds=1000000}", 'checkpoint={commit="coalesce"}')
    with Command(("run", job.absolute(), "--out", run.absolute(), "-q"), Path("terminal").absolute()):
        eventually(lambda: events(run, "commit"), "a checkpoint")
        yield


def train_anew() -> None:
    shutil.rmtree("runs/mnist")
    assert partrain("run", "jobs/mnist.toml", "--out", "runs/mnist", "-q").code == 0


PREPARED: dict[str, Callable[[], object]] = {
    "partrain predict runs/wine --input new.csv --skip-bad": lambda: shutil.copy("bad-rows.csv", "new.csv"),
    """partrain resume runs/mnist --set 'workers=[{device="cuda:0"}]' --until rounds=800 --out runs/mnist-on-gpu""": train_anew,
}
"""Done before some lines."""


def without_digits(text: str) -> str:
    """A text without the numbers that every training gives anew."""
    return re.sub(r"\d+\.\d{3,}", "x", text)


def is_logging(line: str) -> bool:
    return "--log " in line and line not in EXCEPTIONS


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_of_a_page(page: str, here: Path) -> None:
    """One after the other, as a reader types them."""
    for line, output in commands(page).items():
        if line in EXCEPTIONS or is_logging(line):
            continue
        PREPARED.get(line, str)()
        said = execute(line, page)
        assert said.code == CODES.get(line, 0), (line, said)
        told = without_digits(said.err + said.out).splitlines()
        assert [shown for shown in output if without_digits(shown) not in told] == [], (line, said)


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in commands(page) if is_logging(line)])
def test_the_commands_that_log(page: str, line: str, here: Path) -> None:
    tool = words_of(line)[-1]
    pytest.importorskip(tool)
    assert execute(line, page).code == 0
    assert list(here.glob(f"runs/mnist/*/{tool if tool != 'mlflow' else 'mlruns'}"))


def test_each_exception_is_on_a_page() -> None:
    assert set(EXCEPTIONS) <= {line for page in PAGES for line in (*commands(page), *console_lines(page))}


def console_lines(page: str) -> list[str]:
    return [line.removeprefix("$ ") for block in blocks(page, "console") for line in block.splitlines()]


def test_every_line_of_a_console_is_executed() -> None:
    """As a command here, or with torchrun in a script below."""
    seen = {line for page in PAGES for line in commands(page)} | {line for block in SCRIPTS for line in console_lines_of(block)}
    assert [line for page in PAGES for line in console_lines(page) if line not in seen] == []
