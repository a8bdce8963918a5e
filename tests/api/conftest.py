"""Tests of Python's interface share a forkserver, as the trainings of one script do."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[object]:
    """Hide the name of the test, which pytest puts into the environment: in another one, a training starts a forkserver anew."""
    name = os.environ.pop("PYTEST_CURRENT_TEST")
    try:
        return (yield)
    finally:
        os.environ["PYTEST_CURRENT_TEST"] = name
