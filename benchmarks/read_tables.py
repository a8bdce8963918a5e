"""Reading of large tables: `init`, loading and `predict`, beside polars, pandas and DuckDB that do the same encoding. CPU seconds of whole processes.

    python benchmarks/read_tables.py                       # 100,000 x 20, 300,000 x 23 and 1,000,000 x 23; recorded
    python benchmarks/read_tables.py 30000                 # another number of rows, printed
    python benchmarks/read_tables.py 300000 --old FOLDER   # beside the checkout in FOLDER, in turn

The table: numbers of four decimals, two columns of words, a class that depends on some of them. The encoding: numbers standardised,
words as codes, classes as labels, in float32. Each process starts anew, so imports count; the best of two turns stands for each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from recording import record

SIZES = ((100_000, 17), (300_000, 20), (1_000_000, 20))
"""Rows, and columns of numbers, beside which there are three others."""
TURNS = 2
HERE = Path(__file__).parents[1]

LOAD = """
import sys
from pathlib import Path
import numpy
from partrain.data.tables.load import load
from partrain.data.tables.sections import Csv, Parquet
kind = {".csv": Csv, ".parquet": Parquet}[Path(sys.argv[1]).suffix]
section = kind(kind=kind.model_fields["kind"].annotation.__args__[0], path=sys.argv[1], target=["y"], categories=["city", "color"], test_share=0.15)
data = load(section, Path("."), lambda size: memoryview(bytearray(size)), lambda items, *_: numpy.arange(items))
assert data.inputs.dtype == numpy.float32
"""
ENCODED = """
import sys
import numpy as np
{read}
inputs = np.empty((len(frame), len(names)), np.float32)
for place, name in enumerate(names):
    inputs[:, place] = (columns[name] - columns[name].mean()) / columns[name].std()
"""
POLARS = """
import polars
frame = polars.read_{form}(sys.argv[1])
names = [name for name in frame.columns if name != "y"]
columns = {}
for name, kind in frame.schema.items():
    column = frame[name]
    if kind == polars.String:
        words = column.unique().sort()
        column = column.replace_strict(words, polars.Series(range(len(words))), return_dtype=polars.Int64)
    columns[name] = column.to_numpy()
"""
PANDAS = """
import pandas
frame = pandas.read_{form}(sys.argv[1])
names = [name for name in frame.columns if name != "y"]
columns = {name: frame[name].astype("category").cat.codes.to_numpy() if frame[name].dtype.kind not in "if" else frame[name].to_numpy() for name in frame.columns}
"""
DUCKDB = """
import duckdb
base = duckdb.connect()
base.execute("create table items as from read_{form}(?)", [sys.argv[1]])
types = {name: kind for name, kind, *_ in base.execute("describe items").fetchall()}
texts = [name for name, kind in types.items() if kind == "VARCHAR"]
for name in texts:
    base.execute(f'create type "{name} words" as enum (select distinct "{name}" from items order by 1)')
