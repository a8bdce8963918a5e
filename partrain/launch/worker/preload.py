"""What the forkserver imports before the first worker exists: torch and the engine, with CUDA and threads untouched.

Also the first thing that runs in it, so the place to end with the coordinator, also in the midst of an import, and to leave the
terminal's Ctrl-C to it: workers are forked with these signals ignored, and there is no moment at which one could interrupt them
half-way.
"""

import os
import signal

from partrain.launch.signals import STOPPING
from partrain.system.parent_death import PARENT, die_with_parent

die_with_parent(int(os.environ.pop(PARENT, os.getppid())))
for _number in STOPPING:
    signal.signal(_number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

import partrain.launch.worker.process  # noqa: E402, F401
