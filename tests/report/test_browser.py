"""The page in a real browser: every figure is drawn, nothing is fetched, nothing is wider than the screen."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.histories import made_run

from partrain.report.history import read_history
from partrain.report.page import page
from partrain.report.sources import Sources
from partrain.runs.ranking import Combination, Ranking

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PROBE = """
addEventListener("load", () => setTimeout(() => {
  const places = [...document.querySelectorAll("[data-figure]")];
  document.title = JSON.stringify([places.length, places.filter((place) => place.querySelector("svg path, svg rect")).length,
    document.documentElement.scrollWidth <= innerWidth, matchMedia("(prefers-color-scheme: dark)").matches]).replaceAll(",", " ");
}, 3000));
"""
"""The questions of the test to the page, three seconds after it has loaded."""


def browsed(file: Path, folder: Path, width: int, *more: str) -> str:
    """The page's text after its scripts ran."""
    assert CHROMIUM
    words = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={folder}", f"--window-size={width},900", *more,
        "--virtual-time-budget=10000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=100).stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [500, 820, 1280])  # headless Chromium makes no narrower window
def test_every_figure_is_drawn(tmp_path: Path, width: int) -> None:
    runs = [read_history(made_run(tmp_path / name, workers, rounds=8), name) for name, workers in (("one", 1), ("two", 2))]
    rows = [Combination({"lr": lr, "act": act}, [lr], ["1"]) for lr in (0.1, 0.2) for act in "ab"]
    text = page(runs, Sources(sweeps=[Ranking(tmp_path / "sweep", "loss", largest=False, rows=rows)]))
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy
    text = text.replace(policy, policy.replace("script-src", "script-src 'nonce-probe'")).replace(
        "</main>", f'</main><script nonce="probe">{PROBE}</script>'
    )
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    found = browsed(file, tmp_path / "profile", width)
    answer = found.partition("<title>")[2].partition("</title>")[0]
    count = text.count('data-figure="')
    assert answer == f"[{count} {count} true false]"
