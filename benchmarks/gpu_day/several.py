"""Several machines on this one, each with a CPU worker and one on the device, over gloo; and over nccl where there are two GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from support.machines import Site

from benchmarks.gpu_day.day import Case, Setting, Skipped, Wrong, error_line
from benchmarks.gpu_day.exact import difference, require_same, write_job


def several(setting: Setting) -> Iterator[Case]:
    def gloo() -> dict[str, Any]:
        """Two machines share the device. They have the bits of one machine with four workers in the same order."""
        job = write_job(setting.scratch / "two-job", "cpu", setting.device)
        pair = f'{{device="cpu"}}, {{device="{setting.device}"}}'
        alone = setting.train("alone", job, f"workers=[{pair}, {pair}]")
        require_same(_trained(setting, job, "two"), alone)
        return {"machines": 2, "same bits as one machine": True}

    def nccl() -> dict[str, Any]:
        """Each machine has a GPU of its own, and adds its sums over nccl."""
        if setting.kind != "cuda":
            raise Skipped(f"nccl is for CUDA, and this device is of the kind {setting.kind}")
        if torch.cuda.device_count() < 2:
            raise Skipped(f"needs two GPUs, and this machine has {torch.cuda.device_count()}")
        job = write_job(setting.scratch / "nccl-job", setting.device, setting.device)
        exact = _trained(setting, job, "exact", gpus=True)
        quick = _trained(setting, job, "quick", "--set", "engine.exact=false", gpus=True)
        return {"machines": 2} | difference(quick, exact)

    yield "gloo, CPU and device on two machines", gloo
    yield "nccl, a GPU for each of two machines", nccl


def _trained(setting: Setting, job: Path, name: str, *more: str, gpus: bool = False) -> Path:
    """Train on two machines under torchrun, each with a GPU of its own if `gpus`, and return the run folder of the first."""
    run, folder = setting.scratch / name, setting.scratch / f"{name}-machines"
    folder.mkdir()
    prefixes = tuple(("env", f"CUDA_VISIBLE_DEVICES={number}") for number in range(2)) if gpus else ((), ())
    words = ("run", job, "--quiet", *more, "--out")
    said = Site(folder, prefixes=prefixes).run((*words, run), (*words, folder / "unused"), restarts=0)
    if any(one.code for one in said):
        raise Wrong(f"exit codes {[one.code for one in said]}: {error_line(next(one for one in said if one.code).err)}")
    return run
