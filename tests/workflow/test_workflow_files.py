"""The workflows in jobs/workflows: each is valid, and runs in a short form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import partrain

FOLDER = Path(__file__).parents[2] / "jobs" / "workflows"
FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_valid_and_explains_itself(file: Path) -> None:
    said = partrain("validate", file)
    assert said.code == 0, said
    assert file.read_text().startswith("# ")


def test_the_mnist_study_in_a_short_form(tmp_path: Path) -> None:
    """Two rules, one rate, no seeds; the best is trained for sixty rounds."""
    text = (FOLDER / "mnist.toml").read_text().replace('"../', f'"{FOLDER.parent}/')
    for old, new in [
        ('["average", "slowmo", "bsp"]', '["average", "slowmo"]'), ("[0.1, 0.2, 0.4], seeds = 2", "[0.2]"),
        ("rounds = 60", "rounds = 20"), ("rounds = 200", "rounds = 60"), ("000160", "000040"), ("000180", "000050"), ("0.97", "0.9"),
    ]:  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "study.toml").write_text(text)
    said = partrain("run", tmp_path / "study.toml", "--out", tmp_path / "runs", "--json")
    assert said.code == 0, said
    assert {step["status"] for step in json.loads(said.out)["steps"]} == {"done"}
    assert (tmp_path / "runs/onnx/mnist.onnx").stat().st_size > 100_000
    again = json.loads(partrain("run", tmp_path / "study.toml", "--out", tmp_path / "runs", "--json").out)
    assert {step["status"] for step in again["steps"]} == {"unchanged"}


def test_the_wine_study_in_a_short_form(tmp_path: Path) -> None:
    """One size, two folds; the best rate trains the last network, whose answers are written for all wines."""
    folder = FOLDER.parent
    text = (FOLDER / "wine.toml").read_text().replace('"../../', f'"{folder.parent}/').replace('"../', f'"{folder}/')
    for old, new in [("[[4], [16]], k_folds = 5", "[[16]], k_folds = 2"), ("[0.003, 0.01, 0.03]", "[0.003, 0.03]")]:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "study.toml").write_text(text)
    said = partrain("run", tmp_path / "study.toml", "--out", tmp_path / "runs", "--json")
    assert said.code == 0, said
    assert [step["status"] for step in json.loads(said.out)["steps"]] == ["done"] * 7
    assert (tmp_path / "runs/answers/answers.csv").read_text().count("\n") == 179
