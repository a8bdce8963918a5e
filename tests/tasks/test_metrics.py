"""`[task] metrics`: torchmetrics and own metrics over all held-out items, whatever the number of workers."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.lazy import Lazy
from support.preload import metrics_preloaded  # noqa: F401  a fixture
from support.runs import Command, partrain

from partrain import checkpoint
from partrain.launch.worker import dry_run
from partrain.tasks import BuiltinTask, make
from partrain.tasks.judged import judged_metrics
from partrain.tasks.kinds import KINDS
from partrain.tasks.known_metrics import known_metric, silent
from partrain.tasks.measures import OfClasses
from partrain.tasks.metric_names import CLASSES, LABELS

pytestmark = [
    pytest.mark.skipif(find_spec("torchmetrics") is None, reason="needs the extra metrics"),
    pytest.mark.usefixtures("metrics_preloaded"),
]
sklearn = Lazy("sklearn.metrics")

JOB = """
name = "metrics"
model = {{ name = "linear" }}
dataset = {{ kind = "npz", path = "items.npz", validation = 31, test_share = 0.1 }}
optimizer = {{ name = "sgd", lr = 0.3, batch_size = 10 }}
sync = {{ rule = "average", passes = 1 }}
workers = [{{ count = {count} }}]
transport = {{ kind = "{transport}" }}
checkpoint = {{ commit = "every" }}

[task]
metrics = ["f1", "auroc", "own.py:share", "own.py:Wrong"]
lower_is_better = ["Wrong"]

[stop]
rounds = {rounds}
judge_every = 1
patience_by = "Wrong"
"""

OWN = """
import torch
from torchmetrics import SumMetric


def share(answers, targets):
    assert answers.shape == (len(targets), 3)
    return (answers.argmax(1) == targets).double().mean()


class Wrong(SumMetric):
    higher_is_better = False

    def update(self, answers, targets):
        super().update((answers.argmax(1) != targets).double())
"""


def write(folder: Path, count: int = 3, transport: str = "simulated", rounds: int = 2) -> Path:
    draw = np.random.default_rng(0)
    targets = draw.integers(3, size=240)
    inputs = (np.eye(3)[targets] + draw.normal(size=(240, 3))).astype(np.float32)
    np.savez(folder / "items.npz", inputs=inputs, targets=targets)
    (folder / "own.py").write_text(OWN)
    job = folder / f"{transport}-{count}-{rounds}.toml"
    job.write_text(JOB.format(count=count, transport=transport, rounds=rounds))
    return job


def run(job: Path, *arguments: str) -> dict[str, Any]:
    done = partrain("run", job, "--out", job.with_suffix(""), *arguments)
    assert done.code == 0, done
    return dict(json.loads((job.with_suffix("") / "summary.json").read_text()))


def run_apart(job: Path) -> dict[str, Any]:
    with Command(("run", job, "--out", job.with_suffix("")), job.parent) as command:
        said = command.wait()
    assert said.code == 0, said
    return dict(json.loads((job.with_suffix("") / "summary.json").read_text()))


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_judged_metrics_are_those_of_all_items(tmp_path: Path, count: int) -> None:
    """Three workers by a command of its own, whose processes import torchmetrics themselves."""
    job = write(tmp_path, count)
    told = run(job) if count == 1 else run_apart(job)
    judged = told["metrics"]
    assert list(judged) == ["accuracy", "f1", "auroc", "share", "Wrong"]
    assert judged["share"] == pytest.approx(judged["accuracy"])
    assert judged["Wrong"] == round(31 * (1 - judged["accuracy"]))
    evaluated = json.loads(partrain("evaluate", job.with_suffix(""), "--json", "--trust-code").out)
    for split, numbers in (("validation", judged), ("test", told["test"])):
        assert {name: evaluated[split][name] for name in judged} == pytest.approx(
            {name: numbers[name] for name in judged}, rel=1e-5
        )
    assert evaluated["validation"]["macro"]["f1"] == pytest.approx(judged["f1"], rel=1e-5)
    assert np.mean([row["auroc"] for row in evaluated["validation"]["classes"]]) == pytest.approx(judged["auroc"], rel=1e-5)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bytes_and_metrics(tmp_path: Path) -> None:
    whole, part = write(tmp_path, rounds=4), write(tmp_path, count=3, rounds=2)
    run(whole)
    run(part)
    assert partrain("resume", part.with_suffix(""), "--trust-code", "--until", "rounds=4").code == 0
    ends = [checkpoint.read(job.with_suffix("") / "checkpoint.h5") for job in (whole, part)]
    for name, array in ends[0].arrays.items():
        assert np.array_equal(array, ends[1].arrays[name], equal_nan=True), name
    assert ends[0].arrays["history/f1"].shape == (4,)
    assert ends[0].manifest["progress"] == ends[1].manifest["progress"]
    assert ends[0].manifest["progress"]["metrics"].keys() == {"f1", "auroc", "share", "Wrong"}


def test_the_import_of_torchmetrics_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run imports it before its first step: from then on `stall_seconds` counts."""
    imported: list[str] = []
    monkeypatch.setattr(dry_run, "import_torchmetrics", lambda: imported.append("torchmetrics"))
    spec: Any = SimpleNamespace(job=SimpleNamespace(task=SimpleNamespace(metrics=["f1"]), network_code=[]))
    channel: Any = None
    assert next(dry_run._steps(0, spec, channel, lambda: None, [])) == dry_run.BUILDING
    assert imported == ["torchmetrics"]


