"""Every test leaves the machine as it found it."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support.children import Children  # not torch, which reads the next line when it is imported

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait for work busily would take the cores from other tests

if "PARTRAIN_TEST_SETTINGS" not in os.environ:  # else this is a worker of pytest-xdist: all share one key
    os.environ["PARTRAIN_TEST_SETTINGS"] = tempfile.mkdtemp(prefix="partrain-settings-")
    atexit.register(shutil.rmtree, os.environ["PARTRAIN_TEST_SETTINGS"])
os.environ["XDG_CONFIG_HOME"] = os.environ["PARTRAIN_TEST_SETTINGS"]

settings.register_profile("gate", deadline=None, derandomize=True)  # no deadline: the machine may be busy with something else
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)  # new cases at each run (make fuzz)
settings.load_profile("gate")

# A shell starts what runs in its background with the interrupt ignored, and children inherit that: tests send interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected: what they import stays

pytest_plugins = ["support.costs", "support.time_limit"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Children(), "children")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[object]:
    """Hide the name of the test, which pytest puts into the environment: in another one, `partrain.train` starts a forkserver anew."""
    name = os.environ.pop("PYTEST_CURRENT_TEST")
    try:
        return (yield)
    finally:
        os.environ["PYTEST_CURRENT_TEST"] = name


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be another user than the one who trained the tests' runs: no key signs a run, none knows a signature."""
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
