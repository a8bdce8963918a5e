"""The notebook of docs/ is run cell by cell, as a kernel would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs/notebook.ipynb"


def code() -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_holds_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
def test_the_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance()
    try:
        answers = []
        for cell in code():
            done = shell.run_cell(cell)
            done.raise_error()
            answers.append(done.result)
    finally:
        InteractiveShell.clear_instance()
    assert answers[2] > 0.85, "accuracy of the trained network"
    assert list(answers[3]) == ["inside", "outside"]
    assert answers[5], "the same predictions after loading"
    assert answers[6] > 0.85, "accuracy by cross-validation"
