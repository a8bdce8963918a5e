"""Imports of the forkserver before the first worker exists: torch and the engine, without use of CUDA or threads.

This is the first code in the forkserver. So it ties the forkserver to the coordinator, even in the middle of an import, and leaves
Ctrl-C and similar signals to the coordinator: workers are forked with these signals ignored, so no signal can interrupt them.
"""

import gc
import os
import signal
import sys
import traceback
import warnings
from types import TracebackType

from partrain.system.children import COMMAND_SIGNALS, leave_signals_to_command
from partrain.system.parent_death import PARENT, adopt_orphans, die_with_parent

die_with_parent(int(os.environ.pop(PARENT, os.getppid())))
adopt_orphans()
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan
leave_signals_to_command()
signal.pthread_sigmask(signal.SIG_UNBLOCK, COMMAND_SIGNALS)

_SERVER = os.getpid()


def _leave_errors_to_coordinator(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print no traceback if a request to the forkserver breaks off: the coordinator explains it in one line, such as too few open files.

    The exit status gives it the reason."""
    if os.getpid() != _SERVER or not isinstance(error, EOFError | OSError):
        # In one piece: a worker killed during the write leaves no half line for the coordinator's error to continue.
        os.write(sys.stderr.fileno(), "".join(traceback.format_exception(kind, error, trace)).encode())
        return
    os._exit(getattr(error, "errno", None) or 1)


sys.excepthook = _leave_errors_to_coordinator

gc.disable()  # the import is a tenth faster
import numpy.random  # noqa: E402, F401  each worker seeds it

import partrain.launch.worker.process  # noqa: E402, F401

gc.freeze()  # else each worker's garbage collection walks all imports here, and so copies their memory
gc.enable()
