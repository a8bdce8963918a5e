"""Record what short runs come to, to the bit: a refactoring must leave every array as it was.

    python benchmarks/bits.py record before.json                # every job, and every form of every rule on every transport
    python benchmarks/bits.py record after.json                 # the same, by the other tree
    python benchmarks/bits.py compare before.json after.json    # exit 1 if an array or a number of a summary has changed

A record holds the digest of each array of the last checkpoint: the network, each worker's state, the rule's state, the history. Seeds
are fixed; asynchronous rules run on the simulated transport alone, where their order is fixed too. `--only TEXT` runs what has TEXT in
its name. PYTHONPATH decides whose package runs; without it, this tree's.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py

ROOT = Path(__file__).parents[1]
TIMED = {"seconds", "core_wait", "items_per_second", "seconds_per_round", "folder", "checkpoint", "started", "verdict"}
"""Keys of a summary that differ from run to run."""

CLOUDS = """
name = "clouds"
seed = 3
model = {name = "cnn", channels = [4], dense = [8], batch_norm = true, dropout = 0.2}
optimizer = {name = "sgd", lr = 0.05, momentum = 0.9, batch_size = 8}
workers = [{count = 2}]
stop = {rounds = 4, judge_every = 1}
checkpoint = {commit = "every"}

[dataset]
name = "mnist"
validation = 59_000
"""
"""A small convolutional network with BatchNorm, so that buffers are mixed too; 1,000 items to train on."""

FORMS = {
    "average": 'rule="average"',
    "average equal": 'rule="average", weights="equal", optimizer_state="local", buffers="recalibrate"',
    "average post-local": 'rule="average", schedule="post-local", switch_round=3',
    "average qsr": 'rule="average", schedule="qsr", alpha=0.02',
    "average adacomm": 'rule="average", schedule="adacomm", every=2',
    "average ramp": 'rule="average", ramp_workers=3',
    "bsp": 'rule="bsp"',
    "slowmo": 'rule="slowmo", momentum=0.4',
    "diloco": 'rule="diloco"',
    "fednova": 'rule="fednova"',
    "fedprox": 'rule="fedprox"',
    "scaffold": 'rule="scaffold"',
    "feddyn": 'rule="feddyn"',
    "fedopt": 'rule="fedopt"',
    "fedopt yogi": 'rule="fedopt", server="yogi"',
    "fedopt adagrad": 'rule="fedopt", server="adagrad"',
    "robust": 'rule="robust"',
    "rprop": 'rule="rprop"',
    "rprop irprop+": 'rule="rprop", variant="irprop+"',
    "swap": 'rule="swap"',
    "easgd": 'rule="easgd"',
    "easgd asynchronous": 'rule="easgd", asynchronous=true, visits=3',
    "gossip": 'rule="gossip"',
    "gossip before": 'rule="gossip", order="before"',
    "gossip pairs": 'rule="gossip", style="pairs", topology="complete"',
    "gossip push-sum": 'rule="gossip", style="push-sum", probability=0.5, visits=4',
    "async": 'rule="async", visits=3',
    "async inverse": 'rule="async", visits=3, staleness_weight="inverse", bound=1',
    "async soft-sync": 'rule="async", visits=3, soft_sync=2, parts=3',
    "async compensated": 'rule="async", visits=3, compensation=0.04',
    "hogwild": 'rule="hogwild", visits=3',
    "hogwild local": 'rule="hogwild", visits=3, local=true',
    "threshold": 'rule="threshold", threshold=0.01',
    "threshold mean": 'rule="threshold", threshold=0.01, combine="mean", adaptive=false',
    "topk": 'rule="topk", compressor={kind="topk", density=0.2}',
    "topk fp16": 'rule="topk", compressor={kind="fp16"}, error_feedback=false',
    "choco": 'rule="choco", compressor={kind="topk", density=0.2}',
    "sparseloco": 'rule="sparseloco", density=0.2, chunk=16',
}
ASYNCHRONOUS = {
    "easgd asynchronous", "gossip push-sum", "async", "async inverse", "async soft-sync", "async compensated", "hogwild", "hogwild local",
}  # fmt: skip
OPTIMIZERS = {
    "sgd": "momentum = 0.9, weight_decay = 0.01", "adam": "amsgrad = true", "adamw": "", "nadam": "", "radam": "", "adamax": "",
    "rmsprop": "centered = true", "adagrad": "", "rprop": "", "lbfgs": "", "muon": "",
}  # fmt: skip


def record(file: Path, only: str = "") -> None:
    """Run all cases, and write to the file what they come to."""
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, run in cases(Path(scratch)):
            if only in name:
                results[name] = run()
                print(name, results[name].get("error", ""), flush=True)
    file.write_text(json.dumps(results, indent=1))


def compare(before: Path, after: Path) -> int:
    """Print each case whose results differ between two records, and return the number of such cases."""
    old, new = (json.loads(file.read_text()) for file in (before, after))
    others = 0
    for name in sorted(old.keys() & new.keys()):
        was, now = flat(old[name]), flat(new[name])
        changed = [key for key in was.keys() | now.keys() if was.get(key) != now.get(key)]
        others += bool(changed)
        for key in sorted(changed):
            print(f"{name}: {key}: {str(was.get(key))[:20]} -> {str(now.get(key))[:20]}")
    print(f"{len(old.keys() & new.keys())} cases, {others} others than before; {len(old.keys() ^ new.keys())} in one record only")
    return others


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """List the leaves of nested tables by path."""
    if not isinstance(value, dict):
        return {path: value}
    return {key: leaf for name, part in value.items() for key, leaf in flat(part, f"{path} {name}").items()}


def cases(scratch: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every case: its name, and what runs it."""
    for job in sorted([*(ROOT / "jobs").glob("*.toml"), *(ROOT / "jobs" / "rules").glob("*.toml")]):
        name = str(job.relative_to(ROOT / "jobs"))
        if name in ("mnist-mixed.toml", "rules/overhead.toml"):  # needs CUDA; goes by measured time
            continue
        sets = ["stop={rounds=3, judge_every=1}", "checkpoint={commit='every'}", "transport.kind=simulated"]
        if 'schedule = "qsr"' in job.read_text() or 'schedule = "adacomm"' in job.read_text():
            sets.append("optimizer.horizon=320000")  # rounds imply no end of the learning rate's schedule there
        sets = sets if any(word in job.read_text() for word in ASYNCHRONOUS_JOBS) else [*sets[:2], *sets[3:]]
        yield f"job {name}", lambda job=job, sets=sets: alone(scratch, job, sets)
    clouds = scratch / "clouds.toml"
    clouds.write_text(CLOUDS)
    for form, table in FORMS.items():
        kinds = ["simulated"] if form in ASYNCHRONOUS else ["simulated", "shared", "distributed"]
        for kind in kinds:
            sets = [f"sync={{iterations=3, {table}}}"]
            if kind == "distributed":
                yield f"rule {form}, distributed", lambda sets=sets: together(scratch, clouds, [*sets, "workers.0.count=1"])
            else:
                sets.append(f"transport.kind={kind}")
                yield f"rule {form}, {kind}", lambda sets=sets: alone(scratch, clouds, sets)
    for name, more in OPTIMIZERS.items():
        batch = "" if name in ("rprop", "lbfgs") else "batch_size = 8"
        keys = ", ".join(filter(None, [f"name = '{name}'", "lr = 0.01", batch, more]))
        sets = [f"optimizer={{{keys}}}", "model={name='mlp', hidden=[16]}", "sync={rule='average', iterations=3}"]
        yield f"optimizer {name}", lambda sets=sets: alone(scratch, clouds, sets)


