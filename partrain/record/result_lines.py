"""Lines on the result of a run: its comparison with answers that need no training, and whether more rounds may help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from partrain.number_format import counted, number, plural, scores

TRIVIAL = {
    "constant": "always answering the commonest class",
    "naive": "repeating the newest value",
    "seasonal_naive": "repeating the newest season",
}
"""Answers that need no training, in words."""
ALWAYS_THE_MEAN = "always answering the mean"
VERDICTS = {"better": "better than", "no better": "NO BETTER than", "unsure": "not clearly better than"}
"""Verdicts on a network compared with such an answer, in words."""


def result_lines(content: Mapping[str, Any], *, spent: bool = False) -> list[str]:
    """Return lines on a result. `content`: of summary.json. `spent`: the learning rate is 0, so continuing is useless."""
    return [*_undefined(content), *_beside_trivial(content), *_course(content, spent=spent)]


def clients_line(clients: Mapping[str, Any], workers: int) -> str:
    """Describe the clients that some workers take in turn."""
    smallest, largest = clients["smallest"], clients["largest"]
    items = counted(largest, "item") if smallest == largest else f"{smallest:,} to {counted(largest, 'item')}"
    skew = f", mean label skew {clients['unevenness']:.0%}" if "unevenness" in clients else ""
    return f"clients: {clients['count']:,} of {items}{skew}; {workers:,} are drawn for each round"


def _undefined(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each deciding number that was undefined in a judgement."""
    judgements = content.get("judgements", 0)
    for name, count in content.get("undefined", {}).items():
        yield f"`{name}` was no number in {count:,} of {judgements:,} {plural('judgement', judgements)}, which do not count for [stop]"


def trivial_words(name: str, numbers: Mapping[str, Any]) -> str:
    """Name an answer that needs no training and has these numbers."""
    return ALWAYS_THE_MEAN if name == "constant" and "accuracy" not in numbers else TRIVIAL[name]


def verdict(comparison: Mapping[str, Any]) -> str:
    """Return whether a network is better than a trivial answer: `better`, `no better`; `unsure` if the interval spans 0 or R² is below 0."""
    worst, best = comparison["low"], comparison["high"]
    if comparison["by"] == "mae":
        worst, best = -best, -worst
    if best <= 0:
        return "no better"
    return "better" if worst > 0 and comparison.get("r2", 0.0) >= 0 else "unsure"


def _beside_trivial(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each answer that needs no training: whether the network is better, and by how much."""
    for name, beside in content.get("comparisons", {}).items():
        words = f"{VERDICTS[verdict(beside)]} {trivial_words(name, content['trivial'][name])}"
        interval = f"95 % interval of the difference {number(beside['low'])} to {number(beside['high'])}"
        line = f"{words}: {scores({beside['by']: beside['network']})} against {number(beside['trivial'])} ({counted(beside['items'], 'item')}; {interval})"
        if rare := beside.get("rare"):
            line += f"; of {counted(rare['items'], 'item')} of the rare class {rare['name']}, {rare['right']:,} got it"
            if "others" in rare:  # results of older versions lack it
                by_chance = number(rare["items"] / beside["items"])
                line += f", as did {rare['others']:,} others; its average precision is {number(rare['average_precision'])}, by chance {by_chance}"
        yield line + (f"; its R² is {number(beside['r2'])}, below 0" if beside.get("r2", 0.0) < 0 else "")


def _course(content: Mapping[str, Any], *, spent: bool) -> list[str]:
    """Return a line on whether the judged loss still fell at the end, so more rounds may help; none if a target ended the run."""
    course = content.get("course") if content["status"] in ("finished", "not-reached", "stopped") else None
    match course:
        case "improving":
            how = "raise `rounds` in [stop] and run it again" if spent else "resume it for more rounds"
            return [f"still improving at the end: {how}"]
        case "past its best":
            return ["past its best: the judged loss rises, and more rounds of this kind would not help"]
    return []
