"""The figures of a sweep, and the folders that a path stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.histories import made_run

from partrain.errors import InputMissing
from partrain.report.sources import find
from partrain.report.sweep import importance, parallel, shares
from partrain.runs.ranking import Combination, Ranking


def sweep_of(*rows: tuple[dict[str, object], float | None]) -> Ranking:
    combinations = [Combination(settings, [value], [f"{number}"]) for number, (settings, value) in enumerate(rows)]
    return Ranking(Path("s"), "loss", largest=False, rows=combinations)


def test_a_setting_that_decides_alone_has_the_whole_share() -> None:
    sweep = sweep_of(*(({"a": a, "b": b, "same": 1}, float(a)) for a in (1, 2) for b in ("x", "y")))
    assert shares(sweep) == {"a": pytest.approx(1), "b": pytest.approx(0)}


def test_drawn_numbers_count_by_quarters() -> None:
    found = shares(sweep_of(*(({"lr": value / 100, "seed": value % 2}, float(value)) for value in range(1, 21))))
    assert 0.9 < found["lr"] < 1


def test_too_few_combinations_have_no_share() -> None:
    assert shares(sweep_of(({"a": 1}, 1.0), ({"a": 2}, 2.0))) == {}
    assert shares(sweep_of(*(({"a": value}, 1.0) for value in range(5)))) == {}
    assert importance(sweep_of(({"a": 1}, None))) is None


def test_parallel_coordinates_are_logarithmic_where_values_are() -> None:
    spec = parallel(
        sweep_of(*(({"lr": lr, "hidden": [8], "act": act}, lr) for lr, act in ((0.001, "relu"), (0.01, None), (0.1, "tanh"))))
    )
    assert spec
    points = [row for row in spec["layer"][1]["data"]["values"] if row["key"] == "lr"]
    assert [row["y"] for row in points] == [0, 0.5, 1]
    assert {row["key"] for row in spec["layer"][1]["data"]["values"]} == {"lr", "act", "loss"}, "what does not vary is no axis"


def test_a_sweep_that_recorded_nothing_has_no_figure() -> None:
    assert parallel(sweep_of(({"a": 1}, None), ({"a": 2}, None))) is None


def sweep_folder(folder: Path, **changed: object) -> Path:
    rows = [{"settings": {"lr": lr}, "median": lr, "values": [lr], "runs": [f"{n}"]} for n, lr in enumerate((0.1, 0.2, 0.3))]
    for row in rows[:2]:
        made_run(folder / str(row["runs"][0]))  # type: ignore[index]
    (folder / "sweep.json").write_text(
        json.dumps({"by": "loss", "largest": False, "best": "0", "difference": "", "rows": rows} | changed)
    )
    return folder


def test_a_sweep_stands_for_its_best_runs(tmp_path: Path) -> None:
    found = find([sweep_folder(tmp_path / "s")])
    assert [run.name for run in found.runs] == ["0", "1"], "the folder of the third is gone"
    assert [len(one.rows) for one in found.sweeps] == [3]


def test_a_workflow_stands_for_its_steps(tmp_path: Path) -> None:
    record = {"status": "done", "settings": {}}
    made_run(tmp_path / "train")
    sweep_folder(tmp_path / "tune")
    for name, started in (("train", 2.0), ("tune", 1.0)):
        (tmp_path / name / "step.json").write_text(json.dumps(record | {"started": started}))
    found = find([tmp_path])
    assert list(found.steps) == ["tune", "train"]
    assert [run.relative_to(tmp_path).as_posix() for run in found.runs] == ["tune/0", "tune/1", "train"]


@pytest.mark.parametrize(
    "changed", [{"rows": 1}, {"by": 1, "rows": [{"settings": {}, "values": [1], "runs": []}, 3]}, {"rows": [[]]}]
)
def test_a_damaged_ranking_is_one_clear_line(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(InputMissing, match="not the ranking of a sweep"):
        find([sweep_folder(tmp_path / "s", **changed)])


def test_runs_outside_the_folder_are_not_followed(tmp_path: Path) -> None:
    made_run(tmp_path / "other")
    rows = [{"settings": {"lr": 1}, "median": 1, "values": [1], "runs": ["../other"]}]
    with pytest.raises(InputMissing, match="no name of a run"):
        find([sweep_folder(tmp_path / "s", rows=rows)])


def test_folders_without_runs(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="no run below it"):
        find([tmp_path])
    with pytest.raises(InputMissing, match="no such folder"):
        find([tmp_path / "none"])
    (tmp_path / "file").touch()
    with pytest.raises(InputMissing, match="not a run folder"):
        find([tmp_path / "file"])
