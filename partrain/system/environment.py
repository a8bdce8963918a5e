"""Facts about this process and what it runs on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from partrain.version import __version__


def versions() -> dict[str, str]:
    """Versions that decide bits; asked without importing anything."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"partrain": __version__, "python": platform.python_version(), **packages}


def process_start() -> float:
    """Unix time at which this process was started, by the kernel's account."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    alive = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - alive


@dataclass(frozen=True)
class Processor:
    """What a CPU is; nothing where nobody says."""

    vendor: str = ""
    family: int = 0
    flags: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """What decides the last bits of what it computes, in words."""
        widest = next((name for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in self.flags), "")
        return " ".join(filter(None, [platform.machine(), self.vendor, f"family {self.family}" * (self.family > 0), widest]))

    @property
    def rounds_to_bfloat16(self) -> bool:
        """True if its matrix units (Intel AMX, Arm BF16) multiply in bfloat16 wherever torch permits that for float32."""
        return any(flag.startswith("amx") or flag == "bf16" for flag in self.flags)

    @classmethod
    def of(cls, text: str) -> Processor:
        """The first of those that the kernel lists."""
        pairs = (line.partition(":") for line in text.strip().partition("\n\n")[0].splitlines())
        facts = {key.strip(): value.strip() for key, _, value in pairs}
        family, flags = facts.get("cpu family", ""), facts.get("flags", facts.get("Features", ""))
        return cls(facts.get("vendor_id", ""), int(family) if family.isdigit() else 0, frozenset(flags.split()))


@cache
def processor() -> Processor:
    """What this machine computes with, by the kernel's account."""
    try:
        return Processor.of(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        return Processor()
