"""`python -m benchmarks.audit`: its quickest comparison finds equal numbers, and a difference where a rule is altered."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def audit(tree: Path) -> tuple[int, str]:
    """Exit code of the comparison in a tree, and its row of the table."""
    command = [sys.executable, "-m", "benchmarks.audit", "--only", "`slowmo`"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=100)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()[2]


def test_slowmo_equals_its_formula() -> None:
    code, row = audit(ROOT)
    assert (code, row.split(" | ")[-1]) == (0, "equal |")


def test_an_altered_rule_is_found(tmp_path: Path) -> None:
    for folder in "partrain", "benchmarks/audit":
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with what Python compiled
    rule = tmp_path / "partrain" / "rules" / "slowmo.py"
    formula = rule.read_text()
    altered = formula.replace(".add_(gradient)", ".add_(gradient, alpha=1 + 1e-9)")
    assert altered != formula
    rule.write_text(altered)
    code, row = audit(tmp_path)
    assert (code, row.split(" | ")[-1]) == (1, "DIFFERENT |")
