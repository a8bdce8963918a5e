"""Curves of braille characters."""

from __future__ import annotations

import math

from partrain.watch.plot import DOT, Plot, PlotCurve


def drawn(*curves: PlotCurve, log: bool = False, width: int = 29, height: int = 6) -> list[str]:
    lines = Plot("loss", curves, "9 rounds", log).lines(width, height)
    assert {sum(len(text) for text, _ in line) for line in lines} == {width}
    assert len(lines) == height
    return ["".join(text for text, _ in line) for line in lines]


def test_a_line_goes_from_corner_to_corner() -> None:
    lines = drawn(PlotCurve([(x, 10 - x) for x in range(10)], "cyan"))
    assert lines[0].split() == ["loss"]
    assert lines[-1] == "         0           9 rounds"
    assert [line[:9] for line in lines[1:-1]] == ["  10.000┤", "        │", "        │", "  1.0000┤"]
    filled = [{place for place, each in enumerate(line[9:]) if each != " "} for line in lines[1:-1]]
    assert 0 in filled[0]
    assert max(filled[0]) < 7
    assert max(filled[3]) == 19
    assert set().union(*filled) == set(range(20))


def test_a_logarithmic_scale_leaves_out_what_has_no_logarithm() -> None:
    lines = drawn(PlotCurve([(x, 10.0**-x) for x in range(5)] + [(5, 0.0), (6, -1.0)], "cyan"), log=True)
    assert lines[0].split() == ["loss,", "logarithmic"]
    assert lines[1].startswith("  1.0000┤")
    assert lines[-2].startswith("1.00e-04┤")


def test_noise_is_averaged_where_points_share_a_column() -> None:
    lines = drawn(PlotCurve([(x, (-1) ** x) for x in range(10_000)], "cyan"), PlotCurve([(0, 1), (0, -1)], "red"))
    assert sum(each != " " for line in lines[1:-1] for each in line[9:]) <= 40


def test_one_point_no_points_and_numbers_that_are_not_finite() -> None:
    nothing = [(1.0, math.nan), (2.0, math.inf), (math.nan, 1.0)]
    assert any("no judgement yet" in line for line in drawn(PlotCurve(nothing, "cyan")))
    assert any("no judgement yet" in line for line in drawn())
    assert DOT in "".join(drawn(PlotCurve([*nothing, (3.0, 0.5)], "cyan")))


def test_marks_tell_curves_apart_without_colors() -> None:
    lines = drawn(PlotCurve([(0, 0), (9, 9)], "red", "1"), PlotCurve([(0, 9), (9, 0)], "blue", "2"))
    assert lines[1][-1] == "1"
    assert lines[-2][-1] == "2"
