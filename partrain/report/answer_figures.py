"""Descriptions of figures of a network's answers."""

from __future__ import annotations

from collections.abc import Sequence

from partrain.report.theme import LINE_LEGEND, PLAIN, Rows, Spec

MOST_POINTS = 1000
"""Most items of a scatter plot."""
MOST_STEPS = 300
"""Most items of a series: the last ones."""
AXIS = {"format": PLAIN, "tickCount": 5}
Pairs = Sequence[tuple[float, float]]
"""True and predicted number of each item."""


def confusion(matrix: Sequence[Sequence[int]], names: Sequence[str]) -> Spec:
    """Describe a confusion matrix: a row per true class, a column per answer."""
    rows: Rows = []
    for a, row in enumerate(matrix):
        whole = sum(row) or 1
        rows += [
            {"true": a, "answer": b, "n": n, "share": round(n / whole, 4), "t": names[a], "g": names[b]}
            for b, n in enumerate(row)
        ]
    domain = list(range(len(names)))
    heads = [{"n": index, "text": name} for index, name in enumerate(names)]
    x = {"field": "answer", "type": "ordinal", "axis": None, "scale": {"domain": domain, "padding": 0.04}}
    y = {"field": "true", "type": "ordinal", "axis": None, "scale": {"domain": domain, "padding": 0.04}}
    short = max(map(len, names)) <= 4
    shared = {"data": {"values": heads}}
    left = {
        "mark": {"type": "text", "align": "right", "x": -6, "color": "muted", "fontSize": 11},
        "encoding": {"y": y | {"field": "n"}, "text": {"field": "text"}},
    }
    top = {
        "mark": {
            "type": "text",
            "y": -6,
            "baseline": "bottom",
            "align": "center" if short else "left",
            "angle": 0 if short else -40,
            "color": "muted",
            "fontSize": 11,
        },
        "encoding": {"x": x | {"field": "n"}, "text": {"field": "text"}},
    }
    cells: Spec = {
        "data": {"values": rows},
        "encoding": {"x": x, "y": y},
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 3, "color": "compute"},
                "encoding": {
                    "opacity": {
                        "field": "share",
                        "type": "quantitative",
                        "legend": None,
                        "scale": {"domain": [0, 1], "range": [0.06, 1]},
                    },
                    "tooltip": [
                        {"field": "t", "title": "true"},
                        {"field": "g", "title": "answer"},
                        {"field": "n", "title": "items"},
                        {"field": "share", "title": "share of the class", "format": ".1%"},
                    ],
                },
            },
            {
                "transform": [{"filter": "datum.n > 0"}],
                "mark": {"type": "text", "fontSize": 11, "color": "ink"},
                "encoding": {"text": {"field": "n"}},
            },
        ],
    }
    return {"layer": [cells, shared | left, shared | top], "height": 80 + 26 * len(names)}


def scatter(pairs: Pairs, name: str) -> Spec:
    """Describe predicted against true numbers, and the line on which they are equal."""
    step = -(-len(pairs) // MOST_POINTS)
    points: Rows = [{"x": float(f"{a:.5g}"), "y": float(f"{b:.5g}")} for a, b in pairs[::step]]
    low, high = min(min(pair) for pair in pairs), max(max(pair) for pair in pairs)
    scale = {"domain": [low, high], "nice": True, "zero": False}
    x = {"field": "x", "type": "quantitative", "title": f"true {name}", "axis": AXIS, "scale": scale}
    y = {"field": "y", "type": "quantitative", "title": f"predicted {name}", "axis": AXIS, "scale": scale}
    shown = [{"field": "x", "title": "true", "format": ".5~g"}, {"field": "y", "title": "predicted", "format": ".5~g"}]
    return {
        "layer": [
            {
                "data": {"values": [{"x": low, "y": low}, {"x": high, "y": high}]},
                "mark": {"type": "line", "color": "muted", "strokeDash": [4, 4]},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "size": 26, "opacity": 0.6, "color": "run-0"},
                "encoding": {"x": x, "y": y, "tooltip": shown},
            },
        ],
        "height": 300,
    }


def series(pairs: Pairs, name: str) -> Spec:
    """Describe true and predicted numbers item by item."""
    rows: Rows = []
    for place, what in enumerate(("true", "predicted")):
        rows += [{"x": index, "y": float(f"{pair[place]:.5g}"), "what": what} for index, pair in enumerate(pairs[-MOST_STEPS:])]
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.75},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": "item", "axis": AXIS, "scale": {"nice": False}},
            "y": {"field": "y", "type": "quantitative", "title": name, "axis": AXIS, "scale": {"zero": False}},
            "color": {
                "field": "what",
                "type": "nominal",
                "scale": {"domain": ["true", "predicted"], "range": ["muted", "run-0"]},
                "legend": LINE_LEGEND,
            },
        },
        "height": 300,
    }