ASYNCHRONOUS_JOBS = ['rule = "async"', 'rule = "hogwild"', "asynchronous = true", '"push-sum"']


def alone(scratch: Path, job: Path, sets: list[str]) -> dict[str, Any]:
    """Run a job on this machine."""
    out = scratch / f"run{len(list(scratch.iterdir()))}"
    return came_to(out, subprocess.run(command(job, out, sets), **PIPES, env=environment()))


def together(scratch: Path, job: Path, sets: list[str]) -> dict[str, Any]:
    """Run a job as two machines with a worker each."""
    out = scratch / f"run{len(list(scratch.iterdir()))}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    machines = [
        subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "1",
                          "--master-addr", "127.0.0.1", "--master-port", str(port), *command(job, out, sets)[1:]],
                         **PIPES, env=environment(GLOO_SOCKET_IFNAME="lo"))
        for number in range(2)
    ]  # fmt: skip
    outputs = [machine.communicate() for machine in machines]
    done = subprocess.CompletedProcess([], machines[0].returncode, *outputs[0])
    return came_to(out, done)


PIPES: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def command(job: Path, out: Path, sets: list[str]) -> list[str]:
    words = [sys.executable, "-m", "partrain", "run", str(job), "--out", str(out), "--json"]
    return [*words, *(word for one in sets for word in ("--set", one))]


def environment(**more: object) -> dict[str, str]:
    """This process's, with this tree's package unless PYTHONPATH names another."""
    return {"PYTHONPATH": str(ROOT), **os.environ, **{name: str(value) for name, value in more.items()}}


def came_to(out: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The exit code, the digests of the last checkpoint, and the summary without what is measured."""
    if done.returncode not in (0, 1):
        return {"code": done.returncode, "error": done.stderr.partition("\n")[0]}
    return {"code": done.returncode, "arrays": digests(out / "checkpoint.h5"), "summary": untimed(json.loads(done.stdout))}


def digests(checkpoint: Path) -> dict[str, str]:
    """SHA-256 of each array but the job's text and the manifest, by path."""
    arrays: dict[str, str] = {}
    with h5py.File(checkpoint) as file:

        def add(path: str, node: Any) -> None:
            if isinstance(node, h5py.Dataset) and path not in ("job", "manifest"):
                arrays[path] = hashlib.sha256(f"{node.dtype.str} {node.shape}".encode() + node[()].tobytes()).hexdigest()

        file.visititems(add)
    return arrays


def untimed(value: Any) -> Any:
    """A summary without the keys that differ from run to run."""
    if isinstance(value, dict):
        return {key: untimed(part) for key, part in value.items() if key not in TIMED}
    return [untimed(part) for part in value] if isinstance(value, list) else value


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--only"]
    if words[0] == "compare":
        sys.exit(compare(Path(words[1]), Path(words[2])) > 0)
    record(Path(words[1]), *words[2:])
