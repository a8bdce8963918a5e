"""CONTRIBUTING's tables "how to add" name the files that an addition changes: each is made in a copy of the package, and works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from support.runs import JOB, events

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAME = "added"
"""Stands for NAME in the page's paths."""


class Addition(NamedTuple):
    """An addition to the package."""

    row: str
    """Beginning of its row in CONTRIBUTING, or of its list."""
    files: dict[str, str]
    """New files of the package and their text."""
    edits: dict[str, tuple[str, ...]]
    """Changed files: a text and what it becomes, perhaps several times."""
    words: Sequence[str]
    """Command that uses it."""
    proof: str
    """Text that the command prints, or key of a `round` event."""


HEAD = "from __future__ import annotations\n\n"

RULE = '''"""The last worker's replica counts."""

from typing import Literal

from partrain.protocols import Group, Rule, State, Worker


class Last(Rule):
    """x <- the replica of the last worker, after its local steps."""

    rule: Literal["last"]

    def round(self, worker: Worker, group: Group, state: State) -> None:
        worker.train()
        worker.params.copy_(group.all_gather(worker.params)[-1])
'''

COLUMN = '''"""Columns of positive numbers over several orders of magnitude."""

from dataclasses import dataclass
from typing import Any, ClassVar

from partrain.preprocess.numbers import NumberColumn


@dataclass(frozen=True)
class LogarithmColumn(NumberColumn):
    """The logarithm of a number."""

    key: ClassVar[str] = "logarithms"

    def features(self, column: str) -> list[str]:
        return [f"log {column}"]

    def compute(self, xp: Any, raw: Any) -> Any:
        return xp.log(super().compute(xp, raw))
'''

NETWORK = '''"""One linear layer without bias."""

import math

from torch import nn


def build(section, interface):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(interface.item), math.prod(interface.answer), bias=False))
'''

DATASET = '''"""Points of the plane; the class is the sign of their product."""

from typing import Literal

import numpy as np

from partrain.data.base import DataSection, DatasetInfo, DatasetSpec, fingerprint_of, lay_out, views


class Signs(DataSection):
    """Points and signs."""

    kind: Literal["signs"]


def read_spec(section, folder):
    return DatasetSpec(400, 0, (2,), "classification", 2)


def load(section, folder, allocate, training):
    slots = lay_out({"inputs": ("float32", (400, 2)), "targets": ("int64", (400,))})
    arrays = views(slots, buffer := allocate(slots[-1].end))
    arrays["inputs"][:] = np.random.default_rng(0).normal(size=(400, 2))
    arrays["targets"][:] = arrays["inputs"].prod(1) > 0
    return DatasetInfo(slots, "classification", 2, 1.0, fingerprint_of(slots, buffer)).open(buffer)
'''

ITEMS = '''"""Points of the plane in a file, a line each."""

import numpy as np

from partrain.inference.inputs.sample import of_array


def read_items(network, path, kind, wanted):
    return of_array(network, np.loadtxt(path, ndmin=2), path), None
'''

PROPOSAL = '''"""Jobs for points of the plane."""

from partrain.templates.assemble import Draft, assemble


def propose(path, shown, asked, folder):
    if path.suffix == ".signs":
        return Draft(assemble(path, "Signs.", ['name = "mlp"', "hidden = [8]"], ['kind = "signs"', "validation = 40"], 360))
'''

TABLE = '''"""Tables of fixed width: each cell has eight characters."""

from partrain.data.tables.files import LineFile


class FixedWidth(LineFile):
    """A table of fixed width."""

    def _getter(self, name):
        place = 8 * self.places[name]
        return lambda row: row[place : place + 8].strip()

    def _header(self):
        return next(self._lines())[1].split()

    def _rows(self, *, dense):
        lines = self._lines()
        next(lines)
        return lines

    def _lines(self):
        return enumerate(self.path.read_text().splitlines(), 1)

    def _fault(self, line, row):
        return ""
'''

COMMAND = '''"""`partrain greet`."""

import typer

from partrain.cli.options import Debug
from partrain.cli.shared import examples

app = typer.Typer()


@app.command(epilog=examples("partrain greet"))
def greet(debug: Debug = False) -> None:
    """Print a greeting."""
    print("good morning")
'''

