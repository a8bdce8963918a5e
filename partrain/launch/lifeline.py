"""No process outlives the run: the kernel kills a child whose parent died, however it died."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def arm(parent: int) -> None:
    """Have this process killed when `parent` dies. SIGKILL, because workers ignore the terminal's signals.

    If it died before the kernel knew, this process ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
