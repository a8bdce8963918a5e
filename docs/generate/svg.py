"""A drawing as SVG text: boxes, lines and words on a card of its own, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
  .card { fill: #fbfbfd; stroke: #d4d8e0 }  .ink { fill: #22262e }  .quiet { fill: #5b6472 }
  .line { stroke: #5b6472; fill: none }  .thin { stroke: #b9c0cc; fill: none }
  .w0 { fill: #3b6fd4; stroke: #3b6fd4 }  .w1 { fill: #c8571b; stroke: #c8571b }  .w2 { fill: #2c8a5b; stroke: #2c8a5b }
  .w3 { fill: #8a55b8; stroke: #8a55b8 }  .mix { fill: #22262e; stroke: #22262e }  .wait { fill: #d4d8e0; stroke: #d4d8e0 }
  .both { fill: #e9b949; stroke: #e9b949 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1d2129; stroke: #3a414d }  .ink { fill: #e8eaef }  .quiet { fill: #a4adbb }
    .line { stroke: #a4adbb }  .thin { stroke: #4a5261 }
    .w0 { fill: #7aa5f5; stroke: #7aa5f5 }  .w1 { fill: #f0925c; stroke: #f0925c }  .w2 { fill: #5cc592; stroke: #5cc592 }
    .w3 { fill: #bd92e6; stroke: #bd92e6 }  .mix { fill: #e8eaef; stroke: #e8eaef }  .wait { fill: #3a414d; stroke: #3a414d }
    .both { fill: #e9b949; stroke: #e9b949 }
  }
"""
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


class Drawing:
    """A drawing of a fixed size, in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1.0, round_: float = 2.0) -> None:
        """Draw a filled box of a class of `STYLE`."""
        shade = "" if opacity == 1 else f" fill-opacity='{opacity}' stroke-opacity='0'"
        self._parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' rx='{round_:g}' class='{kind}' stroke-width='0'{shade}/>"
        )

    def words(
        self, x: float, y: float, text: str, kind: str = "ink", size: int = 14, anchor: str = "start", bold: bool = False
    ) -> None:
        """Write one line; (x, y) is the left, middle or right end of its baseline."""
        weight = " font-weight='600'" if bold else ""
        # `stroke` belongs to lines: a letter with one is bold.
        self._parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' class='{kind}' font-size='{size}' text-anchor='{anchor}' stroke='none' "
            f"style='stroke: none'{weight}>{escape(text)}</text>"
        )

    def line(self, points: Sequence[tuple[float, float]], kind: str = "line", width: float = 1.5, dash: str = "") -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        self._parts.append(f"<polyline points='{path}' class='{kind}' style='fill: none' stroke-width='{width:g}'{dashed}/>")

    def dot(self, x: float, y: float, radius: float, kind: str) -> None:
        """Draw a dot."""
        self._parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius:g}' class='{kind}'/>")

    def ellipse(self, x: float, y: float, across: float, along: float, kind: str = "thin") -> None:
        """Draw an empty ellipse."""
        self._parts.append(
            f"<ellipse cx='{x:.1f}' cy='{y:.1f}' rx='{across:.1f}' ry='{along:.1f}' class='{kind}' style='fill: none'/>"
        )

    def render(self) -> str:
        """Return the SVG document."""
        head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' width='{self.width}' height='{self.height}' role='img' {FONT}>"
        card = f"<rect x='0.5' y='0.5' width='{self.width - 1}' height='{self.height - 1}' rx='8' class='card'/>"
        return "\n".join(
            [head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", card, *self._parts, "</svg>", ""]
        )
