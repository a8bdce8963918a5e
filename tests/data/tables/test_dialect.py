"""How text files write numbers, separators and missing values; a job says it, and `init` recognises it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from partrain.data.tables.dialect import USUAL, Dialect
from partrain.data.tables.files import CsvFile
from partrain.data.tables.sections import Csv
from partrain.errors import InputMissing
from partrain.preprocess.cells import is_finite
from partrain.templates.recognise import date_forms, number_dialect, odd_texts, text_dialect


def cells(file: CsvFile) -> dict[str, list[str]]:
    return {name: [cell for block in file.blocks([name]) for cell in block.columns[name]] for name in file.names}


@pytest.mark.parametrize(
    ("keys", "cell", "plain"),
    [
        ({"decimal": ","}, "3,5", "3.5"),
        ({"decimal": ","}, "-,5", "-.5"),
        ({"decimal": ",", "thousands": "."}, "1.234.567,8", "1234567.8"),
        ({"decimal": ",", "thousands": "."}, "12.34", "12.34"),
        ({"thousands": ","}, "1,234", "1234"),
        ({"thousands": ","}, "1,23", "1,23"),
        ({"thousands": " "}, "1\u202f234", "1234"),
        ({"thousands": "'"}, "1'234.5", "1234.5"),
        ({"number_marks": "$%"}, "$-12.5", "-12.5"),
        ({"number_marks": "()"}, "(12.5)", "-12.5"),
        ({"number_marks": "$()", "thousands": ","}, "$(1,234)", "-1234"),
        ({"number_marks": "$()", "thousands": ","}, "($1,234)", "-1234"),
        ({"number_marks": "()", "date_format": ("%d.%m.%Y",)}, "(5)", "-5"),
        ({"decimal": ",", "date_format": ("%d.%m.%Y",)}, "5.6.2020", "2020-06-05"),
        ({"number_marks": "$%"}, "-$12.5", "-12.5"),
        ({"number_marks": "$%"}, " 12.5 %", "12.5"),
        ({"number_marks": "*", "thousands": ","}, "1,234*", "1234"),
        ({"decimal": ","}, "a,5", "a,5"),
        ({"decimal": ","}, "1,5,2", "1,5,2"),
        ({"decimal": ","}, "2e3", "2e3"),
    ],
)
def test_a_number_is_written_as_python_reads_it(keys: dict[str, str], cell: str, plain: str) -> None:
    rewrite = Dialect(**keys).rewrite  # type: ignore[arg-type]
    assert rewrite is not None
    assert rewrite(cell) == plain


def test_most_files_need_no_rewriting() -> None:
    assert USUAL.rewrite is None


def test_a_first_line_may_tell_the_separator(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sep=;\na;b\n1;2\n3;4;5\n")
    file = CsvFile(path)
    assert file.names == ["a", "b"]
    assert file.header_location.endswith("t.csv:2")
    with pytest.raises(InputMissing, match=r"t\.csv:4: 3 cells"):
        cells(file)


def test_texts_of_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('region\nNA\n--\n""\n')
    for nulls, missing in (None, [True, False, True]), (("--",), [False, True, True]), ((), [False, False, True]):
        file = CsvFile(path, Dialect(null_values=nulls))
        assert list(map(file.is_missing, cells(file)["region"])) == missing


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"decimal": ",", "thousands": ","}, "both ','"),
        ({"number_marks": "e"}, "`number_marks` has `e`"),
        ({"encoding": "utf-99"}, "there is no `utf-99`"),
    ],
)
def test_contradictions(keys: dict[str, str], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Csv.model_validate({"kind": "csv", "path": "t.csv", "target": "y"} | keys)


def test_rows_of_r_begin_with_a_name(tmp_path: Path) -> None:
    """`write.table` gives the names no column: the header has a cell less. Cells that are all empty at the end are no such rows."""
    path = tmp_path / "t.tsv"
    path.write_text("a\tb\nr1\t1\t2\nr2\t3\t4\n")
    assert text_dialect(path, {})[0].separator in (None, "\t")
    assert CsvFile(path).index == ["Unnamed: 0"]
    assert cells(CsvFile(path))["a"] == ["1", "3"]
    for rows in "1\t2\t\n3\t4\t\n", "1\t2\t3\n1\t4\t5\n", "1\t2\t3\n4\t5\n":
        path.write_text(f"a\tb\n{rows}")
        with pytest.raises(InputMissing, match=r"t\.tsv:2: 3 cells where line 1 names 2 columns"):
            cells(CsvFile(path))


# What `init` recognises


@pytest.mark.parametrize(("encoding", "found"), [
    ("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("utf-16", "utf-16"), ("cp1252", "cp1252"),
    ("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be"),
])  # fmt: skip
def test_encodings(tmp_path: Path, encoding: str, found: str) -> None:
    """The odd letter comes after a megabyte: all of the file is looked at."""
    path = tmp_path / "t.csv"
    path.write_bytes(("a,b\n" + "1,2\n" * 300_000 + "1,Köln\n").encode(encoding))
    dialect, notes = text_dialect(path, {})
    assert dialect.encoding == found
    assert len(notes) == (found != "utf-8")
    assert text_dialect(path, {"encoding": "latin-1"})[0].encoding == "latin-1"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("".join(separator.join(row) + "\n" for row in [("a", "b, c", "d")] * 3).replace("b, c", '"b, c"'))
    dialect, notes = text_dialect(path, {})
    assert (dialect.separator or ",") == separator
    assert len(notes) == (separator != ",")


@pytest.mark.parametrize(
    ("texts", "keys"),
    [
        (["1", "2.5", "-3e4"], {}),
        (["1,5", "2,25"], {"decimal": ","}),
        (["1.234,5", "7"], {"decimal": ",", "thousands": "."}),
        (["1,234", "12", "1,234,567"], {"thousands": ","}),
        (["12 %", "3.5 %"], {"number_marks": "%"}),
        (["$1,200.50", "-$3"], {"thousands": ",", "number_marks": "$"}),
        (["<0.5", *(f"{at}.5" for at in range(20))], {"number_marks": "<"}),
        (["<5", "5", "6", "7"], {}),
        (["\u22125.2", "3.1", "\u22121"], {"number_marks": "\u2212"}),
        (["1,5", "2.5"], {}),
        (["red", "blue"], {}),
        (["1999-01-02", "2000-05-06"], {}),
    ],
)
def test_numbers(texts: list[str], keys: dict[str, str]) -> None:
    dialect, notes = number_dialect(USUAL, {"x": Counter(texts)}, ())
    assert {key: value for key, value in vars(dialect).items() if value != getattr(USUAL, key)} == keys
    assert len(notes) == len(keys)


def test_a_group_of_three_digits_is_a_fraction_in_files_separated_by_semicolons() -> None:
    assert number_dialect(Dialect(separator=";"), {"x": Counter(["1,234", "5,678"])}, ())[0].decimal == ","
    assert number_dialect(Dialect(separator=";"), {"x": Counter(["1,234", "5,678"])}, ("decimal",))[0].thousands == ","


@pytest.mark.parametrize(
    ("separator", "columns", "keys"),
    [
        (";", {"area": ["15,2", "7"], "rev": ["924", "2.564"]}, {"decimal": ",", "thousands": "."}),
        (";", {"area": ["15,2", "7"], "rev": ["1.924", "2.564"]}, {"decimal": ",", "thousands": "."}),
        (",", {"area": ["15,2", "7"], "rev": ["924", "2.564"]}, {"decimal": ",", "thousands": "."}),
        (";", {"rev": ["924", "2.564"]}, {"decimal": ",", "thousands": "."}),
        (";", {"rev": ["1.924", "2.564"]}, {}),
        (";", {"area": ["15.2", "7"], "rev": ["924", "2.564"]}, {}),
        (";", {"area": ["15,2", "7"], "rev": ["0.924", "2.564"]}, {"decimal": ","}),
        (";", {"stock": ["1,984", "281"], "rev": ["283.4", "40.1"]}, {"thousands": ","}),
        (";", {"stock": ["1,984", "281"]}, {"thousands": ","}),
        (";", {"people": ["2.407.275", "34.882"], "rate": ["7,40", "6,86"]}, {"decimal": ",", "thousands": "."}),
        (";", {"people": ["2.407.275", "34.882"]}, {"decimal": ",", "thousands": "."}),
    ],
)
def test_columns_tell_what_the_marks_of_others_mean(separator: str, columns: dict[str, list[str]], keys: dict[str, str]) -> None:
    numbers = {name: Counter(texts) for name, texts in columns.items() if all(map(is_finite, texts))}
    others = {name: Counter(texts) for name, texts in columns.items() if name not in numbers}
    dialect, notes = number_dialect(Dialect(separator=separator), others, (), numbers)
    assert {key: value for key, value in vars(dialect).items() if value != getattr(Dialect(separator=separator), key)} == keys
    assert len(notes) == len(
        [value for value in keys.values() if any(value in text for texts in columns.values() for text in texts)]
    )


def test_numbers_that_may_be_thousands_are_named() -> None:
    dialect, (note,) = number_dialect(USUAL, {}, (), {"x": Counter(["924", "2.564"])})
    assert dialect == USUAL
    assert note == "column `x`: '2.564' is read as a number below 1,000 (for thousands: --thousands . --decimal ,)"
    assert number_dialect(USUAL, {}, (), {"x": Counter(["924", "2.564"]), "y": Counter(["1.5"])}) == (USUAL, [])


def test_dates_in_different_formats_are_read() -> None:
    dates = [f"{form}" for day in range(1, 25) for form in (f"Aug {day}, 2021", f"2020-09-{day:02}", f"{day:02}.03.2020")]
    dialect, (note,) = date_forms(USUAL, {"when": Counter(dates), "word": Counter(["May", "June", "it may be"])})
    assert set(dialect.date_format) == {"%b %d, %Y", "%d.%m.%Y"}
    assert note.startswith("column `when`: dates in different formats, read by ")
    assert date_forms(USUAL, {"when": Counter([*dates, "soon"])}) == (USUAL, [])
    _, notes = date_forms(USUAL, {name: Counter(dates) for name in "qwertyuiop"})
    assert [note[8] for note in notes] == list("qwertyuiop"), "in the order of the columns, whatever their hashes"


def test_semicolons_part_cells_whose_numbers_have_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age;price\n38;2,63\n41;3,10\n")
    assert text_dialect(path, {})[0].separator == ";"


def test_a_minus_sign_of_typesetters_is_a_minus() -> None:
    read = Dialect(number_marks="\u2212$", decimal=",").rewrite
    assert read is not None
    assert [read(text) for text in ("\u22125,2", "\u2212$3", "$\u22124", "7", "a\u2212b")] == [
        "-5.2",
        "-3",
        "-4",
        "7",
        "a\u2212b",
    ]


@pytest.mark.parametrize(
    ("texts", "odd"),
    [
        ({"1": 9, "2": 9}, []),
        ({"1.5": 50, "2.5": 50, "low": 3} | {f"{n}.25": 1 for n in range(10)}, ["low"]),
        ({"1": 40, "2": 40, "-": 30}, ["-"]),
        ({"1": 40, "2": 40, "n.d.": 3}, ["n.d."]),
        ({"1": 40, "2": 40, "crew": 3}, None),
        ({"1.5": 4, "2.5": 4, "low": 3}, None),
        ({"red": 5}, None),
    ],
)
def test_odd_cells_among_numbers(texts: dict[str, int], odd: list[str] | None) -> None:
    found = odd_texts(Counter(texts))
    assert (None if found is None else list(found)) == odd


@pytest.mark.parametrize("header", ['"a" "b" "y"', '"";"a";"y"', '"a"\t"b"'])
def test_a_quoted_header_with_another_separator_is_one_clear_line(tmp_path: Path, header: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n")
    with pytest.raises(
        InputMissing, match=r"t\.csv:1: .* expected after .*: set `separator` if it is another one than ',', or close the quotes"
    ):
        CsvFile(path)
