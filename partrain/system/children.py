"""Settings of child processes."""

import signal

SAFE_PATH = ("-P",)
"""Python option that leaves the current folder out of `sys.path`: a file `torch.py` there may be a stranger's."""
FIXED_HASHES = {"PYTHONHASHSEED": "0"}
"""Environment that gives sets in user code the same order in each process and session."""
COMMAND_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that the command handles. A terminal and batch systems send them to its whole process group."""


def leave_signals_to_command() -> None:
    """Make this process, a child of the command, ignore signals meant for the command."""
    for number in COMMAND_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
