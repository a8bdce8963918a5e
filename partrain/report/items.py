"""The answers of a trained network to items."""

from __future__ import annotations
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answers:
    figures: dict[str, Any] = field(default_factory=dict)
