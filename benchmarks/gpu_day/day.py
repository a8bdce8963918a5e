"""Code of all parts: the device, the cases of a part and their results, and the commands that a case runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from runs import command, machine

from benchmarks.gpu_day import ROOT
from partrain.system.cores import usable_cores

JOBS = ROOT / "jobs"


class Skipped(Exception):
    """A case that this machine or this version cannot have. The text is the reason."""


class Wrong(Exception):
    """A case whose result is not as it should be."""


@dataclass(frozen=True)
class Setting:
    """The place of a part."""

    device: str
    """Name of the device, with its index."""
    small: bool
    """Run the fewest cases, on few items."""
    scratch: Path
    """Folder for runs, which the part may fill."""
    end: float
    """Time of `time.monotonic` at which the part has to stop."""

    @property
    def kind(self) -> str:
        """Kind of the device."""
        return self.device.partition(":")[0]

    def script(self, module: str, *words: object) -> dict[str, Any]:
        """Run a module of this package in a process of its own, and return what it prints as JSON."""
        done = self._command(f"benchmarks.gpu_day.{module}", *words)
        if done.returncode:
            raise RuntimeError(error_line(done.stderr))
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def partrain(
        self, *words: object, codes: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of partrain. Raises Wrong if its exit code is none of `codes`."""
        done = self._command("partrain", *words, environment=environment)
        if done.returncode not in codes:
            raise Wrong(f"`partrain {words[0]}` ended with code {done.returncode}: {error_line(done.stderr)}")
        return done

    def train(self, name: str, job: Path, *sets: str, codes: tuple[int, ...] = (0, 1)) -> Path:
        """Train a job, and return its run folder: `name` in `scratch`."""
        run = self.scratch / name
        changes = [word for change in sets for word in ("--set", change)]
        self.partrain("run", job, "--out", run, "--quiet", *changes, codes=codes)
        return run

    def left(self) -> float:
        """Seconds that are left to the part."""
        return max(1.0, self.end - time.monotonic())

    def _command(
        self, module: str, *words: object, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return command([sys.executable, "-m", module, *words], seconds=self.left(), environment=environment)


Case = tuple[str, Callable[[], dict[str, Any]]]
"""Name of a case, and the function that runs it and returns its numbers."""
Part = Callable[[Setting], Iterator[Case]]


def error_line(text: str) -> str:
    """Return the line of what a command printed that tells its error: partrain's own, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if line.startswith("partrain: error[")), lines[-1])


def summary(run: Path) -> dict[str, Any]:
    """Read the summary of a run."""
    return dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))


def events(run: Path) -> list[dict[str, Any]]:
    """Read the events of a run."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def cpu_workers(setting: Setting, wanted: int) -> str:
    """Write `wanted` CPU workers as an element of `workers`.

    Raises Skipped if this machine has too few cores for them beside a device's worker. The small form measures nothing: its two may share cores.
    """
    if wanted + 1 > usable_cores() and not (setting.small and wanted <= 2):
        raise Skipped(f"needs {wanted + 1} cores, and this machine has {usable_cores()}")
    return f'{{device="cpu", count={wanted}}}'


def engine_has(key: str) -> NoReturn:
    """Raise Skipped if `[engine]` has no key with this text in its name, and Wrong if it has: this package does not use it yet."""
    from partrain.training.section import Engine

    if found := [name for name in Engine.model_fields if key in name]:
        raise Wrong(f"[engine] has {', '.join(found)}, which benchmarks/gpu_day does not measure yet")
    raise Skipped(f"no such option: the keys of [engine] are {', '.join(Engine.model_fields)}")


def perform(part: Part, setting: Setting, report: Callable[[str], None]) -> dict[str, Any]:
    """Run the cases of a part. A case that fails is recorded, and the next one begins; those that no time is left for are named."""
    began, results = time.monotonic(), dict[str, Any]()
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    not_run: list[str] = []
    for name, case in part(setting):
        if time.monotonic() >= setting.end:
            not_run.append(name)
            continue
        begin = time.monotonic()
        try:
            results[name] = case() | {"wall_s": round(time.monotonic() - begin, 2)}
            report(f"{name}: {json.dumps(results[name])}")
        except Skipped as reason:
            skipped[name] = str(reason)
            report(f"{name}: skipped, {reason}")
        except subprocess.TimeoutExpired:
            not_run.append(name)
            report(f"{name}: stopped by the limit of the part")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.relpath(where.filename, ROOT)}:{where.lineno}"
            failed[name] = f"{type(error).__name__}: {first_line(str(error))} ({place})"
            report(f"{name}: FAILED, {failed[name]}")
    return {
        "date": datetime.now().isoformat(timespec="seconds"),
        "machine": machine(),
        "device": setting.device,
        "small": setting.small,
        "seconds": round(time.monotonic() - began, 1),
        "cases": results,
        "failed": failed,
        "skipped": skipped,
        "not run": not_run,
    }


def first_line(text: str) -> str:
    """Return the first line of a text that is not empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no text")


def write(file: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON at once: it is there whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = file.with_suffix(".part")
    begun.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    begun.replace(file)
