"""How a worker's allocator behaves: memory it has used it keeps."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> None:
    """Serve tensors up to 32 MiB from a heap that does not shrink.

    glibc hands larger blocks back to the kernel at every `free`, and the next iteration pays for the same pages again: page
    faults took a third of a small network's step. A C library without mallopt is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_TOP_PAD, 16 << 20)
