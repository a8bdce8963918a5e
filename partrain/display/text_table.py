"""Tables of text, with columns as wide as their widest cell; on a terminal, folded to its width. Also Markdown and CSV."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from partrain.display.terminal import is_terminal


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the width of a terminal stream, by default stdout; None for other streams: there lines may have any length."""
    return shutil.get_terminal_size().columns if is_terminal(stream or sys.stdout) else None


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lay out a ruled table: the first column left-aligned, the others right-aligned.

    A table wider than `width` becomes several, each beginning with the first column. If the first column leaves no room for others, each
    row becomes a block of lines.
    """
    widths = _widths([head, *rows])
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        return _ruled(head, rows, widths)
    if len(widths) == 1 or widths[0] + 2 + max(widths[1:]) > width or widths[0] > width / 2:
        return _blocks(head, rows)
    least, fewest = widths[0] + 2 + max(widths[1:]), len(_parts(widths, width))
    parts = next(  # the narrowest, so that no column is left over alone
        parts for limit in range(least, width + 1) if len(parts := _parts(widths, limit)) == fewest
    )
    lines: list[str] = []
    for part in parts:
        chosen = [0, *part]
        lines += [""] * bool(lines)
        lines += _ruled([head[name] for name in chosen], [[row[name] for name in chosen] for row in rows],
                        [widths[name] for name in chosen])  # fmt: skip
    return lines


def wrapped(lines: Sequence[str], width: int | None) -> list[str]:
    """Wrap sentences at spaces; None: any width."""
    if width is None:
        return list(lines)
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False) or [""]]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows of equal length in left-aligned columns, without a rule and without spaces at the ends."""
    widths = _widths(rows)
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a Markdown table."""
    cells = [[cell.strip().replace("|", "\\|") for cell in row] for row in [head, *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|---" + "|---:" * (len(head) - 1) + "|", *lines[1:]]


def comma_separated(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a CSV file; a missing value is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue().splitlines()


def _parts(widths: Sequence[int], width: int) -> list[list[int]]:
    """Group the columns after the first into tables that fit the width."""
    parts: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        if parts[-1] and widths[0] + sum(2 + widths[name] for name in [*parts[-1], column]) > width:
            parts.append([])
        parts[-1].append(column)
    return parts


def _ruled(head: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *rows]
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _blocks(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out each row as a heading, its first cell, and a line for each other cell."""
    lines: list[str] = []
    for first, *others in rows:
        lines += [""] * bool(lines)
        lines.append(first)
        lines += [f"  {line}" for line in aligned(list(zip(head[1:], others, strict=True)))] if others else []
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
