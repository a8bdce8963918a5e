"""Waiting on a number in shared memory without spinning: the kernel's futex. It has no owner, so no death can block it.

Linux only. A waiter sleeps while a 32-bit word still has the value it saw. A process that changes the word wakes all waiters.
"""

from __future__ import annotations

import ctypes
import os
import platform

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_WAIT, _WAKE = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def wait(address: int, value: int, timeout: float) -> None:
    """Sleep until woken, at most `timeout` seconds. Return at once if the word at `address` no longer equals `value`."""
    if _SYS_FUTEX is None:
        os.sched_yield()
        return
    limit = _Timespec(int(timeout), int(timeout % 1 * 1e9))
    _syscall(_SYS_FUTEX, ctypes.c_void_p(address), _WAIT, ctypes.c_uint32(value), ctypes.byref(limit), None, 0)


def wake(address: int) -> None:
    """Wake all processes that sleep on the word at `address`. The call is also a full memory barrier."""
    if _SYS_FUTEX is not None:
        _syscall(_SYS_FUTEX, ctypes.c_void_p(address), _WAKE, ctypes.c_int(2**31 - 1), None, None, 0)


def fence(unused: int) -> None:
    """Order memory: all processes see what this one wrote before it reads on. No process sleeps on the word at address `unused`."""
    wake(unused)
