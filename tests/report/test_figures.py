"""Descriptions of figures: which there are, and their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from support.histories import STARTED, judgement, made_run, round_of, start, write_events
from support.runs import partrain

from partrain.cli.report import By
from partrain.report.figures import FIGURES, TITLES, figure
from partrain.report.history import read_history
from partrain.report.theme import LIGHT, themed


def test_the_command_line_knows_all_figures_and_axes() -> None:
    told = partrain("plot", "--help").out
    assert all(name in told for name in FIGURES)
    assert get_args(By) == tuple(TITLES)


@pytest.mark.parametrize(("by", "places"), [("seconds", [1, 2, 3]), ("items", [160, 320, 480]), ("rounds", [1, 2, 3])])
def test_curves_over_each_axis(tmp_path: Path, by: str, places: list[float]) -> None:
    spec = figure("loss", [read_history(made_run(tmp_path / "run"), "run")], by)
    assert spec
    for what in ("training", "judged"):
        assert [row["x"] for row in spec["data"]["values"] if row["what"] == what] == places


def test_bytes_add_up(tmp_path: Path) -> None:
    spec = figure("bytes", [read_history(made_run(tmp_path / "run"), "run")])
    assert spec
    assert [row["y"] for row in spec["data"]["values"]] == [800, 1600, 2400]


def test_the_timeline_has_the_shares_of_each_worker(tmp_path: Path) -> None:
    spec = figure("timeline", [read_history(made_run(tmp_path / "run", rounds=10), "run")])
    assert spec
    for rank in (0, 1):
        cells = [row for row in spec["data"]["values"] if row["k"] == rank]
        width = 10 / (1 + max(row["b"] for row in cells))
        found = {name: sum(row[name] for row in cells) * width for name in ("compute", "wait", "mix")}
        assert found == {
            "compute": pytest.approx(6, abs=0.05),
            "wait": pytest.approx(3, abs=0.05),
            "mix": pytest.approx(1, abs=0.05),
        }


def test_speed_is_items_over_time(tmp_path: Path) -> None:
    spec = figure("speed", [read_history(made_run(tmp_path / "run", rounds=60), "run")])
    assert spec
    assert {row["y"] for row in spec["data"]["values"]} == {160}


def test_a_target_is_drawn_if_all_runs_share_it(tmp_path: Path) -> None:
    runs = [read_history(made_run(tmp_path / f"{goal}", stop={"accuracy": goal}), f"{goal}") for goal in (0.9, 0.95)]
    assert "target 0.9" in str(figure("accuracy", runs[:1]))
    assert "target" not in str(figure("accuracy", runs))


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_run_without_rounds_has_no_figure(tmp_path: Path, name: str) -> None:
    assert figure(name, [read_history(write_events(tmp_path / "run", start()), "run")]) is None


def test_one_judgement_is_no_curve(tmp_path: Path) -> None:
    run = read_history(write_events(tmp_path / "run", start(), round_of(0, 1), judgement(1, 1.0, 0.5)), "run")
    assert figure("accuracy", [run]) is None


def test_colors_are_replaced_but_not_in_data(tmp_path: Path) -> None:
    run = read_history(made_run(tmp_path / "run"), "compute")
    spec = themed(figure("timeline", [run]) or {}, LIGHT, 640)
    assert spec["encoding"]["color"]["scale"]["range"] == [LIGHT["compute"], LIGHT["wait"], LIGHT["mix"]]
    rows = themed(figure("loss", [run]) or {}, LIGHT, 640)["data"]["values"]
    assert {row["run"] for row in rows} == {"compute"}


def test_a_spike_is_marked_where_its_round_ended(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run")
    told = (folder / "events.jsonl").read_text().splitlines()
    spike = {"event": "spike", "t": STARTED + 3, "round": 2, "rank": 1, "loss": 9.0, "usual": [0.4, 0.5], "bound": 0.7}
    (folder / "events.jsonl").write_text("\n".join([*told, json.dumps(spike)]) + "\n")
    spec = figure("loss", [read_history(folder, "run")], "items")
    assert spec
    (mark,) = [layer for layer in spec["layer"] if layer["mark"].get("type") == "rule"]
    text = "round 2: the training loss of worker 1 leapt to 9.0000; before, it was 0.4000 to 0.5000"
    assert mark["data"]["values"] == [{"x": 320, "run": "run", "text": text}]
    assert spec["layer"][-1]["params"]
