"""A test that takes longer than its time limit ends its process. The end of the log names it, also under pytest-xdist."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from pytest_timeout import Settings, dump_stacks


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool:
    timer = threading.Timer(settings.timeout, expire, (item, settings.timeout))
    timer.daemon = True
    timer.start()
    item.cancel_timeout = timer.cancel  # type: ignore[attr-defined]
    return True


def expire(item: pytest.Item, seconds: float) -> None:
    """Print the stacks of all threads, name the test, end the process."""
    try:
        said = f"{item.nodeid} was ended by its time limit of {seconds:g} s"
        with notes().open("a", encoding="utf-8") as file:
            file.write(said + "\n")
        terminal = item.config.get_terminal_writer()
        if capture := item.config.pluginmanager.getplugin("capturemanager"):
            capture.suspend_global_capture(item)
            terminal.write("".join(capture.read_global_capture()))
        dump_stacks(terminal)
        terminal.line(said)
        terminal.flush()
    finally:
        os._exit(1)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Say in the summary of pytest-xdist why a process of it is gone."""
    if notes().exists():
        said = [line for line in notes().read_text(encoding="utf-8").splitlines() if line.startswith(f"{crashitem} was ended")]
        report.longrepr = said[0] if said else report.longrepr


def notes() -> Path:
    """Give the file in which the processes of pytest-xdist name their last tests."""
    return Path(os.environ["PARTRAIN_TEST_SETTINGS"], "time-limits")