@pytest.mark.slow
def test_processes_judge_as_simulated_workers_do(tmp_path: Path) -> None:
    assert run(write(tmp_path, 2, "shared"))["metrics"] == run(write(tmp_path, 2))["metrics"]


@pytest.mark.parametrize(("setting", "words"), [
    ('task={metrics=["f2"]}', "no metric `f2`"),
    ('task={metrics=["mae"]}', "`mae` is not for the task classification"),
    ('task.metrics=["f1", "accuracy"]', "`accuracy` is judged anyway"),
    ('task.metrics=["own.py:Wrong", "f1", "f1"]', "`f1` is there twice"),
    ("stop.at_most={f1=0.5}", "`f1` is better the higher it is"),
    ("stop.at_least={Wrong=3}", "`Wrong` is better the lower it is"),
    ("stop.at_least={accuracy=0.5}", "it has its own key in [stop]"),
    ('stop.patience_by="auroca"', "did you mean `auroc`?"),
    ('stop.patience_by="gap"',
     'write a metric of your own: metrics = ["file.py:gap"] in [task]; a function of [hooks] asks to stop'),
    ('task.lower_is_better=["f1"]', "`f1` is not one of your own metrics"),
])  # fmt: skip
def test_mistakes_are_told_before_training(tmp_path: Path, setting: str, words: str) -> None:
    done = partrain("validate", write(tmp_path), "--set", setting)
    assert done.code == 78
    assert words in done.out + done.err


