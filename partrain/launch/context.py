"""Where a run plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from partrain.comm.machine import Machine
from partrain.display.display import Display
from partrain.launch.signals import Signals
from partrain.system.environment import process_start


@dataclass(frozen=True)
class RunContext:
    """A run's folder, who watches it, who is warned."""

    folder: Path
    display: Display
    warn: Callable[[str], None] = lambda text: None
    started: float = field(default_factory=process_start)
    """Unix time from which start-up counts."""
    machine: Machine | None = None
    """Which machine this is, where there are several."""
    signals: Signals = field(default_factory=Signals)
    """What asks the run to end; whoever calls it may have noted some already."""
