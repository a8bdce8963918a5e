"""`partrain report` and `partrain plot`, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.histories import made_run
from support.runs import JOB, SIMULATED, partrain, sabotage, train
from support.shared_runs import once


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "reported", train) / "run"


@pytest.mark.representative
def test_a_report_says_its_verdict_and_its_file(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    said = partrain("report", run, "-o", out)
    assert (said.code, said.err) == (0, "")
    verdict, line = said.out.splitlines()
    assert verdict.startswith("The run finished after 4 rounds")
    assert line == f"{out}: {out.stat().st_size:,} bytes; open it in a browser"
    assert verdict in out.read_text()


def test_as_json(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    told = json.loads(partrain("report", run, "-o", out, "--json").out)
    assert (told["output"], told["bytes"], told["runs"]) == (str(out), out.stat().st_size, [str(run)])


def test_a_former_report_is_replaced_and_nothing_else(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    assert [partrain("report", run, "-o", out).code for _ in range(2)] == [0, 0]
    out.write_text("mine")
    assert partrain("report", run, "-o", out).errors == ["cannot-create"]
    assert out.read_text() == "mine"
    assert partrain("report", run, "-o", out, "--force").code == 0


def test_a_checkpoint_stands_for_its_run(run: Path, tmp_path: Path) -> None:
    told = [partrain("report", path, "-o", tmp_path / "r.html", "--json").out for path in (run, run / "checkpoint.h5")]
    assert json.loads(told[0]) == json.loads(told[1])


def test_one_worker_against_two(tmp_path: Path) -> None:
    one, two = made_run(tmp_path / "one", 1, pace=3.0), made_run(tmp_path / "two", 2, pace=2.0)
    said = partrain("report", two, one, "-o", tmp_path / "r.html")
    assert said.out.startswith("In these two runs more workers were sooner: 2 workers (two) took 6 s")
    assert said.out.splitlines()[3].split()[:2] == ["run", "status"], "the table of compare"


def test_an_empty_folder_is_one_line(tmp_path: Path) -> None:
    said = partrain("report", tmp_path, "-o", tmp_path / "r.html")
    assert (said.code, len(said.err.splitlines())) == (66, 1)
    assert not (tmp_path / "r.html").exists()


def test_the_answers_of_a_network(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    assert partrain("report", run, "--items", "-o", out).code == 0
    text = out.read_text()
    assert "The network of the run on 40 test items, round 2" in text
    assert "Confusion matrix" in text
    assert "Worst-judged items" in text


@pytest.mark.usefixtures("stranger")
def test_answers_need_trust_in_user_code(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "", SIMULATED)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 0
    out = tmp_path / "r.html"
    assert partrain("report", tmp_path / "run", "--items", "-o", out).code == 0
    assert "Left out: " in out.read_text()
    assert "--trust-code" in out.read_text()
    assert partrain("report", tmp_path / "run", "--items", "--trust-code", "-o", out).code == 0
    assert "Confusion matrix" in out.read_text()


@pytest.mark.representative
def test_numbers_are_shown_against_true_ones(tmp_path: Path) -> None:
    text = JOB.replace('function = "blobs"', 'function = "sine"').replace("noise = 0.7", "")
    out = tmp_path / "r.html"
    assert partrain("report", train(tmp_path, SIMULATED, text=text), "--items", "-o", out).code == 0
    assert "Predicted against true" in out.read_text()


@pytest.mark.representative
def test_missing_cells_are_counted_by_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *(f"{at},{at % 3 or ''},{at * 2}.5" for at in range(60)), ""]))
    data = 'kind = "csv"\npath = "t.csv"\ntarget = "y"\nmissing = "median"\ntest_share = 0.2\n'
    text = JOB[: JOB.index("[dataset]")] + "[dataset]\n" + data + "\n" + JOB[JOB.index("[optimizer]") :]
    out = tmp_path / "r.html"
    assert partrain("report", train(tmp_path, SIMULATED, text=text), "-o", out).code == 0
    cells = re.sub("<[^>]*>|\\s+", " ", out.read_text()[out.read_text().index("missing in the file") :]).split()
    assert cells[cells.index("b") : cells.index("b") + 7] == ["b", "number", "1.0000", *cells[cells.index("b") + 3 :][:3], "20"]


@pytest.mark.slow
def test_the_table_of_columns_leaves_nothing_out_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dates are dates, least numbers of 0 are 0, and twins of columns with gaps are no rows."""
    lines = [f"2024-01-{at % 28 + 1:02},{at},{at % 3 or ''},{at % 7 * 0.3},{at * 2}.5" for at in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["day,a,b,c,y", *lines, ""]))
    data = 'kind = "csv"\npath = "t.csv"\ntarget = "y"\nmissing = "median"\ndates = ["day"]\nmissing_indicator = ["b"]\ntest_share = 0.2\n'
    text = JOB[: JOB.index("[dataset]")] + "[dataset]\n" + data + "\n" + JOB[JOB.index("[optimizer]") :]
    out, run = tmp_path / "r.html", train(tmp_path, SIMULATED, text=text)

    def cells() -> list[str]:
        assert partrain("report", run, "-o", out, "--force").code == 0
        table = out.read_text()[out.read_text().index("missing in the file") :].partition("</table>")[0]
        return re.sub("\\s*<[^>]*>\\s*", "|", table).replace("||", "|").split("|")

    shown = [cell for cell in cells() if cell]
    assert shown[shown.index("day:day") + 1 :][:2] == ["days", "2024-01-01"]
    assert shown[shown.index("c") + 2] == "0.0000"
    assert "b missing" not in shown
    monkeypatch.setattr("partrain.report.items.MOST_COLUMNS", 3)
    assert "and 5 more columns" in cells()
    assert out.read_text().count("lways answering the mean: ") == 1


