"""What holds after a fault: one error line, a whole checkpoint, and a way back to the numbers of the run without it."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from support.runs import Said, events, newest, partrain, resume

from partrain import checkpoint


class Aftermath:
    """Checks of a run that met a fault, against the same run without one."""

    def __init__(self, job: Path) -> None:
        self.job, self.run, self._done = job, job.with_name("run"), job.with_name("done")

    @cached_property
    def final(self) -> bytes:
        """The checkpoint of the run without a fault."""
        before, whole = self._done.exists(), self.job.with_name("whole")
        self._done.touch()
        assert partrain("run", self.job, "--out", whole, "-q").code == 0
        if not before:
            self._done.unlink()
        return newest(whole)

    def train(self) -> Said:
        """Run into the fault."""
        said = partrain("run", self.job, "--out", self.run, "-q")
        assert self._done.exists(), "the fault did not come"
        return said

    def check(self, said: Said, code: int, name: str, *words: str, goes_on: bool = True) -> None:
        """The exit code, one error line with these words, and a run folder that is good to go on with, if that is to be tried."""
        assert (said.code, said.errors) == (code, [name]), said
        assert "Traceback" not in said.err
        for word in words:
            assert word in said.err, said.err
        if goes_on:
            self.check_folder()

    def check_replayed(self, said: Said, after: int | None = None) -> dict[str, Any]:
        """The run went on by itself and ended with the numbers of the run without a fault. Returns the event of the newest replay."""
        assert (said.code, said.errors) == (0, []), said
        assert "Traceback" not in said.err
        assert not events(self.run, "fault")
        rounds = [(event["rank"], event["round"]) for event in events(self.run, "round")]
        assert len(set(rounds)) == len(rounds)
        assert newest(self.run) == self.final
        summary = json.loads((self.run / "summary.json").read_text(encoding="utf-8"))
        told = events(self.run, "replay")
        assert told
        assert (summary["replays"], summary["discarded_item_iterations"]) == (
            len(told),
            sum(sum(one["discarded"]) for one in told),
        )
        if after is not None:
            assert told[-1]["after"] == after
        return told[-1]

    def check_folder(self) -> None:
        """The newest checkpoint is whole and no older than was told; from it the run ends as if nothing had happened."""
        committed = [event["round"] for event in events(self.run, "commit")]
        assert not list(self.run.rglob("*.tmp")) + list(self.run.rglob("*.part"))
        if not committed:
            assert not (self.run / "checkpoint.h5").exists()
            return
        assert checkpoint.read(self.run / "checkpoint.h5").round >= max(committed)
        resume(self.run, "--trust-code")
        assert newest(self.run) == self.final
