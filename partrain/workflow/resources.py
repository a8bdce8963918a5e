"""The share of a machine that a step uses."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """The share of a machine that a step uses."""

    cores: int = 1
    memory: int = 0
    """Bytes of memory, as far as known."""
    devices: frozenset[str] = frozenset()
    """CUDA devices, which no other step may use at the same time."""


class FreeResources:
    """The cores, memory and GPUs of a machine, and those in use."""

    def __init__(self, cores: int, memory: float = math.inf) -> None:
        self._cores, self._memory = cores, memory
        self._used: dict[str, Resources] = {}

    def fits(self, wanted: Resources) -> bool:
        """Return whether a step can start. A step that needs more than the machine has runs alone."""
        if not self._used:
            return True
        used = sum(step.cores for step in self._used.values())
        busy = frozenset[str]().union(*(step.devices for step in self._used.values()))
        memory = sum(step.memory for step in self._used.values()) + wanted.memory
        return used + wanted.cores <= self._cores and memory <= self._memory and not wanted.devices & busy

    def take(self, name: str, wanted: Resources) -> None:
        """Reserve what a step uses."""
        self._used[name] = wanted

    def give_back(self, name: str) -> None:
        """Free what a step used."""
        self._used.pop(name, None)
