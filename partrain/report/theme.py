"""Size, style and colors of figures.

Colors are names until `themed` replaces them: in a page by variables of its style sheet, so that a figure follows the page into dark
mode, and in a file by hexadecimal codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Spec = dict[str, Any]
"""A description of a figure in the Vega-Lite language."""
Rows = list[dict[str, Any]]
"""The data of a figure."""

RUN_COLORS = tuple(f"run-{number}" for number in range(8))
LINE_LEGEND = {"orient": "top", "title": None, "symbolType": "stroke", "symbolStrokeWidth": 3}
PLAIN = ".6~g"
"""Format of numbers on an axis."""
NO_UNIT = "datum.value === 0 ? '0' : datum.label"
"""Labels without a unit after zero."""
LIGHT = {
    "run-0": "#2563eb", "run-1": "#d9580d", "run-2": "#0f8f72", "run-3": "#8b45c8",
    "run-4": "#c22f5a", "run-5": "#7a6a00", "run-6": "#0a86a8", "run-7": "#5d6470",
    "compute": "#2f7ed8", "wait": "#f0b429", "mix": "#8b45c8",
    "ink": "#1c2430", "muted": "#5f6b7a", "grid": "#e4e8ee", "paper": "#ffffff",
}  # fmt: skip
"""Colors by name, on white; `page.css` has them for both modes."""
COLORED = ("color", "stroke", "fill", "labelColor")
"""Keys of a description whose values are colors."""
VARIABLES = {name: f"var(--{name})" for name in LIGHT}


def themed(spec: Spec, colors: Mapping[str, str], width: float | str, height: float = 220) -> Spec:
    """Return a complete description: with colors instead of names, size and style."""
    text = {"labelColor": colors["muted"], "titleColor": colors["muted"], "labelFontSize": 11, "titleFontSize": 11}
    config = {
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "background": None,
        "view": {"stroke": None},
        "axis": text | {"titleFontWeight": "normal", "gridColor": colors["grid"], "domainColor": colors["grid"], "tickColor": colors["grid"], "labelPadding": 5, "titlePadding": 6},
        "axisX": {"grid": False, "labelFlush": True},
        "axisY": {"domain": False, "ticks": False},
        "legend": text | {"labelColor": colors["ink"], "labelLimit": 260, "symbolSize": 90},
        "text": {"font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"},
    }  # fmt: skip
    size = {"width": width, "height": spec.get("height", height), "autosize": {"type": "fit", "contains": "padding"}}
    whole = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "padding": 4, **size, **spec, "config": config}
    colored: Spec = _colored(whole, colors)
    return colored


def _colored(value: Any, colors: Mapping[str, str]) -> Any:
    """Replace color names by colors where a color is expected; never in data, which may contain the same words."""
    if isinstance(value, dict):
        return {
            key: item if key == "data" else colors.get(item, item) if key in COLORED and isinstance(item, str)
            else [colors.get(color, color) for color in item] if key == "range" and isinstance(item, list) else _colored(item, colors)
            for key, item in value.items()
        }  # fmt: skip
    if isinstance(value, list):
        return [_colored(item, colors) for item in value]
    return value
