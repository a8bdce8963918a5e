"""Cores that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from partrain.system.memory import group_folders


def cpu_quota(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the CPU time that the control groups allow, in cores; None without a limit."""
    quotas = []
    for folder, unified in group_folders("cpu", proc, groups):
        files = ["cpu.max"] if unified else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        with suppress(OSError, ValueError):  # `max` is no number
            time, period = (int(word) for file in files for word in (folder / file).read_text(encoding="ascii").split())
            quotas += [time / period] * (time > 0)
    return min(quotas, default=None)


def allocated_cores() -> int | None:
    """Return the cores of this node that SLURM gave to a step's task or a job, even if it binds none; None outside of SLURM."""
    cores = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE", "")
    return int(cores) if cores.isdecimal() else None


def usable_cores() -> int:
    """Count the cores allowed by this process's affinity, its CPU quota and SLURM; at least 1."""
    limits = [limit for limit in (cpu_quota(), allocated_cores()) if limit is not None]
    return max(1, min(len(os.sched_getaffinity(0)), *map(int, limits)) if limits else len(os.sched_getaffinity(0)))


def parse_cores(text: str) -> list[int]:
    """Read a list of cores in Linux notation: `0-3,8`. Raises ValueError."""
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise ValueError('expected numbers of cores, as in "0-3,8"')
        cores += range(int(first), int(last or first) + 1)
    if len(set(cores)) < len(cores):
        raise ValueError("names a core twice")
    return cores


def core_delay(proc: Path = Path("/proc")) -> int:
    """Return the nanoseconds that this thread was ready to run without a core; 0 if the kernel does not count them."""
    try:
        return int((proc / "thread-self" / "schedstat").read_bytes().split()[1])
    except (OSError, IndexError):
        return 0
