"""The table of `partrain compare`: as text for a terminal or a file, in Markdown, in CSV."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from partrain.bench import incomplete_rows
from partrain.display.text_table import comma_separated, markdown, table, wrapped
from partrain.runs.table import setting_text

MORE = ("rule", "bytes/round", "participation", "staleness", "distance")
"""Columns after those of `ComparedRuns.cells`."""
MOST_LIMITS = 4
"""Maximum number of rows for which a line below the table says what kept the workers from computing."""


def render(
    result: dict[str, Any], width: int | None = None, *, only_changed: bool = False, as_markdown: bool = False
) -> list[str]:
    """Render the table, and the settings that differ.

    Args:
        result: The result of `compare`.
        width: Columns of the terminal; None = any number.
        only_changed: Leave out columns that are the same in all rows; settings that differ become columns.
        as_markdown: A Markdown table, with nothing below it.
    """
    further = [_further(row) for row in result["rows"]]
    kept = [column for column in range(len(MORE)) if any(cells[column] != "-" for cells in further)]
    head = [*result["table"]["head"], *(MORE[column] for column in kept)]
    rows = [[*cells, *(more[column] for column in kept)] for cells, more in zip(result["table"]["rows"], further, strict=True)]
    if only_changed:
        head, rows = _changed(head, rows, result)
    if as_markdown:
        return markdown(head, rows)
    limits = [f"{label}: {limit}" for label, limit in [*result["limits"].items()][:MOST_LIMITS]]
    lines = [*table(head, rows, width), *wrapped([result["table"]["note"], *limits], width), *incomplete_rows(result)]
    if only_changed:
        return lines
    if result["differ"]:
        lines += ["", "settings that differ:"]
    for key, values in result["differ"].items():
        lines += wrapped([f"  {key}: " + describe_values(values, [row["label"] for row in result["rows"]])], width)
    return lines


def as_csv(result: dict[str, Any]) -> list[str]:
    """Return the lines of a CSV file: medians, and the settings that differ."""
    rows = result["rows"]
    numbers = list(
        dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, list) and key != "statuses")
    )
    head = ["job", "rule", "runs", "reached", *numbers, *result["differ"]]
    return comma_separated(
        head,
        [
            [
                *(row[key] for key in ("label", "rule", "runs")),
                row["statuses"].count("reached"),
                *(_middle(row[key]) if row.get(key) else None for key in numbers),
                *(setting_text(values[row["label"]]) if row["label"] in values else None for values in result["differ"].values()),
            ]
            for row in rows
        ],
    )


def describe_values(values: Mapping[str, Any], jobs: Sequence[str]) -> str:
    """Describe the jobs' values of one key: the majority value first, then the exceptions."""
    words = {job: json.dumps(values[job]) if job in values else "-" for job in jobs}
    usual, count = Counter(words.values()).most_common(1)[0]
    plain = usual == "-" or 2 * count <= len(words)
    others = ", ".join(f"{job} {word}" for job, word in words.items() if word != ("-" if plain else usual))
    return others if plain else f"{usual}, but {others}"


def _changed(head: list[str], rows: list[list[str]], result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Keep the columns in which the rows differ, and add the settings in which they differ."""
    kept = [0, *(column for column in range(1, len(head)) if len({row[column] for row in rows}) > 1)]
    settings = result["differ"]
    return [*(head[column] for column in kept), *settings], [
        [
            *(row[column] for column in kept),
            *(setting_text(values[row[0]]) if row[0] in values else "-" for values in settings.values()),
        ]
        for row in rows
    ]


def _middle(values: Sequence[float]) -> float:
    """Return the median; a whole number has no decimal point."""
    middle = statistics.median(values)
    return int(middle) if float(middle).is_integer() else middle


def _further(row: dict[str, Any]) -> list[str]:
    """Return the cells of the columns `MORE`."""
    return [
        row["rule"],
        f"{statistics.median(row['bytes_per_round']):,.0f}" if row["bytes_per_round"] else "-",
        f"{statistics.median(row['participation']):.0%}" if row["participation"] else "-",
        f"{statistics.median(row['staleness']):.2f}" if row["staleness"] else "-",
        f"{statistics.median(row['distance']):.1e}" if row["distance"] else "-",
    ]
