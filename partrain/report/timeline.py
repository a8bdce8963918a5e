"""The timeline: a row per worker with the shares of computing, waiting and mixing over the run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from partrain.record.round_record import ACTIVITIES
from partrain.report.history import RunHistory, WorkerSpan
from partrain.report.theme import PLAIN, Rows, Spec

MOST_CELLS = 1200
"""Maximum number of parts of time in a timeline, all workers together."""
MOST_BINS = 160
"""Maximum number of parts of time of one worker."""
SHOWN_WORKERS = 24
"""Maximum number of workers in a timeline."""


@dataclass
class Bin:
    """A worker's seconds by activity within a part of the run, and its item-iterations in that time."""

    compute: float = 0.0
    wait: float = 0.0
    mix: float = 0.0
    items: float = 0.0


def binned(spans: Sequence[WorkerSpan], end: float, count: int) -> list[Bin]:
    """Spread a worker's rounds over `count` equal parts of the time from 0 to `end`: computing first, then waiting, then mixing."""
    compute, wait, mix, items = ([0.0] * count for _ in range(4))
    width = end / count
    for span in spans:
        lasted = span.compute + span.wait + span.mix
        if not (math.isfinite(span.end) and math.isfinite(lasted)) or lasted <= 0:
            continue
        at = max(0.0, span.end - lasted)
        if (number := int(at / width)) == int(span.end / width) < count:  # most rounds of a long run
            compute[number] += span.compute
            wait[number] += span.wait
            mix[number] += span.mix
            items[number] += span.items
            continue
        _spread(items, at, span.end, span.items, width)
        for part, seconds in ((compute, span.compute), (wait, span.wait), (mix, span.mix)):
            _spread(part, at, at + seconds, seconds, width)
            at += seconds
    return list(map(Bin, compute, wait, mix, items))


def _spread(bins: list[float], start: float, end: float, amount: float, width: float) -> None:
    """Add an amount to the bins that an interval touches, in proportion."""
    if end <= start:
        return
    last = len(bins) - 1
    first, final = min(int(start / width), last), min(int(end / width), last)
    for index in range(first, final + 1):
        low = start if index == first else index * width
        high = end if index == final else (index + 1) * width
        bins[index] += amount * max(0.0, high - low) / (end - start)


def end_of(runs: Sequence[RunHistory]) -> float:
    """Return the training seconds of the longest of these runs."""
    return max((run.rounds[-1].seconds for run in runs if run.rounds), default=0.0)


def timeline(runs: Sequence[RunHistory], by: str, end: float | None = None) -> Spec | None:
    """Describe each worker's time: the shares of computing, waiting and mixing in equal parts of the run, a row per worker.

    `end`: seconds at the end of the axis, which several figures may share; default: `end_of` these runs.
    """
    workers = [(run, rank) for run in runs for rank in sorted(run.spans)][:SHOWN_WORKERS]
    end = end or end_of(runs)
    if not workers or end <= 0:
        return None
    count = max(20, min(MOST_BINS, MOST_CELLS // len(workers)))
    rows: Rows = []
    for row, (run, rank) in enumerate(workers):
        for index, time_bin in enumerate(binned(run.spans[rank], end, count)):
            shares = {name: round(getattr(time_bin, name) * count / end, 3) for name in ACTIVITIES}
            if any(shares.values()):
                rows.append({"k": row, "b": index, **shares})
    names = [f"{run.label} worker {rank}" if len(runs) > 1 else f"worker {rank}" for run, rank in workers]
    height = 0.82
    x = {"type": "quantitative", "title": "training seconds", "scale": {"domain": [0, float(f"{end:.5g}")], "nice": False}, "axis": {"format": PLAIN, "grid": False, "tickCount": 6}}  # fmt: skip
    middle = [row + height / 2 for row in range(len(names))]
    return {
        "data": {"values": rows},
        "transform": [
            {"fold": list(ACTIVITIES), "as": ["key", "share"]},
            {"calculate": "indexof(['compute', 'wait', 'mix'], datum.key)", "as": "order"},
            {"calculate": f"{list(ACTIVITIES.values())}[datum.order]", "as": "what"},
            {"stack": "share", "groupby": ["k", "b"], "sort": [{"field": "order"}], "as": ["from", "to"]},
            {"filter": "datum.share > 0"},
            {"calculate": f"datum.b * {end / count!r}", "as": "x"},
            {"calculate": f"(datum.b + 1.05) * {end / count!r}", "as": "x2"},
            {"calculate": f"datum.k + {height} - {height} * min(1, datum.from)", "as": "y"},
            {"calculate": f"datum.k + {height} - {height} * min(1, datum.to)", "as": "y2"},
        ],
        "mark": {"type": "rect", "stroke": None},
        "encoding": {
            "x": x | {"field": "x"},
            "x2": {"field": "x2"},
            "y": {
                "field": "y",
                "type": "quantitative",
                "title": None,
                "scale": {"domain": [0, len(names)], "reverse": True, "nice": False, "zero": False},
                "axis": {
                    "values": middle,
                    "labelExpr": f"{names!r}[floor(datum.value)]" if _plain(names) else _numbered(runs, workers),
                    "grid": False,
                    "ticks": False,
                    "domain": False,
                },
            },
            "y2": {"field": "y2"},
            "color": {
                "field": "what",
                "type": "nominal",
                "scale": {"domain": list(ACTIVITIES.values()), "range": list(ACTIVITIES)},
                "legend": {"orient": "top", "title": None, "symbolType": "square"},
            },
            "tooltip": [
                {"field": "what", "title": "activity"},
                {"field": "share", "type": "quantitative", "title": "share of this time", "format": ".0%"},
                {"field": "x", "type": "quantitative", "title": "from second", "format": ".4~g"},
            ],
        },
        "height": 78 + (34 if len(names) <= 6 else 20) * len(names),
    }


def _plain(names: Sequence[str]) -> bool:
    """Return whether names may occur in a Vega expression: a label comes from the user, and must not be code."""
    return all(re.fullmatch(r"[\w ./:-]+", name, re.ASCII) for name in names)


def _numbered(runs: Sequence[RunHistory], workers: Sequence[tuple[RunHistory, int]]) -> str:
    numbers = {id(run): index + 1 for index, run in enumerate(runs)}
    return f"{[f'run {numbers[id(run)]} worker {rank}' for run, rank in workers]}[floor(datum.value)]"
