"""Runs that start from a file: of every kind, to the bit, on every transport; and again without the file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cores import two_cores
from support.machines import MANY, Site, free_port
from support.runs import (
    JOB,
    SIMULATED,
    descendants,
    events,
    eventually,
    newest,
    partrain,
    resume,
    round_file,
    summary,
    train,
    write_job,
)

from partrain.checkpoint import decode
from partrain.checkpoint.manifest import manifest_of
from partrain.job.load import problems

JOBS = Path(__file__).parents[2] / "jobs"
STILL = "optimizer={name='sgd', lr=1e-30, batch_size=8}", "stop={rounds=1, judge_every=1}"
"""Steps too small to change any number."""
NET = 'name="mlp", hidden=[16], batch_norm=true'


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and its network as a state dict and as safetensors."""
    folder = tmp_path_factory.mktemp("origin")
    run = train(folder, SIMULATED, f"model={{{NET}}}", "seed=11")
    for name, form in (("a.pt", "state-dict"), ("a.safetensors", "safetensors")):
        assert partrain("export", run, "--format", form, "--output", folder / name).code == 0
    return folder


def network(run: Path) -> dict[str, np.ndarray[Any, Any]]:
    arrays = decode(newest(run)).arrays
    return {path.removeprefix("model/"): one for path, one in arrays.items() if path.startswith("model/")}


def equal(ours: dict[str, Any], theirs: dict[str, Any], but: str = "-") -> bool:
    return all(np.array_equal(one, theirs[name]) for name, one in ours.items() if not name.startswith(but))


@pytest.mark.parametrize(
    ("kind", "file"),
    [("shared", "run"), ("simulated", "run/checkpoint.h5"), ("shared", "a.pt"), ("simulated", "a.safetensors")],
)
def test_every_kind_of_file_and_every_array(tmp_path: Path, origin: Path, kind: str, file: str) -> None:
    buffers = "sync.buffers='local'"  # worker 0's statistics follow its items; the others' do not count
    model = f'model={{{NET}, from="{origin / file}"}}'
    run = train(tmp_path, model, f"transport.kind='{kind}'", buffers, *STILL)
    parameters = {name: one for name, one in network(run).items() if name.endswith(("weight", "bias"))}
    assert len(parameters) == 6
    assert equal(parameters, network(origin / "run"))
    path = origin / file / "checkpoint.h5" if file == "run" else origin / file
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert events(run, "start")[0]["start_file"] == manifest_of(decode(newest(run))).start_file == digest


def test_buffers_are_taken(tmp_path: Path, origin: Path) -> None:
    """The count of batches goes on: three iterations, of which the mixed network has the largest count."""
    run = train(tmp_path, f'model={{{NET}, from="{origin / "a.pt"}"}}', *STILL)
    name = "1.num_batches_tracked"
    assert network(run)[name] == network(origin / "run")[name] + 3 == 15


def test_exceptions_begin_as_without_a_file(tmp_path: Path, origin: Path) -> None:
    plain = train(tmp_path / "plain", f"model={{{NET}}}", *STILL)
    run = train(tmp_path / "new", f'model={{{NET}, from="{origin / "run"}", except=["3.*"]}}', *STILL)
    found, drawn, taken = network(run), network(plain), network(origin / "run")
    for name in "3.weight", "3.bias":
        assert np.array_equal(found[name], drawn[name])
        assert not np.array_equal(found[name], taken[name])
    assert np.array_equal(found["0.weight"], taken["0.weight"])


def test_frozen_arrays_stay_those_of_the_file(tmp_path: Path, origin: Path) -> None:
    """Fine-tuning: the first layer is the file's after all rounds, the last is trained."""
    run = train(tmp_path, f'model={{{NET}, from="{origin / "run"}", except=["3.*"], freeze=["0.*"]}}')
    found, taken = network(run), network(origin / "run")
    assert np.array_equal(found["0.weight"], taken["0.weight"])
    assert not np.array_equal(found["1.weight"], taken["1.weight"])


