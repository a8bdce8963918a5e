"""Pieces of a large file that polars splits: the cells, their lines and the messages are those of the module csv."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from partrain.data.tables import files
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.files import CsvFile
from partrain.data.tables.polars_cells import PolarsCells, text_columns
from partrain.errors import InputMissing
from partrain.preprocess.cell_columns import Cells

ALPHABETS = ("ab,\n", 'ab,"\n', 'a,"\n\r', 'a "\n,x', "ab,\n1.", "a,\n\"'\\\x00é", "1,2\n;\t")
USUAL, RARE = ["a", "", "1", '"q"', '"a,b"', '"a""b"', "2.5"], ['x"y', '""', ' "a"', '"a\nb"', "\r", '"', "é", "a\x0bb"]


def text_of(draw: random.Random) -> str:
    """Draw a table, mostly one of equal rows with few faults."""
    if draw.random() < 0.3:
        alphabet = draw.choice(ALPHABETS)
        return "a,b\n" + "".join(draw.choice(alphabet) for _ in range(draw.randint(1, 40)))
    width, faults, end = draw.choice([1, 2, 3]), draw.choice([0, 0, 0.03]), draw.choice(["\n", "\n", "\r\n"])
    lines = [",".join("abc"[:width])]
    for _ in range(draw.randint(1, 12)):
        cells = [draw.choice(RARE if draw.random() < faults else USUAL) for _ in range(width)]
        if draw.random() < faults:
            cells = draw.choice([cells[1:], [*cells, "more"], []])
        lines.append(",".join(cells))
    return end.join(lines) + end * draw.choice([0, 1, 1, 1, 2])


def content(path: Path, dialect: Dialect, *, dense: bool) -> Any:
    """Return lines and cells of the rows, or the message."""
    try:
        table = CsvFile(path, dialect)
        blocks = list(table.blocks(table.names, dense=dense))
    except InputMissing as fault:
        return fault.message
    lines = [line for block in blocks for line in block.positions]
    return lines, {name: [cell for block in blocks for cell in block.columns[name]] for name in table.names}


@pytest.mark.parametrize("cases", [200, pytest.param(2_000, marks=pytest.mark.slow)])
def test_pieces_are_split_as_csv_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: int) -> None:
    draw, path, fast, split = random.Random(cases), tmp_path / "t.csv", 0, files.CsvFile._split
    dialects = [Dialect(), Dialect(encoding="latin-1"), Dialect(decimal=",", separator=";"), Dialect(date_format=("%d.%m.%Y",))]
    for _ in range(cases):
        text, dialect, dense = text_of(draw), draw.choice(dialects), draw.random() < 0.2
        text = text.replace(",", ";") if dialect.separator else text
        path.write_bytes(text.encode(dialect.encoding, "replace"))
        monkeypatch.setattr(files, "LARGE", 1 << 40)
        by_csv = content(path, dialect, dense=dense)
        monkeypatch.setattr(files, "LARGE", 0)
        monkeypatch.setattr(files, "PIECE", draw.choice([8, 30, 1000]))
        slow = 0

        def counted(*words: Any, **more: Any) -> Any:
            nonlocal slow
            slow += 1
            return split(*words, **more)

        with monkeypatch.context() as patch:
            patch.setattr(files.CsvFile, "_split", counted)
            assert content(path, dialect, dense=dense) == by_csv, text
        fast += not slow and isinstance(by_csv, tuple)
    assert fast > cases // 4  # most tables without a fault


def test_a_cast_reads_the_numbers_of_python() -> None:
    draw = random.Random(1)
    texts = ["".join(draw.choice("0123456789.eE+-_ ainft") for _ in range(draw.randint(1, 8))) for _ in range(20_000)]
    texts += [repr(struct.unpack("d", draw.randbytes(8))[0]) for _ in range(20_000)] + [
        "1" * 400,
        "0" * 30 + "1",
        "٣",
        "1d5",
        "0x1",
    ]
    frame = text_columns("\n".join(texts), 1, ",")
    assert frame is not None
    columns = PolarsCells(frame.get_column("0")), Cells(texts)
    numbers, expected = (list(cells.numbers(lambda _: -1.0)) for cells in columns)
    assert list(map(repr, map(float, numbers))) == list(map(repr, map(float, expected)))
    assert columns[0].odd() == columns[1].odd()
    assert columns[0].counts() == columns[1].counts()


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 2, None],
        [1.5, float("nan"), 2.0, None],
        [True, False, None],
        ["a", "b", "", None, "a"],
        [2**60, -1],
        [0.1 + 0.2, 1e300],
    ],
)
def test_typed_cells_are_those_of_a_list(values: list[Any]) -> None:
    import polars

    typed, plain = PolarsCells(polars.Series(values)), Cells(values)
    assert repr(list(typed)) == repr(list(plain))
    for function in (lambda cell: cell is None, lambda cell: len(str(cell)), lambda cell: 0.5 if cell == values[0] else 3):
        assert list(typed.mapped(function)) == list(plain.mapped(function))
    assert list(map(float, typed.numbers(lambda _: -1.0))) == list(map(float, plain.numbers(lambda _: -1.0)))
    assert repr(typed.odd()) == repr(plain.odd())
    mask = [place % 2 == 0 for place in range(len(values))]
    assert repr(list(typed.kept(mask))) == repr(list(plain.kept(mask)))


def test_equal_cells_of_other_types_are_not_alike() -> None:
    cells = Cells([1, True, 1.0, None, "1", 1])
    assert list(cells.mapped(lambda cell: len(str(cell)))) == [1, 4, 3, 4, 1, 1]
