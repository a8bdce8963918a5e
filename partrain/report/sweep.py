"""The figures of a sweep: parallel coordinates, and each setting's share in the differences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from partrain.record.round_record import number_of
from partrain.report.theme import Rows, Spec
from partrain.runs.ranking import Ranking, shown

MOST_LINES = 200
"""Maximum number of combinations in the figure."""
TICK_DISTANCE = 0.09
"""Smallest distance between two labels of one setting, as a fraction of the axis."""
LOG_FROM = 9.0
"""Ratio of a setting's largest to its smallest number from which its axis is logarithmic."""


def _places(values: Sequence[Any]) -> dict[str, float]:
    """Map each value's shown form to its position on an axis from 0 to 1: numbers by size, others side by side in order."""
    if None in map(number_of, values):
        try:
            ordered = sorted(values)
        except TypeError:
            ordered = list(values)
        texts = list(dict.fromkeys(shown(value) for value in ordered))
        return {text: index / max(1, len(texts) - 1) for index, text in enumerate(texts)}
    low, high = min(values), max(values)
    log = low > 0 and high / low >= LOG_FROM
    scale = math.log if log else float
    span = scale(high) - scale(low)
    return {shown(value): (scale(value) - scale(low)) / span if span else 0.5 for value in values}


def _ticks(places: Mapping[str, float]) -> list[tuple[str, float]]:
    """Choose the labels of an axis: both ends, and others if there is room."""
    ordered = sorted(places.items(), key=lambda item: item[1])
    ticks = [ordered[0], ordered[-1]][: len(ordered)]
    for text, place in ordered[1:-1]:
        if all(abs(place - other) >= TICK_DISTANCE for _, other in ticks):
            ticks.append((text, place))
    return ticks


def varied(sweep: Ranking) -> list[str]:
    """Return the settings with several values."""
    keys = dict.fromkeys(key for row in sweep.rows for key in row.settings)
    return [key for key in keys if len({shown(row.settings.get(key)) for row in sweep.rows}) > 1]


def parallel(sweep: Ranking) -> Spec | None:
    """Describe parallel coordinates: an axis per setting and one for the ranked number, a line per combination."""
    ranked, keys = sweep.measured[:MOST_LINES], varied(sweep)
    if len(ranked) < 2 or not keys:
        return None
    axes = [(key, [row.settings.get(key) for row in ranked]) for key in keys]
    axes.append((sweep.by, [row.median for row in ranked]))
    lines: Rows = []
    ticks: Rows = []
    for position, (key, values) in enumerate(axes):
        places = _places(values)
        lines += [
            {"c": number, "p": position, "y": round(places[shown(value)], 4), "m": ranked[number].median, "best": number == 0,
             "key": key, "value": shown(value)}
            for number, value in enumerate(values)
        ]  # fmt: skip
        ticks += [{"p": position, "y": round(y, 4), "text": text[:14]} for text, y in _ticks(places)]
    heads = [{"p": position, "y": 1.08 + position % 2 * 0.08, "text": key} for position, (key, _) in enumerate(axes)]
    x = {"field": "p", "type": "quantitative", "axis": None, "scale": {"domain": [-0.12, len(axes) - 0.75], "nice": False}}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-0.04, 1.2], "nice": False}}
    color = {
        "field": "m", "type": "quantitative", "legend": None,
        "scale": {"scheme": {"name": "viridis", "extent": [0.35, 0.9]}, "reverse": not sweep.largest},
    }  # fmt: skip
    line = {"x": x, "y": y, "detail": {"field": "c"}}
    return {
        "layer": [
            {
                "data": {"values": [{"p": position, "y": 0, "y2": 1} for position in range(len(axes))]},
                "mark": {"type": "rule", "color": "muted", "opacity": 0.6},
                "encoding": {"x": x, "y": y, "y2": {"field": "y2"}},
            },
            {
                "data": {"values": lines},
                "mark": {"type": "line", "strokeWidth": 1.8, "opacity": 0.75},
                "encoding": line | {"color": color, "order": {"field": "p"}},
            },
            {
                "data": {"values": [row for row in lines if row["best"]]},
                "mark": {"type": "line", "strokeWidth": 4, "color": "run-1"},
                "encoding": line | {"order": {"field": "p"}},
            },
            {
                "data": {"values": lines},
                "mark": {"type": "point", "filled": True, "size": 40, "opacity": 0.9},
                "encoding": line | {"color": color, "tooltip": [
                    {"field": "key", "title": "setting"}, {"field": "value"},
                    {"field": "m", "type": "quantitative", "title": "result", "format": ".4~g"},
                ]},
            },
            *(
                {  # twice: the lower copy keeps the lines away from the letters
                    "data": {"values": ticks},
                    "mark": {"type": "text", "align": "left", "dx": 8, "color": "ink", "fontSize": 11, **around},
                    "encoding": {"x": x, "y": y, "text": {"field": "text"}},
                }
                for around in ({"stroke": "paper", "strokeWidth": 6, "strokeJoin": "round"}, {})
            ),
            {
                "data": {"values": heads},
                "mark": {"type": "text", "align": "left", "dx": -4, "color": "muted", "fontSize": 11.5, "fontWeight": 600, "limit": 150},
                "encoding": {"x": x, "y": y, "text": {"field": "text"}},
            },
        ],
        "height": 300,
    }  # fmt: skip


def shares(sweep: Ranking) -> dict[str, float]:
    """Return the share of the variance of the ranked number that each setting explains alone, the largest first.

    The share is the variance of the means by value over the whole variance. Numbers with more than four values are grouped by
    quartiles.
    """
    ranked = sweep.measured
    numbers = [row.median for row in ranked]
    if len(varied(sweep)) < 2 or len(numbers) < 3 or not (whole := statistics.pvariance(numbers)):
        return {}  # one setting explains everything
    mean, by_key = statistics.fmean(numbers), {}
    for key in varied(sweep):
        groups: dict[Any, list[float]] = {}
        for group, number in zip(_groups([row.settings.get(key) for row in ranked]), numbers, strict=True):
            groups.setdefault(group, []).append(number)
        between = sum(len(group) * (statistics.fmean(group) - mean) ** 2 for group in groups.values()) / len(numbers)
        by_key[key] = between / whole
    return dict(sorted(by_key.items(), key=lambda item: -item[1]))


def _groups(values: Sequence[Any]) -> list[Any]:
    distinct = {shown(value) for value in values}
    if len(distinct) <= 4 or None in map(number_of, values):
        return [shown(value) for value in values]
    ordered = [value for value, _ in groupby(sorted(values))]
    return [4 * ordered.index(value) // len(ordered) for value in values]


def importance(sweep: Ranking) -> Spec | None:
    """Describe bars of the shares."""
    by_key = shares(sweep)
    if not by_key:
        return None
    rows: Rows = [{"key": key, "share": round(share, 4)} for key, share in by_key.items()]
    y = {"field": "key", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 150, "labelColor": "ink"}}
    x = {"field": "share", "type": "quantitative", "title": "share of the variance", "scale": {"domain": [0, 1]}, "axis": {"format": "%", "tickCount": 5}}  # fmt: skip
    return {
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "bar", "color": "run-0", "cornerRadiusEnd": 3, "height": {"band": 0.6}}, "encoding": {"x": x, "y": y}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": "ink", "fontSize": 11},
                "encoding": {"x": x, "y": y, "text": {"field": "share", "type": "quantitative", "format": ".0%"}},
            },
        ],
        "height": 40 + 30 * len(rows),
    }  # fmt: skip
