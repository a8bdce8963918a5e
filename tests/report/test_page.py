"""The page: one file, whose numbers are those of the run."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.histories import STARTED, judgement, made_run, round_of, start, write_events
from support.runs import summary, train
from support.shared_runs import once

from partrain.report import page as pages
from partrain.report.facts import Table
from partrain.report.figures import figure
from partrain.report.history import RunHistory, read_history
from partrain.report.items import JudgedAnswers
from partrain.report.sources import Sources
from partrain.runs.ranking import Combination, Ranking

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&\u2028'\""


class Reader(HTMLParser):
    """Texts and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        inside = self.tags[-1][0] if self.tags else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style" and data.strip():
            self.texts.append(data.strip())

    @property
    def figures(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts[0]))


def written(*runs: RunHistory, sweeps: list[Ranking] | None = None) -> str:
    return pages.page(runs, Sources(sweeps=sweeps or []))


def read(*runs: RunHistory, **more: Any) -> Reader:
    return Reader(written(*runs, **more))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "reported", train) / "run"


def test_its_numbers_are_those_of_the_summary(trained: Path) -> None:
    found, told = read(read_history(trained, "clouds")), summary(trained)
    tiles = dict(zip(found.texts[-2::-1], found.texts[:0:-1], strict=True))  # of equal texts the first counts
    assert tiles["judged loss"] == f"{told['loss']:.4f}"
    assert tiles["judged accuracy"] == f"{told['metrics']['accuracy']:.4f}"
    assert tiles["test accuracy"] == f"{told['test']['accuracy']:.4f}"
    assert tiles["rounds"] == str(told["rounds"])
    assert tiles["item-iterations"] == f"{told['item_iterations']:,}"
    for worker in told["workers"]:
        assert f"{worker['item_iterations']:,}" in found.texts
    assert (trained / "job.toml").read_text().strip() in found.texts
    assert "torch" in found.texts, "versions come from the checkpoint"
    assert any(text.startswith("checkpoints/round-") for text in found.texts)


def test_the_figures_hold_the_judgements(trained: Path) -> None:
    run = read_history(trained, "clouds")
    figure = read(run).figures["loss-seconds"]
    judged = [(row["x"], row["y"]) for row in figure["data"]["values"] if row["what"] == "judged"]
    assert judged == [pytest.approx((each.seconds, each.loss), rel=1e-4) for each in run.judgements]
    assert {f"{name}-{by}" for name in ("loss", "accuracy") for by in ("seconds", "items")} < set(read(run).figures)


