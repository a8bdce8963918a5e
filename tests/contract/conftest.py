"""All transports, for the suites that every one of them has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.lab import TRANSPORTS
from support.process_pool import ProcessPool


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    """The `distributed` transport."""
    pool = ProcessPool()
    yield pool
    pool.close()


@pytest.fixture(scope="module", params=[*TRANSPORTS, "distributed"])
def transport(request: pytest.FixtureRequest) -> Any:
    """Each in turn."""
    return request.getfixturevalue("pool") if request.param == "distributed" else TRANSPORTS[request.param]
