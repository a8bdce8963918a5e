"""Waiting on a number in shared memory: spinning in C, and the kernel's futex, on which a process sleeps.

Neither has an owner, so no death can block it. The futex is Linux only. A waiter sleeps while a 32-bit word still has the value
it saw. A process that changes the word wakes all waiters.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path

from partrain.system.compiler import CannotCompile, library

LINE = 8
"""Words of 8 bytes in a cache line."""

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
    """Wake all processes that sleep on the word at `address`."""
    if _SYS_FUTEX is not None:
        _syscall(_SYS_FUTEX, ctypes.c_void_p(address), _WAKE, ctypes.c_int(2**31 - 1), None, None, 0)


def arrive(address: int, count: int, own: int, value: int) -> bool:
    """Set word `own` of `count` words, each in its own cache line, the first at `address`. Return True if all are at least `value`.

    All processes see the earlier stores of this one before the word. Of two processes that arrive at once, at least one sees both.
    """
    if code := _compiled():
        return bool(code.arrive(address, count, own, value))
    words = (c_int64 * (count * LINE)).from_address(address)
    words[own * LINE] = value
    wake(address)  # a call of the kernel: it orders the store before the loads
    return min(words[::LINE]) >= value


def spin(address: int, value: int, seconds: float) -> int:
    """Spin until the word at `address` is at least `value`, at most some seconds. Return the word."""
    if code := _compiled():
        return int(code.spin(address, value, int(seconds * 1e9)))
    word, deadline = c_int64.from_address(address), time.perf_counter() + seconds
    while word.value < value and time.perf_counter() < deadline:
        pass
    return word.value


@cache
def _compiled() -> ctypes.CDLL | None:
    """Return the compiled code; None without a C compiler."""
    try:
        code = library(Path(__file__).with_name("futex.c"), ())
    except CannotCompile:
        return None
    code.arrive.argtypes, code.arrive.restype = [c_void_p, c_int64, c_int64, c_int64], c_int64
    code.spin.argtypes, code.spin.restype = [c_void_p, c_int64, c_int64], c_int64
    return code
