"""The reference pages of docs/ are those that the code gives, and every key, option and field in them has a text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from generate.references import FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_page_is_that_of_the_code(file: Path) -> None:
    assert FILES[file]() == file.read_text(encoding="utf-8"), "`make references` writes docs/reference/"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_row_has_a_text(file: Path) -> None:
    without = []
    for table in re.findall(r"(?:^\|.*\n)+", file.read_text(encoding="utf-8"), re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        column = next((header.index(name) for name in ("meaning", "effect", "does") if name in header), None)
        without += [row[0] for row in rows if column is not None and not row[column]]
    assert without == []
