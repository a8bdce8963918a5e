"""Every text that a person may read is in one file. So a changed message is seen in review, and all can be read in one go."""

from __future__ import annotations

import pytest
from support.messages import FILE, messages


@pytest.mark.representative
def test_messages_are_those_in_the_file() -> None:
    assert messages() == FILE.read_text(encoding="utf-8"), (
        "texts have changed: `make messages` writes them to tests/golden/messages.txt"
    )
