"""Recognition of the format of a table in a text file, for `partrain init --from`: encoding, separator, and numbers."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from partrain.data.tables.date_formats import USUAL_FORMATS, date_writer
from partrain.data.tables.dialect import MINUS, USUAL, Dialect
from partrain.data.tables.files import marked_encoding, separator_line, usual_separator
from partrain.data.tables.packed import open_bytes, open_text, unpacking
from partrain.preprocess.cells import is_finite, is_number, parse_bool, parse_date

SEPARATORS = (",", ";", "\t", "|")
MARKS = f"$€£¥%*†‡§(){MINUS}"
"""Currency, percent and footnote signs next to numbers, parentheses around negative ones, and the minus sign of Unicode."""
LIMITS = "<>≤≥~"
"""Signs of a measurement beyond a detection limit: the limit itself is the number."""
FORMATS = ((".", ""), (".", ","), (",", ""), (",", "."), (",", " "), (".", " "), (".", "'"))
"""Decimal marks and thousands separators, the likeliest first."""
ROWS = 200
"""Number of lines used to recognise a separator; the whole file is then read with it, and a row of another width is an error."""
TRIED_DATES, MOST_FORMS = 20, 4
"""Number of texts that must all be dates before several formats are tried, and the maximum number of formats in a column."""
MOST_TEXTS = 2000
"""Number of texts of a column used to recognise the decimal mark."""
PLACEHOLDERS = {"none", "nil", "nd", "n.d.", "n.a.", "#n/a", "#value!", "#div/0!", "#null!", "#num!", "#ref!", "#name?", "\\n", "<na>", "unknown", "missing", "nr",
                "inf", "-inf", "+inf", "infinity"}  # fmt: skip
"""Words for a missing number, or for one that cannot be computed with. A text without letters and digits also counts."""
_GROUPED = re.compile(r"[1-9][0-9]{0,2}([.,])[0-9]{3}(?:\1[0-9]{3})*")
"""A number in groups of three digits; with a single mark, it may also be one with three fractional digits."""
_FRACTION = re.compile(r"(?:[0-9]+|[0-9]{1,3}(?:[.,' ][0-9]{3})+)?([.,])[0-9]+(?:[eE][+-]?[0-9]+)?")
FEW, MOST = 0.1, 10
"""Share of rows, and number of different texts, up to which odd cells among numbers leave the column numeric."""


def text_dialect(path: Path, fixed: Mapping[str, str]) -> tuple[Dialect, list[str]]:
    """Recognise encoding and separator, except `fixed` ones. Returns a sentence for each unusual one."""
    notes, keys = [], dict(fixed)
    if "encoding" not in keys and (encoding := _encoding(path)) != "utf-8":
        keys["encoding"] = encoding
        notes.append(f"{path}: not UTF-8: read as {encoding} (--encoding NAME)")
    separator = keys.get("separator") or _separator(path, keys.get("encoding", "utf-8"))
    if "separator" not in keys and separator != usual_separator(path):
        keys["separator"] = separator
        notes.append(f"{path}: its cells are separated by {separator!r} (--separator CHARACTER)")
    return Dialect(**keys), notes  # type: ignore[arg-type]


def _encoding(path: Path) -> str:
    """Return the encoding of a text: by a byte order mark, UTF-8 if all of it is valid, else Windows's or latin-1."""
    decoders = {name: codecs.getincrementaldecoder(name)() for name in ("utf-8", "cp1252")}
    with unpacking(path):
        if marked := marked_encoding(path):
            return marked
        with open_bytes(path) as file:
            for block in (*iter(lambda: file.read(1 << 20), b""), b""):
                for name, decoder in list(decoders.items()):
                    try:
                        decoder.decode(block, final=not block)
                    except UnicodeError:
                        del decoders[name]
    return next(iter(decoders), "latin-1")


def _separator(path: Path, encoding: str) -> str:
    """Return the separator that splits the first lines into most columns, equally many in nine of ten; or of a `sep=;` line.

    The header may have one name fewer than the rows have cells, as R writes tables, if no separator fits better.
    """
    if separator := separator_line(path, encoding):
        return separator
    with unpacking(path, UnicodeError), open_text(path, encoding) as file:
        lines = list(islice(file, ROWS))
    usual, widths = usual_separator(path), dict[str, tuple[bool, bool, int]]()
    for separator in sorted(SEPARATORS, key=lambda separator: separator != usual):
        try:
            rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            continue
        counts = Counter(map(len, rows[1:] or rows))
        width, count = counts.most_common(1)[0] if rows else (0, 0)
        if rows and len(rows[0]) in (width, width - 1) and count >= 0.9 * counts.total():
            widths[separator] = width > 1, len(rows[0]) == width, width
    return max(widths, key=lambda separator: widths[separator], default=usual)


