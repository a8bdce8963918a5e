"""The start of the screen, which needs Textual."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from partrain.errors import InputMissing

NICENESS = 10
"""Niceness of this process: the runs take precedence."""


def show(root: Path) -> None:
    """Show the runs below a folder until the user quits. Raises InputMissing without Textual."""
    try:
        from partrain.watch.app import WatchApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise InputMissing(
            "`watch` needs Textual, which is not installed: pip install 'partrain[watch]'; without it: partrain watch --once"
        ) from None
    with suppress(OSError):
        os.nice(max(0, NICENESS - os.nice(0)))
    WatchApp(root).run()
