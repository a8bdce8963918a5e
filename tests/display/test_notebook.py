"""A run in a notebook: HTML that is updated in place, and escaped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.runs import JOB
from support.watched import end, events_of, fault, summary_of

from partrain.display.live_table import frame
from partrain.display.notebook import HEIGHT, WIDTH, rendered, runs_in_kernel, summary_html, summary_text
from partrain.record.run_state import RunState

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m"

CELL = f"""
import json, sys, tomllib
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(display_pub_class=CapturingDisplayPublisher)
shell.kernel = object()
if __name__ == "__main__":
    import partrain

    trained = partrain.train(tomllib.loads({JOB!r}), out="run", show=True)
    plain, _ = shell.display_formatter.format(trained)
    print(json.dumps([shell.display_pub.outputs, plain]))
"""


class Checked(HTMLParser):
    """Collects tags and text, and finds tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def viewed(*events: Any) -> RunState:
    state = RunState()
    for event in events:
        state.apply(event)
    return state


def shown(*events: Any) -> dict[str, str]:
    return rendered(frame(viewed(*events), 0.0, WIDTH, HEIGHT))


def test_the_cell_shows_the_live_table_with_its_colors() -> None:
    bundle = shown(*events_of())
    page = Checked(bundle["text/html"])
    for text in "job", "· average", "· round  20/100", " 20%", "loss 0.2432", "slow 1.5x", "3,840 item-iterations", "judged loss":
        assert text in page.text
        assert text in bundle["text/plain"]
    assert "color: #808000" in bundle["text/html"]
    assert "finished" in Checked(shown(*events_of(), end())["text/html"]).text


def test_texts_of_a_run_are_no_markup() -> None:
    for html in (
        shown(*events_of(name=HOSTILE, rule=HOSTILE), fault(HOSTILE))["text/html"],
        summary_html({**summary_of(status=HOSTILE), "metrics": {HOSTILE: 1.0}, "workers": [{"device": HOSTILE}]}, HOSTILE),
    ):
        page = Checked(html)
        assert "script" not in page.tags
        assert "<script>alert(1)</script>" in page.text
        assert html.replace("\n", "").isprintable()


def test_a_result_in_a_line_and_in_a_table() -> None:
    assert summary_text(summary_of(), "runs/a") == "reached after 20 rounds in 10 s: loss 0.5000, accuracy 0.9000; runs/a"
    page = Checked(summary_html(summary_of(), "runs/a"))
    assert "3,840 item-iterations" in page.text
    assert "runs/a" in page.text
    assert summary_text({"status": "failed"}, "x") == "failed after - rounds: not judged; x"
    Checked(summary_html({}, "x"))


def test_no_notebook_here() -> None:
    assert not runs_in_kernel()


@pytest.mark.slow
def test_a_training_in_a_cell(tmp_path: Path) -> None:
    """One output is made and then updated; the last state stays, and the result has a table and a short line."""
    (tmp_path / "cell.py").write_text(CELL)
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run([sys.executable, "cell.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    outputs, result = json.loads(done.stdout.splitlines()[-1])
    assert [output.get("update", False) for output in outputs[:2]] == [False, True][: len(outputs)]
    assert len({output["transient"]["display_id"] for output in outputs}) == 1
    page = Checked(outputs[-1]["data"]["text/html"])
    assert "round 4/4" in page.text
    assert "finished" in page.text
    assert outputs[-1]["data"]["text/plain"].startswith("clouds · average · round 4/4  finished")
    assert result["text/plain"].startswith("Trained(finished after 4 rounds")
    assert len(result["text/plain"]) < 200
    assert "worker 1" in Checked(result["text/html"]).text
