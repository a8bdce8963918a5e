"""What holds after every fault: nobody but the command itself has spoken, and nothing is left half-done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import Said, events, newest, partrain, resume, train

from partrain import checkpoint


@pytest.fixture(autouse=True)
def nobody_else_speaks(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Workers and writer leave the terminal to the coordinator."""
    yield
    assert capfd.readouterr() == ("", "")


class Aftermath:
    """Checks of a run that met a fault, against the same run without one."""

    def __init__(self, job: Path) -> None:
        self.job, self.run, self._done = job, job.with_name("run"), job.with_name("done")
        self._done.touch()
        whole = job.with_name("whole")
        assert partrain("run", job, "--out", whole, "-q").code == 0
        self._final = newest(whole)
        self._done.unlink()

    def train(self) -> Said:
        """Run into the fault."""
        said = partrain("run", self.job, "--out", self.run, "-q")
        assert self._done.exists(), "the fault did not come"
        return said

    def check(self, said: Said, code: int, name: str, *words: str) -> None:
        """The exit code, one error line with these words, and a run folder that is good to go on with."""
        assert (said.code, said.errors) == (code, [name]), said
        assert "Traceback" not in said.err
        for word in words:
            assert word in said.err, said.err
        self.check_folder()

    def check_folder(self) -> None:
        """The newest checkpoint is whole and no older than was told; from it the run ends as if nothing had happened."""
        committed = [event["round"] for event in events(self.run, "commit")]
        assert not list(self.run.rglob("*.tmp")) + list(self.run.rglob("*.part"))
        if not committed:
            assert not (self.run / "checkpoint.h5").exists()
            return
        assert checkpoint.read(self.run / "checkpoint.h5").round >= max(committed)
        resume(self.run, "--trust-code")
        assert newest(self.run) == self._final


@pytest.fixture
def aftermath() -> type[Aftermath]:
    return Aftermath


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of a second or so, long enough to be met half-way; it was run once, in `run` beside it."""
    folder = tmp_path_factory.mktemp("long")
    train(folder, "stop.rounds=100", "stop.judge_every=4")
    return folder / "job.toml"
