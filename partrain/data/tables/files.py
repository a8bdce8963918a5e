"""Tables in files, block by block. This module reads text files: CSV by the standard library. Cell types are never guessed."""

from __future__ import annotations

import codecs
import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial
from itertools import chain, count, islice, takewhile
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Self

from partrain.config.problems import did_you_mean
from partrain.data.base import WrongContent, repeated
from partrain.data.tables.dialect import USUAL, Dialect
from partrain.data.tables.packed import open_bytes, open_text, unpacking
from partrain.errors import InputMissing
from partrain.number_format import plural
from partrain.preprocess.cell_columns import Cells
from partrain.preprocess.cells import MISSING, is_missing, is_number
from partrain.preprocess.column import RowBlock
from partrain.preprocess.table import TableSchema
from partrain.system.progress import note

ROWS = 1 << 14
"""Rows in a block."""
LARGE = 1 << 20
"""File size in bytes from which polars pays off: importing it takes half a second."""
PIECE = 1 << 24
"""Characters in a piece of a large file."""
MAX_LINE = 1 << 25
"""Number of characters from which a line is too long: a row of a million columns has fewer."""
HEAD = 20
"""Number of rows used to recognise row names."""
UNNAMED = "Unnamed: 0"
"""Name of a first column without a name: the index that pandas and R write. pandas reads it under this name."""

SET, INSPECT = "set", "inspect a job that sets"
"""Advice on setting a key of a `[dataset]` table: in the job that names the file, or in a job yet to be written."""


class TableFile(ABC):
    """A table in a file."""

    def __init__(self, path: Path, advice: str = SET, null_values: Sequence[str] | None = None) -> None:
        """Open a table.

        Args:
            path: The file.
            advice: Beginning of an error's advice on a key of a `[dataset]` table; empty if no key can help.
            null_values: Texts of cells without a value; None: the usual ones.
        """
        self.path, self.advice = path, advice
        self._nulls = MISSING if null_values is None else {"", *(text.strip().lower() for text in null_values)}
        self.numbers_missing = any(map(is_number, self._nulls - MISSING))
        """True if a number marks a missing value."""
        self.remark = ""
        """A fact about the file for the user, in words; empty in most cases."""
        self.held: RowBlock | None = None
        """Rows that replace the rows of the file."""
        self.unreadable: list[tuple[int, str]] | None = None
        """Number and fault of each row left out because it cannot be split into cells; None: such a row is an error."""
        self.names = self._header()
        """Columns, in the file's order."""
        if (twice := repeated(self.names)) is not None:
            raise InputMissing(f"{self.header_location}: two columns are called `{twice}`")

    @cached_property
    def index(self) -> list[str]:
        """Columns that pandas or R wrote as its row index: not inputs unless a key names them."""
        first = takewhile(re.compile(rf"{UNNAMED}(\.[0-9]+)?").fullmatch, self.names)
        return [*first, *filter(re.compile("__index_level_[0-9]+__").fullmatch, self.names)]

    @cached_property
    def unusable(self) -> Mapping[str, str]:
        """Columns whose cells cannot become numbers, and their content."""
        return {}

    def reason_to_drop(self, name: str) -> str:
        """Return why the file's format rules a column out as input; "" if it does not."""
        return "an index that pandas wrote" if name in self.index else self.unusable.get(name, "")

    @cached_property
    def places(self) -> dict[str, int]:
        """Position of each column in `names`."""
        return {name: place for place, name in enumerate(self.names)}

    def is_missing(self, cell: Any) -> bool:
        """Return whether a cell holds no value."""
        return is_missing(cell, self._nulls)

    @property
    def header_location(self) -> str:
        """Location of the column names, for messages."""
        return self.locate(1)

    @abstractmethod
    def locate(self, number: int) -> str:
        """Return the location of a row, for messages."""

    def blocks(self, names: Sequence[str], *, dense: bool = False) -> Iterator[RowBlock]:
        """Yield these columns of all rows in blocks.

        Raises:
            InputMissing: the file is damaged; or, if rows must be `dense`, there is an empty line between two rows.
        """
        return self._blocks(names, dense=dense) if self.held is None else iter([self.held])

    def part(self, block: RowBlock) -> Self:
        """Return some rows as a table."""
        part = copy(self)
        part.held = block
        return part

    def used_blocks(self, schema: TableSchema, *more: str) -> Iterator[RowBlock]:
        """Yield the columns and rows that a schema uses, in blocks, with `more` columns."""
        return map(schema.kept, self.blocks(list(dict.fromkeys((*schema.used, *more)))))

    def head(self, rows: int) -> dict[str, list[Any]]:
        """Return the cells of all columns in the first rows."""
        held, count = list[RowBlock](), 0
        for block in self.blocks(self.names):
            held.append(block.kept([place < rows - count for place in range(len(block.positions))]))
            count += len(block.positions)
            if count >= rows:
                break
        return cells_of(held, self.names)

    def first(self, name: str, is_it: Callable[[Any], bool]) -> tuple[str, Any]:
        """Return the location and the cell of the first row whose cell meets a condition."""
        for block in self.blocks([name]):
            cells = block.columns[name]
            if (index := next((index for index, hit in enumerate(cells.mapped(is_it)) if hit), None)) is not None:
                return self.locate(block.positions[index]), cells[index]
        raise LookupError(name)

    @abstractmethod
    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]: ...

    @abstractmethod
    def _header(self) -> list[str]: ...

    def require(self, name: str, key: str) -> None:
        """Raise InputMissing unless the column exists; `key` is the table's key that asks for it."""
        if name not in self.places:
            near = did_you_mean(name, self.names)
            listed = ", ".join(self.names[:12]) + (f" and {len(self.names) - 12} more" if len(self.names) > 12 else "")
            advice = f"did you mean `{near}`?" if near else f"there are {listed}"
            message = f"{self.header_location}: no column `{name}`, which `{key}` asks for: {self.separator_advice() or advice}"
            raise WrongContent(([key], message))

    def separator_advice(self) -> str | None:
        """Return advice if all names are in one cell because the file has another separator; else None."""
        return None


