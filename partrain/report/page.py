"""The report: one self-contained HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from partrain.record.round_record import NUMBERS, without_nan
from partrain.report import facts, figures, sweep, theme
from partrain.report.facts import Table
from partrain.report.figures import FIGURES
from partrain.report.history import RunHistory
from partrain.report.sources import Sources
from partrain.report.theme import RUN_COLORS, Spec
from partrain.report.timeline import SHOWN_WORKERS, end_of, timeline
from partrain.report.verdict import NOT_PAID, SOONER, baseline, verdict
from partrain.runs.ranking import Ranking
from partrain.version import __version__

if TYPE_CHECKING:
    from partrain.report.items import JudgedAnswers

MARK = "<!doctype html><!-- partrain report -->"
"""The beginning of every report."""
TIMELINES = 6
"""Maximum number of runs whose timeline is drawn."""
EXPECTED = ("workers", "seed")
"""Settings in which a run of one worker and a run of several may differ."""
CURVES = (("loss", "seconds"), ("loss", "items"), ("accuracy", "seconds"), ("accuracy", "items"))
MIXING = ("speed", *(name for name, number in NUMBERS.items() if number.drawn))
ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""Characters that could end a script, escaped for JSON."""


def page(runs: Sequence[RunHistory], sources: Sources, answers: Sequence[JudgedAnswers] = ()) -> str:
    """Return the report of these runs. Equal runs give equal text.

    Args:
        runs: The histories of the runs.
        sources: Sweeps and steps in addition to the runs.
        answers: The answers of networks to items, if they were evaluated.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    drawn = _drawn(runs)
    sweeps = [
        _sweep(index, result, result.folder.name if sources.steps else "", drawn) for index, result in enumerate(sources.sweeps)
    ]
    items = [_items(index, judged, drawn) for index, judged in enumerate(answers)]
    timelines = _timelines(runs, drawn)
    sentence = verdict(runs, sources.sweeps)
    differing = _differences(runs)
    own = [run for run in runs if not sources.ranked(run.folder)]
    comparison, comparison_note = facts.comparison(own) if len(own) > 1 else (None, "")
    vega, script = gzip.decompress(_resource("vega.js.gz")).decode(), _resource("page.js").decode()
    commits, commits_note = facts.checkpoints(runs)
    environment, environment_note = facts.environment(runs)
    content: dict[str, Any] = {
        "mark": Markup(MARK),
        "policy": _policy(vega, script),
        "css": Markup(_resource("page.css").decode()),
        "vega": Markup(vega),
        "script": Markup(script),
        "licenses": Markup(_resource("VEGA.md").decode().partition("## Licenses")[2].strip()),
        "data": Markup(_json(drawn)),
        "figures": drawn,
        "title": _title(runs, sources),
        "subtitle": _subtitle(runs),
        "verdict": sentence,
        "mood": _mood(runs, sentence),
        "notes": _notes(runs, sources, differing),
        "tiles": facts.tiles(runs[0]) if len(runs) == 1 else [],
        "several": len(runs) > 1,
        "comparison": comparison,
        "comparison_note": comparison_note,
        "numbers": facts.numbers(runs) if len(runs) > 1 else None,
        "steps": facts.steps(sources),
        "sweeps": sweeps,
        "legend": [{"label": run.label, "color": RUN_COLORS[index % len(RUN_COLORS)]} for index, run in enumerate(runs)],
        "has_curves": any(f"{name}-{by}" in drawn for name, by in CURVES),
        "mixing": [{"name": name, "title": FIGURES[name].title, "caption": FIGURES[name].caption} for name in MIXING if name in drawn],
        "timelines": timelines,
        "workers": facts.workers(runs) if runs else None,
        "items": items,
        "datasets": _data(answers),
        "faults": facts.faults(runs),
        "checkpoints": commits,
        "checkpoints_note": commits_note,
        "differences": _settings(runs, differing),
        "environment": environment,
        "environment_note": environment_note,
        "jobs": [{"label": run.label, "text": run.job_text or "The folder has no job.toml."} for run in runs],
        "footer": f"partrain {__version__}. Figures: Vega, Vega-Lite and Vega-Embed, University of Washington Interactive Data Lab, BSD-3-Clause; D3, ISC.",
    }  # fmt: skip
    environment_ = Environment(
        loader=PackageLoader("partrain.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    return environment_.get_template("page.html").render(content) + "\n"


def _drawn(runs: Sequence[RunHistory]) -> dict[str, Spec]:
    """Describe the figures of curves by name."""
    specs = {f"{name}-{by}": figures.figure(name, runs, by) for name, by in CURVES}
    specs |= {name: figures.figure(name, runs) for name in MIXING}
    return {name: _themed(spec) for name, spec in specs.items() if spec}


def _themed(spec: Spec) -> Spec:
    """Complete a description for the page, which has a separate legend for runs."""
    for layer in spec.get("layer", ()):
        color = layer.get("encoding", {}).get("color")
        if isinstance(color, dict):
            color["legend"] = None
    return theme.themed(spec, theme.VARIABLES, "container")


def _timelines(runs: Sequence[RunHistory], drawn: dict[str, Spec]) -> list[dict[str, str]]:
    """Describe the timeline of each run; all timelines share one axis of seconds."""
    charts, end = [], end_of(runs)
    for index, run in enumerate(runs[:TIMELINES]):
        spec = timeline([run], "seconds", end)
        if spec is None:
            continue
        drawn[name := f"timeline-{index}"] = theme.themed(spec, theme.VARIABLES, "container")
        caption = "Height: share of the time. Each round counts as computing, then waiting, then mixing; what is left is judging and the rest."
        if run.size > SHOWN_WORKERS:
            caption += f" The first {SHOWN_WORKERS} of {run.size} workers."
        title = FIGURES["timeline"].title + (f": {run.label}" if len(runs) > 1 else "")
        charts.append({"figure": name, "title": title, "caption": caption})
    return charts


def _sweep(index: int, result: Ranking, name: str, drawn: dict[str, Spec]) -> dict[str, Any]:
    names: dict[str, str] = {}
    for kind, spec in (("parallel", sweep.parallel(result)), ("importance", sweep.importance(result))):
        names[kind] = f"{kind}-{index}"
        if spec:
            drawn[names[kind]] = theme.themed(spec, theme.VARIABLES, "container")
    table, note = facts.combinations(result)
    return {
        "name": name,
        "by": result.by,
        "table": table,
        "note": note,
        **names,
    }


def _items(index: int, judged: JudgedAnswers, drawn: dict[str, Spec]) -> dict[str, Any]:
    names = {}
    for kind, spec in judged.figures.items():
        drawn[name := f"{kind}-{index}"] = theme.themed(spec, theme.VARIABLES, "container")
        names[kind] = name
    empty = dict.fromkeys(("confusion", "scatter", "residuals", "series", "roc", "ranking"), "")
    return {**vars(judged), **empty, **names}


def _data(answers: Sequence[JudgedAnswers]) -> list[dict[str, Any]]:
    """Return the tables on the data, once for all runs with the same tables."""
    parts: list[dict[str, Any]] = []
    for judged in answers:
        if (same := next((part for part in parts if part["tables"] == judged.data), None)) is not None:
            same["label"] = ""
        elif judged.data:
            parts.append({"label": judged.label, "tables": judged.data})
    return parts if len(parts) > 1 else [part | {"label": ""} for part in parts]


def _title(runs: Sequence[RunHistory], sources: Sources) -> str:
    names = list(dict.fromkeys(run.name for run in runs if run.name))
    if len(runs) == 1:
        return names[0] if names else runs[0].label
    if len(sources.sweeps) == 1:
        return f"{names[0] if names else 'sweep'}: {len(sources.sweeps[0].rows):,} combinations"
    joined = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{joined}: {len(runs)} runs"


def _subtitle(runs: Sequence[RunHistory]) -> str:
    """Return when the runs started, by their own clocks."""
    if not runs:
        return ""
    begun = [time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.starts[0].t)) for run in runs]
    when = f"started {min(begun)} UTC" if len(set(begun)) == 1 else f"started {min(begun)} to {max(begun)} UTC"
    where = str(runs[0].folder) if len(runs) == 1 else ", ".join(run.label for run in runs)
    return f"{where} · {when}"


def _mood(runs: Sequence[RunHistory], sentence: str) -> str:
    if sentence.startswith(SOONER) or (len(runs) == 1 and runs[0].status == "reached"):
        return "good"
    bad = {"diverged", "failed", "killed", "not-reached"}
    return "bad" if sentence.startswith(NOT_PAID) or (len(runs) == 1 and runs[0].status in bad) else ""


def _notes(runs: Sequence[RunHistory], sources: Sources, differing: Mapping[str, Any]) -> list[str]:
    notes = list(sources.notes)
    if baseline(runs) and any(run.size > 1 for run in runs) and not sources.sweeps:
        others = [key for key in differing if not key.startswith(EXPECTED)]
        notes.append(
            (f"The jobs differ in more than their workers: {', '.join(others)}. " if others else "")
            + "Each of these is a single run: partrain bench repeats runs, and gives medians."
        )
    if any(run.simulated for run in runs):
        notes.append("Seconds of simulated workers are those of a simulated clock.")
    if len(runs) == 1 and runs[0].size > 1:
        notes.append("To see if more workers paid, add a run of one worker: partrain report RUN RUN_OF_ONE_WORKER.")
    return notes


def _differences(runs: Sequence[RunHistory]) -> dict[str, dict[str, Any]]:
    """Return the settings in which the runs' jobs differ, by key and label."""
    if len(runs) < 2:
        return {}
    from partrain.runs.selection import differences

    return differences({run.label: run.job for run in runs})


def _settings(runs: Sequence[RunHistory], differing: Mapping[str, Mapping[str, Any]]) -> Table | None:
    rows = [
        [key, *(json.dumps(values[run.label], default=str) if run.label in values else "-" for run in runs)]
        for key, values in differing.items()
    ]
    return Table(["setting", *(run.label for run in runs)], rows) if rows else None


def _policy(*scripts: str) -> str:
    """Return a content security policy: these scripts and no others, no network."""
    digests = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    return json.dumps(without_nan(value), separators=(",", ":")).translate(ESCAPED)


def _resource(name: str) -> bytes:
    return files("partrain.report").joinpath(name).read_bytes()
