"""Imports of the forkserver before the first worker exists: torch and the engine. CUDA and threads stay untouched.

This is the first code that runs in the forkserver. So it ties the forkserver to the coordinator, even in the middle of an import,
and leaves Ctrl-C and its relatives to the coordinator: workers are forked with these signals ignored, so none can interrupt them.
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
    """Print no traceback if a request to the forkserver breaks off: the coordinator tells why in one line, too few open files say.

    It learns that from the exit status."""
    if os.getpid() != _SERVER or not isinstance(error, EOFError | OSError):
        # In one piece: a worker that is killed as it writes leaves no half line, which the coordinator's error would continue.
        os.write(sys.stderr.fileno(), "".join(traceback.format_exception(kind, error, trace)).encode())
        return
    os._exit(getattr(error, "errno", None) or 1)


sys.excepthook = _leave_errors_to_coordinator

gc.disable()  # the import takes a tenth less
import numpy.random  # noqa: E402, F401  each worker seeds it

import partrain.launch.worker.process  # noqa: E402, F401

gc.freeze()  # else the garbage collection of each worker walks all that is imported here, and so copies its memory
gc.enable()
