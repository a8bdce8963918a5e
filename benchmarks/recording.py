"""Recorded results: `record` writes benchmarks/results/NAME.json, and from all of these README.md and NAME.svg beside them.

`python -m benchmarks.recording` writes README.md and the charts anew. A row has text, a number, or a list of all measured numbers by column.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))  # scripts that run by their path find `runs` there, too

from runs import machine, shown

FOLDER = Path(__file__).parent / "results"
Row = Mapping[str, str | float | Sequence[float]]


def record(name: str, title: str, rows: Sequence[Row], *, notes: Sequence[str] = (), chart: dict[str, Any] | None = None) -> None:
    """Record a result. `chart` names columns: "x", "y", and maybe "series" and "bound" (a dashed limit of y); "log": its logarithmic axes."""
    result = {
        "title": title,
        "command": command(sys.orig_argv[1:]),
        "date": date.today().isoformat(),
        "machine": machine(),
        "notes": notes,
        "columns": list(dict.fromkeys(column for row in rows for column in row)),
        "rows": rows,
    }
    text = json.dumps(result | ({"chart": chart} if chart else {}), indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    write()


def command(words: Sequence[str]) -> str:
    """Return the command that another machine repeats: of files elsewhere, such as another interpreter, it has the name alone."""
    return shlex.join(["python", *(Path(word).name if Path(word).is_absolute() else word for word in words)])


def write(folder: Path = FOLDER) -> None:
    """Write the page and the charts of a folder."""
    (folder / "README.md").write_text(page(folder), encoding="utf-8")
    for file, result in _results(folder).items():
        if "chart" in result:
            file.with_suffix(".svg").write_text(drawn(result), encoding="utf-8")


def page(folder: Path = FOLDER) -> str:
    """The page of all results: median (least-most) where there are several numbers."""
    parts = ["# Results\n\n`python -m benchmarks.recording` writes this page from the JSON files beside it: median (least-most)."]
    for file, result in _results(folder).items():
        columns = result["columns"]
        table = [columns, ["---"] * len(columns), *([_cell(row.get(column, "")) for column in columns] for row in result["rows"])]
        parts += [
            f"## {result['title']}",
            f"`{result['command']}`, {result['date']}, {result['machine']}. Numbers: [{file.name}]({file.name})",
        ]
        parts += [*result["notes"], "\n".join(f"| {' | '.join(cells)} |" for cells in table)]
        parts += [f"![{result['title']}]({file.stem}.svg)"] if "chart" in result else []
    return "\n\n".join(parts) + "\n"


def _results(folder: Path) -> dict[Path, dict[str, Any]]:
    return {file: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    values = value if isinstance(value, list) else [value]
    digits = ",.0f" if max(map(abs, values)) >= 1000 else "#.4g"
    return shown(values, digits) if len(values) > 1 else f"{values[0]:{digits}}"


def palette(count: int) -> list[str]:
    """The colours of the first series."""
    from partrain.report.theme import LIGHT, RUN_COLORS

    return [LIGHT[name] for name in RUN_COLORS[:count]]


def drawn(result: dict[str, Any]) -> str:
    """The chart of a result as SVG: medians as points, lines between them where both axes are numbers, bars from least to most."""
    import vl_convert

    from partrain.report.theme import LIGHT, LINE_LEGEND, RUN_COLORS, themed

    chart = result["chart"]
    axes = [axis for axis in ("x", "y", "bound", "series") if axis in chart]
    rows = [
        {f"{axis}{end}": pick(value) if isinstance(value := row[chart[axis]], list) else value
         for axis in axes for end, pick in (("", statistics.median), ("_least", min), ("_most", max))}
        for row in result["rows"] if all(chart[axis] in row for axis in axes)
    ]  # fmt: skip
    encoding: dict[str, Any] = {"color": {"value": LIGHT["run-0"]}}
    if "series" in chart:
        encoding["color"] = {
            "field": "series",
            "type": "nominal",
            "scale": {"range": palette(len(RUN_COLORS))},
            "legend": LINE_LEGEND | {"columns": 3},
            "sort": None,
        }
    numeric = [axis for axis in ("x", "y") if not any(isinstance(row[axis], str) for row in rows)]
    for axis in "x", "y":
        scale = {"scale": {"type": "log" if axis in chart.get("log", ()) else "linear"}} if axis in numeric else {"sort": None}
        title = {"title": chart[axis] if axis in numeric else None, "axis": {"labelLimit": 300}}
        encoding[axis] = {"field": axis, "type": "quantitative" if axis in numeric else "nominal", **title, **scale}
    mark = {"type": "line", "point": True} if len(numeric) == 2 else {"type": "point", "filled": True}
    layers = [{"mark": mark, "encoding": encoding}]
    measured = numeric[-1]
    ends = {measured: encoding[measured] | {"field": f"{measured}_least"}, f"{measured}2": {"field": f"{measured}_most"}}
    layers.append({"mark": "rule", "encoding": encoding | ends})
    if "bound" in chart:
        bound = {"y": encoding["y"] | {"field": "bound"}}
        layers.append({"mark": {"type": "line", "strokeDash": [4, 4]}, "encoding": encoding | bound})
    spec = {"data": {"values": rows}, "layer": layers, "title": {"text": result["title"], "anchor": "start"}}
    return str(vl_convert.vegalite_to_svg(themed(spec, LIGHT, 640, 320) | {"background": LIGHT["paper"]}))


if __name__ == "__main__":
    write()