@pytest.mark.parametrize("user", [False, True])
def test_resumed_to_the_bit_without_the_file(tmp_path: Path, origin: Path, user: bool) -> None:
    """The user's class gets its own arguments only."""
    job = tmp_path / "job"
    job.mkdir()
    shutil.copy(origin / "a.safetensors", job)
    (job / "net.py").write_text(
        "from torch import nn\ndef Net(width): return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))\n"
    )
    name = 'name="net.py:Net", width=16' if user else NET
    run = train(job, f'model={{{name}, from="a.safetensors", freeze=["0.*"], strict=true}}')
    (job / "a.safetensors").unlink()
    trust = ["--trust-code"] * user
    resume(round_file(run, 2), "--out", tmp_path / "again", *trust)
    assert newest(tmp_path / "again") == newest(run)
    (job / "a.safetensors").write_bytes(b"another file")
    resume(round_file(run, 1), "--out", tmp_path / "changed", *trust)
    assert newest(tmp_path / "changed") == newest(run)
    assert events(tmp_path / "changed", "start")[0]["start_file"] == manifest_of(decode(newest(run))).start_file
    for words in (("evaluate", run), ("export", run, "--format", "safetensors", "--output", tmp_path / "b.safetensors")):
        said = partrain(*words, *trust)
        assert said.code == 0, said
    np.savez(tmp_path / "items.npz", inputs=np.zeros((2, 2), np.float32))
    assert partrain("predict", run, "--input", tmp_path / "items.npz", *trust).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("sync", [
    "rule='diloco', iterations=3", "rule='easgd', iterations=3", "rule='gossip', iterations=3",
    "rule='bsp', iterations=3, optimizer_state='local'", "rule='hogwild', iterations=3", "rule='async', iterations=3",
])  # fmt: skip
def test_every_rule_starts_with_the_file(tmp_path: Path, sync: str) -> None:
    train(tmp_path / "other", SIMULATED, 'model={name="mlp", hidden=[16]}', f"sync={{{sync}}}", *STILL)
    file = f'model={{name="mlp", hidden=[16], from="{tmp_path / "other/run"}"}}'
    still = train(tmp_path / "still", SIMULATED, file, "seed=8", f"sync={{{sync}}}", *STILL)
    assert equal(network(still), network(tmp_path / "other/run"))
    if "hogwild" in sync or "async" in sync:
        return
    run = train(tmp_path / "run", SIMULATED, file, "seed=8", f"sync={{{sync}}}")
    (tmp_path / "other/run/checkpoint.h5").unlink()
    resume(round_file(run, 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(run)


def test_runs_from_different_files_are_different_runs(tmp_path: Path, origin: Path) -> None:
    identities = set()
    for name in "a.pt", "a.safetensors":
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(origin / name, folder / "start.pt" if name == "a.pt" else folder / "start.safetensors")
        run = train(folder, f'model={{{NET}, from="start{Path(name).suffix}"}}', *STILL)
        identities.add(decode(newest(run)).run)
    assert len(identities) == 2


@two_cores
@pytest.mark.parametrize("user", [False, True])
def test_a_network_that_does_not_fit_ends_the_run_once(tmp_path: Path, origin: Path, user: bool) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\ndef Net(): return nn.Sequential(nn.Linear(2, 5), nn.Linear(5, 3))\n")
    model = 'name="net.py:Net"' if user else 'name="mlp", hidden=[5]'
    path = write_job(tmp_path, f'model={{{model}, from="{origin / "run"}"}}')
    said = partrain("run", path, "--out", tmp_path / "run", "--quiet")
    assert said.code == 78, said
    assert said.errors == ["bad-job"]
    assert said.err.count("is not of this network") == 1
    assert "shape in the network" in said.err
    assert f"{path}:" in said.err.splitlines()[0]
    assert "other shape" in said.err
    assert not (tmp_path / "run").exists()


def test_without_strict_a_note_says_what_is_missing(tmp_path: Path, origin: Path) -> None:
    model = f'name="mlp", hidden=[16, 4], batch_norm=true, from="{origin / "a.pt"}", strict=false'
    said = partrain("run", write_job(tmp_path, f"model={{{model}}}", *STILL), "--out", tmp_path / "run", "--quiet")
    assert said.code == 0, said
    (note,) = [line for line in said.err.splitlines() if "arrays" in line]
    assert note.startswith(f"partrain: from {origin / 'a.pt'}: 7 of 16 arrays; missing: ")
    found = network(tmp_path / "run")
    assert np.array_equal(found["0.weight"], network(origin / "run")["0.weight"])


def test_renamed_prefixes(tmp_path: Path, origin: Path) -> None:
    state = {f"module.{name}": one for name, one in torch.load(origin / "a.pt", weights_only=True).items()}
    torch.save(state, tmp_path / "a.pt")
    run = train(tmp_path, f'model={{{NET}, from="a.pt", rename={{"module"=""}}}}', *STILL)
    assert np.array_equal(network(run)["0.weight"], network(origin / "run")["0.weight"])


@pytest.mark.slow
def test_two_machines_start_alike(tmp_path: Path, origin: Path) -> None:
    keys = f'model={{{NET}, from="{origin / "run"}"}}'
    alone = train(tmp_path / "alone", keys, "workers.0.count=4", text=MANY)
    job, run = write_job(tmp_path / "job", keys, text=MANY), tmp_path / "run"
    said = Site(tmp_path).run(("run", job, "--out", run, "--quiet"))
    assert [one.code for one in said] == [0, 0], said
    assert equal(network(run), network(alone))


def test_machines_with_unlike_files_do_not_start(tmp_path: Path, origin: Path) -> None:
    jobs = []
    for number in range(2):
        jobs.append(write_job(tmp_path / str(number), f'model={{{NET}, from="a.pt"}}', text=MANY))
        state = torch.load(origin / "a.pt", weights_only=True)
        state["0.bias"] += number
        torch.save(state, jobs[-1].parent / "a.pt")
    said = Site(tmp_path).run(("run", jobs[0], "--out", tmp_path / "run", "--quiet"), ("run", jobs[1], "--quiet"))
    assert [one.code for one in said] == [78, 78], said
    assert all("differs from the first machine's" in one.err for one in said)


@two_cores
def test_a_missing_file_is_reported_at_its_place(tmp_path: Path) -> None:
    path = write_job(tmp_path, 'model={name="mlp", from="nowhere.pt"}')
    (found,) = problems(path)
    assert found.message == f"no such file: {tmp_path / 'nowhere.pt'}"
    line = path.read_text().splitlines()[found.line - 1]
    assert line[found.column - 1 : found.end_column - 1] == '"nowhere.pt"'
    assert partrain("run", path, "--out", tmp_path / "run").code == 66


@two_cores
@pytest.mark.parametrize(("keys", "message", "suggestion"), [
    ('from="a.pt", excpet=["a"]', "unknown key `excpet` in [model]", "did you mean `except`?"),
    ('from="a.pt", strict=1', "`strict`: expected true or false, got 1", "write true"),
    ('from="a.pt", rename={a=1}', "`a`: expected a string, got 1", ""),
    ('from="a.pt", except="a"', '`except`: expected a list, got the string "a"', 'write ["a"]'),
    ("strict=false", "`strict` has no effect without `from`, the file whose arrays the network starts with", ""),
    ("from=3", "`from`: expected a string, got 3", ""),
])  # fmt: skip
def test_wrong_keys(tmp_path: Path, keys: str, message: str, suggestion: str) -> None:
    torch.save({}, tmp_path / "a.pt")
    found = problems(write_job(tmp_path, f'model={{name="mlp", {keys}}}'))
    assert [(one.message, one.suggestion) for one in found] == [(message, suggestion)]


@two_cores
def test_validate_reads_headers_without_torch(tmp_path: Path, origin: Path) -> None:
    paths = [
        write_job(tmp_path / str(number), f'model={{{NET}, from="{origin / name}"}}')
        for number, name in enumerate(["run", "a.pt", "a.safetensors"])
    ]
    damaged = bytearray((origin / "run/checkpoint.h5").read_bytes())
    damaged[2000] ^= 1
    (tmp_path / "damaged.h5").write_bytes(damaged)
    paths.append(write_job(tmp_path / "3", f'model={{{NET}, from="{tmp_path / "damaged.h5"}"}}'))
    program = (
        "import json, sys; from partrain.job.load import problems;"
        "print(json.dumps([[one.message for one in problems(path)] for path in sys.argv[1:]] + ['torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, check=True)
    *fine, damage, imported = json.loads(done.stdout)
    assert fine == [[], [], []]
    assert "damaged.h5" in damage[0]
    assert imported is False


def test_other_runs_write_the_manifest_of_old(tmp_path: Path) -> None:
    run = train(tmp_path, *STILL, text=JOB)
    assert "start_file" not in decode(newest(run)).manifest
    assert manifest_of(decode(newest(run))).start_file is None


@pytest.mark.slow
def test_the_jobs_of_fine_tuning_in_a_short_form(tmp_path: Path) -> None:
    """The second starts from the first, learns other digits, and answers with their names."""
    small = "model.channels=[4, 8]", "model.kernel=3", "model.dense=[32]"
    (tmp_path / "jobs").mkdir()
    for name, *sets in (("mnist-digits-0-4", "stop={rounds=15}"), ("mnist-digits-5-9", "stop={rounds=15}")):
        shutil.copy(JOBS / f"{name}.toml", tmp_path / "jobs")
        flags = [word for one in (*small, *sets) for word in ("--set", one)]
        said = partrain("run", tmp_path / "jobs" / f"{name}.toml", "--out", tmp_path / "runs" / name, "--quiet", *flags)
        assert said.code == 0, said
    first, second = (network(tmp_path / "runs" / name) for name in ("mnist-digits-0-4", "mnist-digits-5-9"))
    assert np.array_equal(first["0.weight"], second["0.weight"])
    assert not np.array_equal(first["8.weight"], second["8.weight"])
    assert summary(tmp_path / "runs/mnist-digits-5-9")["test"]["accuracy"] > 0.5
    np.savez(tmp_path / "items.npz", inputs=np.zeros((1, 28, 28), np.uint8))
    said = partrain("predict", tmp_path / "runs/mnist-digits-5-9", "--input", tmp_path / "items.npz")
    label, digit = map(int, said.out.splitlines()[1].split(",")[1:])
    assert digit == label + 5


@pytest.mark.soak
def test_machines_that_torchrun_restarts_do_not_need_the_file_again(tmp_path: Path, origin: Path) -> None:
    shutil.copy(origin / "a.pt", tmp_path / "a.pt")
    keys = f'model={{{NET}, from="{tmp_path / "a.pt"}"}}', "stop.rounds=60"
    expected = train(tmp_path / "whole", "workers.0.count=4", *keys, text=MANY)
    job, run, port = write_job(tmp_path / "job", *keys, text=MANY), tmp_path / "run", free_port()
    words = "run", job, "--out", run, "--quiet"
    site = Site(tmp_path)
    with site.start(0, port, *words, restarts=2) as first, site.start(1, port, *words, restarts=2) as other:
        eventually(lambda: (run / "checkpoint.h5").exists(), "a checkpoint")
        (tmp_path / "a.pt").unlink()
        os.kill(max(descendants(other.process.pid)), signal.SIGKILL)
        said = [first.wait(180), other.wait(180)]
    assert [one.code for one in said] == [0, 0], said
    assert any(event["resumed_from"] for event in events(run, "start"))
    assert equal(network(run), network(expected))
