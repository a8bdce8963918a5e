"""The package's version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


__version__ = "0.1.0"
