"""All transports, for the suites that every one of them has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.lab import TRANSPORTS
from support.process_pool import Crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """The `distributed` transport."""
    crew = Crew()
    yield crew
    crew.close()


@pytest.fixture(scope="module", params=[*TRANSPORTS, "distributed"])
def transport(request: pytest.FixtureRequest) -> Any:
    """Each in turn."""
    return request.getfixturevalue("crew") if request.param == "distributed" else TRANSPORTS[request.param]
