"""`partrain bench --suite seeds`: the older trainer's stop, computed from the recorded losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import events, partrain, round_file, summary

from partrain.bench import seeds
from partrain.launch.folder.outcome import Outcome

PARALLEL, ALONE = seeds.SCENARIOS[-1], seeds.SCENARIOS[0]


def ended(folder: Path, scenario: seeds.Scenario, reading: str, cap: int) -> Outcome:
    """Train a job of the suite."""
    job = folder / "job.toml"
    job.write_text(seeds._job(scenario, reading, cap, 0).text)
    said = partrain("run", job, "--out", folder / "run", "--quiet")
    return Outcome(said.code, folder / "run", summary(folder / "run"), None)


@pytest.mark.representative
def test_the_older_stop_is_the_first_pass_in_which_a_worker_fits_its_partition(tmp_path: Path) -> None:
    outcome = ended(tmp_path, PARALLEL, "published", 9600)
    rounds = [[event for event in events(outcome.folder, "round") if event["round"] == number] for number in (1, 2, 3)]
    lowest = [min(event["loss"] for event in each) for each in rounds]
    assert [event["items"] for each in rounds for event in each] == [3200] * 6, "a round is a pass"
    number = next(number for number, loss in enumerate(lowest, 1) if loss <= seeds.TARGET)
    assert number < 3, "the run goes on after it"
    older = seeds._older_stop(outcome)["older"]
    test = json.loads(partrain("evaluate", round_file(outcome.folder, number), "--split", "test", "--json").out)["test"]["loss"]
    assert older == {
        "reached": True, "round": number, "items_per_worker": 3200 * number, "seconds": rounds[number - 1][0]["seconds"],
        "loss": lowest[number - 1], "test": pytest.approx(test, rel=1e-6),
    }  # fmt: skip
    assert older["loss"] <= seeds.TARGET < older["test"], "the lucky worker's error is not that of the mixed network"
    assert max(event["loss"] for event in rounds[number - 1]) > seeds.TARGET


def test_without_it_the_older_stop_is_the_end(tmp_path: Path) -> None:
    outcome = ended(tmp_path, ALONE, "corrected", 1000)
    older = seeds._older_stop(outcome)["older"]
    assert (older["reached"], older["round"], older["items_per_worker"]) == (False, 1, 4500)
    assert older["test"] == pytest.approx(outcome.summary["test"]["loss"], rel=1e-6)
    assert older["loss"] != outcome.summary["loss"], "one is a training loss, the other that of held-out items"


@pytest.mark.slow
def test_the_tables_of_the_suite() -> None:
    result = json.loads(partrain("bench", "--suite", "seeds", "--items", 1000, "--seeds", 1, "--json").out)
    assert (result["code"], result["finished"]) == (0, 14)
    assert [row["items_per_worker"] for row in (result["published"][6]["older"], result["corrected"][6]["judged"])] == [
        [3200],
        [2880],
    ]
    assert ["judged" in row for row in result["published"] + result["corrected"]] == [False] * 7 + [True] * 7
    lines = seeds.render(result)
    stops = [line.split()[5] for line in lines if line[:9] in ("1 thread,", "2 threads", "4 threads")]
    assert stops == ["older"] * 7 + ["older", "judged"] * 7