class LineFile(TableFile):
    """A table whose rows begin on lines of text; the first line has the column names."""

    def locate(self, number: int) -> str:
        return f"{self.path}:{number}"

    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]:
        return self._row_blocks(self._rows(dense=dense), names)

    def _row_blocks(self, rows: Iterator[tuple[int, Any]], names: Sequence[str]) -> Iterator[RowBlock]:
        """Yield columns of rows in blocks."""
        getters, whole = {name: self._getter(name) for name in names}, self._whole(rows)
        while some := list(islice(whole, ROWS)):
            cells = [row for _, row in some]
            yield RowBlock(
                self, [line for line, _ in some], {name: Cells(list(map(get, cells))) for name, get in getters.items()}
            )

    def _whole(self, rows: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Yield the rows without faults, each with its line."""
        for line, row in rows:
            if not (wrong := self._fault(line, row)):
                yield line, row
            elif self.unreadable is None:
                raise InputMissing(wrong)
            else:
                self.unreadable.append((line, wrong))

    @abstractmethod
    def _getter(self, name: str) -> Callable[[Any], Any]:
        """Return the function that gets a column's cell from a row."""

    @abstractmethod
    def _rows(self, *, dense: bool) -> Iterator[tuple[int, Any]]:
        """Yield the rows after the header, each with the line on which it begins."""

    @abstractmethod
    def _fault(self, line: int, row: Any) -> str:
        """Describe the fault of a row that cannot be split into cells; "" if it has none."""


class CsvFile(LineFile):
    """Separated text, plain or compressed. Line 1 has the column names; empty lines are skipped unless rows must be dense."""

    def __init__(self, path: Path, dialect: Dialect = USUAL, advice: str = SET) -> None:
        """Open a table. Its separator is a tab in .tsv files by default, else a comma."""
        self.path, self._encoding, self._rewrite = path, dialect.encoding, dialect.rewrite
        separator = separator_line(path, self._encoding)
        self._separator, self._skipped = dialect.separator or separator or usual_separator(path), int(separator is not None)
        super().__init__(path, advice, dialect.null_values)
        if not codecs.lookup(self._encoding).name.startswith("utf") and holds_utf8(path):
            remedy = f'{self.advice} encoding = "utf-8"' if self.advice else f"save it as {self._encoding}"
            raise InputMissing(f"{path}: is UTF-8 text, and would be read as {self._encoding}: {remedy}")

    def separator_advice(self) -> str | None:
        other = next(
            (candidate for candidate in (";", "\t", ",", "|") if len(self.names) == 1 and candidate in self.names[0]), None
        )
        if other is None:
            return None
        advice = f"so {self.advice} `separator`" if self.advice else f"and the job's by {self._separator!r}"
        return f"line 1 is a single name: its cells seem to be separated by {other!r}, {advice}"

    @property
    def header_location(self) -> str:
        return self.locate(1 + self._skipped)

    def _getter(self, name: str) -> Callable[[Any], Any]:
        get, rewrite = itemgetter(self.places[name]), self._rewrite
        return get if rewrite is None else lambda row: rewrite(get(row))

    def _header(self) -> list[str]:
        with self._named(), self._open() as file:
            rows = csv.reader(self._lines(file), delimiter=self._separator, strict=True)
            try:
                first = next(rows, None)
            except csv.Error as error:
                advice = f"{self.advice} `separator` if it is another one than {self._separator!r}, or " if self.advice else ""
                raise InputMissing(f"{self.header_location}: {error}: {advice}close the quotes of each name") from None
            if first and _named_rows(len(first), rows):
                first = ["", *first]
        return header_names(first, self.header_location)

    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]:
        """Yield blocks: pieces of the file that polars splits as csv does.

        From the first piece where they differ on, csv splits.
        """
        size, read = self.path.stat().st_size, 0
        if len(self._separator.encode()) > 1 or size < LARGE:
            yield from super()._blocks(names, dense=dense)
            return
        from partrain.data.tables.polars_cells import cells_of_column, text_columns

        with self._named(), self._open() as file:
            lines = self._lines(file)
            header = csv.reader(lines, delimiter=self._separator, strict=True)
            next(header)
            line = header.line_num + self._skipped + 1
            for piece, after in _pieces(file):
                too_long = len(piece) >= MAX_LINE and "\n" not in piece
                frame = None if too_long else text_columns(piece, len(self.names), self._separator)
                if frame is None:
                    text = piece + after
                    text += "" if text.endswith("\n") else file.readline(MAX_LINE)
                    held = io.StringIO(text, newline="")
                    rest = chain(self._lines(held, line), self._lines(file, line + text.count("\n")))
                    yield from self._row_blocks(self._split(rest, line, dense=dense), names)
                    return
                columns = frame.get_columns()
                cells = {name: cells_of_column(columns[self.places[name]], self._rewrite) for name in names}
                read += len(piece)
                if read < size:  # else the file is compressed
                    note(f"{self.path}: reading", read / size)
                yield RowBlock(self, range(line, line + frame.height), cells)
                line += frame.height
            note(f"{self.path}: reading", 1.0)

    def _rows(self, *, dense: bool) -> Iterator[tuple[int, list[str]]]:
        with self._named(), self._open() as file:
            rows = self._split(self._lines(file), 1 + self._skipped, dense=dense)
            next(rows)
            yield from rows

    def _split(self, lines: Iterator[str], first: int, *, dense: bool) -> Iterator[tuple[int, list[str]]]:
        """Split lines into the cells of rows, each with the line on which it begins; `first` is the number of the first line."""
        reader, before, empty = csv.reader(lines, delimiter=self._separator, strict=True), first - 1, 0
        try:
            for row in reader:
                if row and dense and empty:
                    raise InputMissing(f"{self.path}:{empty}: an empty line, and rows after it: fill it in, or delete it")
                if row:
                    yield before + 1, row
                empty = empty or (0 if row else before + 1)
                before = reader.line_num + first - 1
        except csv.Error as error:
            raise InputMissing(f"{self.path}:{before + 1}: {error}") from None

    def _lines(self, file: IO[str], first: int = 1) -> Iterator[str]:
        """Yield the lines of a file from number `first` on; InputMissing for an overlong line, before all of it is in memory."""
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE), ""), first):
            if len(line) == MAX_LINE:
                raise InputMissing(f"{self.path}:{number}: a line of more than {MAX_LINE - 1:,} characters: this is no table")
            if number > self._skipped:
                yield line

    def _fault(self, line: int, row: Any) -> str:
        width, cells = len(self.names), len(row)
        if cells == width:
            return ""
        text = f"{self.path}:{line}: {cells} {plural('cell', cells)} where line 1 names {width} columns"
        if cells < width:
            return f"{text}: `{self.names[cells]}` and what follows are missing"
        advice = f", or {self.advice} `separator`" if self.advice else ""
        return f"{text}: put cells that hold the separator {self._separator!r} in quotes{advice}"

    def _open(self) -> IO[str]:
        return open_text(self.path, self._encoding)

    @contextmanager
    def _named(self) -> Iterator[None]:
        with unpacking(self.path):
            try:
                yield
            except UnicodeError as error:
                other = "latin-1" if self._encoding.lower() == "utf-8" else "utf-8"
                advice = "save it so" + f', or {self.advice} encoding = "{marked_encoding(self.path) or other}"' * bool(
                    self.advice
                )
                reason = getattr(error, "reason", error)
                raise InputMissing(f"{self.path}:{self._undecoded()}: not {self._encoding} text ({reason}): {advice}") from None

    def _undecoded(self) -> int:
        """Return the first line that cannot be decoded; 1 if the encoding has no single byte for line ends."""
        if "\n".encode(self._encoding) != b"\n":
            return 1
        with open_bytes(self.path) as file:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
                try:
                    line.decode(self._encoding)
                except UnicodeError:
                    return number
        return 1


