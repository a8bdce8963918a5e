"""Memory that a run may take: of the machine, or of its container or control group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes that a run may take, swap included. The machine or one of this process's control groups sets them, whichever leaves less."""

    total: int
    """All memory of the machine or group, without swap."""
    ceiling: int
    """Upper bound: all memory not held by processes, page cache included."""
    free: int
    """The kernel's estimate (MemAvailable). Conservative: some caches could still be dropped."""


@dataclass(frozen=True)
class _Names:
    """Names of files, and of lines of `memory.stat`, in one version of control groups."""

    limit: str
    usage: str
    prefix: str
    anonymous: str


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_", "total_rss")
_V2 = _Names("memory.max", "memory.current", "", "anon")


def memory_limits(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> MemoryLimits:
    """Read the current limits; `sys.maxsize` if the kernel gives none."""
    sizes = {name: size << 10 for name, size in _numbers(proc / "meminfo").items()}
    swap = sizes.get("SwapFree", 0)
    total = sizes.get("MemTotal", sys.maxsize)
    ceiling = total - sizes.get("AnonPages", 0) - sizes.get("Shmem", 0)
    all_limits = [_limits(total, ceiling, sizes.get("MemAvailable", ceiling), swap)]
    folders = group_folders("memory", proc, groups)
    all_limits += [limits for folder, unified in folders if (limits := _group_limits(folder, _V2 if unified else _V1, swap))]
    return MemoryLimits(
        min(limit.total for limit in all_limits),
        min(limit.ceiling for limit in all_limits),
        min(limit.free for limit in all_limits),
    )


def _limits(total: int, ceiling: int, free: int, swap: int) -> MemoryLimits:
    return MemoryLimits(total, max(ceiling, free, 0) + swap, max(free, 0) + swap)


def group_folders(
    controller: str, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of this process's control groups, its own first, and whether they are of version 2. A container hides some of them.

    `controller` is `memory` or `cpu`.
    """
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            own = Path(path.lstrip("/"))
            for part in (own, *own.parents):
                if not controllers:
                    yield from ((root / part, True) for root in (groups, groups / "unified"))
                elif controller in controllers.split(","):
                    yield groups / controller / part, False


def _group_limits(folder: Path, names: _Names, swap: int) -> MemoryLimits | None:
    """Return the memory that a control group's limit leaves; None if it has no limit."""
    limit = _number(folder / names.limit)
    if limit is None:
        return None
    stat = _numbers(folder / "memory.stat")
    held = stat.get(names.anonymous, 0) + stat.get(f"{names.prefix}shmem", 0)
    cache = stat.get(f"{names.prefix}active_file", 0) + stat.get(f"{names.prefix}inactive_file", 0)
    ceiling, used = limit - held, _number(folder / names.usage)
    swappable = _number(folder / "memory.swap.max")
    both = _number(folder / "memory.memsw.limit_in_bytes")
    swappable = both - limit if both is not None else swappable
    free = ceiling if used is None else limit - used + cache
    return _limits(limit, ceiling, free, swap if swappable is None else min(swap, swappable))


def _number(path: Path) -> int | None:
    """Read a file of one number; None if it contains `max`, or does not exist."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Read a file of lines `name number`; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        lines = [line.replace(":", " ").split() for line in path.read_text(encoding="ascii").splitlines()]
        return {words[0]: int(words[1]) for words in lines if len(words) > 1}
    return {}