def number_dialect(
    dialect: Dialect,
    columns: Mapping[str, Counter[str]],
    fixed: Collection[str],
    numbers: Mapping[str, Counter[str]] | None = None,
) -> tuple[Dialect, list[str]]:
    """Recognise decimal mark, thousands separator and signs next to numbers, except `fixed` ones.

    Args:
        dialect: The dialect so far.
        columns: The row count of each text in each column that has texts which are no numbers in this dialect.
        fixed: Keys that the user gave.
        numbers: The same for the other columns, whose numbers may still be written in groups of three digits.

    Returns:
        The dialect, and a sentence for each unusual mark.
    """
    every = {**(numbers or {}), **columns}
    decimals = {dialect.decimal} if "decimal" in fixed else _decimals(every.values())
    decimal = next(iter(decimals)) if len(decimals) == 1 else ""
    written = {name: better for name, texts in columns.items() if (better := _numbers_of(dialect, texts, fixed, decimal))}
    notes = []
    for name, texts in (numbers or {}).items() if "thousands" not in fixed and decimal != "." else ():
        if not _grouped(texts, ".", alone=decimal == ","):
            continue
        if decimal or (not decimals and dialect.separator == ";"):
            written[name] = replace(dialect, decimal=",", thousands=".")
        else:
            example = next(text for text in texts if "." in text)
            notes.append(
                f"column `{name}`: {example!r} is read as a number below 1,000 (for thousands: --thousands . --decimal ,)"
            )
    for key, flag in ("decimal", "--decimal"), ("thousands", "--thousands"), ("number_marks", "--number-marks"):
        values = {name: value for name, better in written.items() if (value := getattr(better, key)) != getattr(dialect, key)}
        if values:
            value = next(iter(values.values()))
            value = "".join(sorted(set("".join(values.values())))) if key == "number_marks" else value
            changed: dict[str, Any] = {key: value}
            dialect = replace(dialect, **changed)
            examples = ((column, text) for column in values for text in every[column] if set(value) & set(text))
            for column, text in islice(examples, 1):  # of three groups of digits, no column may show the decimal mark
                notes.append(f"column `{column}`: {text!r} is read with {key.replace('_', ' ')} {value!r} ({flag})")
    return dialect, notes


def _bare(text: str) -> str:
    """Return a number without sign and marks."""
    return text.strip(f"+- {MARKS}{LIMITS}")


def _decimals(columns: Iterable[Counter[str]]) -> set[str]:
    """Return the marks that fractional digits follow in columns of numbers, for certain: other than three digits, say."""
    decimals = set[str]()
    for texts in columns:
        some = [_bare(text) for text in islice(texts, MOST_TEXTS) if not _stands_for_nothing(text)]
        fractions = [fraction for text in some if (fraction := _FRACTION.fullmatch(text)) and not _GROUPED.fullmatch(text)]
        whole = sum(text.isdigit() or _GROUPED.fullmatch(text) is not None for text in some)
        if len(fractions) + whole >= (1 - FEW) * len(some):
            decimals |= {fraction[1] for fraction in fractions}
    return decimals


def _grouped(texts: Iterable[str], separator: str, *, alone: bool) -> bool:
    """Return whether a separator parts groups of three digits in all numbers that have it, and the others are below 1,000.

    `alone`: true also if there are no others.
    """
    number = re.compile(rf"[0-9]{{1,3}}(?:{re.escape(separator)}[0-9]{{3}})*(?:{'.' if separator == ',' else ','}[0-9]+)?")
    marked = others = False
    for text in texts:
        if _stands_for_nothing(text):
            continue
        bare = _bare(text)
        if not number.fullmatch(bare) or (separator in bare and bare.startswith("0")):
            return False
        marked, others = marked or separator in bare, others or separator not in bare
    return marked and (others or alone)


def _numbers_of(dialect: Dialect, texts: Counter[str], fixed: Collection[str], decimal: str) -> Dialect | None:
    """Return the dialect in which most texts of a column are numbers; None if that is this one, or if they are not numbers.

    `decimal`: the file's decimal mark, if other columns show it.
    """
    odd_by_dialect = {dialect: odd} if (odd := _odd(texts, dialect)) is not None else {}
    if not texts or odd == Counter():
        return None
    signs = MARKS + LIMITS * (len(texts) > MOST)  # among few texts, `<5` and `5` are categories
    marks = "".join(sorted({letter for text in texts for letter in text if letter in signs}))
    european = dialect.separator == ";" and not _grouped(texts, ",", alone=False)
    for point, thousands in sorted(FORMATS, key=lambda marks_of: (marks_of[0] == ",") != european):
        keys = {"decimal": point, "thousands": thousands, "number_marks": marks}
        changed: dict[str, Any] = {key: value for key, value in keys.items() if key not in fixed}
        candidate = replace(dialect, **changed)
        rewrite = candidate.rewrite or str
        mixed = candidate.decimal == "," and any("." in text and is_number(text) and rewrite(text) == text for text in texts)
        if candidate.decimal == candidate.thousands or mixed or candidate.decimal != (decimal or candidate.decimal):
            continue
        if (odd := _odd(texts, candidate)) is not None:
            odd_by_dialect.setdefault(candidate, odd)
    best = min(odd_by_dialect, key=lambda dialect: odd_by_dialect[dialect].total(), default=dialect)
    return None if best == dialect else best