FAULTY = {
    "text": ("return 'x'", "gives str; expected one number"),
    "each": ("return (answers.argmax(1) == targets).double()", "gives numbers of shape (31,); expected one number"),
    "none": ("pass", "gives NoneType; expected one number"),
    "fails": ("raise ValueError('no labels')", "ValueError: no labels"),
}
"""Bodies of own metrics, and the message about each."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTY)
def test_an_own_metric_is_tried_before_training(tmp_path: Path, name: str) -> None:
    job = write(tmp_path)
    body, words = FAULTY[name]
    (tmp_path / "own.py").write_text(f"def {name}(answers, targets):\n    {body}\n")
    changes = ("--set", f'task={{metrics=["f1", "own.py:{name}"]}}', "--set", "stop={rounds=2}")
    for command in (("validate", "--build"), ("run", "-q", "--out", tmp_path / "new")):
        done = partrain(*command, job, *changes)
        assert done.code == 71, done
        assert f"error[user-code]: [task] metrics: `own.py:{name}`" in done.err
        assert words in done.err
    assert not (tmp_path / "new").exists(), "no round is trained"


def test_a_metric_that_is_no_number_is_named_once(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "own.py").write_text("def late(answers, targets):\n    return float('nan')\n")
    job = tmp_path / "late.toml"
    stop = "[stop]\nrounds = 3\njudge_every = 1\n"
    job.write_text(
        JOB.format(count=1, transport="simulated", rounds=8).partition("[task]")[0] + '[task]\nmetrics = ["own.py:late"]\n' + stop
    )
    done = partrain("run", job, "--out", tmp_path / "late")
    assert done.code == 0, done
    assert done.err.count("the metric `late` is no number in the judgement of round 1, which leaves it out") == 1
    assert done.err.count("`late`") == 1


def test_judgements_without_the_deciding_number_are_no_misses(tmp_path: Path) -> None:
    """A metric that has no number yet does not end the run: its last lines, and a warning, tell of the judgements without one."""
    write(tmp_path)
    (tmp_path / "own.py").write_text(
        "calls = []\n\ndef late(answers, targets):\n    calls.append(1)\n    return len(calls) / 100 if len(calls) > 4 else float('nan')\n"
    )
    job = tmp_path / "late.toml"
    stop = '[stop]\nrounds = 8\njudge_every = 1\npatience = 3\npatience_by = "late"\n'
    job.write_text(
        JOB.format(count=1, transport="simulated", rounds=8).partition("[task]")[0] + '[task]\nmetrics = ["own.py:late"]\n' + stop
    )
    done = partrain("run", job, "--out", tmp_path / "late")
    told = json.loads((tmp_path / "late" / "summary.json").read_text())
    assert (done.code, told["rounds"], told["best"]["round"]) == (0, 8, 8), done
    assert (told["undefined"], told["judgements"]) == ({"late": 4}, 8)
    assert "`late` was no number in 4 of 8 judgements" in done.out
    assert done.err.count("`late`, which [stop] names, is no number in the judgement of round 1") == 1


def test_r2_decides_about_no_run_whose_held_out_targets_are_equal(tmp_path: Path) -> None:
    np.savez(tmp_path / "items.npz", inputs=np.arange(20.0)[:, None], targets=np.ones((20, 1)))
    text = (
        JOB.format(count=1, transport="simulated", rounds=2).partition("[task]")[0].replace("validation = 31", "validation = 5")
    )
    (tmp_path / "job.toml").write_text(text + '[task]\nmetrics = ["r2"]\n[stop]\nrounds = 2\npatience_by = "r2"\n')
    done = partrain("run", tmp_path / "job.toml", "--out", tmp_path / "run")
    assert (done.code, done.errors) == (78, ["bad-job"]), done
    assert "`r2` is undefined: the targets of all 5 held-out items are equal" in done.err
    assert not (tmp_path / "run").exists()


def test_a_class_of_which_lower_is_better_must_be_listed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    task = make(BuiltinTask(), "classification", tmp_path)
    with pytest.raises(Exception, match=r'add lower_is_better = \["Wrong"\]'):
        judged_metrics(["own.py:Wrong"], [], task, KINDS["classification"], 3, tmp_path)


@pytest.mark.slow
def test_a_metric_that_needs_more_classes_is_refused_after_loading_and_for_own_tasks(tmp_path: Path) -> None:
    job = write(tmp_path)
    (tmp_path / "task.py").write_text("import partrain.tasks.task as k\nclass Own(k.Classification): pass\n")
    for task in ('{metrics=["top5_accuracy"]}', '{name="task.py:Own", metrics=["top5_accuracy"]}'):
        done = partrain("validate", "--build", job, "--set", f"task={task}", "--set", "stop={rounds=1}")
        assert done.code == 78, done
        assert "`top5_accuracy` needs at least 5 classes, and the data set has 3" in done.out + done.err


@pytest.mark.parametrize("kind", ["classification", "multi-label", "segmentation", "regression", "language"])
def test_each_known_metric_gives_the_same_number_for_one_worker_and_two(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    outputs = 6
    answers, targets = {
        "classification": (torch.randn(40, 6), torch.arange(40) % 6),
        "multi-label": (torch.randn(40, 6), (torch.randn(40, 6) > 0).float()),
        "segmentation": (torch.randn(40, 6, 3, 4), torch.randint(6, (40, 3, 4))),
        "regression": (torch.rand(40, 6), torch.rand(40, 6)),
        "language": (torch.randn(40, 5, 6), torch.randint(6, (40, 5))),
    }[kind]
    task = make(BuiltinTask(kind=kind), kind, tmp_path)

    def metrics() -> Any:
        return judged_metrics(list(KINDS[kind].metrics), [], task, KINDS[kind], outputs, tmp_path)

    whole, first, second = metrics(), metrics(), metrics()
    whole.update(answers, targets)
    first.update(answers[:25], targets[:25])
    second.update(answers[25:], targets[25:])
    # A stand-in for a group: the second worker's states, noted in the order in which they are asked for.
    noted: list[torch.Tensor] = []
    second.compute(lambda x: noted.append(x.clone()) or [x])
    theirs = iter(noted)
    assert first.compute(lambda x: [x, next(theirs)]) == pytest.approx(whole.compute(), rel=1e-5)


def test_errors_of_numbers_are_those_of_scikit_learn_in_the_units_of_the_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    answers, targets = torch.randn(50, 2), torch.randn(50, 2)
    task = make(BuiltinTask(kind="regression"), "regression", tmp_path)
    metrics = judged_metrics(["mae", "rmse", "r2"], [], task, KINDS["regression"], 2, tmp_path, lambda numbers, _: 1000 * numbers)
    metrics.update(answers, targets)
    true, given = 1000 * targets.double().numpy(), 1000 * answers.double().numpy()
    assert metrics.compute() == pytest.approx(
        {
            "mae": sklearn.mean_absolute_error(true, given),
            "rmse": sklearn.root_mean_squared_error(true, given),
            "r2": sklearn.r2_score(true, given),
        }
    )


def test_mean_iou_leaves_out_ignored_pixels_and_classes_without_any() -> None:
    measure = OfClasses(3, 255)
    measure.add(torch.tensor([[[0, 0], [1, 1]]]), torch.tensor([[[0, 1], [1, 255]]]))
    assert measure.numbers()["mean_iou"] == pytest.approx((1 / 2 + 1 / 2) / 2)


def test_means_over_classes_leave_the_ignored_class_out() -> None:
    """It has no true pixel. Where the network answers it, it counted as a class of which nothing is right."""
    measure = OfClasses(3, 0)
    measure.add(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    assert measure.numbers()["mean_iou"] == pytest.approx((1 / 2 + 1) / 2)
    wanted = sklearn.recall_score([1, 1, 2], [0, 1, 2], labels=[1, 2], average="macro")
    assert measure.numbers()["recall"] == pytest.approx(wanted)


def test_an_area_is_undefined_for_a_class_that_all_items_have_or_none_has() -> None:
    """torchmetrics gives 0 for such a class, and so a mean over classes that is too low."""
    answers = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3]])
    for labels, areas in (([0, 1, 1], [1, 1, math.nan]), ([1, 1, 1], [math.nan] * 3)):
        metric = known_metric(CLASSES["auroc"], 3, None)
        for item, label in enumerate(labels):
            metric.update(answers[item : item + 1], torch.tensor([label]))
        with silent():
            assert metric.compute().tolist() == pytest.approx(areas, nan_ok=True)
    metric = known_metric(LABELS["auroc"], 3, None)
    metric.update(answers, torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 0]]))
    with silent():
        assert metric.compute().tolist() == pytest.approx([1, 1, math.nan], nan_ok=True)
