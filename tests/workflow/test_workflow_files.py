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
    assert file.read_text().splitlines()[1].startswith("# ")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_older_trainers_table_in_a_short_form(tmp_path: Path) -> None:
    """One seed, the largest learning rate, a cap of 20,000 items per worker; the asserts of the file hold."""
    text = (FOLDER / "function-fit.toml").read_text().replace('"../', f'"{FOLDER.parent}/')
    for old, new in [
        ("seeds = 3", "seeds = 1"), ("[0.00005, 0.0005, 0.005]", "[0.005]"), ("[30000, 200000, 100000]", "[20000]"), ("[2, 4, 2, 2]", "[2]"),
        ("[2880, 1800, 2880, 2880]", "[2880]"), ("[3, 5, 3, 3]", "[3]"),
        ("[0.00005, 0.00005, 0.0005, 0.005]", "[0.005]"), ("[60000, 120000, 400000, 200000]", "[40000]"),
    ]:  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "study.toml").write_text(text)
    (tmp_path / "function_fit.py").write_text((FOLDER / "function_fit.py").read_text())
    said = partrain("run", tmp_path / "study.toml", "--out", tmp_path / "runs", "--json")
    assert said.code == 0, said
    assert {step["status"] for step in json.loads(said.out)["steps"]} == {"done"}
    head, _, *rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (tmp_path / "runs/table/function-fit.md").read_text().splitlines()
    ]
    table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(table) == ["one", "several"]
    several = table["several"]
    assert (several["workers"], several["published"], several["reached"] in ("0/1", "1/1")) == ("2", "3,200", True)
    passes, items = divmod(int(several["items in all"].replace(",", "")), 2880)
    assert (passes >= 1, items) == (True, 0), "whole passes over a partition"
    assert int(several["items/worker"].replace(",", "")) > int(several["published"].replace(",", ""))
    again = json.loads(partrain("run", tmp_path / "study.toml", "--out", tmp_path / "runs", "--json").out)
    assert {step["status"] for step in again["steps"]} == {"unchanged"}
