"""Faults of a device's worker, and runs that go on elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_day import BENCHMARKS
from benchmarks.gpu_day.day import Case, Setting, Wrong, events
from benchmarks.gpu_day.exact import arrays, difference, require_same, write_job

DEED_AT = 11
"""Iteration of the deed: the second one of round 4."""
ROUNDS = "stop={rounds=6, judge_every=2}"


def faults(setting: Setting) -> Iterator[Case]:
    whole: list[Path] = []

    def undisturbed() -> Path:
        """Train without a fault, once."""
        if not whole:
            whole.append(setting.train("whole", _job(setting, "whole", ""), ROUNDS))
        return whole[0]

    def replayed() -> dict[str, Any]:
        run = setting.train("replayed", _job(setting, "replayed", "kill"), ROUNDS)
        replays = [event for event in events(run) if event["event"] == "replay"]
        if len(replays) != 1:
            raise Wrong(f"{len(replays)} replays where one worker was killed once")
        require_same(run, undisturbed())
        return {"replay": replays[0]["what"], "same bits": True}

    def resumed() -> dict[str, Any]:
        run = setting.train("stopped", _job(setting, "stopped", "kill"), ROUNDS, 'faults.on_loss="stop"', codes=(69,))
        done = int(arrays(run)["history/round"][-1])
        setting.partrain("resume", run / "checkpoint.h5", "--out", setting.scratch / "resumed", "--quiet")
        require_same(setting.scratch / "resumed", undisturbed())
        return {"rounds before": done, "same bits": True}

    def out_of_memory() -> dict[str, Any]:
        job, run = _job(setting, "memory", "allocate"), setting.scratch / "memory"
        done = setting.partrain("run", job, "--out", run, "--quiet", "--set", ROUNDS, codes=(71,))
        errors = [line for line in done.stderr.splitlines() if line.startswith("partrain: error[")]
        if len(errors) != 1 or "out of memory" not in done.stderr or "Traceback" in done.stderr:
            raise Wrong(f"expected one line of an error with `out of memory`, got {done.stderr!r}")
        kept = int(arrays(run)["history/round"][-1])
        setting.partrain("resume", run / "checkpoint.h5", "--out", setting.scratch / "after-memory", "--quiet")
        require_same(setting.scratch / "after-memory", undisturbed())
        return {
            "error": errors[0],
            "lines": len(done.stderr.splitlines()),
            "round of the checkpoint": kept,
            "resumed to the same bits": True,
        }

    def moved() -> dict[str, Any]:
        """Begin on the device and go on with the CPU, and the reverse. partrain draws the partitions anew in both, and alike."""
        places = {setting.device: "cpu", "cpu": setting.device}
        runs = []
        for first, then in places.items():
            name = first.replace(":", "-")
            job = write_job(setting.scratch / f"{name}-job", "cpu", first)
            begun = setting.train(f"{name}-begun", job, "stop={rounds=3}")
            runs.append(setting.scratch / f"{name}-moved")
            words = ("resume", begun / "checkpoint.h5", "--until", "rounds=6", "--quiet", "--out", runs[-1])
            setting.partrain(*words, "--set", f'workers.1.device="{then}"')
        return difference(*runs, same=setting.kind == "emulated") | {"rounds": int(arrays(runs[0])["history/round"][-1])}

    yield "kill -9 of the device's worker, replayed", replayed
    yield "kill -9 of the device's worker, stopped and resumed", resumed
    yield "out of memory on the device", out_of_memory
    yield "begun on the device and resumed on a CPU, beside the reverse", moved


def _job(setting: Setting, name: str, deed: str) -> Path:
    """Write the job of a case, whose network suffers the deed, with that network beside it."""
    job = write_job(setting.scratch / f"{name}-job", "cpu", setting.device)
    shutil.copy(BENCHMARKS / "gpu_day" / "network.py", job.parent)
    text = job.read_text(encoding="utf-8")
    head, _, rest = text.partition("[dataset]")
    model = f'[model]\nname = "network.py:Net"\ndeed = "{deed}"\niteration = {DEED_AT}\n'
    job.write_text(f"{head.partition('[model]')[0]}{model}[dataset]{rest}", encoding="utf-8")
    return job
