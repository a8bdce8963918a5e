"""Settings of glibc's allocator for workers: it keeps freed memory."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Serve all tensors from a heap that does not shrink until a GiB at its end is free.

    By default glibc returns larger blocks to the kernel at every `free`, and the next iteration faults the same pages in again.
    Page faults took a third of a small network's step, and half of the mixing of a large one. Does nothing if the C library lacks
    mallopt.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_TOP_PAD, 16 << 20)
