"""Versions, start time and processor of this process."""

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
    """Return the versions of packages that change results to the bit, without importing the packages."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"partrain": __version__, "python": platform.python_version(), **packages}


def boot_seconds() -> float:
    """Return the seconds since this machine started. All processes share this clock, and it cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start() -> float:
    """Return the moment at which the kernel started this process, in seconds since this machine started."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Processor:
    """A CPU model; fields unknown to the kernel are empty."""

    vendor: str = ""
    family: int = 0
    flags: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """The properties that change the last bits of results, as text."""
        widest = next((name for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in self.flags), "")
        return " ".join(filter(None, [platform.machine(), self.vendor, f"family {self.family}" * (self.family > 0), widest]))

    @classmethod
    def of(cls, text: str) -> Processor:
        """Parse `/proc/cpuinfo`, and return its first processor."""
        pairs = (line.partition(":") for line in text.strip().partition("\n\n")[0].splitlines())
        facts = {key.strip(): value.strip() for key, _, value in pairs}
        family, flags = facts.get("cpu family", ""), facts.get("flags", facts.get("Features", ""))
        return cls(facts.get("vendor_id", ""), int(family) if family.isdigit() else 0, frozenset(flags.split()))


@cache
def processor() -> Processor:
    """Return this machine's processor, as described by the kernel."""
    try:
        return Processor.of(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        return Processor()
