"""Tables that fit a terminal, in Markdown and in CSV."""

from __future__ import annotations

import csv

from hypothesis import given
from hypothesis import strategies as st

from partrain.display.text_table import comma_separated, markdown, table, wrapped

HEAD = ["job", "rule", "seconds", "loss"]
ROWS = [["one", "average", "1.25", "0.5"], ["second", "bsp", "11.50", "0.25"]]


def test_a_table_that_fits_stays_whole() -> None:
    lines = table(HEAD, ROWS)
    assert lines[0] == "job        rule  seconds  loss"
    assert table(HEAD, ROWS, len(lines[0])) == lines


def test_a_wide_table_becomes_several_that_begin_with_the_first_column() -> None:
    assert table(HEAD, ROWS, 24) == [
        "job        rule",
        "------  -------",
        "one     average",
        "second      bsp",
        "",
        "job     seconds  loss",
        "------  -------  ----",
        "one        1.25   0.5",
        "second    11.50  0.25",
    ]


def test_beside_a_wide_first_column_each_row_is_a_block() -> None:
    assert table(["job", "rule"], [["a" * 30, "average"], ["b", "bsp"]], 32) == [
        "a" * 30,
        "  rule  average",
        "",
        "b",
        "  rule  bsp",
    ]
    assert table(["job"], [["a" * 9]], 5) == ["a" * 9]


@given(
    st.lists(st.lists(st.text("ab", min_size=1, max_size=9), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(20, 40)
)
def test_no_line_is_wider_and_no_cell_is_lost(rows: list[list[str]], width: int) -> None:
    lines = table(["x", "y", "z"], rows, width)
    assert max(map(len, lines)) <= width
    words = [word for line in lines for word in line.split()]
    assert all(cell in words for row in rows for cell in row)


def test_markdown_and_csv_keep_their_own_signs() -> None:
    assert markdown(["a", "b"], [["x|y", "1"]]) == ["| a | b |", "|---|---:|", "| x\\|y | 1 |"]
    assert list(csv.reader(comma_separated(["a", "b"], [["x,y", None]]))) == [["a", "b"], ["x,y", ""]]


def test_sentences_break_at_spaces() -> None:
    assert wrapped(["one two-three four", "", "five"], 11) == ["one", "  two-three", "  four", "", "five"]
    assert wrapped(["one two three"], None) == ["one two three"]
