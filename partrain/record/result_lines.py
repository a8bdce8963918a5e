"""Lines on the result of a run: beside answers that need no training, and whether more rounds may help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from partrain.number_format import number, plural, scores

TRIVIAL = {
    "constant": "always answering the commonest class",
    "naive": "repeating the newest value",
    "seasonal_naive": "repeating the newest season",
}
"""Answers that need no training, in words."""
ALWAYS_THE_MEAN = "always answering the mean"
TELLING = {
    "auroc": True,
    "average_precision": True,
    "f1": True,
    "accuracy": True,
    "r2": True,
    "mae": False,
    "rmse": False,
    "loss": False,
}
"""Numbers by which a network is compared with them, the most telling first; True if higher is better."""


def result_lines(content: Mapping[str, Any], *, spent: bool = False) -> list[str]:
    """Return lines on a result; `content` is that of summary.json. `spent`: the learning rate is 0, so continuing is useless."""
    return [*_undefined(content), *_beside_trivial(content), *_course(content, spent=spent)]


def _undefined(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each number that should have decided about the run and was undefined in a judgement."""
    judgements = content.get("judgements", 0)
    for name, count in content.get("undefined", {}).items():
        yield f"`{name}` was no number in {count:,} of {judgements:,} {plural('judgement', judgements)}, which do not count for [stop]"


def trivial_words(name: str, numbers: Mapping[str, Any]) -> str:
    """Name an answer that needs no training, which has these numbers."""
    return ALWAYS_THE_MEAN if name == "constant" and "accuracy" not in numbers else TRIVIAL[name]


def _beside_trivial(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each answer that needs no training: whether the network is better, by the number that tells most."""
    best = content.get("best") or {}
    own = content["test"] or {"loss": best.get("loss"), **best.get("metrics", {})}
    for name in TRIVIAL:
        numbers = content.get("trivial", {}).get(name, {})
        key = next((key for key in TELLING if numbers.get(key) is not None and own.get(key) is not None), None)
        if key is None:
            continue
        gain = (own[key] - numbers[key]) * (1 if TELLING[key] else -1)
        verdict = "better than" if gain > 0 else "NO BETTER than"
        yield f"{verdict} {trivial_words(name, numbers)}: {scores({key: own[key]})} against {number(numbers[key])}"


def _course(content: Mapping[str, Any], *, spent: bool) -> list[str]:
    """Return a line on the course of the judged loss at the end: more rounds may help, or not; none where a target ended the run."""
    course = content.get("course") if content["status"] in ("finished", "not-reached", "stopped") else None
    match course:
        case "improving":
            how = "raise `rounds` in [stop] and run it again" if spent else "resume it for more rounds"
            return [f"still improving at the end: {how}"]
        case "past its best":
            return ["past its best: the judged loss rises, and more rounds of this kind would not help"]
    return []
