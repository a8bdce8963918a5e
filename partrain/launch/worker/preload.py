"""Imports of the forkserver before the first worker exists: torch and the engine. CUDA and threads stay untouched.

This is the first code that runs in the forkserver. So it ties the forkserver to the coordinator, even in the middle of an import,
and leaves the terminal's Ctrl-C to the coordinator: workers are forked with these signals ignored, so none can interrupt them.
"""

import os
import signal
import sys
from types import TracebackType

from partrain.launch.signals import STOPPING
from partrain.system.parent_death import PARENT, die_with_parent

die_with_parent(int(os.environ.pop(PARENT, os.getppid())))
for _number in STOPPING:
    signal.signal(_number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

_SERVER = os.getpid()


def _leave_errors_to_coordinator(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print no traceback if a request to the forkserver breaks off: the coordinator tells why in one line, too few open files say."""
    if os.getpid() != _SERVER or not issubclass(kind, EOFError | OSError):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _leave_errors_to_coordinator

import partrain.launch.worker.process  # noqa: E402, F401
