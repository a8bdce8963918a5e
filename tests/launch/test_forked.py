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
    %s
    losses.append(train(3))
    assert len(losses) == 4 and len(set(losses)) == 1, losses
    print("equal")
"""
WAYS = {
    "executor": "with ProcessPoolExecutor(2, context) as pool: losses += pool.map(train, [1, 2])",
    "pool": "with context.Pool(2) as pool: losses += pool.map(train, [1, 2])",
    "fork": """for number in 1, 2:
        if not os.fork():
            os._exit(train(number) != losses[0])
        assert os.wait()[1] == 0
        losses.append(losses[0])""",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_forked_child_trains_after_its_parent(tmp_path: Path, way: str) -> None:
    script, job = tmp_path / "script.py", write_job(tmp_path, "stop.rounds=2")
    script.write_text(SCRIPT % WAYS[way])
    done = subprocess.run(
        [sys.executable, str(script), str(job), str(tmp_path)], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "equal\n", ""), done
