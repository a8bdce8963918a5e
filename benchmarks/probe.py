"""Predictions of `partrain plan --probe` against runs: seconds, memory, bytes, and whether one more worker pays.

    python benchmarks/probe.py                          # all jobs, recorded: half an hour on an idle machine
    python benchmarks/probe.py mlp bsp                  # only those with a word in their name

A first run of each job finds the number of rounds that take 2.5 seconds. `plan --probe` predicts that job, which then runs twice, in turn
with the same job of one more worker. Memory is that of all processes at its highest, without pages of files.

"Pays" is right if one more worker gave more item-iterations per second; "does not pay" is right unless it gave 5 % more, the margin of `plan`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from recording import record
from runs import rate

from partrain.bench.compare import facts
from partrain.bench.peak_memory import PeakMemory
from partrain.job.plan import PAYS

JOBS = Path(__file__).parents[1] / "jobs"
SECONDS = 2.5
MNIST, CNN, LSTM, TRANSFORMER = "mnist", "mnist-cnn", "text-lstm", "text-transformer"
ERRORS = ["error of seconds per round", "error of memory", "error of bytes", "error of seconds to the stop"]
COLUMNS = ["job", "workers", "seconds per round", ERRORS[0], "memory", ERRORS[1], "bytes per round", ERRORS[2], "seconds to the stop", ERRORS[3],
           "gain predicted", "gain measured", "told", "right"]  # fmt: skip


def cases() -> Iterator[tuple[str, str, int, list[str]]]:
    """Yield name, job, workers and overrides of each case."""
    for count in (1, 2, 4):
        yield "mlp", MNIST, count, []
        yield "lstm", LSTM, count, []
        yield "transformer", TRANSFORMER, count, []
    for count in (1, 2):
        yield "cnn", CNN, count, ["sync.iterations=4"]
        yield "mlp, judged every round", MNIST, count, ["stop.judge_every=1"]
        yield "mlp, bsp", "rules/bsp", count, []
    for iterations in (1, 3, 30, 100):
        yield f"mlp, {iterations} iterations", MNIST, 1, [f"sync.iterations={iterations}"]
    for batch in (8, 512):
        yield f"mlp, batches of {batch}", MNIST, 1, [f"optimizer.batch_size={batch}"]
    yield "mlp, 1 iteration", MNIST, 2, ["sync.iterations=1"]
    yield "mlp of 1,024 and 1,024", MNIST, 1, ["model.hidden=[1024, 1024]"]
    yield "lstm, 1 iteration", LSTM, 1, ["sync.iterations=1"]
    for rule in ("slowmo", "diloco", "easgd", "async", "hogwild", "topk", "threshold", "fp16", "post-local"):
        yield rule, f"rules/{rule}", 1, []
    yield "adacomm", "rules/adacomm", 1, ["optimizer.schedule='constant'", "optimizer.warmup=0"]
    for rule in ("choco", "gossip", "rprop"):
        yield rule, f"rules/{rule}", 2, []


def partrain(*words: str) -> tuple[dict[str, Any], int]:
    """Return what a command prints as JSON, and the most memory of its processes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = subprocess.Popen([sys.executable, "-m", "partrain", *words, "--json"], stdout=out, stderr=err)
        with PeakMemory(command.pid) as memory:
            code = command.wait()
        out.seek(0)
        err.seek(0)
        if code not in (0, 1):
            raise RuntimeError(err.read().decode())
        return json.loads(out.read()), memory.take()


def trained(job: str, count: int, sets: list[str]) -> dict[str, float]:
    """Run a job, and return what it took."""
    with tempfile.TemporaryDirectory() as scratch:
        summary, memory = partrain("run", *words(job, count, sets), "--out", f"{scratch}/run")
        sent = facts(Path(scratch, "run"))["bytes_per_round"]
    seconds, rounds = summary["seconds"]["train"], summary["rounds"]
    return {"round": seconds / rounds, "memory": memory, "bytes": float(sent or 0), "end": seconds, "rate": rate(summary), "rounds": rounds}  # fmt: skip


def words(job: str, count: int, sets: list[str]) -> list[str]:
    """Return the words of a command for a job with some workers."""
    pairs = [f"workers=[{{count={count}}}]", *sets]
    return [str(JOBS / f"{job}.toml"), *(word for pair in pairs for word in ("--set", pair))]


def row(name: str, job: str, count: int, sets: list[str], runs: int) -> dict[str, str | float]:
    """Predict and run a job."""
    judge = [change.removeprefix("stop.") for change in sets if change.startswith("stop.")]
    sets = [change for change in sets if not change.startswith("stop.")]

    def until(end: str) -> list[str]:
        return [*sets, f"stop={{{', '.join([end, *judge])}}}"]

    rounds = max(2, round(trained(job, count, until(f"rounds=100_000, seconds={SECONDS}"))["rounds"]))
    stop = until(f"rounds={rounds}")
    probe = partrain("plan", *words(job, count, stop), "--probe")[0]["probe"]
    alone, wider = [], []
    for _ in range(runs):
        alone.append(trained(job, count, stop))
        wider.append(trained(job, count + 1, stop))
    now, predicted = {key: mean(run[key] for run in alone) for key in alone[0]}, probe["now"]
    pairs = [
        (predicted["seconds_per_round"], now["round"]),
        (predicted["memory"], now["memory"]),
        (predicted["bytes_per_round"], now["bytes"]),
        (probe["seconds_to_end"], now["end"]),
    ]
    gain = mean(run["rate"] for run in wider) / now["rate"]
    right = was_right(gain, pays=probe["pays"])
    numbers = [number for expected, seen in pairs for number in (seen, expected / seen - 1 if seen else float(bool(expected)))]
    said = "pays" if probe["pays"] else "does not pay"
    values = [name, str(count), *numbers, probe.get("gain", "-"), gain, said, "yes" if right else "no"]
    return dict(zip(COLUMNS, values, strict=True))


def was_right(gain: float, *, pays: bool) -> bool:
    """Return whether `plan` was right about one more worker, which gave `gain` times the item-iterations per second."""
    return gain > 1 if pays else gain <= PAYS


def main() -> None:
    """Print a row for each job, then the medians of the errors and the share of right answers."""
    parser = ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    rows = []
    for name, job, count, sets in cases():
        if not options.names or any(word in name for word in options.names):
            rows.append(row(name, job, count, sets, options.runs))
            print(rows[-1], flush=True)
    errors = [f"{column.removeprefix('error of ')} {median(abs(float(line[column])) for line in rows):.1%}" for column in ERRORS]
    right = sum(line["right"] == "yes" for line in rows)
    notes = [f"Median errors: {', '.join(errors)}. Whether one more worker pays: right in {right} of {len(rows)}."]
    print(*notes, sep="\n")
    if not options.names:
        record("probe", "`plan --probe` against runs", rows, notes=notes)


if __name__ == "__main__":
    main()