def _pieces(file: IO[str]) -> Iterator[tuple[str, str]]:
    """Yield the rest of a file in pieces of whole lines, each with the text read after it; an overlong line ends a piece."""
    after = ""
    while text := file.read(PIECE):
        text = after + text
        end = text.rfind("\n") + 1 or len(text) * (len(text) >= MAX_LINE)
        piece, after = text[:end], text[end:]
        if piece:
            yield piece, after
    if after:
        yield after, ""


def _named_rows(width: int, rows: Iterator[list[str]]) -> bool:
    """Return whether rows begin with a name, as R writes them: one cell more than the header's width, and all names differ."""
    try:
        some = list(islice(filter(None, rows), HEAD))
    except (csv.Error, InputMissing, UnicodeError):
        return False  # reading the rows again reports the fault
    longer = all(len(row) == width + 1 for row in some) and any(row[-1].strip() for row in some)
    return len(some) > 1 and longer and len({row[0] for row in some}) == len(some)


def header_names(first: Sequence[str] | None, where: str) -> list[str]:
    """Return the column names in a table's first row; None: the table is empty.

    InputMissing if there are none; `where`: its location.
    """
    if not first:
        raise InputMissing(f"{where}: {'is empty' if first is None else 'an empty line'}: expected the names of columns")
    names = [name.strip() for name in first]
    if not names[0] and len(names) > 1:
        names[0] = (
            UNNAMED if UNNAMED not in names else next(name for number in count(1) if (name := f"{UNNAMED}.{number}") not in names)
        )
    if "" in names:
        raise InputMissing(f"{where}: column {names.index('') + 1} has no name")
    if all(map(is_number, names)):
        raise InputMissing(f"{where}: holds numbers where the names of columns are expected: add a line of names")
    return names


