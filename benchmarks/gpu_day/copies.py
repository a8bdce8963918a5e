"""bfloat16 beside float32, and the share of a step that copies take."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from iteration import ROUND

from benchmarks.gpu_day.day import JOBS, Case, Setting, engine_has

CASES: dict[str, tuple[Path, list[str]]] = {
    "MLP 784-128-10, batch 64": (JOBS / "mnist.toml", []),
    "MLP 784-1024-1024-10, batch 512": (JOBS / "mnist.toml", ["model.hidden=[1024, 1024]", "optimizer.batch_size=512"]),
    "CNN (mnist-cnn)": (JOBS / "mnist-cnn.toml", []),
    "transformer (text-transformer)": (JOBS / "text-transformer.toml", []),
    "transformer of width 512 and 8 layers": (
        JOBS / "text-transformer.toml", ["model.width=512", "model.layers=8", "model.heads=8", "optimizer.batch_size=64"]
    ),
}  # fmt: skip
"""Job, and what is changed."""


def steps(setting: Setting, job: Path, sets: list[str], what: str) -> dict[str, Any]:
    """Time iterations of a job in a process of its own; see `steps.py`."""
    changes = [word for change in sets for word in ("--set", change)]
    return setting.script(
        "steps", job, setting.device, what, "--iterations", 2 * ROUND if setting.small else 30 * ROUND, *changes
    )


def chosen(setting: Setting) -> list[tuple[str, Path, list[str]]]:
    """List the cases, or the first one."""
    return [(name, *case) for name, case in CASES.items()][: 1 if setting.small else None]


def precision(setting: Setting) -> Iterator[Case]:
    """Items per second of the worker in both precisions."""

    def case(job: Path, sets: list[str]) -> dict[str, Any]:
        full, half = (steps(setting, job, [*sets, f'engine.precision="{kind}"'], "worker") for kind in ("float32", "bfloat16"))
        rates = {kind: run["batch"] / run["seconds"] for kind, run in (("float32", full), ("bfloat16", half))}
        return {"items/s": rates, "bfloat16 / float32": rates["bfloat16"] / rates["float32"]}

    for name, job, sets in chosen(setting):
        yield name, partial(case, job, sets)
    yield "torch.compile", partial(engine_has, "torch_compile")


def copies(setting: Setting) -> Iterator[Case]:
    """Shares of time: of an iteration, if batches come from the CPU's memory; of a round of ten iterations, for the parameters."""

    def case(job: Path, sets: list[str]) -> dict[str, Any]:
        resident, batchwise, moved = (steps(setting, job, sets, what) for what in ("worker", "batchwise", "copies"))
        computing = ROUND * resident["seconds"]
        return {
            "microseconds of an iteration": resident["seconds"] * 1e6,
            "items on": [resident["items on"], batchwise["items on"]],
            "share of copied batches in an iteration": 1 - resident["seconds"] / batchwise["seconds"],
            "bytes of the parameters": moved["bytes"],
            "is pinned": moved["is pinned"],
            **{
                f"share of the parameters' copies in a round, {form}": moved[form] / (moved[form] + computing)
                for form in ("pinned", "pageable", "pinned, asynchronous")
            },
        }

    for name, job, sets in chosen(setting):
        yield name, partial(case, job, sets)
