"""Faults found in a review: each was once a defect, or passed silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import JOB, partrain, write_job

TABLE = "\n".join(["x,y,kind", *(f"{i / 7:.3f},{(i * i) % 11},{'ab'[i % 2]}" for i in range(80))]) + "\n"


def job(folder: Path, dataset: str, *sets: str, text: str = JOB) -> Path:
    """Return the small job with another data set."""
    start, end = text.index("[dataset]"), text.index("[optimizer]")
    return write_job(folder, *sets, text=f"{text[:start]}[dataset]\n{dataset}\n\n{text[end:]}")


def arrays(folder: Path, **content: Any) -> str:
    np.savez(folder / "a.npz", **content)
    return 'kind = "npz"\npath = "a.npz"'


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)


def run(path: Path) -> Any:
    return partrain("run", path, "--out", path.parent / "run", "-q")


@pytest.mark.parametrize("targets", ["labels", "numbers"])
def test_tokens_may_have_labels_or_numbers(tmp_path: Path, draw: np.random.Generator, targets: str) -> None:
    wanted = draw.integers(0, 3, 200) if targets == "labels" else draw.normal(size=(200, 1))
    data = arrays(tmp_path, inputs=draw.integers(0, 9, (200, 6)), targets=wanted) + "\ntokens = true\nvalidation = 20"
    said = run(job(tmp_path, data, "model={name='lstm', hidden=8, embedding=4}", "stop={rounds=2}"))
    assert said.code == 0, said
    assert partrain("validate", job(tmp_path, data, "model={name='mlp'}")).code == 78


def test_full_batches_need_no_room_for_a_batch(tmp_path: Path) -> None:
    lines = JOB[: JOB.index("[optimizer]")] + JOB[JOB.index("[sync]") :]
    small = lines.replace("items = 230", "items = 110")
    said = run(write_job(tmp_path, "sync={rule='rprop', iterations=1}", "stop={rounds=2}", text=small))
    assert said.code == 0, said


@pytest.mark.parametrize("change", ["optimizer.accumulate=8", "sync={rule='average', passes=1}"])
def test_batch_norm_is_told_of_single_items(tmp_path: Path, change: str) -> None:
    """100 items for each worker: of batches of eight, the last has four; of nine, one."""
    size = "optimizer.batch_size=8" if "accumulate" in change else "optimizer.batch_size=9"
    said = partrain("validate", write_job(tmp_path, "model.batch_norm=true", change, size))
    assert said.code == 78, said
    assert "BatchNorm needs at least two items at a time" in said.out
    what = "a batch has 8 items in 8 parts" if "accumulate" in change else "the last batch of a pass over 100 items has one item"
    assert what in said.out
    assert "give rounds `iterations` instead of `passes`" in said.out


@pytest.mark.parametrize(("targets", "what"), [
    (np.float32(3), "holds no numbers"),
    (np.zeros(50, int), "all 50 items have the label 0"),
    (np.arange(50) * 10**7, "labels must run from 0"),
])  # fmt: skip
def test_labels_that_cannot_be_meant(tmp_path: Path, draw: np.random.Generator, targets: Any, what: str) -> None:
    said = run(job(tmp_path, arrays(tmp_path, inputs=draw.normal(size=(50, 2)), targets=targets)))
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert what in said.err


@pytest.mark.parametrize(
    ("change", "code"), [("validation = 20", 0), ("validation = 30", 66), ("validation = 20\nstratify = true", 66)]
)
def test_what_was_learnt_from_other_items_is_not_used(tmp_path: Path, change: str, code: int) -> None:
    """Converted items contain means of a table: they must be those of this job's training items."""
    (tmp_path / "t.csv").write_text(TABLE)
    table = job(tmp_path / "from", 'kind = "csv"\npath = "../t.csv"\ntarget = "kind"\nvalidation = 20')
    assert partrain("data", "convert", table, "-o", tmp_path / "t.items").code == 0
    said = run(job(tmp_path / "to", f'kind = "mapped"\npath = "../t.items"\n{change}'))
    assert said.code == code, said
    assert ("was converted for other training items" in said.err) == bool(code)


def test_a_converted_set_is_converted_again_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    table = job(tmp_path / "from", 'kind = "csv"\npath = "../t.csv"\ntarget = "kind"\nvalidation = 20')
    assert partrain("data", "convert", table, "-o", tmp_path / "t.items").code == 0
    assert partrain("data", "convert", tmp_path / "t.items", "-o", tmp_path / "u.items").code == 0
    for validation, code in ((20, 0), (30, 66)):
        said = run(job(tmp_path / f"to{validation}", f'kind = "mapped"\npath = "../u.items"\nvalidation = {validation}'))
        assert said.code == code, said
