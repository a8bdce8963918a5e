"""Memory that a run may take of a machine's, or of what its container or control group leaves it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes that a run may take, swap included: of the machine, or of the control groups this process is in, whichever leave less."""

    total: int
    """What the machine, or the group, has in all, swap not included."""
    ceiling: int
    """No more than this, unless somebody gives memory back: all that processes do not hold."""
    free: int
    """So much by the kernel's estimate: caches it had better keep are left out, and it does not know all that it could drop."""


@dataclass(frozen=True)
class _Names:
    """What a version of control groups calls its files, and the lines of `memory.stat`."""

    limit: str
    usage: str
    prefix: str
    anonymous: str


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_", "total_rss")
_V2 = _Names("memory.max", "memory.current", "", "anon")


def memory_limits(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> MemoryLimits:
    """What is there now; without end where nobody says."""
    known = {name: size << 10 for name, size in _numbers(proc / "meminfo").items()}
    swap = known.get("SwapFree", 0)
    total = known.get("MemTotal", sys.maxsize)
    most = total - known.get("AnonPages", 0) - known.get("Shmem", 0)
    rooms = [_limits(total, most, known.get("MemAvailable", most), swap)]
    rooms += [limited for folder, names in _folders(proc, groups) if (limited := _group_limits(folder, names, swap))]
    return MemoryLimits(min(one.total for one in rooms), min(one.ceiling for one in rooms), min(one.free for one in rooms))


def _limits(total: int, most: int, free: int, swap: int) -> MemoryLimits:
    return MemoryLimits(total, max(most, free, 0) + swap, max(free, 0) + swap)


def _folders(proc: Path, groups: Path) -> Iterator[tuple[Path, _Names]]:
    """The control groups that count this process's memory, from its own up; in a container some are not to be seen."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            own = Path(path.lstrip("/"))
            for part in (own, *own.parents):
                if not controllers:
                    yield from ((root / part, _V2) for root in (groups, groups / "unified"))
                elif "memory" in controllers.split(","):
                    yield groups / "memory" / part, _V1


def _group_limits(folder: Path, names: _Names, swap: int) -> MemoryLimits | None:
    """What the limit of a control group leaves; None if it has none."""
    limit = _number(folder / names.limit)
    if limit is None:
        return None
    stat = _numbers(folder / "memory.stat")
    held = stat.get(names.anonymous, 0) + stat.get(f"{names.prefix}shmem", 0)
    cache = stat.get(f"{names.prefix}active_file", 0) + stat.get(f"{names.prefix}inactive_file", 0)
    most, used = limit - held, _number(folder / names.usage)
    swappable = _number(folder / "memory.swap.max")
    both = _number(folder / "memory.memsw.limit_in_bytes")
    swappable = both - limit if both is not None else swappable
    free = most if used is None else limit - used + cache
    return _limits(limit, most, free, swap if swappable is None else min(swap, swappable))


def _number(path: Path) -> int | None:
    """A number that a file holds; None if it says `max`, or is not there."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Names and numbers, line by line."""
    with suppress(OSError, ValueError):
        lines = [line.replace(":", " ").split() for line in path.read_text(encoding="ascii").splitlines()]
        return {words[0]: int(words[1]) for words in lines if len(words) > 1}
    return {}
