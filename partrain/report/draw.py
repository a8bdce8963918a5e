"""One figure as an SVG or PNG file, drawn by vl-convert, which needs no browser."""

from __future__ import annotations

from collections.abc import Sequence

from partrain.errors import CannotCreate, InputMissing
from partrain.report.figures import figure, kind_of
from partrain.report.history import RunHistory
from partrain.report.theme import LIGHT, themed

FORMATS = (".svg", ".png")
WIDTH, HEIGHT = 640, 320
SCALE = 2.0
"""Pixels of a PNG per unit."""


def draw(name: str, runs: Sequence[RunHistory], by: str | None, suffix: str) -> bytes:
    """Draw a figure. Raises `InputMissing` if the runs have nothing to show, `CannotCreate` without vl-convert."""
    try:
        import vl_convert
    except ImportError:
        raise CannotCreate("figures need vl-convert, which is not installed: pip install 'partrain[report]'") from None
    spec = figure(name, runs, by)
    if spec is None:
        raise InputMissing(f"{', '.join(run.label for run in runs)} recorded no {name}: there is nothing to plot")
    thick = {"subtitle": "thick: held-out items; thin: training, mean of the workers"} if name == "loss" else {}
    title = {"text": kind_of(name).title, "anchor": "start", "color": LIGHT["ink"], "subtitleColor": LIGHT["muted"], **thick}
    whole = themed(spec, LIGHT, WIDTH, HEIGHT) | {"background": LIGHT["paper"], "title": title}
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(whole, scale=SCALE))
    return str(vl_convert.vegalite_to_svg(whole)).encode()
