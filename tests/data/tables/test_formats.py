"""File formats of tables: each gives the same table, and one line for a damaged file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from partrain.data.tables.formats import FORMATS, format_of, open_file, suffix_of
from partrain.errors import InputMissing


def cells(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a table."""
    table = open_file(path)
    return {name: [cell for block in table.blocks([name]) for cell in block.columns[name]] for name in table.names}


def refused(path: Path, content: bytes | str | None = None) -> str:
    """Return the one line that refuses a file of this content."""
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputMissing) as caught:
        cells(path)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{path.parent}/", "")


def test_a_suffix_belongs_to_one_format() -> None:
    for form in FORMATS:
        for suffix in form.suffixes:
            assert format_of(Path(f"T{suffix.upper()}")) is form


# JSON

ROWS = [{"size": 1, "town": "Ulm"}, {"size": None, "town": "Bonn", "new": 2.5}, {"town": "Jena"}]
COLUMNS = {"size": [1, None, None], "town": ["Ulm", "Bonn", "Jena"], "new": [None, 2.5, None]}


@pytest.mark.parametrize("lines", [False, True])
def test_objects_on_lines_or_in_a_list(tmp_path: Path, lines: bool) -> None:
    """The columns are the keys of all rows, in either form and under either suffix."""
    text = "\n\n".join(map(json.dumps, ROWS)) if lines else json.dumps(ROWS, indent=1)
    for name in "t.json", "t.jsonl":
        (tmp_path / name).write_text(f"\ufeff {text}\n")
        assert cells(tmp_path / name) == COLUMNS
    assert suffix_of(text.encode()) == ".json"


def test_objects_of_brain_js(tmp_path: Path) -> None:
    """Keys of inner objects are columns, with a prefix only where two have one name; outputs of a single 1 are classes."""
    path = tmp_path / "t.json"
    path.write_text('[{"input": {"r": 0.03, "g": 0.7}, "output": {"black": 1}}, {"input": {"r": 1}, "output": {"white": 1}}]')
    assert cells(path) == {"r": [0.03, 1], "g": [0.7, None], "output": ["black", "white"]}
    path.write_text('[{"input": {"r": 1, "g": 2}, "output": {"r": 0.5}}, {"input": null, "output": {"r": 1}}]')
    assert cells(path) == {"input.r": [1, None], "g": [2, None], "output.r": [0.5, 1]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\nx\n', "t.jsonl:2: is no JSON object"),
        ('[{"a": 1}, 2]', "t.jsonl: row 2: is no JSON object"),
        ('[{"a": 1},\n', "t.jsonl:2: Expecting value"),
        ('{"a": 1}\n{"a": {"b": [1]}}\n', "t.jsonl:2: `a` holds dict, and a cell of a table is one value"),
        ('{"a": {"b": [1]}}\n', "t.jsonl:1: `b` holds list, and a cell of a table is one value"),
        ("{\n", "t.jsonl:1: expected a JSON object with a value for each column on each line, or a list of such objects"),
        ("[]", "t.jsonl: is empty: expected a JSON object with a value for each column on each line, or a list of such objects"),
        ("[" * 10**5, "t.jsonl:1: nested too deep"),
        (b'{"a": "\xff"}', "t.jsonl: not UTF-8 text: 'utf-8' codec can't decode byte 0xff in position 7: invalid start byte"),
    ],
)
def test_faults_of_json(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refused(tmp_path / "t.jsonl", text) == message
