"""Two machines in network namespaces, whose link is cut again and again: torchrun starts the run again, and no bit changes."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import pytest
from support.machines import MANY, free_port, networks
from support.runs import events, eventually, write_job

from partrain import checkpoint

CUTS = 8
ROUNDS = 1200


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_cuts_of_the_link_change_no_bit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each cut lasts longer than `stall_seconds`, so that both machines give up, and meet again once the link is back."""
    job = write_job(tmp_path / "job", f"stop.rounds={ROUNDS}", "transport.stall_seconds=4", text=MANY)
    alone, disturbed, draw, seconds = tmp_path / "alone", tmp_path / "disturbed", random.Random(1), list[float]()

    def judged() -> int:
        return len(events(disturbed, "judgement"))

    with networks(tmp_path, 2) as site:
        assert [one.code for one in site.run(("run", job, "--out", alone, "--quiet"), restarts=0)] == [0, 0]
        words, port = ("run", job, "--out", disturbed, "--quiet"), free_port()
        with site.start(0, port, *words, restarts=100) as first, site.start(1, port, *words, restarts=100) as second:
            for cut in range(1, CUTS + 1):
                eventually(lambda cut=cut: len(events(disturbed, "start")) == cut, f"attempt {cut}")
                held = judged()
                eventually(lambda held=held: judged() > held + 20, "rounds")
                time.sleep(draw.random())
                site.link(1, "down")
                time.sleep(6 + draw.random())
                held = judged()
                site.link(1, "up")
                mended = time.monotonic()
                eventually(lambda held=held: judged() > held, "further rounds")
                seconds.append(time.monotonic() - mended)
            assert [one.wait(300).code for one in (first, second)] == [0, 0]
    assert len(events(disturbed, "start")) == CUTS + 1
    assert len(events(alone, "start")) == 1
    ours, theirs = (checkpoint.read(run / "checkpoint.h5").arrays for run in (alone, disturbed))
    trained = [path for path in ours if path.startswith(("model/", "workers/", "rule/"))]
    assert trained
    assert [path for path in trained if (ours[path] != theirs[path]).any()] == []
    with capfd.disabled():
        print(
            f"\n{CUTS} cuts; rounds ran again {statistics.median(seconds):.1f} s (most {max(seconds):.1f} s) after the link was back"
        )
