"""Running the things that are compared, each in a process of its own, and saying what came out."""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def hand(**settings: Any) -> dict[str, float]:
    """One run of the hand-written loop."""
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    done = subprocess.run([sys.executable, str(HERE / "hand.py"), *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def command(
    words: Sequence[object], *, seconds: float | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own. After `seconds` all its processes are killed: subprocess.TimeoutExpired."""
    pipe = subprocess.PIPE
    every = {**os.environ, **(environment or {})}
    with subprocess.Popen([*map(str, words)], stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=every) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def partrain(job: Path, *sets: str) -> dict[str, Any]:
    """The summary of one `partrain run`, which may miss its target. `events`: those of its rounds."""
    with tempfile.TemporaryDirectory() as scratch:
        words = [sys.executable, "-m", "partrain", "run", job, "--out", f"{scratch}/run", "--json"]
        done = command([*words, *(part for one in sets for part in ("--set", one))])
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        events = map(json.loads, Path(scratch, "run/events.jsonl").read_text().splitlines())
        return {**json.loads(done.stdout), "events": [event for event in events if event["event"] == "round"]}


def rate(summary: dict[str, Any]) -> float:
    """Items per second of all workers, from the first iteration to the final judged network."""
    return float(summary["item_iterations"] / summary["seconds"]["train"])


def shown(values: Sequence[float], digits: str = ".2f") -> str:
    """Median, least and most."""
    return f"{statistics.median(values):{digits}} ({min(values):{digits}}-{max(values):{digits}})"


def machine() -> str:
    """What this was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")
    return f"{len(os.sched_getaffinity(0))} cores of {name}, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