def usual_separator(path: Path) -> str:
    """Return the default separator of a file: a tab in .tsv files, else a comma."""
    return "\t" if ".tsv" in Path(path.name.lower()).suffixes[-2:] else ","


def separator_line(path: Path, encoding: str) -> str | None:
    """Return the separator in a first line such as `sep=;`, which spreadsheets write; None without such a line."""
    try:
        with unpacking(path, UnicodeError), open_text(path, encoding) as file:
            line = re.fullmatch(r'"?sep=(.)"?\s*', file.readline(16))
    except InputMissing:
        return None  # reading the header reports it
    return line and line[1]


def marked_encoding(path: Path) -> str | None:
    """Return the encoding given by a byte order mark, or by zero bytes in the first two letters."""
    with open_bytes(path) as file:
        start = file.read(4)
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    zeros = "".join("0" if byte == 0 else "x" for byte in start)
    return {"x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(zeros)


def holds_utf8(path: Path) -> bool:
    """Return whether a file is UTF-8 text with letters beyond ASCII: text of another encoding is that by chance only."""
    decoder, beyond = codecs.getincrementaldecoder("utf-8")(), False
    with unpacking(path), open_bytes(path) as file:
        try:
            for block in iter(partial(file.read, 1 << 20), b""):
                beyond = beyond or not block.isascii()
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return beyond


def cells_of(blocks: Iterable[RowBlock], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the cells of columns from all blocks."""
    held = list(blocks)
    return {name: [cell for block in held for cell in block.columns[name]] for name in names}
