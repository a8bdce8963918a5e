"""`partrain evaluate`: metrics that can be checked by hand, on every split and on files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.runs import partrain, write_job

from partrain.data import load
from partrain.inference.by_group import scores_of_groups
from partrain.inference.evaluate import scores
from partrain.inference.network import TrainedNetwork
from partrain.record.round_record import without_nan
from partrain.tasks.measures import OfClasses, OfNumbers, OfReconstructions
from partrain.tasks.task import Classification
from partrain.training.batches import Samples

Runs = Callable[[str], Path]
Networks = Callable[[str], TrainedNetwork]


def report(run: Path, *words: object) -> dict:
    said = partrain("evaluate", run, "--json", *words)
    assert (said.code, said.err) == (0, ""), said
    return dict(json.loads(said.out))


# By hand


def test_classes_by_hand() -> None:
    """Six items: 0 0 0 1 1 2 are answered with 0 0 1 1 1 0.

    Class 0: three answers, two right; three items, two found: precision, recall and F1 2/3. Class 1: three answers, two right; two
    items, both found: 2/3, 1, 4/5. Class 2: no answer names it: no precision, recall and F1 0.
    """
    metric = OfClasses(3)
    truth, said = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 1, 1, 1, 0])
    metric.add(said[:2], truth[:2])
    metric.add(said[2:], truth[2:])
    told = metric.report(lambda _: ["a", "b", "c"])
    assert told["confusion"] == [[2, 1, 0], [0, 2, 0], [1, 0, 0]]
    a, b, c = told["classes"]
    assert (a["name"], a["precision"], a["recall"], a["f1"], a["count"]) == ("a", 2 / 3, 2 / 3, 2 / 3, 3)
    assert (b["precision"], b["recall"], b["f1"], b["count"]) == (2 / 3, 1, 0.8, 2)
    assert (c["precision"], c["recall"], c["f1"], c["count"]) == (None, 0, 0, 1)
    assert told["macro"] == {
        "precision": pytest.approx(4 / 9),
        "recall": pytest.approx(5 / 9),
        "f1": pytest.approx((2 / 3 + 0.8) / 3),
    }


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_every_item_is_in_the_matrix_once(pairs: list[tuple[int, int]]) -> None:
    metric = OfClasses(5)
    truth, said = (torch.tensor(column) for column in zip(*pairs, strict=True))
    metric.add(said, truth)
    told = metric.report(lambda _: [])
    assert all(told["confusion"][a][b] == pairs.count((a, b)) for a in range(5) for b in range(5))
    assert sum(row["count"] for row in told["classes"]) == len(pairs)


def test_an_answer_that_is_no_class_is_counted_apart() -> None:
    """A network may give more logits than there are classes: its fourth answer is wrong, and names none of three."""
    metric = OfClasses(3)
    metric.add(torch.tensor([0, 3, 2]), torch.tensor([0, 1, 2]))
    assert metric.report(lambda _: [])["confusion"] == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert metric.numbers()["recall"] == pytest.approx(2 / 3)


def test_numbers_by_hand() -> None:
    """Targets 0 1 2 3, answers 0 1 2 7: off by 4 once. MAE 1, RMSE 2, R2 = 1 - 16/5. In tens: ten times that, but for R2."""
    for unit in 1, 10:
        metric = OfNumbers()
        metric.add(unit * torch.tensor([[0.0], [1], [2], [7]]), unit * torch.tensor([[0.0], [1], [2], [3]]))
        assert metric.report(lambda _: []) == {"mae": unit, "rmse": 2 * unit, "r2": pytest.approx(1 - 16 / 5)}


def test_several_numbers_each() -> None:
    metric = OfNumbers()
    metric.add(torch.tensor([[0.0, 2], [1, 2]]), torch.tensor([[0.0, 3], [1, 3]]))
    told = without_nan(metric.report(lambda _: ["a", "b"]))
    assert [row["name"] for row in told["numbers"]] == ["a", "b"]
    assert [row["mae"] for row in told["numbers"]] == [0, 1]
    assert [row["r2"] for row in told["numbers"]] == [1, None], "b does not vary: there is nothing to explain"
    assert told["mae"] == 0.5
    assert told["r2"] is None


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=50))
def test_quantiles_are_numpys(values: list[float]) -> None:
    metric = OfReconstructions()
    metric.add(torch.tensor(values, dtype=torch.float64)[:, None].sqrt(), torch.zeros(len(values), 1))
    told = metric.report(lambda _: [])["error"]
    for name in "p5", "p25", "p50", "p75", "p95", "p99":
        assert told[name] == pytest.approx(np.quantile(values, int(name[1:]) / 100), abs=1e-9)
    assert told["max"] == pytest.approx(max(values))


# Of networks


def test_splits(run_of: Runs) -> None:
    both = report(run_of("clouds"))
    assert [(name, both[name]["items"]) for name in ("validation", "test")] == [("validation", 30), ("test", 40)]
    for name, items in (("training", 200), ("validation", 30), ("test", 40)):
        one = report(run_of("clouds"), "--split", name)
        assert one.keys() == {"checkpoint", "round", name}
        assert one[name]["items"] == sum(map(sum, one[name]["confusion"])) == items
        right = sum(row[label] for label, row in enumerate(one[name]["confusion"]))
        assert one[name]["accuracy"] == right / items
    assert partrain("evaluate", run_of("spots"), "--split", "test").errors == ["no-input"]
    assert partrain("evaluate", run_of("clouds"), "--split", "best").code == 2


def test_what_the_run_said_of_it(run_of: Runs) -> None:
    summary = json.loads((run_of("clouds") / "summary.json").read_text())
    told = report(run_of("clouds"))
    assert told["validation"]["loss"] == pytest.approx(summary["loss"])
    assert told["test"]["accuracy"] == pytest.approx(summary["test"]["accuracy"])


def test_files(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    network = network_of("clouds")
    dataset = load(network.loaded.job.dataset, network.loaded.folder)
    assert dataset.test_inputs is not None
    np.savez(tmp_path / "test.npz", inputs=dataset.test_inputs, targets=dataset.test_targets)
    np.save(tmp_path / "inputs.npy", dataset.test_inputs)
    np.save(tmp_path / "targets.npy", dataset.test_targets)
    known = report(run_of("clouds"))["test"]
    assert known.pop("constant").keys() == {"loss", "accuracy"}  # the file does not tell which class is the commonest in training
    for words in (["test.npz"], ["inputs.npy", "--targets", tmp_path / "targets.npy"]):
        path = tmp_path / words[0]
        assert report(run_of("clouds"), "--input", path, *words[1:])[str(path)] == known
    for words in (["inputs.npy"], ["inputs.npy", "--targets", tmp_path / "inputs.npy"], ["nowhere.npy"]):
        said = partrain("evaluate", run_of("clouds"), "--input", tmp_path / words[0], *words[1:])
        assert (said.code, said.errors) == (66, ["no-input"]), said
    assert partrain("evaluate", run_of("clouds"), "--input", "x.npy", "--split", "test").code == 2


def test_a_table(run_of: Runs, tmp_path: Path) -> None:
    """Evaluate on the training file: training, validation and test items together."""
    path = run_of("tabular").parent / "table.csv"
    told = report(run_of("tabular"), "--input", path)[str(path)]
    parts = [report(run_of("tabular"), "--split", name)[name] for name in ("training", "validation", "test")]
    assert [row["name"] for row in told["classes"]] == ["large", "small"]
    assert told["confusion"] == np.sum([part["confusion"] for part in parts], axis=0).tolist()
    assert told["loss"] == pytest.approx(sum(part["loss"] * part["items"] for part in parts) / 120)
    (tmp_path / "odd.csv").write_text("size,colour,kind\n1,red,huge\n")
    said = partrain("evaluate", run_of("tabular"), "--input", tmp_path / "odd.csv")
    assert (said.code, said.errors) == (66, ["no-input"])


def test_data_that_are_gone_or_others(run_of: Runs, tmp_path: Path) -> None:
    run, path = run_of("tabular"), run_of("tabular").parent / "table.csv"
    moved = path.rename(tmp_path / "table.csv")
    said = partrain("evaluate", run)
    assert (said.code, said.errors, len(said.err.splitlines())) == (66, ["no-input"], 1), said
    assert (
        f"{path}: No such file or directory; restore it; if it has moved, name a job with the new path: --job FILE;" in said.err
    )
    path.write_text(moved.read_text().replace("large", "tall"))
    told = f"{path}: the data set is not the one the checkpoint was trained on: restore it; `evaluate --input`"
    for words in (["evaluate", run], ["resume", run, "--until", "rounds=9", "--out", tmp_path / "again", "-q"]):
        said = partrain(*words)
        assert (said.code, said.errors, len(said.err.splitlines())) == (65, ["bad-checkpoint"], 1), said
        assert told in said.err
    moved.rename(path)


def test_prices_are_in_their_units(run_of: Runs) -> None:
    path = run_of("prices").parent / "table.csv"
    told = report(run_of("prices"), "--input", path)[str(path)]
    assert 1 < told["mae"] <= told["rmse"] < 600
    assert told["r2"] > 0.9


def test_a_forecast_beside_the_naive_one(run_of: Runs) -> None:
    """The series is 100 + 40 sin(t/4): the error of the newest value one and two steps later follows without a network."""
    path = run_of("spots").parent / "series.csv"
    told = report(run_of("spots"), "--input", path)[str(path)]
    values = [100 + 40 * math.sin(row / 4) for row in range(300)]
    steps = [[abs(values[at + step] - values[at]) for at in range(11, 298)] for step in (1, 2)]
    assert told["items"] == 287
    assert told["naive"]["mae"] == pytest.approx(np.mean(steps), rel=1e-3)
    assert told["mae"] < told["naive"]["mae"] / 2
    assert [row["name"] for row in told["numbers"]] == ["spots+1", "spots+2"]


def test_language(run_of: Runs, tmp_path: Path) -> None:
    told = report(run_of("rose"))["validation"]
    assert told["perplexity"] == pytest.approx(math.exp(told["loss"]))
    assert told["bits_per_token"] == pytest.approx(told["loss"] / math.log(2))
    assert told["tokens"] == 16 * told["items"]
    (tmp_path / "new.txt").write_text("a rose is a rose is a rose. a rose is a rose")
    assert report(run_of("rose"), "--input", tmp_path / "new.txt")[str(tmp_path / "new.txt")]["items"] == 2
    (tmp_path / "other.txt").write_text("a ROSE is a rose is a rose. a rose is a rose")
    assert partrain("evaluate", run_of("rose"), "--input", tmp_path / "other.txt").errors == ["no-input"]


def test_reconstructions(run_of: Runs) -> None:
    told = report(run_of("codes"))["test"]
    assert told["error"]["mean"] == pytest.approx(told["loss"])
    assert told["error"]["p5"] < told["error"]["p50"] < told["error"]["max"]
    assert "accuracy" not in told


@pytest.mark.parametrize(
    ("name", "line"), [("clouds", "true \\ answer"), ("spots", "repeating the newest value"), ("codes", "reconstruction error")]
)
def test_people_can_read_it(run_of: Runs, name: str, line: str) -> None:
    said = partrain("evaluate", run_of(name))
    assert said.code == 0
    assert "validation (" in said.out
    assert line in said.out


class Own(Classification):
    """A task that scores items itself: its answers have no known form."""

    def score(self, module: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
        return float(len(inputs)), 0.0


def test_a_task_of_the_users_own(network_of: Networks) -> None:
    items = Samples(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), 1.0)
    told = scores(replace(network_of("clouds"), task=Own()), items)
    assert told == {"items": 5, "loss": 1.0, "accuracy": 0.0}


@pytest.mark.usefixtures("stranger")
def test_code_of_the_users(run_of: Runs) -> None:
    assert partrain("evaluate", run_of("own")).errors == ["not-trusted"]
    told = report(run_of("own"), "--job", run_of("own").parent / "job.toml")
    assert told["validation"]["confusion"] == report(run_of("own"), "--trust-code")["validation"]["confusion"]


def test_numbers_that_never_vary_have_no_r2() -> None:
    """The mean of many 0.1 is not quite 0.1: divided by that tiny deviation, R² was -10^30."""
    targets = torch.full((77, 1), 0.1, dtype=torch.float64)
    metric = OfNumbers()
    metric.add(targets + 0.5, targets)
    assert math.isnan(metric.numbers()["r2"])


# By group

NUMBERS = {"clinics": ["loss", "accuracy", "auroc", "f1"], "stations": ["loss", "mae", "rmse", "r2"]}


def rows_of(path: Path) -> tuple[str, list[str]]:
    head, *rows = path.read_text().splitlines()
    return head, rows


@pytest.mark.parametrize("words", [["--split", "validation"], ["--split", "test"], ["--input"]])
def test_the_numbers_of_a_clinic_are_those_of_a_file_of_its_rows(run_of: Runs, tmp_path: Path, words: list[str]) -> None:
    run, path = run_of("clinics"), run_of("clinics").parent / "clinics.csv"
    words += [str(path)] * (words == ["--input"])
    told, without = (report(run, *words, *more)[words[-1]] for more in (["--by-group"], []))
    groups = told.pop("groups")
    assert told == without, "the numbers of all items stay"
    assert (groups["column"], groups["count"], list(groups["numbers"])) == ("clinic", len(groups["each"]), NUMBERS["clinics"])
    assert sum(row["items"] for row in groups["each"]) == told["items"]
    head, rows = rows_of(path)
    for row in groups["each"]:
        own = tmp_path / "own.csv"
        own.write_text("\n".join([head, *(line for line in rows if line.startswith(f"{row['group']},"))]))
        alone = report(run, "--input", own)[str(own)]
        assert {key: value for key, value in row.items() if key != "group"} == {
            key: pytest.approx(alone[key]) for key in ("items", *NUMBERS["clinics"])
        }


def test_windows_of_a_series_by_group(run_of: Runs, tmp_path: Path) -> None:
    """The newest rows of a station hold its test windows alone; a whole file is judged window by window."""
    run, path = run_of("stations"), run_of("stations").parent / "stations.csv"
    test, validation = (report(run, "--by-group")[split]["groups"] for split in ("test", "validation"))
    whole = report(run, "--by-group", "--input", path)[str(path)]["groups"]
    assert [[row["group"] for row in told["each"]] for told in (whole, validation, test)] == [[5, 7, 12], [5, 7], [5, 7]]
    assert "groups" not in report(run, "--input", path)[str(path)]
    head, rows = rows_of(path)
    for told, window in ((whole, None), (test, 6)):
        for row in told["each"]:
            lines = [line for line in rows if line.startswith(f"{row['group']},")]
            own = tmp_path / "own.csv"
            own.write_text("\n".join([head, *(lines if window is None else lines[-(row["items"] + window + 1) :])]))
            alone = report(run, "--input", own)[str(own)]
            assert [row[key] for key in ("items", *NUMBERS["stations"])] == [
                pytest.approx(alone[key]) for key in ("items", *NUMBERS["stations"])
            ]


def test_groups_are_summed_up_each_counting_once(run_of: Runs) -> None:
    path = run_of("clinics").parent / "clinics.csv"
    groups = report(run_of("clinics"), "--by-group", "--input", path)[str(path)]["groups"]
    for key, lower in (("loss", True), ("accuracy", False)):
        values = sorted((row[key] for row in groups["each"]), reverse=lower)
        worst = next(row for row in groups["each"] if row[key] == values[0])
        assert groups["numbers"][key] == {
            "mean": pytest.approx(np.mean(values)),
            "median": pytest.approx(np.median(values)),
            "worst_tenth": values[0],
            "worst": {"group": worst["group"], "items": worst["items"], "value": values[0]},
            "undefined": 0,
        }
    auroc = {row["group"]: row["auroc"] for row in groups["each"]}
    assert auroc.pop("clinic 3") is None
    assert groups["numbers"]["auroc"]["undefined"] == 1
    assert groups["numbers"]["auroc"]["mean"] == pytest.approx(np.mean(list(auroc.values())))
    lines = partrain("evaluate", run_of("clinics"), "--by-group", "--input", path).out.splitlines()
    first = lines.index("12 groups of `clinic`:")
    assert lines[first + 1].split("  ")[0] == "each group once"
    assert [line.split()[0] for line in lines[first + 3 :]] == [*NUMBERS["clinics"], "auroc:"]
    assert lines[-1] == "auroc: not defined in 1 of 12 groups, left out"


@pytest.mark.parametrize("run", ["clinics", "stations"])
def test_a_network_is_fine_tuned_for_each_group_and_stays_as_it_was(run_of: Runs, run: str) -> None:
    path = run_of(run).parent / f"{run}.csv"
    words = "--by-group", "--input", path
    told, again, plain = (
        report(run_of(run), *words, *more)[str(path)] for more in (["--fine-tune", 30], ["--fine-tune", 30], [])
    )
    assert told == again, "the same halves, in the same order"
    tuned = told["groups"].pop("fine_tuned")
    assert told == plain, "the numbers of the network itself stay"
    large = [row for row in told["groups"]["each"] if row["items"] >= 4]
    assert (tuned["passes"], tuned["count"], tuned["left_out"]) == (30, len(large), told["groups"]["count"] - len(large))
    assert [(row["group"], row["items"]) for row in tuned["each"]] == [
        (row["group"], row["items"] - row["items"] // 2) for row in large
    ]
    loss = tuned["numbers"]["loss"]
    for when in ("before", "after"):
        assert loss[when] == pytest.approx(np.mean([row[when]["loss"] for row in tuned["each"]]))
    gains = [row["before"]["loss"] - row["after"]["loss"] for row in tuned["each"]]
    assert (loss["better"], loss["worse"]) == (sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains))
    assert all(gains), "each group has its own network"
    lines = partrain("evaluate", run_of(run), *words, "--fine-tune", 30).out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("fine-tuned by 30 passes over half of a group's items"))
    assert [line.split()[0] for line in lines[at + 3 :]][: len(NUMBERS[run])] == NUMBERS[run]


def slopes(folder: Path, *sets: str) -> Path:
    """A run on 20 persons, of whom half have a target that rises with x, and half one that falls."""
    draw = np.random.default_rng(0)
    rows = [f"p{group},{x:.3f},{x * (-1) ** group:.3f}" for group in range(20) for x in draw.standard_normal(24)]
    (folder / "slopes.csv").write_text("\n".join(["person,x,y", *rows]) + "\n")
    data = 'dataset={kind="csv", path="slopes.csv", target="y", target_kind="number", group="person", validation=100}'
    optimizer = 'optimizer={name="adam", lr=0.02, batch_size=8, schedule="cosine"}'
    job = write_job(folder, data, 'model={name="mlp", hidden=[16]}', optimizer, "stop={rounds=10}", *sets)
    assert partrain("run", job, "--out", folder / "run", "-q").code == 0
    return folder / "run"


@pytest.mark.parametrize("faults", ["faults={}", "faults={max_update_norm=0.001}"])
def test_fine_tuning_learns_the_group_without_the_bounds_of_the_run(tmp_path: Path, faults: str) -> None:
    tuned = report(slopes(tmp_path, faults), "--by-group", "--fine-tune", 20)["validation"]["groups"]["fine_tuned"]
    loss = tuned["numbers"]["loss"]
    assert loss["after"] < 0.3 * loss["before"]
    assert loss["better"] == tuned["count"] >= 4


def test_fine_tuning_that_diverges_is_counted(tmp_path: Path) -> None:
    run = slopes(tmp_path, 'optimizer={name="sgd", lr=0.05, batch_size=8}')
    job = tmp_path / "steep.toml"
    job.write_text((tmp_path / "job.toml").read_text().replace("lr = 0.05", "lr = 1e30"))
    words = "--by-group", "--fine-tune", 3, "--job", job
    tuned = report(run, *words)["validation"]["groups"]["fine_tuned"]
    assert tuned["diverged"] == tuned["count"] > 0
    assert tuned["numbers"]["loss"].items() >= {"after": None, "better": 0, "undefined": tuned["count"]}.items()
    assert f"training diverged in {tuned['count']} of {tuned['count']} groups, left out" in partrain("evaluate", run, *words).out
    said = partrain("export", run, "-f", "safetensors", "-o", tmp_path / "x", "--group", "p1", "--fine-tune", 3, "--job", job)
    assert (said.code, "training diverged: its numbers are no longer finite; take fewer passes" in said.err) == (76, True), said


def test_fine_tuning_needs_groups(run_of: Runs, tmp_path: Path) -> None:
    said = partrain("evaluate", run_of("clinics"), "--fine-tune", 2)
    assert (said.code, "only with --by-group" in said.err) == (2, True), said
    head, rows = rows_of(run_of("clinics").parent / "clinics.csv")
    (tmp_path / "few.csv").write_text("\n".join([head, *rows[:2]]))
    said = partrain("evaluate", run_of("clinics"), "--by-group", "--fine-tune", 2, "--input", tmp_path / "few.csv")
    assert (said.code, "no group has 4 items" in said.err) == (66, True), said


@given(st.lists(st.none() | st.floats(0, 10), min_size=1, max_size=60), st.booleans())
def test_the_worst_tenth(values: list[float | None], lower: bool) -> None:
    name = "mae" if lower else "accuracy"
    told = scores_of_groups("who", range(len(values)), lambda items: {"items": 1, name: values[int(items)]}, ())["numbers"][name]
    defined = sorted((value for value in values if value is not None), reverse=lower)
    assert told["undefined"] == len(values) - len(defined)
    if not defined:
        assert [told[key] for key in ("mean", "median", "worst_tenth", "worst")] == [None] * 4
        return
    assert told["worst"]["value"] == defined[0]
    assert told["worst_tenth"] == pytest.approx(np.mean(defined[: max(1, len(defined) // 10)]))


def test_an_own_metric_of_which_lower_is_better_is_worst_where_it_is_largest() -> None:
    for own, worst in ((["cost"], 2.0), ([], 1.0)):
        told = scores_of_groups("who", ["a", "b"], lambda items: {"items": 1, "cost": 1.0 + int(items)}, own)
        assert told["numbers"]["cost"]["worst"]["value"] == worst


def test_rows_that_are_left_out_shift_no_group(run_of: Runs, tmp_path: Path) -> None:
    """A row without a group is a row that cannot be read."""
    path = run_of("clinics").parent / "clinics.csv"
    head, rows = rows_of(path)
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join([head, "clinic 1,big,1,no", rows[0], ",0.5,0.5,no", *rows[1:]]))
    said = partrain("evaluate", run_of("clinics"), "--by-group", "--input", bad, "--skip-bad", "--json")
    told = json.loads(said.out)
    assert (said.code, told["skipped"]["rows"]) == (0, 2), said
    assert told[str(bad)]["groups"] == report(run_of("clinics"), "--by-group", "--input", path)[str(path)]["groups"]
    bad.write_text("\n".join([head, rows[0], ",0.5,0.5,no"]))
    said = partrain("evaluate", run_of("clinics"), "--by-group", "--input", bad)
    assert (said.code, len(said.err.splitlines())) == (66, 1)
    assert f"{bad}:3: column `clinic`: no value; fill it in, or delete the row" in said.err


def test_groups_that_cannot_be_had(run_of: Runs, tmp_path: Path) -> None:
    said = partrain("evaluate", run_of("spots"), "--by-group")
    assert (said.code, said.errors, len(said.err.splitlines())) == (78, ["bad-job"], 1), said
    assert "--by-group: the job names no groups: name the column of the persons or clinics with `group` in [dataset]" in said.err
    (tmp_path / "t.csv").write_text("a,b,ill\n1,2,no\n")
    np.savez(tmp_path / "t.npz", inputs=np.zeros((1, 2)), targets=np.zeros(1, int))
    for name, message in (
        ("t.csv", "t.csv:1: no column `clinic`, which `group` asks for"),
        ("t.npz", "--by-group needs the column `clinic`"),
    ):
        said = partrain("evaluate", run_of("clinics"), "--by-group", "--input", tmp_path / name)
        assert (said.code, said.errors, len(said.err.splitlines())) == (66, ["no-input"], 1), said
        assert message in said.err


def test_a_job_file_may_name_the_groups_of_a_file(run_of: Runs, tmp_path: Path) -> None:
    run, path = run_of("tabular"), run_of("tabular").parent / "table.csv"
    said = partrain("evaluate", run, "--by-group", "--input", path)
    assert "or evaluate --input FILE with a --job FILE that names it" in said.err
    job = tmp_path / "job.toml"
    job.write_text((run / "job.toml").read_text().replace('"price"]', '"price"]\ngroup = "shop"'))
    table = tmp_path / "shops.csv"
    head, rows = rows_of(path)
    table.write_text("\n".join([f"shop,{head}", *(f"{row % 4},{line}" for row, line in enumerate(rows))]))
    groups = report(run, "--by-group", "--input", table, "--job", job)[str(table)]["groups"]
    assert [(row["group"], row["items"]) for row in groups["each"]] == [(shop, 30) for shop in range(4)]