codes = ", ".join(f'enum_code("{name}"::"{name} words") as "{name}"' for name in texts)
columns = base.execute(f"select * replace ({codes}) from items").fetchnumpy()
frame, names = columns["y"], [name for name in types if name != "y"]
"""


def table(rows: int, numbers: int, folder: Path) -> None:
    """Write the table as CSV and as Parquet."""
    import polars

    draw = np.random.default_rng(rows)
    values = draw.normal(size=(rows, numbers)).round(4)
    cities, colors = draw.integers(0, 30, rows), draw.integers(0, 4, rows)
    score = values[:, 0] + np.sin(2 * values[:, 1]) + values[:, 2] * values[:, 3] + 0.3 * colors + 0.05 * cities - 1.5
    columns: dict[str, Any] = {f"x{place}": values[:, place] for place in range(numbers)}
    columns["city"] = [f"city{city}" for city in cities]
    columns["color"] = np.array(["red", "green", "blue", "grey"])[colors].tolist()
    columns["y"] = np.where(score + 0.2 * draw.normal(size=rows) > 0, "yes", "no").tolist()
    frame = polars.DataFrame(columns)
    frame.write_csv(folder / "table.csv")
    frame.write_parquet(folder / "table.parquet")


def cost(words: list[str], folder: Path, checkout: Path) -> tuple[float, int]:
    """Return the CPU seconds of a process and its children, and the most memory of one of them in MiB."""
    with (folder / "errors").open("w+") as errors:
        child = subprocess.Popen([sys.executable, *words], cwd=folder, env=os.environ | {"PYTHONPATH": str(checkout)}, stdout=subprocess.DEVNULL, stderr=errors)  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(words)[:200]} failed: {errors.read()[-300:]}")
    return round(used.ru_utime + used.ru_stime, 2), used.ru_maxrss // 1024


def tasks(folder: Path) -> Iterator[tuple[str, str, list[str], bool]]:
    """Yield the form of the file, the task, the words of its process, and whether it is partrain's."""
    for form in ("csv", "parquet"):
        file = f"table.{form}"
        target = folder / f"job-{form}.toml"
        yield form, "init", ["-m", "partrain", "init", str(target), "--from", file, "--target", "y", "--no-schema"], True
        yield form, "load", ["-c", LOAD, file], True
        yield form, "predict", ["-m", "partrain", "predict", "run", "--input", file, "--output", f"answers-{form}.csv", "--force"], True  # fmt: skip
        for name, read in (("polars", POLARS), ("pandas", PANDAS), ("duckdb", DUCKDB)):
            if find_spec(name) is None:
                print(f"{name} is not installed: it is left out")
                continue
            yield form, name, ["-c", ENCODED.replace("{read}", read.replace("{form}", form)), file], False


def measure(rows: int, numbers: int, checkouts: dict[str, Path]) -> Iterator[dict[str, Any]]:
    """Yield a row for each form of file and task: the CPU seconds of each checkout, and the memory of the first one."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # In a process of its own: the peak of a child counts the memory of its parent.
        writer = get_context("spawn").Process(target=table, args=(rows, numbers, folder))
        writer.start()
        writer.join()
        small = folder / "small.csv"
        with (folder / "table.csv").open() as file:
            small.write_text("".join(next(file) for _ in range(5_001)))
        cost(["-m", "partrain", "init", "job.toml", "--from", "small.csv", "--target", "y", "--no-schema"], folder, HERE)
        short = ["--set", "stop.rounds=1", "--set", "model={name='mlp', hidden=[32]}", "--set", "dataset.categories=[]", "--set", "dataset.one_hot=['city', 'color']"]  # fmt: skip
        cost(["-m", "partrain", "run", "job.toml", "--out", "run", "-q", *short], folder, HERE)
        for form, task, words, ours in tasks(folder):
            seconds, memory = dict[str, list[float]](), list[int]()
            for _ in range(TURNS):
                for name, checkout in checkouts.items() if ours else [("here", HERE)]:
                    if task == "init":
                        Path(words[3]).unlink(missing_ok=True)
                    taken, peak = cost(words, folder, checkout)
                    seconds.setdefault(f"CPU s, {name}", []).append(taken)
                    memory += [peak] if name == "here" else []
            yield {"table": f"{rows:,} x {numbers + 3}", "file": form, "task": task, **seconds, "MiB": max(memory)}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("rows", nargs="*", type=int)
    words.add_argument("--old", type=Path)
    asked = words.parse_args()
    checkouts = {"here": HERE} | ({"old": asked.old} if asked.old else {})
    rows = []
    for count, numbers in [(rows, 20) for rows in asked.rows] or SIZES:
        for row in measure(count, numbers, checkouts):
            print(*row.values(), sep="\t", flush=True)
            rows.append(row)
    if not asked.rows:
        record("read-tables", "Reading of large tables", rows, notes=[(__doc__ or "").split("\n\n")[2]])


if __name__ == "__main__":
    main()