def test_pictures_of_items() -> None:
    np = pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    from partrain.report.items import picture

    for shape in ((28, 28), (1, 28, 28), (3, 28, 28)):
        assert picture(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)).startswith("data:image/png;base64,")
    for shape in ((28,), (2, 28, 28), (4, 4)):
        assert picture(np.zeros(shape)) == ""


def test_a_plot_names_its_file(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    said = partrain("plot", run, "--what", "accuracy")
    assert said.out.startswith("accuracy.svg: ")
    assert (tmp_path / "accuracy.svg").read_text().startswith("<svg")
    assert partrain("plot", run, "--what", "accuracy").errors == ["cannot-create"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["loss", "timeline", "distance", "bytes", "lr", "speed"])
def test_each_plot(run: Path, tmp_path: Path, what: str) -> None:
    pytest.importorskip("vl_convert")
    out = tmp_path / "p.png"
    assert partrain("plot", run, "--what", what, "-o", out).code == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_plotted(run: Path, tmp_path: Path) -> None:
    unknown = partrain("plot", run, "--what", "entropy")
    assert unknown.code == 2
    assert "no run judged `entropy`" in unknown.err
    assert partrain("plot", run, "-o", tmp_path / "p.gif").code == 2
    assert partrain("plot", run, "--what", "timeline", "--by", "items").code == 2
    nothing = partrain("plot", run, "--what", "staleness", "-o", tmp_path / "p.svg")
    assert nothing.code == 66
    assert "recorded no staleness" in nothing.err
    once, lines = shutil.copytree(run, tmp_path / "once"), (run / "events.jsonl").read_text().splitlines()
    judged = [line for line in lines if '"judgement"' in line]
    (once / "events.jsonl").write_text("\n".join(line for line in lines if line not in judged[1:]) + "\n")
    nothing = partrain("plot", once, "--what", "accuracy", "-o", tmp_path / "p.svg")
    assert "accuracy was judged only once, and a curve needs two judgements" in nothing.err


def test_without_vl_convert_one_line_says_what_to_install(run: Path, tmp_path: Path) -> None:
    (tmp_path / "vl_convert.py").write_text("raise ImportError('not here')\n")
    words = [sys.executable, "-m", "partrain", "plot", str(run), "-o", str(tmp_path / "p.svg")]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 66
    assert done.stderr.splitlines() == [
        "partrain: error[no-input]: figures need vl-convert, which is not installed: pip install 'partrain[report]'"
    ]
