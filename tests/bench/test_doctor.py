"""The examination of the environment, and its tests of the devices."""

from __future__ import annotations

import importlib.metadata
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.runs import partrain

from partrain.bench import doctor
from partrain.errors import WorkersLost


def test_facts_are_those_of_this_environment() -> None:
    said = partrain("doctor", "--json")
    assert said.code == 0, said.err
    found = {(each["group"], each["name"]): each["value"] for each in json.loads(said.out)}
    assert found["versions", "torch"].startswith(importlib.metadata.version("torch"))
    assert found["extras", "onnx"].startswith(f"onnx {importlib.metadata.version('onnx')}, ")
    assert found["machine", "cores"].partition(" ")[0].isdigit()
    assert ("devices", "cpu") in found


def test_extras_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["typer>=0.15", "pillow>=10; extra == 'images'", 'nothing-at-all>=1 ; extra == "odd"', "pytest>=8; extra == 'dev'"]
    lines += ["torchft>=0.2; extra == 'audit'", "partrain[mlflow]; extra == 'integrations'", "mkdocs; extra == 'docs'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: lines)
    assert doctor.extras() == {"images": {"pillow": importlib.metadata.version("pillow")}, "odd": {"nothing-at-all": ""}}
    facts = {each.name: each.value for each in doctor.facts()}
    assert facts["odd"] == "not installed: pip install 'partrain[odd]'"


def test_low_limits_are_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (64, 64))
    advice = {each.name: each.advice for each in doctor.facts()}
    assert advice["open files"] == "many workers need more open files: ulimit -n 64"
    assert "ulimit -f unlimited" in advice["file size"]
    assert "to look at:" in doctor.render(list(doctor.facts()))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_missing_compiler_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {each.name: each.advice for each in doctor.facts()}["C compiler"] == ""
    monkeypatch.setenv("CC", "no-such-cc")
    (fact,) = (each for each in doctor.facts() if each.name == "C compiler")
    assert "no-such-cc" in fact.value
    assert "autograd" in fact.advice


@pytest.mark.representative
def test_every_device_trains_and_repeats_itself() -> None:
    said = partrain("doctor", "--test")
    assert said.code == 0, said.out
    assert "training on cpu  2 workers, loss " in said.out
    assert said.out.endswith("no problem found\n")


def test_other_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = doctor._trained, iter(range(10))

    def unlike(loaded: Any, folder: Path) -> dict[str, Any]:
        return real(loaded, folder) | {"file": b"%d" % next(calls)}

    monkeypatch.setattr(doctor, "_trained", unlike)
    monkeypatch.setattr(doctor.accelerator, "found", lambda: iter(()))
    (fact,) = doctor.check_devices()
    assert fact.advice.startswith("a second run gave other bits; a resumed run gave other bits; ")


def test_a_device_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> dict[str, Any]:
        raise WorkersLost("worker 0 is gone")

    monkeypatch.setattr(doctor, "_trained", fail)
    said = partrain("doctor", "--test")
    assert said.code == 1
    assert "training on cpu: worker 0 is gone" in said.out
