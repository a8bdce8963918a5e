"""A checkpoint's job is data: the files and the code that it names are opened only with the user's permission."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.runs import Said, partrain, write_job
from support.shared_runs import once

import partrain as package
from partrain import checkpoint
from partrain.errors import NotTrusted

SECRET = "root:x:0:0:the secret of this machine"
ROWS = "x,y\n" + "".join(f"{n / 40},{n / 20}\n" for n in range(40))
TABLE = 'kind = "csv"\npath = "rows.csv"\ntarget = "y"\nvalidation = 8'
URL = f"https://localhost:9/rows.csv#sha256={'0' * 64}"

COMMANDS = {
    "evaluate": ("evaluate", "CKPT"),
    "evaluate-training": ("evaluate", "CKPT", "--split", "training"),
    "resume": ("resume", "CKPT", "--out", "again", "-q"),
    "resume-until": ("resume", "CKPT", "--out", "again", "-q", "--until", "rounds=9"),
    "resume-workers": ("resume", "CKPT", "--out", "again", "-q", "--until", "rounds=9", "--set", "workers.0.count=1"),
    "soup": ("soup", "CKPT", "CKPT", "-o", "soup.h5"),
}
"""Commands that open the data set of a checkpoint's job."""
ALLOWED = {
    "inspect": ("inspect", "CKPT"),
    "verify": ("verify", "CKPT"),
    "predict": ("predict", "CKPT", "--input", "rows.csv"),
    "evaluate-input": ("evaluate", "CKPT", "--input", "rows.csv"),
    "export": ("export", "CKPT", "-f", "safetensors", "-o", "net.safetensors"),
    "diff": ("diff", "CKPT", "--workers"),
}
"""Commands that need the network only."""
watched: set[str] = set()
"""Paths of files that must not be opened now."""
opened: list[str] = []
"""Those that were."""


TABULAR = f"""name = "table"
[model]
name = "mlp"
hidden = [4]
[dataset]
{TABLE}
[optimizer]
name = "sgd"
lr = 0.05
batch_size = 8
[sync]
rule = "average"
iterations = 2
[[workers]]
count = 2
[stop]
rounds = 2
judge_every = 1
[checkpoint]
commit = "every"
keep = 10
"""


