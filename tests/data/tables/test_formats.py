"""File formats of tables: each gives the same table, and one line for a damaged file."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
import zipfile
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.sheets import write_sheets

from partrain.data import load, read_spec
from partrain.data.base import WrongContent
from partrain.data.tables.formats import FORMATS, format_of, open_file, suffix_of
from partrain.data.tables.parts import part_paths
from partrain.data.tables.sections import AnyTable
from partrain.errors import InputMissing
from partrain.templates.assemble import Asked
from partrain.templates.from_data import job_for


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


# Compressed CSV

TEXT = b"size,town\n1,Ulm\n2,Bonn\n"


def zipped(*contents: bytes) -> bytes:
    """Return an archive of tables, with what the Finder of macOS adds."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._t.csv", b"")
        for number, content in enumerate(contents):
            archive.writestr(f"in/t{number}.csv", content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress), ("zip", zipped)]
)
def test_compressed_text(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    for name, text in (f"t.csv.{suffix}", TEXT), (f"T.TSV.{suffix.upper()}", TEXT.replace(b",", b"\t")):
        (path := tmp_path / name).write_bytes(pack(text))
        assert cells(path) == {"size": ["1", "2"], "town": ["Ulm", "Bonn"]}
    path = tmp_path / f"t.csv.{suffix}"
    for damaged in TEXT, b"", pack(TEXT * 99)[:-9], pack(TEXT * 99)[:40] + b"\0" * 40:
        assert refused(path, damaged).startswith(path.name)
    assert refused(path, pack(b"")) == f"{path.name}:1: is empty: expected the names of columns"
    assert refused(path, pack(TEXT + b"3,4,5\n")).startswith(f"{path.name}:4: 3 cells where line 1 names 2 columns")


def test_an_archive_of_two_tables(tmp_path: Path) -> None:
    message = "t.csv.zip: holds 2 files: pack one table alone, or unpack it"
    assert refused(tmp_path / "t.csv.zip", zipped(TEXT, TEXT)) == message


# Folders of parts


def parts(folder: Path, **contents: bytes) -> Path:
    """Write the files of a folder, with what Spark adds."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for name, content in contents.items():
        (folder / f"{name}.csv").write_bytes(content)
    for name in "_SUCCESS", "._SUCCESS.crc":
        (folder / name).write_bytes(b"")
    return folder


def test_a_folder_of_parts_is_one_table(tmp_path: Path) -> None:
    """Parts follow one another by their numbers; a fault, a row and its cell have the place in their part."""
    folder = parts(tmp_path / "t", part10=b"town,size\nJena,3\n", part2=TEXT, part11=b"")
    assert cells(folder) == {"size": ["1", "2", "3"], "town": ["Ulm", "Bonn", "Jena"]}
    form = format_of(folder)
    assert form is not None
    assert form.name == "CSV"
    table = open_file(folder)
    assert table.first("size", "3".__eq__) == (f"{folder}/part10.csv:2", "3")
    (folder / "part10.csv").write_text("town,size\nJena,3\n\nRom\nTrier,4\n")
    assert refused(folder).startswith("t/part10.csv:4: 1 cell where line 1 names 2 columns")
    table = open_file(folder)
    table.unreadable = []
    places = [table.locate(place) for block in table.blocks(["size"]) for place in block.positions]
    assert [place.rpartition("/")[2] for place in places] == ["part2.csv:2", "part2.csv:3", "part10.csv:2", "part10.csv:5"]
    assert [table.locate(place).rpartition("/")[2] for place, _ in table.unreadable] == ["part10.csv:4"]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"p1": TEXT, "p2": b"size\n1\n"}, "t/p2.csv:1: no column `town`, which p1.csv has"),
        ({"p1": b"size\n1\n", "p2": TEXT}, "t/p2.csv:1: a column `town`, which p1.csv has not"),
        ({"p1": TEXT, "p2": b"3,4\n"}, "t/p2.csv:1: holds numbers where the names of columns are expected: add a line of names"),
        ({"p1": b"", "p2": b""}, "t/p1.csv:1: is empty: expected the names of columns"),
        ({"train": TEXT, "test": TEXT}, "t: is a folder, but not of the parts of one table, whose names differ in numbers alone"),
        ({}, "t: is a folder, but not of the parts of one table, whose names differ in numbers alone"),
    ],
)
def test_faults_of_parts(tmp_path: Path, contents: dict[str, bytes], message: str) -> None:
    assert refused(parts(tmp_path / "t", **contents)) == message


@pytest.mark.parametrize("names", [
    ["part-00000-4f1c0f6e-6a1b-4a0e-9d5b-2f0f2a9c1b7d-c000.snappy.parquet", "part-00001-4f1c0f6e-6a1b-4a0e-9d5b-2f0f2a9c1b7d-c000.snappy.parquet"],
    ["part.0.parquet", "part.1.parquet"], ["00000000.parquet", "00000001.parquet"], ["data_0.csv.gz", "data_1.csv.gz"],
])  # fmt: skip
def test_names_of_parts(tmp_path: Path, names: list[str]) -> None:
    """They are those of Spark, Dask, Polars and DuckDB."""
    for name in reversed(names):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in part_paths(tmp_path)] == names
    assert format_of(tmp_path)
    (tmp_path / "in").mkdir()
    assert format_of(tmp_path) is None


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


# Files with types


def test_arrow_files_and_streams(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"size": [1.5, None], "town": ["Ulm", "Bonn"]})
    frame.write_ipc(tmp_path / "t.arrow")
    frame.write_ipc(tmp_path / "T.Feather", compression="zstd")
    frame.write_ipc_stream(tmp_path / "t.ipc")
    for name in "t.arrow", "T.Feather", "t.ipc":
        assert cells(tmp_path / name) == {"size": [1.5, None], "town": ["Ulm", "Bonn"]}
    content = (tmp_path / "t.arrow").read_bytes()
    assert suffix_of(content) == ".arrow"
    for damaged in b"", TEXT, content[:60], content[:-4], b"\xff\xff\xff\xff" + content:
        assert refused(tmp_path / "t.arrow", damaged).startswith("t.arrow: ")
    assert refused(tmp_path / "t.arrow", TEXT).startswith("t.arrow: damaged, or no Arrow file: ")


def test_an_index_of_pandas_is_no_input(tmp_path: Path) -> None:
    """Neither one that the file's metadata name, nor an unnamed one; a key may still name it."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0.5, 1, 2] * 9, "y": [1.5, 2.5, 4] * 9}, index=[row * row for row in range(27)])
    for table, index in (frame, "__index_level_0__"), (frame.rename_axis("nr"), "nr"), (frame.reset_index(drop=True), None):
        table.to_parquet(tmp_path / "t.parquet")
        section = AnyTable(kind="table", path="t.parquet", target=["y"])
        spec = read_spec(section, tmp_path)
        assert spec is not None
        assert spec.shape == (1,)
        left_out = f"{tmp_path}/t.parquet: column `{index}` is an index that pandas or R wrote: it is left out"
        assert [remark.message for remark in spec.remarks] == [left_out] * (index is not None)
        if index:
            assert load(section.model_copy(update={"inputs": ["a", index]}), tmp_path).codec["inputs"] == ["a", index]
            assert f'drop = ["{index}"]' in job_for(tmp_path / "t.parquet", Asked(("y",)), tmp_path).text


def test_an_index_that_was_saved_twice(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",Unnamed: 0,a,y\n0,0,5,1.5\n1,2,6,2.5\n")
    section = AnyTable(kind="table", path="t.csv", target=["y"])
    spec = read_spec(section, tmp_path)
    assert spec is not None
    assert [remark.advice.partition(" says")[0] for remark in spec.remarks] == [
        'drop = ["Unnamed: 0.1"]',
        'drop = ["Unnamed: 0"]',
    ]
    assert load(section, tmp_path).codec["inputs"] == ["a"]


def test_types_of_columns(tmp_path: Path) -> None:
    """Bytes that are text are words, durations are seconds; a column of lists is refused only where it is used."""
    polars = pytest.importorskip("polars")
    frame = {"b": [b"no", None, b"yes"] * 9, "raw": [b"\xff"] * 27, "d": [timedelta(seconds=90), None, timedelta(days=1)] * 9}
    frame |= {"l": [[1], [2], None] * 9, "y": [1.5, 2.5, 4.0] * 9}
    polars.DataFrame(frame).write_parquet(tmp_path / "t.parquet")
    read = cells(tmp_path / "t.parquet")
    assert (read["b"], read["raw"], read["d"]) == (["no", None, "yes"] * 9, [b"\xff"] * 27, [90.0, None, 86400.0] * 9)
    section = AnyTable(kind="table", path="t.parquet", target=["y"], drop=["raw"], one_hot=["b"], missing="median")
    with pytest.raises(WrongContent) as caught:
        load(section, tmp_path)
    wrong = 'column `l`: holds lists or objects, and a cell of a table is one value; leave it out: drop = ["l"]'
    assert caught.value.message == f"{tmp_path}/t.parquet: {wrong}"
    assert load(section.model_copy(update={"drop": ["raw", "l"]}), tmp_path).codec["inputs"] == ["b", "d"]
    assert "# l: lists or objects\n" in job_for(tmp_path / "t.parquet", Asked(("y",)), tmp_path).text


def test_decimal_numbers_of_too_many_digits(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pyarrow.table({"x": pyarrow.array([Decimal("1.5")], pyarrow.decimal256(50, 2)), "y": [2.5]}), tmp_path / "t.parquet"
    )
    wrong = "decimal numbers of 50 digits, where 38 can be read; save them as float64"
    assert refused(tmp_path / "t.parquet") == f"t.parquet: column `x`: {wrong}"
    assert [block.columns["y"][0] for block in open_file(tmp_path / "t.parquet").blocks(["y"])] == [2.5]


# Excel


def test_a_sheet_of_excel(tmp_path: Path) -> None:
    """Rows keep the numbers that Excel shows; empty ones are skipped, and a column without a name is an index of pandas."""
    pytest.importorskip("fastexcel")
    path = tmp_path / "T.XLSX"
    head, rows = [None, "size", 2019, "flag"], [[0, 1.5, "007", True], [], [1, None, "?", False], [2, 1e-7, 12, None]]
    write_sheets(path, Data=[[], head, *rows], More=[])
    read = {"size": ["1.5", None, "0.0000001"], "2019": ["007", "?", "12"], "flag": ["true", "false", None]}
    assert cells(path) == {"Unnamed: 0": ["0", "1", "2"]} | read
    table = open_file(path)
    assert table.first("2019", "?".__eq__) == (f"{path}: row 5", "?")
    assert table.remark == "read is the first of 2 sheets, `Data`"
    section = AnyTable(kind="table", path=path.name, target=["size"], drop=["2019", "flag"], inputs=None, missing="drop")
    with pytest.raises(InputMissing, match="no column is left to learn from except `size`"):
        read_spec(section, tmp_path)
    assert suffix_of(path.read_bytes()) == ".xlsx"
    with pytest.raises(InputMissing, match=r"row 4: an empty row, and rows after it"):
        list(table.blocks(["size"], dense=True))


def test_faults_of_excel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastexcel")
    path = tmp_path / "t.xlsx"
    assert refused(path, TEXT).startswith("t.xlsx: damaged, or no Excel file: ")
    assert refused(path, zipped(TEXT)).startswith("t.xlsx: damaged, or no Excel file: ")
    for rows, message in (
        ([], "row 1: is empty: expected the names of columns"),
        ([[], ["a", None, "b"]], "row 2: column 2 has no name"),
        ([[1, 2]], "row 1: holds numbers where the names of columns are expected: add a line of names"),
        ([["a", "a"]], "row 1: two columns are called `a`"),
    ):
        write_sheets(path, Data=rows)
        assert refused(path) == f"t.xlsx: {message}"
    path.unlink()
    assert refused(path) == "t.xlsx: No such file or directory"
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    assert refused(path) == "t.xlsx: Excel files need fastexcel, which is not installed: pip install 'partrain[excel]'"
