"""The pictures of README that show real runs: the live table, and one worker beside two. They differ with each run and machine."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from partrain.display.live_table import FLASH_S, frame
from partrain.record.event_log import read_events
from partrain.record.run_state import RunState

FOLDER = Path(__file__).parents[1] / "pictures"
ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT = 96, 26
SHOWN = 0.85
"""Share of the rounds after which the table is shown."""


def live_table(run: Path) -> str:
    """Draw the live table of a run, as a terminal showed it after a part of its rounds. Returns SVG by rich."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.text import Text

    state, events = RunState(), list(read_events(run / "events.jsonl"))
    last = SHOWN * max(getattr(event, "round", 0) or 0 for event in events)
    for event in events:
        state.apply(event)
        if (getattr(event, "round", 0) or 0) >= last and type(event).__name__ == "JudgementEvent":
            break
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in frame(state, state.t + FLASH_S, WIDTH, HEIGHT, folder="runs/mnist"):
        console.print(Text.assemble(*((text, style) for text, style in line)), soft_wrap=True)
    fonts = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # they would be fetched
    svg = console.export_svg(title="partrain run jobs/mnist.toml", code_format=fonts, unique_id="partrain")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Train the job as it is; then, with one plan for both, one worker and two. Draw both pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        shown = Path(scratch, "shown")
        _partrain("run", "jobs/mnist.toml", "--out", shown, "-q")
        (FOLDER / "live-table.svg").write_text(live_table(shown), encoding="utf-8")
        one, two = Path(scratch, "one worker"), Path(scratch, "two workers")
        limits = "stop={accuracy=0.977, rounds=500, judge_every=10}"
        _partrain("run", "jobs/mnist.toml", "--out", one, "--set", "workers.0.count=1", "--set", limits, "-q")
        _partrain("run", "jobs/mnist.toml", "--out", two, "--set", limits, "-q")
        _partrain("plot", one, two, "--what", "accuracy", "--by", "seconds", "-o", FOLDER / "one-and-two.svg", "--force")


def _partrain(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "partrain", *map(str, words)], cwd=ROOT, check=True)
