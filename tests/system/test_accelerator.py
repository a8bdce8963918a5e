"""Accelerators that this machine lacks, and what is known of them without torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.runs import partrain, write_job

from partrain.errors import BadJob, UserCodeFailed
from partrain.launch.worker.channel import explain
from partrain.system import accelerator


def test_hidden_devices_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert accelerator.count("cuda") == 0


def test_a_kind_that_torch_does_not_know_has_no_devices() -> None:
    assert accelerator.count("nothing") == 0
    assert accelerator.present("nothing") == accelerator.present()


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_torch_without_cuda_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's files say that there is a device, and torch was built without CUDA."""
    monkeypatch.setattr(accelerator, "_cuda_count", lambda visible: 1)
    said = partrain("run", write_job(tmp_path, "workers.0.device='cuda'"), "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (78, ["bad-job"])
    assert f"torch {torch.__version__} cannot compute on cuda:0: Torch not compiled with CUDA enabled" in said.err
    assert "Traceback" not in said.err
    assert accelerator.why_unusable() == "this build of torch has no CUDA: install one that has"


@pytest.mark.parametrize("text", [
    "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes.",
])  # fmt: skip
def test_too_little_memory_is_the_users_to_change(text: str) -> None:
    for users, kind in ("", BadJob), ("own.py:Net", UserCodeFailed):
        failure = explain(RuntimeError(text), "worker 1, round 2", users, built=True)
        assert type(failure) is kind
        assert failure.message == f"worker 1, round 2: out of memory: RuntimeError: {text.splitlines()[0]}"
