"""Imports that wait until they are needed."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from partrain.launch import forkserver
from partrain.system.postponed import postponed
from partrain.tasks.known_metrics import import_torchmetrics


@pytest.fixture
def dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the name of a module with functions, of which the module `user` imports `wanted`."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "dear").mkdir()
    (tmp_path / "dear" / "__init__.py").write_text("")
    (tmp_path / "dear" / "deep.py").write_text("def wanted(number):\n    return number + 1\n\nOTHER = 7\n")
    (tmp_path / "user.py").write_text("from dear.deep import wanted\n")
    (tmp_path / "greedy.py").write_text("from dear.deep import OTHER\n")
    for name in "dear", "dear.deep", "user", "greedy":
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "dear.deep"


def test_a_function_is_there_and_its_module_comes_with_the_first_call(dear: str) -> None:
    with postponed(dear, "wanted"):
        user = import_module("user")
    assert not {"dear", dear} & sys.modules.keys()
    assert user.wanted(1) == 2
    assert import_module(dear).OTHER == 7


def test_whatever_else_is_used_comes_at_once(dear: str) -> None:
    with postponed(dear, "wanted"):
        assert import_module("user").wanted
        assert import_module("greedy").OTHER == 7
    assert sys.modules[dear].OTHER == 7


def test_a_module_that_is_there_already_stays(dear: str) -> None:
    module = import_module(dear)
    with postponed(dear, "wanted"):
        assert import_module("user").wanted is module.wanted
    assert sys.modules[dear] is module


def import_metrics(pipe: Connection) -> None:
    import_torchmetrics()
    pipe.send({"torch._dynamo", "scipy.signal"} & sys.modules.keys())


def test_metrics_come_without_compilers_and_filters() -> None:
    """They took four more seconds in each worker; torchvision comes with torchmetrics."""
    if find_spec("torchvision") is None or find_spec("torchmetrics") is None:
        pytest.skip("needs torchmetrics and torchvision")
    context = forkserver.start()
    ours, theirs = context.Pipe()
    process = context.Process(target=import_metrics, args=(theirs,))
    with forkserver.without_main():
        process.start()
    assert ours.recv() == set()
    process.join()
    process.close()
    ours.close()
    theirs.close()