def date_forms(dialect: Dialect, columns: Mapping[str, Counter[str]]) -> tuple[Dialect, list[str]]:
    """Recognise date formats other than ISO 8601. Returns a sentence for each."""
    write = date_writer(dialect.date_format)
    unread = {name: texts for name, texts in columns.items() if not texts or not _are_dates(texts, write)}
    fitting = {name: forms for name, texts in unread.items() if (forms := _forms_of(texts))}
    decided, notes = {_day_first(forms[0]) for forms in fitting.values() if len(forms) == 1} - {None}, []
    day_first = decided == {True} or (not decided and (dialect.separator == ";" or dialect.decimal == ","))
    chosen: dict[str, None] = {}
    for name, forms in fitting.items():
        form = next((form for form in forms if _day_first(form) in (day_first, None)), forms[0])
        chosen[form] = None
        either = "; the days do not tell which number is the month" if len({*map(_day_first, forms)}) > 1 else ""
        example = next(iter(columns[name]))
        notes.append(f"column `{name}`: {example!r} is read as a date by {form!r}{either} (--date-format)")
    for name in [name for name in unread if name not in fitting]:
        if forms := _forms_together(columns[name], day_first=day_first):
            chosen |= dict.fromkeys(forms)
            listed = ", ".join(map(repr, forms))
            notes.append(f"column `{name}`: dates in different formats, read by {listed} (--date-format)")
    return replace(dialect, date_format=(*dialect.date_format, *chosen)), notes


def _forms_of(texts: Counter[str]) -> list[str]:
    """Return the usual formats that fit all texts of a column, except texts of missing values."""
    values = (text for text in texts if not _stands_for_nothing(text))
    first = list(islice(values, ROWS))
    if not first or any(is_number(text) or parse_date(text) for text in first):
        return []
    forms = list(USUAL_FORMATS)
    for some in (first, list(values)):
        forms = [form for form in forms if _are_dates(some, date_writer([form]))]
    return forms


def _forms_together(texts: Counter[str], *, day_first: bool) -> list[str]:
    """Return a few usual formats of which each text of a column fits one, unless it is ISO 8601; none if there are no such formats."""
    rest = [text for text in texts if not _stands_for_nothing(text)]
    some = rest[:TRIED_DATES]
    forms = sorted(USUAL_FORMATS, key=lambda form: _day_first(form) not in (day_first, None))
    readers = {form: date_writer([form]) for form in forms}
    if not all(parse_date(text) or any(write(text) != text for write in readers.values()) for text in some):
        return []
    rest, chosen = [text for text in rest if not parse_date(text)], list[str]()
    while rest and len(chosen) < MOST_FORMS:
        counts = {form: sum(write(text) != text for text in rest) for form, write in readers.items()}
        best = max(counts, key=lambda form: counts[form])
        if not counts[best]:
            return []
        chosen.append(best)
        rest = [text for text in rest if readers[best](text) == text]
    return [] if rest else chosen


def _are_dates(texts: Iterable[str], write: Callable[[str], str]) -> bool:
    return all(write(text) != text for text in texts)


def _day_first(form: str) -> bool | None:
    """Return whether the day precedes the month; None if the two cannot be confused."""
    return form.index("%d") < form.index("%m") if "%d" in form and "%m" in form and not form.startswith("%Y") else None


def odd_texts(texts: Counter[str]) -> Counter[str] | None:
    """Return the few texts of a numeric or date column that are neither; None if it is not such a column."""
    others = Counter({text: count for text, count in texts.items() if not parse_date(text) or is_number(text)})
    if 0 < len(others) < min(len(texts), MOST) and all(map(_stands_for_nothing, others)):
        return others
    return _odd(texts, USUAL)


def _odd(texts: Counter[str], dialect: Dialect) -> Counter[str] | None:
    rewrite, odd, rows, few = dialect.rewrite or str, Counter[str](), texts.total(), 0
    for text, count in texts.items():
        if not is_finite(plain := rewrite(text)) and parse_bool(plain) is None:
            odd[text] += count
            few += 0 if _stands_for_nothing(text) else count
            if len(odd) > MOST or few > FEW * rows:
                return None
    if odd and len(texts) <= MOST and not all(map(_stands_for_nothing, odd)):
        return None  # codes with a word among them are categories
    return odd


def _stands_for_nothing(text: str) -> bool:
    return text.lower() in PLACEHOLDERS or not any(map(str.isalnum, text))


def lines_of(dialect: Dialect) -> Iterator[tuple[str, object]]:
    """Yield the keys of `[dataset]` with unusual values."""
    for key, value in vars(dialect).items():
        if value != getattr(USUAL, key):
            yield key, list(value) if isinstance(value, tuple) else value
