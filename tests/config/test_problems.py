"""Suggestions for wrong words."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import partrain

from partrain.config.problems import similar_file


@pytest.mark.parametrize(
    ("missing", "near"),
    [("mnits.toml", "mnist.toml"), ("MNIST.toml", "mnist.toml"), ("mnist.tmol", "mnist.toml"), ("mnist", "mnist.toml"),
     ("types.toml", "type.toml"), ("nope.toml", ""), ("nothere.toml", ""), ("x.toml", "")],
)  # fmt: skip
def test_only_a_near_file_is_suggested(missing: str, near: str) -> None:
    assert similar_file(missing, ["reg.toml", "type.toml", "mnist.toml", "mnist-mixed.toml"]) == near


def test_a_missing_job(tmp_path: Path) -> None:
    (tmp_path / "type.toml").touch()
    assert "did you mean" not in partrain("run", tmp_path / "nope.toml").err
    assert f"did you mean {tmp_path / 'type.toml'}?" in partrain("run", tmp_path / "tpye.toml").err
