"""A forked child of a script that has trained trains, too: it starts a forkserver of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import write_job

SCRIPT = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
import partrain

def train(number):
    return partrain.train(sys.argv[1], out=f"{sys.argv[2]}/{number}").summary["loss"]

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    losses = [train(0)]
    with ProcessPoolExecutor(2, context) as pool:
        losses += pool.map(train, [1, 2])
    with context.Pool(1) as pool:
        losses += pool.map(train, [3])
    if not os.fork():
        os._exit(train(4) != losses[0])
    assert os.wait()[1] == 0
    losses.append(train(5))
    assert len(losses) == 5 and len(set(losses)) == 1, losses
    print("equal")
"""


@pytest.mark.slow
def test_a_forked_child_trains_after_its_parent(tmp_path: Path) -> None:
    """By an executor, of which two train at once, a pool and a fork of its own. Then the parent trains again."""
    script, job = tmp_path / "script.py", write_job(tmp_path, "stop.rounds=2")
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(job), str(tmp_path)], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "equal\n", ""), done
