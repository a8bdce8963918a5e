"""Descriptions of figures of a network's answers."""

from __future__ import annotations

from collections.abc import Sequence

from partrain.report.theme import LINE_LEGEND, PLAIN, Rows, Spec

MOST_POINTS = 1000
"""Maximum number of items in a scatter plot."""
MOST_STEPS = 300
"""Maximum number of items of a series; the last ones are shown."""
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
    """Describe true and predicted numbers moment by moment."""
    rows: Rows = []
    for place, what in enumerate(("true", "predicted")):
        rows += [{"x": index, "y": float(f"{pair[place]:.5g}"), "what": what} for index, pair in enumerate(pairs[-MOST_STEPS:])]
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.75},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": "moment", "axis": AXIS, "scale": {"nice": False}},
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


def residuals(pairs: Pairs, name: str) -> Spec:
    """Describe the frequencies of errors by size: predicted minus true."""
    errors: Rows = [{"e": float(f"{predicted - true:.4g}")} for true, predicted in pairs]
    return {
        "data": {"values": errors},
        "mark": {"type": "bar", "color": "run-0"},
        "encoding": {
            "x": {"field": "e", "type": "quantitative", "bin": {"maxbins": 30}, "title": f"error of {name}", "axis": AXIS},
            "y": {"aggregate": "count", "type": "quantitative", "title": "items", "axis": AXIS},
        },
        "height": 300,
    }


def roc(scores: Sequence[float], labels: Sequence[int]) -> tuple[Spec, float]:
    """Describe the ROC curve of scores for labels 0 and 1: recall over the share of false alarms.

    Also return the area under the curve.
    """
    positives, negatives = sum(labels), len(labels) - sum(labels)
    points, hits, alarms, area = [(0.0, 0.0)], 0, 0, 0.0
    for hit, alarm in _thresholds(scores, labels):
        area += alarm * (hits + hit / 2) / (positives * negatives)
        hits, alarms = hits + hit, alarms + alarm
        points.append((alarms / negatives, hits / positives))
    return _curve(points, "share of false alarms", "recall", [(0.0, 0.0), (1.0, 1.0)]), area


def precision_recall(scores: Sequence[float], labels: Sequence[int]) -> Spec:
    """Describe precision over recall of scores for labels 0 and 1; the dashed line is the precision of guessing."""
    positives, points, hits, alarms = sum(labels), list[tuple[float, float]](), 0, 0
    for hit, alarm in _thresholds(scores, labels):
        hits, alarms = hits + hit, alarms + alarm
        points.append((hits / positives, hits / (hits + alarms)))
    share = positives / len(labels)
    return _curve(points, "recall", "precision", [(0.0, share), (1.0, share)])


def _thresholds(scores: Sequence[float], labels: Sequence[int]) -> list[tuple[int, int]]:
    """Return the hits and false alarms added by each lower threshold; equal scores form one threshold."""
    by_score: dict[float, list[int]] = {}
    for score, label in zip(scores, labels, strict=True):
        by_score.setdefault(score, [0, 0])[1 - label] += 1
    return [(hit, alarm) for _, (hit, alarm) in sorted(by_score.items(), reverse=True)]


def _curve(points: Sequence[tuple[float, float]], x: str, y: str, guess: Sequence[tuple[float, float]]) -> Spec:
    """Describe a line through points in the unit square, and the dashed line of guessing."""
    step = -(-len(points) // MOST_STEPS)
    kept = [*points[:-1:step], points[-1]]

    def encoding(title: str, field: str) -> Spec:
        return {"field": field, "type": "quantitative", "title": title, "axis": AXIS, "scale": {"domain": [0, 1]}}

    axes = {"x": encoding(x, "x"), "y": encoding(y, "y"), "order": {"field": "n"}}
    return {
        "layer": [
            {
                "data": {"values": [{"x": a, "y": round(b, 4), "n": n} for n, (a, b) in enumerate(guess)]},
                "mark": {"type": "line", "color": "muted", "strokeDash": [4, 4]},
                "encoding": axes,
            },
            {
                "data": {"values": [{"x": round(a, 4), "y": round(b, 4), "n": n} for n, (a, b) in enumerate(kept)]},
                "mark": {"type": "line", "strokeWidth": 2, "color": "run-0"},
                "encoding": axes,
            },
        ],
        "height": 300,
    }
