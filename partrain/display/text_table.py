"""Tables of text, in columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a ruled table: the first column left-aligned, the others right-aligned."""
    widths = _widths([head, *rows])
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *rows]
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows of equal length in left-aligned columns, without a rule and without spaces at the ends."""
    widths = _widths(rows)
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