RUN = ("run", "job.toml", "--out", "run", "--json")
NEW_FORM = "kind='signs'"
SHOWN = """
from pathlib import Path

from types import SimpleNamespace

from partrain.display.live_table import frame
from partrain.hooks.prometheus import PrometheusHook
from partrain.hooks.scalars import scalars
from partrain.report.figures import FIGURES, figure
from partrain.report.history import read_history

run = read_history(Path("run"), "run")
assert {row["y"] for row in figure("answer", [run])["data"]["values"]} == {43.0}
table = ["".join(text for text, _ in line) for line in frame(run.state, 0.0, 200, 40)]
titles = next(line for line in table if line.rstrip().endswith("answer"))
metrics = PrometheusHook._workers(SimpleNamespace(_state=run.state))
print(FIGURES["answer"].title, scalars(run.state)["answer"], table[table.index(titles) + 1].split()[-1],
      *(metric.name for metric in metrics if "answer" in metric.name))
"""
"""Prints the added number as four surfaces show it."""

ADDITIONS = [
    Addition(
        "A sync rule",
        {"rules/added.py": RULE},
        {"rules/__init__.py": ("RULES = {\n", 'RULES = {\n    "last": "partrain.rules.added:Last",\n')},
        (*RUN, "--set", "sync={rule='last', iterations=2}"),
        '"status": "finished"',
    ),
    Addition(
        "a form of data",
        {"data/added.py": DATASET, "inference/inputs/added.py": ITEMS, "templates/from_added.py": PROPOSAL},
        {
            "data/forms.py": (
                "FORMS = (\n",
                'FORMS = (\n    DataForm({"signs": "partrain.data.added:Signs"}, *["partrain.data.added"] * 2, suffixes=(".signs",), '
                'items="partrain.inference.inputs.added", proposal="partrain.templates.from_added"),\n',
            )
        },
        (*RUN, "--set", "dataset={kind='signs', validation=40}"),
        '"status": "finished"',
    ),
    Addition(
        "a format of table files",
        {"data/tables/added.py": TABLE},
        {
            "data/tables/formats.py": (
                "FORMATS = (\n",
                "from partrain.data.tables.added import FixedWidth\n\nFORMATS = (\n"
                '    TableFormat("fixed width", (".fwf",), lambda path, dialect, advice: FixedWidth(path, advice, dialect.null_values)),\n',
            )
        },
        (*RUN, "--set", "dataset={kind='table', path='t.fwf', target='y', validation=20}"),
        '"status": "finished"',
    ),
    Addition(
        "a kind of task",
        {},
        {
            "tasks/kinds.py": (
                '"multi-label", "segmentation"]', '"multi-label", "segmentation", "margin"]',
                "class SegmentationKind(",
                'class MarginKind(ClassificationKind):\n    """Classes by a hinge loss."""\n\n    name = "margin"\n    loss_class = "Margin"\n'
                "    keys = ()\n\n\nclass SegmentationKind(",
                "        LanguageKind(),\n", "        LanguageKind(),\n        MarginKind(),\n",
            ),
            "tasks/task.py": (
                "class Segmentation(",
                'class Margin(Classification):\n    """Classes by a hinge loss."""\n\n    plain = False\n\n    def loss(self, answers, targets):\n'
                "        return functional.multi_margin_loss(answers, targets)\n\n\nclass Segmentation(",
            ),
        },
        (*RUN, "--set", "task={kind='margin'}"),
        '"status": "finished"',
    ),
    Addition(
        "a metric of torchmetrics",
        {},
        {
            "tasks/metric_names.py": (
                "NUMBERS = {\n",
                'NUMBERS = {\n    "pearson": KnownMetric("regression:PearsonCorrCoef", bounds=(-1.0, 1.0), counted="num_outputs"),\n',
            )
        },
        (*RUN, "--set", "dataset={kind='csv', path='t.csv', target='x', target_kind='number', one_hot=['y'], validation=20}", "--set", "task={metrics=['pearson']}"),
        '"pearson": ',
    ),
    Addition(
        "a kind of table column",
        {"preprocess/added.py": COLUMN},
        {
            "preprocess/table.py": (
                "KINDS: tuple[type[ColumnKind], ...] = (",
                "from partrain.preprocess.added import LogarithmColumn\n\nKINDS: tuple[type[ColumnKind], ...] = (LogarithmColumn, ",
            ),
            "data/tables/sections.py": (
                "    dates: Columns = []\n",
                '    logarithms: Columns = []\n    """Input columns of which the logarithm is taken."""\n    dates: Columns = []\n',
            ),
        },
        (*RUN, "--set", "dataset={kind='csv', path='t.csv', target='y', logarithms=['x'], validation=20}"),
        '"status": "finished"',
    ),
    Addition(
        "a network",
        {"models/added.py": NETWORK},
        {
            "models/sections.py": (
                "class UserModel(",
                'class Bare(Network):\n    """One linear layer without bias."""\n\n    name: Literal["bare"]\n'
                '    builder: ClassVar[str] = "added"\n    accepts = ("numbers",)\n\n\nclass UserModel(',
            ),
            "models/__init__.py": ("MODELS = {\n", 'MODELS = {\n    "bare": "partrain.models.sections:Bare",\n'),
        },
        (*RUN, "--set", "model={name='bare'}"),
        '"status": "finished"',
    ),
    Addition(
        "a command",
        {"cli/added.py": COMMAND},
        {"cli/main.py": ("COMMANDS = {\n", 'COMMANDS = {\n    "greet": ("added", "Print a greeting."),\n')},
        ("greet",),
        "good morning",
    ),
    Addition(
        "a number per worker and round",
        {},
        {
            "record/round_record.py": (
                "    judged_loss: float",
                '    answer: float = declared("The answer.", 42.0, column=Heading("the", "answer", 6), drawn=Drawn("Answer", "answer"), '
                'metric="answer", scalar="answer")\n    judged_loss: float',
            ),
            "training/loop.py": ("            discarded=worker.tally.discarded,\n", "            discarded=worker.tally.discarded,\n            answer=43.0,\n"),
        },
        RUN,
        "answer",
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("addition", ADDITIONS, ids=[addition.row for addition in ADDITIONS])
def test_an_addition_changes_the_files_that_the_page_names(addition: Addition, tmp_path: Path) -> None:
    package = tmp_path / "partrain"
    shutil.copytree(ROOT / "partrain", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in addition.files.items():
        (package / path).write_text(HEAD + text if not text.startswith('"""') else text.replace("\n\n", f"\n\n{HEAD}", 1))
    for path, changes in addition.edits.items():
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            text = (package / path).read_text()
            assert text.count(old) == 1, (path, old)
            (package / path).write_text(text.replace(old, new))
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{10 ** (row % 7)},{'ab'[row % 7 > 3]}\n" for row in range(400)))
    rows = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()]
    (tmp_path / "t.fwf").write_text("\n".join("".join(f"{cell:8}" for cell in row) for row in rows))
    command = subprocess.run(
        [sys.executable, "-m", "partrain", *addition.words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert command.returncode in (0, 1), command.stderr
    if addition.proof == "answer":
        assert {event["answer"] for event in events(tmp_path / "run") if event["event"] == "round"} == {43.0}
        surfaces = subprocess.run(
            [sys.executable, "-c", SHOWN], cwd=tmp_path, env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True
        )
        assert surfaces.stdout.split() == ["Answer", "43.0", "43.000", "partrain_answer"], surfaces.stderr
    else:
        assert addition.proof in command.stdout
    if addition.words[0] == "run":
        assert json.loads(command.stdout)["rounds"] > 0
    if NEW_FORM in "".join(addition.words):
        (tmp_path / "t.signs").write_text("1 1\n-1 1\n")
        for words in ("init", "new.toml", "--from", "t.signs", "--no-schema"), ("predict", "run", "--input", "t.signs"):
            subprocess.run(
                [sys.executable, "-m", "partrain", *words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": "."}, check=True
            )
        assert "signs" in (tmp_path / "new.toml").read_text()
    assert named_files(addition.row) == {f"partrain/{path.replace(NAME, 'NAME')}" for path in (*addition.files, *addition.edits)}


def test_a_kind_of_device_changes_no_file() -> None:
    """tests/device trains on one that a test's own package registers with torch."""
    assert named_files("a kind of device") == set()


def named_files(row: str) -> set[str]:
    """Return the files of the package that a row of the page says must change, in the words before its first "to show it" or "or"."""
    if row.startswith("A "):
        text = PAGE.partition(f"{row}:\n")[2].partition("Other additions")[0]
        text = "\n".join(re.findall(r"^\d\. (?:One row in `\w+` in )?(`partrain/rules/[^`]*`)", text, re.MULTILINE))
    else:
        text = re.split("; (?:to show it|only for)", next(line for line in PAGE.splitlines() if line.startswith(f"| {row} |")))[0]
    return set(re.findall(r"partrain/[\w/]+\.py", text))
