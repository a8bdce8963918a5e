"""Descriptions of figures in the Vega-Lite language: plain dictionaries. A browser draws them, or vl-convert as SVG or PNG.

`theme` adds size and style to a description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from partrain.errors import InputMissing
from partrain.record.numbers import Drawn, Merge
from partrain.record.round_record import NUMBERS
from partrain.report.history import RunHistory
from partrain.report.theme import LIGHT, LINE_LEGEND, NO_UNIT, PLAIN, RUN_COLORS, Rows, Spec, themed
from partrain.report.timeline import binned, timeline

MOST_POINTS = 300
"""Maximum number of points in a curve: a screen cannot show more."""
MOST_RATES = 30
"""Maximum number of parts of time for the speed: shorter ones show judgements, not speed."""
MOST_DOTS = 30
"""Maximum number of points in a curve that are drawn as dots."""
TITLES = {"seconds": "training seconds", "items": "item-iterations", "rounds": "rounds"}
LOG_FROM = 30
"""Ratio of the largest to the smallest value from which a loss gets a logarithmic axis."""

FORMATS = (".svg", ".png")
WIDTH, HEIGHT = 640, 320
SCALE = 2.0
"""Pixels of a PNG per unit."""


@dataclass(frozen=True)
class FigureKind:
    """A figure by name: its title, and the function that describes it; None if the runs have nothing to show."""

    title: str
    of_runs: Callable[[Sequence[RunHistory], str], Spec | None]
    by: str
    """The default horizontal axis."""
    caption: str = ""


def figure(name: str, runs: Sequence[RunHistory], by: str | None = None) -> Spec | None:
    """Describe a figure of these runs; None if they have nothing to show."""
    kind = kind_of(name)
    return kind.of_runs(runs, by or kind.by)


def draw(name: str, runs: Sequence[RunHistory], by: str | None, suffix: str) -> bytes:
    """Draw a figure. Raises `InputMissing` if the runs have nothing to show, or without vl-convert."""
    try:
        import vl_convert
    except ImportError:
        raise InputMissing("figures need vl-convert, which is not installed: pip install 'partrain[report]'") from None
    spec = figure(name, runs, by)
    if spec is None:
        labels = ", ".join(run.label for run in runs)
        if any(name in event.scores for run in runs for event in run.judgements):
            raise InputMissing(
                f"{labels}: {name} was judged only once, and a curve needs two judgements: set judge_every in [stop]"
            )
        raise InputMissing(f"{labels} recorded no {name}: there is nothing to plot")
    thick = {"subtitle": "thick: held-out items; thin: training, mean of the workers"} if name == "loss" else {}
    title = {"text": kind_of(name).title, "anchor": "start", "color": LIGHT["ink"], "subtitleColor": LIGHT["muted"], **thick}
    whole = themed(spec, LIGHT, WIDTH, HEIGHT) | {"background": LIGHT["paper"], "title": title}
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(whole, scale=SCALE))
    return str(vl_convert.vegalite_to_svg(whole)).encode()


def kind_of(name: str) -> FigureKind:
    """Return the figure of this name; a name not in `FIGURES` is the name of a judged metric."""
    return FIGURES.get(name) or FigureKind(name, partial(_metric, name), "seconds")


def _rounded(value: float) -> float:
    """Round to five digits: more are invisible, and cost bytes."""
    return float(f"{value:.5g}")


def _curve(run: RunHistory, what: str, points: Iterable[tuple[float, float]]) -> Rows:
    return [{"x": float(f"{x:.7g}"), "y": _rounded(y), "run": run.label, "what": what} for x, y in points]


def thinned(points: Sequence[tuple[float, float]], most: int) -> Iterator[tuple[float, float]]:
    """Yield at most `most` points: means of neighbors, each at the position of the last one."""
    size = -(-len(points) // most) if points else 1
    for first in range(0, len(points), size):
        part = points[first : first + size]
        yield part[-1][0], sum(y for _, y in part) / len(part)


def _training(run: RunHistory, by: str) -> list[tuple[float, float]]:
    points = [(record.x(by), y) for record in run.rounds if (y := record.numbers.get("loss")) is not None]
    return list(thinned(points, MOST_POINTS))


def _judged(run: RunHistory, by: str, metric: str) -> list[tuple[float, float]]:
    at = {"seconds": "seconds", "items": "item_iterations", "rounds": "round"}[by]
    points = []
    for judgement in run.judgements:
        value = judgement.loss if metric == "loss" else judgement.metrics.get(metric)
        if value is not None:
            points.append((float(getattr(judgement, at)), value))
    return _newest(points)


def _newest(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep points at equal steps, and the newest: their means would be other numbers."""
    step = -(-len(points) // MOST_POINTS) if points else 1
    return [*points[:-1:step], *points[-1:]]


def _x(by: str) -> Spec:
    return {
        "field": "x",
        "type": "quantitative",
        "title": TITLES[by],
        "axis": {"format": "~s" if by == "items" else PLAIN, "labelExpr": NO_UNIT, "tickCount": 5},
        "scale": {"nice": False, "zero": True},
    }


def _color(runs: Sequence[RunHistory]) -> Spec:
    labels = [run.label for run in runs]
    colors = [RUN_COLORS[index % len(RUN_COLORS)] for index in range(len(labels))]
    legend = LINE_LEGEND if len(labels) > 1 else None
    return {"field": "run", "type": "nominal", "scale": {"domain": labels, "range": colors}, "legend": legend, "sort": None}


def _lines(runs: Sequence[RunHistory], by: str, rows: Rows, y: Spec, whats: Sequence[str] = ("",)) -> Spec | None:
    """Describe curves: thin ones for training, strong ones with points for judgements; numbers at the pointer."""
    if not rows:
        return None
    color, x = _color(runs), _x(by)
    shown = {"x": x, "y": y, "color": color}
    layers: list[Spec] = []
    for what in whats:
        rows_of = [row for row in rows if row["what"] == what]
        if not rows_of:
            continue
        faint = what == "training"
        mark_spec = {
            "type": "line",
            "strokeWidth": 1.25 if faint else 2.25,
            "opacity": 0.55 if faint else 1,
            "interpolate": "linear",
        }
        if not faint and len(rows_of) <= MOST_DOTS * len(runs):
            mark_spec["point"] = {"size": 28, "filled": True}
        layers.append({"transform": [{"filter": {"field": "what", "equal": what}}], "mark": mark_spec, "encoding": shown})
    tooltip = [{"field": "run", "title": "run"}] if len(runs) > 1 else []
    tooltip += [{"field": "what", "title": "of"}] if len(whats) > 1 else []
    tooltip += [
        {"field": "x", "type": "quantitative", "title": TITLES[by], "format": ",.6~g"},
        {"field": "y", "type": "quantitative", "title": y["title"], "format": ",.5~g"},
    ]
    # Not `nearest`: with it Vega-Lite 6.4 looks for names in the wrong object, and shows "undefined".
    near = {"name": "near", "select": {"type": "point", "on": "pointerover", "clear": "pointerout"}}
    hovered = {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}
    layers.append(
        {
            "params": [near],
            "mark": {"type": "point", "filled": True, "size": 110},
            "encoding": shown | {"opacity": hovered, "tooltip": tooltip},
        }
    )
    return {"data": {"values": rows}, "layer": layers}


def _goal(runs: Sequence[RunHistory], name: str) -> list[Spec]:
    """Draw the target, if all runs share it."""
    goals = {run.state.start.stop.get(name) for run in runs}
    goal = goals.pop() if len(goals) == 1 else None
    if not isinstance(goal, int | float):
        return []
    return [
        {
            "data": {"values": [{"y": goal, "text": f"target {goal:g}"}]},
            "layer": [
                {"mark": {"type": "rule", "color": "muted", "strokeDash": [4, 4]}, "encoding": {"y": {"field": "y", "type": "quantitative"}}},
                {
                    "mark": {"type": "text", "color": "muted", "align": "left", "dx": 4, "dy": -6, "fontSize": 11},
                    "encoding": {
                        "x": {"value": 0},
                        "y": {"field": "y", "type": "quantitative"},
                        "text": {"field": "text"},
                    },
                },
            ],
        }
    ]  # fmt: skip


def _spikes(runs: Sequence[RunHistory], by: str) -> list[Spec]:
    """Draw a vertical line at each jump of a loss."""
    at = [{record.round: record.x(by) for record in run.rounds} for run in runs]
    marks = [
        {"x": places[spike.round], "run": run.label, "text": spike.describe()}
        for run, places in zip(runs, at, strict=True)
        for spike in run.spikes[-MOST_DOTS:]
        if spike.round in places
    ]
    if not marks:
        return []
    encoding = {"x": {"field": "x", "type": "quantitative"}, "color": _color(runs), "tooltip": {"field": "text"}}
    return [{"data": {"values": marks}, "mark": {"type": "rule", "strokeDash": [2, 3], "opacity": 0.8}, "encoding": encoding}]


def _y(title: str, rows: Rows, *, zero: bool = False, log: bool = False, form: str = PLAIN) -> Spec:
    """Describe the vertical axis, logarithmic only if the numbers need it."""
    values = [row["y"] for row in rows] or [0.0]
    low, high = min(values), max(values)
    axis: Spec = {"format": form, "labelExpr": NO_UNIT, "tickCount": 5}
    scale: Spec = {"zero": zero}
    if log and low > 0 and high / low > LOG_FROM:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if high / low < 300 else (1,)
        axis["values"] = [tick for decade in decades for step in steps if low <= (tick := float(f"{step}e{decade}")) <= high]
        scale = {"type": "log", "domain": [low, high], "nice": False}
    return {"field": "y", "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _loss(runs: Sequence[RunHistory], by: str) -> Spec | None:
    rows: Rows = []
    for run in runs:
        rows += _curve(run, "training", _training(run, by))
        rows += _curve(run, "judged", _judged(run, by, "loss"))
    marks = [*_goal(runs, "loss"), *_spikes(runs, by)]
    return _with(_lines(runs, by, rows, _y("loss", rows, log=True), ("training", "judged")), marks)


def _metric(name: str, runs: Sequence[RunHistory], by: str) -> Spec | None:
    rows = [row for run in runs for row in _curve(run, "judged", _judged(run, by, name))]
    if len(rows) < 2:
        return None  # one number is not a curve
    return _with(_lines(runs, by, rows, _y(f"judged {name}", rows, form=".4~g"), ("judged",)), _goal(runs, name))


def _with(spec: Spec | None, layers: list[Spec]) -> Spec | None:
    if spec is not None:
        spec["layer"] = [*layers, *spec["layer"]]
    return spec


def _of_number(name: str, drawn: Drawn) -> FigureKind:
    """Return the figure of a number of a round; a number that adds up is drawn as its running sum."""
    adds_up = NUMBERS[name].rounds is Merge.SUM

    def spec(runs: Sequence[RunHistory], by: str) -> Spec | None:
        rows: Rows = []
        for run in runs:
            points = [(record.x(by), value) for record in run.rounds if (value := record.numbers.get(name)) is not None]
            if adds_up:
                points = _newest([(x, so_far) for (x, _), so_far in zip(points, accumulate(y for _, y in points), strict=True)])
            rows += _curve(run, "", points if adds_up else thinned(points, MOST_POINTS))
        if not any(row["y"] for row in rows):
            return None
        form = ".3~s" if max(row["y"] for row in rows) >= 1000 else ".3~g"
        return _lines(runs, by, rows, _y(drawn.axis, rows, zero=True, log=drawn.log, form=form))

    return FigureKind(drawn.title, spec, drawn.by, NUMBERS[name].meaning)


def _speed(runs: Sequence[RunHistory], by: str) -> Spec | None:
    """Describe item-iterations per second of all workers together, in equal parts of the run's time."""
    rows: Rows = []
    for run in runs:
        end = run.rounds[-1].seconds if run.rounds else 0.0
        if end <= 0:
            continue
        count = max(1, min(MOST_RATES, len(run.rounds) // 6))
        bins = [binned(spans, end, count) for spans in run.spans.values()]
        width, ends = end / count, _ends(run, by, end, count)
        rates = [sum(spans[index].items for spans in bins) / width for index in range(count)]
        rows += _curve(run, "", zip(ends, rates, strict=True))
    return _lines(runs, by, rows, _y("item-iterations per second", rows, zero=True, form=".3~s"))


def _ends(run: RunHistory, by: str, end: float, count: int) -> list[float]:
    """Return the ends of equal parts of the time, on another axis if requested."""
    ends = [end * (index + 1) / count for index in range(count)]
    if by == "seconds":
        return ends
    positions, at = [], 0
    for limit in ends:
        while at < len(run.rounds) - 1 and run.rounds[at].seconds < limit:
            at += 1
        positions.append(run.rounds[at].x(by))
    return positions


FIGURES: Mapping[str, FigureKind] = {
    "loss": FigureKind("Loss", _loss, "seconds"),
    "accuracy": FigureKind("Accuracy", partial(_metric, "accuracy"), "seconds"),
    "timeline": FigureKind("Time of each worker", timeline, "seconds"),
    **{name: _of_number(name, number.drawn) for name, number in NUMBERS.items() if number.drawn},
    "speed": FigureKind("Speed", _speed, "seconds", "Item-iterations per second of all workers together."),
}
"""Figures by the name that `partrain plot --what` takes."""
