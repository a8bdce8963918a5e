"""The mark of tests whose jobs warn on a machine with one core."""

from __future__ import annotations

import os

import pytest

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one core: the job of this test warns that two workers wait for one another"
)
"""The test compares all that a command prints, about a job with two workers."""
