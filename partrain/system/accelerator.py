"""Accelerators other than the CPU: this package's only knowledge of their kinds. A kind's abilities are queried, never assumed.

A device has torch's name: `cuda:0`, `xpu:1`, `mps`, or the name of a kind which another package adds to torch. torch is
imported only when a device is used: counting devices by torch takes seconds, and memory on a device.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PATTERN = r"^[a-z][a-z0-9_]*(:[0-9]{1,3})?$"
"""Names of devices."""
_COUNT = "import sys, torch; module = torch.get_device_module(sys.argv[1]); print(module.is_available() and module.device_count() or 0)"
_PATIENCE_S = 60.0


def count(kind: str) -> int:
    """Count this machine's devices of a kind without torch: CUDA's by the driver's files, other kinds' by another process."""
    if kind == "cuda":
        return _cuda_count(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if kind == "mps":
        return int(sys.platform == "darwin" and platform.machine() == "arm64")
    return _counted_by_torch(kind)


def _cuda_count(visible: str | None) -> int:
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if visible is None:
        return present
    listed = [part for part in visible.split(",") if part.strip()]
    return 0 if "-1" in listed else min(present, len(listed))


@lru_cache
def _counted_by_torch(kind: str) -> int:
    try:
        command = [sys.executable, "-c", _COUNT, kind]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return 0


def present(*kinds: str) -> list[str]:
    """List the devices that are known without torch, `cpu` first, and the devices of `kinds`."""
    wanted = dict.fromkeys(["cuda", "mps", *kinds])
    return ["cpu", *(f"{kind}:{index}" for kind in wanted for index in range(count(kind)))]


def found() -> Iterator[Accelerator]:
    """Yield the accelerators that torch can use."""
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    for index in range(torch.accelerator.device_count() if kind else 0):
        yield Accelerator(torch.device(f"{kind}:{index}"))


def why_unusable() -> str:
    """Return why torch cannot use the driver's CUDA devices; "" if it can, or there are none."""
    import torch

    if not count("cuda") or torch.cuda.is_available():
        return ""
    if not torch.version.cuda:
        return "this build of torch has no CUDA: install one that has"
    return "torch cannot use them: driver and torch may not match"


class Accelerator:
    """One accelerator, accessed through torch."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self.device = device
        self._module: Any = torch.get_device_module(device.type)

    @staticmethod
    def of(device: torch.device) -> Accelerator | None:
        """Return the accelerator of a device; None for the CPU."""
        return None if device.type == "cpu" else _accelerator(device)

    def use(self) -> None:
        """Make this the current device, with bit-reproducible results. RuntimeError if torch cannot compute on it."""
        import torch

        _repeat_exactly(self.device.type)
        torch.ones((), device=self.device).item()  # a build of torch may have no kernels for a device that it can see
        torch.accelerator.set_device_index(self.device)

    def synchronize(self) -> None:
        """Return when all work submitted to the device is done."""
        import torch

        torch.accelerator.synchronize(self.device)

    def seed(self, seed: int) -> None:
        """Seed the device's default generator."""
        generators = getattr(self._module, "default_generators", ())
        if generators:
            generators[self.device.index or 0].manual_seed(seed)
        else:  # kinds with a single device
            self._module.manual_seed(seed)

    @property
    def free_memory(self) -> int:
        """Bytes of free memory on the device."""
        if hasattr(self._module, "mem_get_info"):
            return int(self._module.mem_get_info(self.device)[0])
        return int(self._module.recommended_max_memory() - self._module.current_allocated_memory())

    @property
    def name(self) -> str:
        """Name of the product, if torch knows it."""
        get_name = getattr(self._module, "get_device_name", None)
        return str(get_name(self.device)) if get_name else self.device.type

    @cached_property
    def has_float64(self) -> bool:
        """True if the device computes in double precision."""
        import torch

        try:
            torch.zeros((), dtype=torch.float64, device=self.device)
        except (TypeError, RuntimeError):
            return False
        return True

    def staging(self, size: int) -> Tensor:
        """Allocate bytes (size,) of CPU memory to copy to and from the device: pinned, if the device supports it."""
        import torch

        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        except RuntimeError:
            return torch.empty(size, dtype=torch.uint8)


@lru_cache
def _accelerator(device: torch.device) -> Accelerator:
    return Accelerator(device)


def beside_float64(x: Tensor) -> Tensor:
    """Return x, or a copy on the CPU if its device has no double precision."""
    return x if x.is_cpu or _accelerator(x.device).has_float64 else x.cpu()


def in_float64(x: Tensor) -> Tensor:
    """Convert numbers to double precision: on their device, or on the CPU if the device lacks it."""
    return beside_float64(x).double()


def _repeat_exactly(kind: str) -> None:
    """Make torch choose algorithms that give the same bits each time, or warn; make CUDA's libraries compute in float32."""
    import torch

    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode("warn")  # `use_deterministic_algorithms` would import torch's compiler
    warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")  # rows have their own layout
    if kind != "cuda":
        return
    cudnn: Any = torch.backends.cudnn
    for library in cudnn.conv, cudnn.rnn:  # as matrix products are; TF32 has 10 bits of 23
        library.fp32_precision = "ieee"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    # If torch is only to warn, the backward passes of these kinds of attention add up in any order; the plain one does not.
    torch.backends.cuda.enable_flash_sdp(enabled=False)
    torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