@pytest.fixture
def run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a run of the user's, on a table, in the current folder."""

    def make(folder: Path) -> None:
        (folder / "rows.csv").write_text(ROWS)
        job = write_job(folder, text=TABULAR)
        assert partrain("run", job, "--out", folder / "run", "-q").code == 0

    shutil.copytree(once(tmp_path_factory, "permission", make), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def hostile(run: Path, path: str, folder: Path) -> Path:
    """A checkpoint as a stranger sends it: its job names another file."""
    content = checkpoint.read(run / "checkpoint.h5")
    text = content.job.replace('"rows.csv"', json.dumps(path))
    assert text != content.job
    target = folder / "received.h5"
    target.write_bytes(checkpoint.encode(replace(content, job=text, manifest=content.manifest | {"folder": str(folder)})))
    return target


@cache
def listen() -> None:
    """From now on, `opened` names each of the `watched` files that this process opens: an audit hook is never removed."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watched and event == "open" and str(arguments[0]) in watched:
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)


def listened(words: Sequence[str], received: Path, victim: Path) -> Said:
    """Run a command on the received checkpoint. `opened` is not empty afterwards if the command opened the victim."""
    victim.write_text(SECRET + "\n")
    listen()
    opened.clear()
    watched.add(str(victim))
    try:
        said = partrain(*(received if word == "CKPT" else word for word in words))
        seen = len(opened)
        victim.read_text()
        assert opened[seen:] == [str(victim)], "the hook sees each opening"
        del opened[seen:]
    finally:
        watched.clear()
    return said


@pytest.mark.representative
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["absolute", "relative", "url"])
def test_a_file_that_a_received_checkpoint_names_is_not_opened(run: Path, tmp_path: Path, command: str, place: str) -> None:
    victim = tmp_path / "victim"
    named = {"absolute": str(victim), "relative": "./victim", "url": URL}[place]
    said = listened(COMMANDS[command], hostile(run, named, tmp_path), victim)
    assert said.code == 77, said
    assert f"names files: `{named}`" in said.err
    assert "the secret" not in said.err + said.out
    assert not opened


@pytest.mark.parametrize("command", ALLOWED)
def test_commands_that_need_the_network_only_work_with_a_received_checkpoint(run: Path, tmp_path: Path, command: str) -> None:
    victim = tmp_path / "victim"
    said = listened(ALLOWED[command], hostile(run, str(victim), tmp_path), victim)
    assert said.code == 0, said
    assert not opened


def test_hooks_of_a_received_checkpoint_do_not_run_with_other_workers(run: Path, tmp_path: Path, stranger: None) -> None:
    (tmp_path / "hook.py").write_text("import pathlib\npathlib.Path('ran').touch()\ndef call(judgement):\n    return None\n")
    job = write_job(tmp_path / "own", "hooks.after_judgement='hook.py:call'", "stop.rounds=1")
    shutil.copy(tmp_path / "hook.py", tmp_path / "own")
    assert partrain("run", job, "--out", tmp_path / "hooked", "-q").code == 0
    (tmp_path / "ran").unlink(missing_ok=True)
    said = partrain("resume", tmp_path / "hooked", "-q", "--until", "rounds=2", "--set", "workers.0.count=1")
    assert (said.code, said.errors) == (77, ["not-trusted"])
    assert not (tmp_path / "ran").exists()


def test_the_report_of_a_received_run_leaves_the_items_out(run: Path, tmp_path: Path, stranger: None) -> None:
    assert partrain("report", run, "--items", "-o", tmp_path / "page.html").code == 0
    assert "names files: `rows.csv`" in (tmp_path / "page.html").read_text()


def test_runs_of_the_user_need_no_option(run: Path, tmp_path: Path) -> None:
    assert (run / "job.hmac").exists()
    for words in (
        ("evaluate", "run"),
        ("evaluate", "run/checkpoint.h5"),
        ("evaluate", "run/checkpoints/round-000001.h5"),
        ("resume", "run", "-q", "--until", "rounds=3"),
        ("resume", "run/checkpoint.h5", "-q", "--until", "rounds=4", "--set", "workers.0.count=1"),
        ("evaluate", "run", "--split", "training"),
        ("report", "run", "--items", "-o", "page.html"),
    ):
        assert partrain(*words).code == 0, words
    assert "names files" not in (tmp_path / "page.html").read_text()


def test_permission_by_option_and_by_job(run: Path, tmp_path: Path, stranger: None) -> None:
    assert partrain("evaluate", run).errors == ["not-trusted"]
    assert partrain("evaluate", run, "--trust-code").code == 0
    assert partrain("evaluate", run, "--job", tmp_path / "job.toml").code == 0
    assert partrain("resume", run, "-q", "--until", "rounds=3", "--job", tmp_path / "job.toml").code == 0
    assert partrain("resume", run, "-q", "--until", "rounds=4").errors == ["not-trusted"]
    assert partrain("resume", run, "-q", "--until", "rounds=4", "--trust-code").code == 0


def test_a_run_without_a_key_says_what_its_commands_need(run: Path, tmp_path: Path, stranger: None) -> None:
    said = partrain("run", tmp_path / "job.toml", "--out", "unsigned", "-q")
    needing = {line.split()[1] for line in said.out.splitlines() if line.startswith("  partrain") and "--trust-code" in line}
    assert needing == {"evaluate", "refit", "resume"}


def test_python_asks_for_permission_to_read_the_data_set(run: Path, stranger: None) -> None:
    trained = package.load(run)
    assert trained.predict(np.zeros((2, 1))).shape == (2,)
    for use in (trained.evaluate, trained.resume, trained.refit):
        with pytest.raises(NotTrusted, match=r"names files: `rows.csv` in .*; look at it, then load it with trust_code=True"):
            use()
    assert package.load(run, trust_code=True).evaluate()["items"] == 8
