"""Curves drawn with braille characters of two by four dots each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from partrain.display.live_table import Line
from partrain.number_format import number

BRAILLE = 0x2800
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character by column and row of the dot."""
LABEL = 9
"""Characters of the labels on the left, including the axis."""
AXIS, TICK = "│", "┤"
DOT = "•"
"""Mark of a curve with a single point."""


class PlotCurve(NamedTuple):
    """A curve with its style."""

    points: Sequence[tuple[float, float]]
    style: str
    end_mark: str = ""
    """One character at the end of the curve, which distinguishes it without colors."""


class Plot(NamedTuple):
    """Curves with their axes."""

    title: str
    series: Sequence[PlotCurve]
    """The last one is drawn on top of the others."""
    end: str
    """The label at the right end of the horizontal axis."""
    log: bool = False

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw title, curves and horizontal axis in this many characters and lines."""
        title = f"{self.title}{', logarithmic' if self.log else ''}"
        lines: list[Line] = [[(title[:width].ljust(width), "bold")]]
        columns, rows = width - LABEL, height - 2
        series = [curve._replace(points=self._shown(curve)) for curve in self.series]
        series = _smoothed(series, 2 * columns)
        spans = _spans(series)
        if spans is None or columns < 4 or rows < 1:
            text = "no judgement yet" if rows > 0 else ""
            blank: list[Line] = [[(" " * width, "")] for _ in range(max(height - 1, 0))]
            if blank and text:
                blank[len(blank) // 2] = [(text[:width].center(width), "dim")]
            return (lines + blank)[:height]
        _, low, high = spans
        cells = _cells(series, columns, rows, spans)
        edges = {0: high, rows - 1: low} if rows > 1 else {0: high}
        for row in range(rows):
            edge = edges.get(row)
            label = "" if edge is None else number(math.exp(edge) if self.log else edge)
            line: Line = [(f"{label:>{LABEL - 1}}{TICK if label else AXIS}", "dim")]
            for column in range(columns):
                text, style = cells.get((row, column), (" ", ""))
                if line[-1][1] == style and len(line) > 1:
                    line[-1] = line[-1][0] + text, style
                else:
                    line.append((text, style))
            lines.append(line)
        end = self.end[: columns - 2]
        axis = "0".ljust(columns - len(end)) + end
        return [*lines, [(" " * LABEL + axis, "dim")]]

    def _shown(self, series: PlotCurve) -> list[tuple[float, float]]:
        """Return the points that can be drawn; on a logarithmic scale their logarithms."""
        finite = [(x, y) for x, y in series.points if math.isfinite(x) and math.isfinite(y)]
        return [(x, math.log(y)) for x, y in finite if y > 0] if self.log else finite


def _smoothed(series: Sequence[PlotCurve], dots: int) -> list[PlotCurve]:
    """Average the points that share a column of dots: noise would fill the plot."""
    last = max((x for curve in series for x, _ in curve.points), default=0.0)
    smooth = []
    for curve in series:
        columns: dict[int, list[tuple[float, float]]] = {}
        for x, y in curve.points:
            columns.setdefault(round(x / last * (dots - 1)) if last > 0 else 0, []).append((x, y))
        means = [(shared[-1][0], sum(y for _, y in shared) / len(shared)) for shared in columns.values()]
        smooth.append(curve._replace(points=means))
    return smooth


def _spans(series: Sequence[PlotCurve]) -> tuple[float, float, float] | None:
    """Return the end of the horizontal axis, and the ends of the vertical one; None without points."""
    points = [point for curve in series for point in curve.points]
    if not points:
        return None
    heights = [y for _, y in points]
    return max(max(x for x, _ in points), 1e-9), min(heights), max(heights)


def _cells(
    series: Sequence[PlotCurve], columns: int, rows: int, spans: tuple[float, float, float]
) -> dict[tuple[int, int], tuple[str, str]]:
    """Return character and style of each cell that a curve passes, by row and column."""
    last, low, high = spans
    scale = (4 * rows - 1) / (high - low) if high > low else 0.0
    bits: dict[tuple[int, int], int] = {}
    styles: dict[tuple[int, int], str] = {}
    marks: dict[tuple[int, int], tuple[str, str]] = {}
    for curve in series:
        dots = [
            (round(x / last * (2 * columns - 1)), round((high - y) * scale) if scale else 2 * rows)
            for x, y in curve.points
            if x >= 0
        ]
        for x, y in _connected(dots):
            place = y // 4, x // 2
            bits[place] = bits.get(place, 0) | DOTS[x % 2][y % 4]
            styles[place] = curve.style
        if dots and curve.end_mark:
            marks[dots[-1][1] // 4, dots[-1][0] // 2] = curve.end_mark, f"bold {curve.style}"
        elif len(set(dots)) == 1:
            marks[dots[0][1] // 4, dots[0][0] // 2] = DOT, f"bold {curve.style}"
    return {place: (chr(BRAILLE + dots), styles[place]) for place, dots in bits.items()} | marks


def _connected(dots: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the dots of straight lines from each dot to the next."""
    joined = set(dots[:1])
    for (x, y), (to_x, to_y) in pairwise(dots):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        joined.update(
            (x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)) for step in range(1, steps + 1)
        )
    return joined