def test_it_needs_nothing_else(trained: Path) -> None:
    text = written(read_history(trained, "clouds"))
    found = Reader(text)
    loaded = [attrs for tag, attrs in found.tags if tag in ("link", "iframe", "object") or "src" in attrs or "href" in attrs]
    assert loaded == []
    policy = next(str(attrs["content"]) for _, attrs in found.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "connect-src" not in policy
    assert text.startswith(pages.MARK)


def test_equal_runs_give_equal_bytes(trained: Path) -> None:
    assert written(read_history(trained, "a")) == written(read_history(trained, "a"))


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = read_history(
        write_events(
            tmp_path / "run",
            start(name=HOSTILE, rule=HOSTILE, version=HOSTILE),
            round_of(0, 1), round_of(1, 1), judgement(1, 1.0, 0.5),
            {"event": "fault", "t": STARTED, "what": HOSTILE, "rank": 1},
            {"event": "commit", "t": STARTED, "round": 1, "file": HOSTILE, "bytes": 1, "seconds": 0.1, "digest": HOSTILE},
            {"event": "end", "t": STARTED + 2, "status": HOSTILE, "reason": HOSTILE, "round": 1},
            job=f'# {HOSTILE}\nname = "x"\n[transport]\nkind = "{HOSTILE[:20]}"\n',
        ),
        HOSTILE,
    )  # fmt: skip
    rows = [Combination({HOSTILE: value, "b": HOSTILE}, [value], ["1"]) for value in (1.0, 2.0, 3.0)]
    sweep = Ranking(tmp_path / HOSTILE[:20].replace("/", ""), HOSTILE, largest=True, rows=rows)
    for found in (read(run), read(run, run, sweeps=[sweep])):
        assert sum(tag == "script" for tag, _ in found.tags) == 3
        assert not [tag for tag, attrs in found.tags if tag == "img" or any(name.startswith("on") for name in attrs)]
        assert found.figures, "the JSON is whole"
    assert any(HOSTILE.split("\u2028")[0] in text for text in read(run).texts)


def test_expressions_hold_no_text_of_the_user(tmp_path: Path) -> None:
    """A label in an expression of Vega would be code; the title of a tooltip becomes a part of one."""
    run = read_history(made_run(tmp_path / "run"), name := "x'] + alert(1) + ['")
    sweep = Ranking(
        tmp_path / name, name, largest=True, rows=[Combination({name: value}, [value], ["1"]) for value in (1.0, 2.0, 3.0)]
    )
    for found in (read(run, sweeps=[sweep]).figures, figure("timeline", [run, run])):
        assert _expressions(found)
        assert "alert" not in json.dumps(_expressions(found))


def _expressions(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own = [each for key, each in value.items() if key in ("labelExpr", "calculate", "filter", "expr", "tooltip")]
        return own + [one for key, each in value.items() if key != "data" for one in _expressions(each)]
    return [one for each in value for one in _expressions(each)] if isinstance(value, list) else []


def test_several_runs_share_figures(tmp_path: Path) -> None:
    runs = [read_history(made_run(tmp_path / name, workers), name) for name, workers in (("one", 1), ("two", 2))]
    found = read(*runs)
    figure = found.figures["loss-seconds"]
    assert {row["run"] for row in figure["data"]["values"]} == {"one", "two"}
    assert {"timeline-0", "timeline-1"} <= set(found.figures)
    assert "speed-up" in found.texts
    ends = [found.figures[f"timeline-{index}"]["encoding"]["x"]["scale"]["domain"] for index in (0, 1)]
    assert ends == [[0, 3.0], [0, 3.0]], "all timelines have one axis"


def test_several_runs_begin_with_their_table_and_end_with_each_alone(tmp_path: Path) -> None:
    runs = [read_history(made_run(tmp_path / name, 2, rounds), name) for name, rounds in (("short", 1), ("long", 3))]
    data = [("Items", Table(["", "training"], [["items", "9"]]))]
    answers = [JudgedAnswers(run.label, data=data) for run in runs]
    text = pages.page(runs, Sources(), answers)
    found = Reader(text).texts
    cells = found[found.index("Runs") :]
    assert cells[1:5] == ["run", "status", "judged accuracy", "judged loss"]
    assert cells.index("long") < cells.index("short"), "the best first"
    assert "One run each; best first by judged accuracy; * is the best of its column." in cells
    titles = re.findall("<h2>(.*?)</h2>", text)
    assert titles[:2] == ["Runs", "Learning"]
    assert titles.count("Data") == 1, "equal data are shown once"
    folded = re.findall("<summary><h2>(.*?)</h2>", text)
    assert {"Result of short", "Result of long", "Data", "Each worker"} <= set(folded)
    assert "<details" not in pages.page(runs[:1], Sources(), answers[:1]).partition("<details><summary><h2>Checkpoints")[0], (
        "a single run is not folded"
    )


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    found = read(read_history(write_events(tmp_path / "run", start()), "run"))
    assert found.figures == {}
    assert "No checkpoint was committed." in found.texts


def test_faults_are_listed(tmp_path: Path) -> None:
    fault = {"event": "fault", "t": STARTED + 2, "what": "worker 1 was killed", "rank": 1}
    found = read(read_history(write_events(tmp_path / "run", start(), round_of(0, 1), fault), "run"))
    assert "worker 1 was killed" in found.texts


def test_staleness_is_shown_where_there_is_any(tmp_path: Path) -> None:
    stale = [round_of(rank, number, staleness=1.5) for number in (1, 2) for rank in (0, 1)]
    run = read_history(write_events(tmp_path / "run", start(rule="async"), *stale), "run")
    found = read(run)
    assert [row["y"] for row in found.figures["staleness"]["data"]["values"]] == [1.5, 1.5]
    assert "1.50" in found.texts
    assert "staleness" not in read(read_history(made_run(tmp_path / "other"), "other")).figures


def test_simulated_seconds_are_called_so(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run")
    (folder / "job.toml").write_text('[transport]\nkind = "simulated"\n')
    texts = " ".join(read(read_history(folder, "run")).texts)
    assert "3 simulated seconds of training" in texts


def test_ten_thousand_rounds_stay_small(tmp_path: Path) -> None:
    events = [start()]
    for number in range(1, 10_001):
        events += [round_of(rank, number, loss=1 / number, staleness=1.0, seconds=number / 7) for rank in (0, 1)]
        events.append(judgement(number, number / 7, 1 / number))
    run = read_history(write_events(tmp_path / "run", *events), "run")
    text = written(run)
    assert len(text.encode()) < 2_000_000
    assert len(re.findall(r'"k":', text)) <= 2000
    assert run.rounds[-1].items == 1_600_000


def test_the_program_for_figures_is_whole() -> None:
    script = gzip.decompress(Path(pages.__file__).with_name("vega.js.gz").read_bytes())
    assert b"window.vegaEmbed" in script
    assert b"</script" not in script


@pytest.mark.slow
def test_the_program_for_figures_is_that_of_vl_convert() -> None:
    vl_convert = pytest.importorskip("vl_convert")
    script = gzip.decompress(Path(pages.__file__).with_name("vega.js.gz").read_bytes())
    assert script == vl_convert.javascript_bundle().encode()
