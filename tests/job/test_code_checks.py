"""`validate` looks at user code without running it: names, arguments, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from partrain.job.load import problems

JOB = """\
name = "own"
model = {{ {model} }}
dataset = {{ kind = "synthetic", function = "blobs", validation = 100 }}
optimizer = {{ name = "sgd", lr = 0.1 }}
sync = {{ rule = "average", iterations = 10 }}
workers = [{{}}]
stop = {{ rounds = 1 }}
task = {{ {task} }}
"""
CODE = """\
import torch
from elsewhere import Module as Other
from torch import nn
from torch.nn import Module
import partrain

if True:
    def chosen(): ...
else:
    chosen = None

class Net(nn.Module):
    def forward(self, items): ...

class Plain:
    pass

class Deeper(Net):
    inner = 1

class Direct(Module): ...
class Unknown(Other): ...
class Both(Net, Plain): ...
class Made(nn.Module):
    def __new__(cls, **keys): ...
class Own(partrain.Task):
    def loss(self, answers, targets): ...
class Taking(partrain.Task):
    def __init__(self, focal): ...

def rate(answers, targets): ...
raise SystemExit("this file is never run")
"""


def said(folder: Path, model: str = 'name = "linear"', task: str = 'kind = "classification"') -> list[str]:
    (folder / "own.py").write_text(CODE)
    job = folder / "job.toml"
    job.write_text(JOB.format(model=model, task=task))
    return [f"{one.line}:{one.column} {one.message}; {one.suggestion}" for one in problems(job) if one.severity == "error"]


@pytest.mark.parametrize("name", ["Net", "Deeper", "Direct", "Plain"])
def test_keys_of_a_class_without_a_constructor(tmp_path: Path, name: str) -> None:
    (found,) = said(tmp_path, f'name = "own.py:{name}", depth = 3')
    assert found.startswith("2:")
    assert found.endswith(f" `own.py:{name}` takes no argument `depth`; it takes no arguments")


@pytest.mark.parametrize("name", ["Unknown", "Both", "Made"])
def test_keys_of_a_class_whose_constructor_is_elsewhere(tmp_path: Path, name: str) -> None:
    assert said(tmp_path, f'name = "own.py:{name}", depth = 3') == []


def test_keys_of_the_built_in_tasks_beside_an_own_one(tmp_path: Path) -> None:
    (found,) = said(tmp_path, task='name = "own.py:Own", class_weights = "balanced"')
    assert found == (
        "8:31 `own.py:Own` takes no argument `class_weights`; a key of the built-in tasks: do it in `loss`, or take it as an argument"
    )
    assert said(tmp_path, task='name = "own.py:Taking", focal = 2') == []


def test_methods_are_no_names_of_a_module(tmp_path: Path) -> None:
    for name in ("forward", "loss", "inner"):
        (found,) = said(tmp_path, f'name = "own.py:{name}"')
        assert found == f"2:18 `own.py` has no `{name}`; it has Both, Deeper, Direct, Made, Net, Own, Plain, Taking"
    assert said(tmp_path, 'name = "own.py:chosen"') == []


def test_own_metrics_are_looked_for_in_their_file(tmp_path: Path) -> None:
    assert said(tmp_path, task='metrics = ["own.py:rate"]') == []
    (found,) = said(tmp_path, task='metrics = ["own.py:rate", "own.py:rats"]')
    assert found == "8:36 `own.py` has no `rats`; did you mean `rate`?"
    (found,) = said(tmp_path, task='metrics = ["owm.py:rate"]')
    assert found == "8:21 no file `owm.py` next to the job; "
    (found,) = said(tmp_path, task='metrics = ["no_such_package:rate"]')
    assert found.startswith("8:21 no module `no_such_package` in this Python environment")
