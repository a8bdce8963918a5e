"""Facts about this process and what it runs on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time

from partrain import __version__


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
