"""A test that takes longer than its time limit ends its process. The end of the log names it, also under pytest-xdist."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    timer = threading.Timer(settings.timeout, expire, (item, settings))
    timer.daemon = True
    timer.start()
    item.cancel_timeout = timer.cancel  # type: ignore[attr-defined]  # pytest-timeout calls it
    return True


def expire(item: pytest.Item, settings: Any) -> None:
    """Tell the output of a test, the stacks of all threads and its name, and end the process, unless someone debugs it."""
    if not settings.disable_debugger_detection and pytest_timeout.is_debugging():
        return
    try:
        said = [f"{item.nodeid} was ended by its time limit of {settings.timeout:g} s"]
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for thread, frame in sys._current_frames().items():
            if thread != threading.get_ident():
                said += ["", f"Stack of {names.get(thread, 'a thread without a name')}:", *traceback.format_stack(frame)]
        if capture := item.config.pluginmanager.getplugin("capturemanager"):
            capture.suspend_global_capture(item)
            said += ["Output:", *capture.read_global_capture()]
        said += ["", said[0]]  # first for a summary of one line, last for one of all lines, as pytest prints it where CI is set
        note(item.nodeid).write_text("\n".join(said), encoding="utf-8")
        print("\n".join(said), flush=True)  # to nowhere under pytest-xdist, whose first process reads the note
    finally:
        os._exit(1)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Say in the summary of pytest-xdist why a process of it is gone."""
    if note(crashitem).exists():
        report.longrepr = note(crashitem).read_text(encoding="utf-8")


def note(nodeid: str) -> Path:
    """Give the file in which a process tells of its last test."""
    return Path(os.environ["PARTRAIN_TEST_SETTINGS"], f"{nodeid.replace('/', '-')[-200:]}.time-limit")
