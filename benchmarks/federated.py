"""Simulated clients: rounds per minute beside Flower's simulation, on the same partitions of MNIST.

    python benchmarks/federated.py --flower PYTHON [TURNS]           # PYTHON: an interpreter with `flwr[simulation]` and torch==2.13.0
    python benchmarks/federated.py --flower PYTHON --many [TURNS]    # 10,000 clients, 100 of them in each round

Fifty clients with the items of jobs/federated.toml, ten drawn for each round, one local pass in batches of 20, plain SGD, an MLP 784-128-10. partrain runs
that job without its network and availability, and judges only at the end. With `--many` 10,000 clients have five items each, 100 are drawn for
each round, and partrain trains them in two processes (`[partition] clients`). Both take turns (default 3). Rounds per minute are those between the end of the first round and of the last;
the whole process counts imports, starting Ray, and the last evaluation. Memory: the sum of the proportional set sizes of all processes, the largest of samples each half second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from recording import record

JOB = Path(__file__).parents[1] / "jobs" / "federated.toml"
ROUNDS = 30


class Case(NamedTuple):
    """A number of clients."""

    record: str
    title: str
    drawn: int
    """Clients of a round."""
    sets: tuple[str, ...]
    """Changes of the job."""


FEW = Case("federated", "Simulated clients: partrain and Flower", 10, ())
MANY = Case(
    "federated-many",
    "10,000 simulated clients: partrain and Flower",
    100,
    ("~sync.clients", "partition.clients=10000", "workers=[{count=2, replicas=50}]", "transport={kind='shared'}"),
)
WITHOUT_ABSENCE = "~transport.network", "~transport.availability"


def write_partitions(folder: Path, case: Case) -> Path:
    """Write the items, the partitions of the job and its test items for Flower."""
    from partrain.job.load import load, load_dataset
    from partrain.job.plan import plan_for
    from partrain.launch.folder.start_event import unlike_partitions

    loaded = load(JOB, (*WITHOUT_ABSENCE, *case.sets))
    dataset = load_dataset(loaded)
    assert dataset.test_inputs is not None
    assert dataset.test_targets is not None
    parts = unlike_partitions(loaded.job, plan_for(loaded, dataset), dataset)
    sizes = np.array([len(part) for part in parts])
    np.save(folder / "items.inputs.npy", dataset.inputs.reshape(len(dataset.inputs), -1))
    np.savez(
        folder / "items.npz",
        order=np.concatenate(parts),
        sizes=sizes,
        ends=np.cumsum(sizes),
        labels=dataset.targets,
        test_inputs=dataset.test_inputs.reshape(len(dataset.test_inputs), -1),
        test_labels=dataset.test_targets,
    )
    return folder / "items.npz"


def measured(words: list[str]) -> tuple[str, float, float]:
    """Run a command: its output, the seconds of the whole process, and the peak memory of it and its children in MiB."""
    began, peak = time.perf_counter(), 0.0
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(words, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True) as process,
    ):
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.5)
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{words[0]}: exit code {process.returncode}: {text[-500:]}")
    return text, seconds, peak


def memory(session: int) -> float:
    """Sum the proportional set sizes, in MiB, of a process, of its descendants, and of those that they left in its session."""
    parents: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(after[1]), int(after[3])
        except (OSError, IndexError):
            continue
    ours = {session}
    while more := {pid for pid, (parent, of) in parents.items() if pid not in ours and (parent in ours or of in ours)}:
        ours |= more
    total = 0.0
    for pid in ours:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def own(folder: Path, turn: int, case: Case) -> dict[str, float]:
    """One run of partrain."""
    out = folder / f"run{turn}"
    sets = [
        *WITHOUT_ABSENCE,
        *case.sets,
        f"stop={{rounds={ROUNDS + 1}, judge_every={ROUNDS + 1}}}",
        f"seed={turn}",
    ]
    words = [
        sys.executable,
        "-m",
        "partrain",
        "run",
        str(JOB),
        "--out",
        str(out),
        "-q",
        *(part for one in sets for part in ("--set", one)),
    ]
    _, seconds, peak = measured(words)
    moments: dict[int, float] = {}
    for line in (out / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "round":
            moments[event["round"]] = max(event["t"], moments.get(event["round"], 0.0))
    return {
        "rounds per minute": 60 * ROUNDS / (moments[ROUNDS + 1] - moments[1]),
        "whole process, s": seconds,
        "peak memory, MiB": peak,
        "test accuracy": json.loads((out / "summary.json").read_text())["test"]["accuracy"],
    }


def flower(python: str, data: Path, case: Case) -> dict[str, float]:
    """One run of Flower."""
    words = [
        python,
        str(Path(__file__).parent / "peers" / "flower_mlp.py"),
        str(data),
        f"--rounds={ROUNDS}",
        f"--clients={case.drawn}",
    ]
    text, seconds, peak = measured([*words, "--rate=0.1", "--batch=20", "--cores=2"])
    result = json.loads(text.splitlines()[-1])
    return {
        "rounds per minute": 60 * ROUNDS / result["seconds"],
        "whole process, s": seconds,
        "peak memory, MiB": peak,
        "test accuracy": result["accuracy"],
    }


def main() -> None:
    """Measure both in turn, and record the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flower", required=True)
    parser.add_argument("turns", nargs="?", type=int, default=3)
    parser.add_argument("--many", action="store_true")
    arguments = parser.parse_args()
    case = MANY if arguments.many else FEW
    rows: dict[str, dict[str, list[float]]] = {"partrain": {}, "Flower 1.42": {}}
    with tempfile.TemporaryDirectory() as folder:
        data = write_partitions(Path(folder), case)
        for turn in range(arguments.turns):
            for name, result in (
                ("partrain", own(Path(folder), turn, case)),
                ("Flower 1.42", flower(arguments.flower, data, case)),
            ):
                print(name, result, flush=True)
                for key, value in result.items():
                    rows[name].setdefault(key, []).append(round(value, 4))
    table: list[dict[str, Any]] = [{"program": name, **columns} for name, columns in rows.items()]
    record(case.record, case.title, table, notes=[__doc__.split("\n\n")[2]])


if __name__ == "__main__":
    main()
