"""The file formats of tables: each has one row here, and no other module names its suffixes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from partrain.data.tables.dialect import USUAL, Dialect
from partrain.data.tables.excel import ExcelFile
from partrain.data.tables.files import SET, CsvFile, TableFile
from partrain.data.tables.json_rows import JsonRows
from partrain.data.tables.packed import PACKINGS
from partrain.data.tables.parts import TableParts, part_paths
from partrain.data.tables.typed_files import ArrowFile, ParquetFile
from partrain.errors import InputMissing


@dataclass(frozen=True)
class TableFormat:
    """A file format of tables."""

    name: str
    suffixes: tuple[str, ...]
    """Suffixes of its files, in lower case."""
    open: Callable[[Path, Dialect, str], TableFile]
    """Opens a file; the last argument is `advice` of `TableFile`."""
    magic: re.Pattern[bytes] | None = None
    """The beginning of its files, if it determines the format."""
    kind: str = "table"
    """The `kind` in `[dataset]` that `init` writes. Any other than `table` belongs to this format alone."""
    typed: bool = True
    """Its cells have types: of a `Dialect`, only `null_values` applies to them."""


def _typed(table: Callable[[Path, str, tuple[str, ...] | None], TableFile]) -> Callable[[Path, Dialect, str], TableFile]:
    """Return the function that opens a table of typed cells. Of a dialect it needs only the missing values."""
    return lambda path, dialect, advice: table(path, advice, dialect.null_values)


CSV = TableFormat(
    "CSV", tuple(f"{text}{packed}" for text in (".csv", ".tsv") for packed in ("", *PACKINGS)), CsvFile, kind="csv", typed=False
)
FORMATS = (
    CSV,
    TableFormat(
        "Parquet",
        (".parquet", ".pq"),
        _typed(ParquetFile),
        re.compile(b"PAR1"),
        kind="parquet",
    ),
    TableFormat(
        "Arrow",
        (".arrow", ".feather", ".ipc"),
        _typed(ArrowFile),
        re.compile(b"ARROW1"),
    ),
    TableFormat(
        "Excel",
        (".xlsx", ".xlsm"),
        _typed(ExcelFile),
        re.compile(rb"PK\x03\x04.*xl/workbook\.xml", re.DOTALL),
    ),
    TableFormat(
        "JSON",
        (".json", ".jsonl", ".ndjson"),
        _typed(JsonRows),
        re.compile(rb"(\xef\xbb\xbf)?\s*[\[{]"),
    ),
)
"""All formats."""
SUFFIXES = tuple(suffix for form in FORMATS for suffix in form.suffixes)
"""Suffixes of tables, in lower case."""
NAMES = ", ".join(form.name for form in FORMATS[:-1]) + f" or {FORMATS[-1].name}"
"""The formats' names, for messages."""


def format_of(path: Path) -> TableFormat | None:
    """Return the format of a table by its suffix, or by the suffix of its parts in a folder; None if it is not a table."""
    name = next(iter(part_paths(path)), Path()).name if path.is_dir() else path.name
    return next((form for form in FORMATS if name.lower().endswith(form.suffixes)), None)


def suffix_of(content: bytes) -> str | None:
    """Return the suffix of a table by its first bytes; None if they match no format."""
    return next((form.suffixes[0] for form in FORMATS if form.magic and form.magic.match(content)), None)


def open_file(path: Path, dialect: Dialect = USUAL, advice: str = SET, kind: str | None = None) -> TableFile:
    """Open a table in the format that the `kind` of its `[dataset]` table or else its suffix gives; CSV if neither does."""
    named = next((form for form in FORMATS if form.kind == kind != "table"), None)
    form = named or format_of(path) or CSV
    if not path.is_dir():
        return form.open(path, dialect, advice)
    if not (parts := part_paths(path)):
        raise InputMissing(f"{path}: is a folder, but not of the parts of one table, whose names differ in numbers alone")
    return TableParts(path, [form.open(part, dialect, advice) for part in parts], dialect.null_values)
