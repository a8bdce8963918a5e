"""Writes a table from the runs of several sweeps: function_fit.py TABLE.md SWEEP_FOLDER... (standard library only)."""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

PUBLISHED = {
    (1, 0.0001): (154_380_000, 1_240_000), (2, 0.0001): (17_600, 17_600), (4, 0.0001): (10_000, 10_000),
    (1, 0.001): (15_000, 10_000), (2, 0.001): (8_000, 8_000), (1, 0.01): (5_000, 5_000), (2, 0.01): (3_200, 3_200),
}  # fmt: skip
"""Item-iterations per worker (a mean), by workers and the older trainer's learning rate: as published, and counted correctly."""
HEAD = (
    "step", "workers", "older lr", "published", "counted right", "items/worker", "items in all", "reached", "judged loss", "test loss",
    "time",
)  # fmt: skip


def middle(values: list[float]) -> float:
    """Return the median."""
    return float(statistics.median(values))


def row(step: str, settings: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize the runs of one combination, which differ by their seed."""
    return {
        "step": step,
        "workers": len(runs[0]["workers"]),
        "rate": round(2 * settings["optimizer.lr"], 10),
        "each": middle([run["item_iterations"] / len(run["workers"]) for run in runs]),
        "all": middle([run["item_iterations"] for run in runs]),
        "reached": sum(run["status"] == "reached" for run in runs),
        "runs": len(runs),
        "loss": middle([run["loss"] for run in runs]),
        "test": middle([run["test"]["loss"] for run in runs]),
        "seconds": middle([run["seconds"]["train"] for run in runs]),
    }


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of one sweep in the order of workers and learning rate."""
    found = []
    for combination in json.loads((folder / "sweep.json").read_text())["rows"]:
        runs = [json.loads((folder / name / "summary.json").read_text()) for name in combination["runs"]]
        found.append(row(folder.name, combination["settings"], runs))
    return sorted(found, key=lambda one: (one["workers"], one["rate"]))


def cells(one: dict[str, Any], alone: float | None) -> list[str]:
    """Return a row as text. `alone`: seconds of one worker at the same learning rate."""
    published = PUBLISHED.get((one["workers"], one["rate"]), ())
    return [
        one["step"],
        str(one["workers"]),
        f"{one['rate']:g}",
        *([f"{count:,}" for count in published] or ["", ""]),
        f"{one['each']:,.0f}",
        f"{one['all']:,.0f}",
        f"{one['reached']}/{one['runs']}",
        f"{one['loss']:.5f}",
        f"{one['test']:.5f}",
        f"{one['seconds'] / alone:.2f}" if alone else "",
    ]


def main(target: str, *folders: str) -> None:
    """Write the table."""
    found = [one for folder in folders for one in rows(Path(folder).resolve())]
    alone = {one["rate"]: one["seconds"] for one in found if one["workers"] == 1}
    lines = [HEAD, ["---"] * len(HEAD)]
    lines += [cells(one, alone.get(one["rate"])) for one in found]
    Path(target).write_text("".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
