"""What all faults need: a job to interrupt, and silence from everyone but the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runs import train
from support.shared_runs import once


@pytest.fixture(autouse=True)
def nobody_else_speaks(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Workers and writer leave the terminal to the coordinator."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of a second or so, long enough to be met half-way; it was run once, in `run` beside it."""
    return once(tmp_path_factory, "long", lambda folder: train(folder, "stop.rounds=100", "stop.judge_every=4")) / "job.toml"
