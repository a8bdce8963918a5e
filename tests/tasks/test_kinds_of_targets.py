"""Multi-label and segmentation from files to answers, and balanced sampling."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from support.runs import partrain
from torch.nn import functional

from partrain import checkpoint
from partrain.tasks import BuiltinTask, make
from partrain.training.batches import Batches

JOB = """
name = "job"
optimizer = {{ name = "adam", lr = 0.02, batch_size = 10 }}
sync = {{ rule = "{rule}", iterations = 3 }}
workers = [{{ count = 2 }}]
transport = {{ kind = "simulated" }}
checkpoint = {{ commit = "every" }}
{tables}

[stop]
rounds = 4
judge_every = 1
{stop}
"""
NET = """
from torch import nn


class Net(nn.Conv2d):
    def __init__(self):
        super().__init__(1, 3, 3, padding=1)
"""
MAPS = """
model = { name = "net.py:Net" }
dataset = { kind = "npz", path = "maps.npz", validation = 10 }
task = { class_weights = "balanced" }
"""
LABELS = """
model = { name = "linear" }
dataset = { kind = "npz", path = "labels.npz", validation = 20 }
task = { kind = "multi-label", threshold = 0.4 }
"""


def write(folder: Path, tables: str, rule: str = "average", stop: str = "") -> Path:
    draw = np.random.default_rng(0)
    maps = draw.integers(3, size=(50, 6, 5)).astype(np.uint8)
    maps[:, 0] = 255
    np.savez(folder / "maps.npz", inputs=((maps == 1).astype(np.float32) - (maps == 2))[:, None], targets=maps)
    (folder / "net.py").write_text(NET)
    inputs = draw.normal(size=(100, 4)).astype(np.float32)
    np.savez(folder / "labels.npz", inputs=inputs, targets=inputs[:, :3] > 0)
    np.savez(folder / "classes.npz", inputs=inputs, targets=(np.arange(100) % 10 == 0).astype(np.int64))
    job = folder / f"{rule}.toml"
    job.write_text(JOB.format(tables=tables, rule=rule, stop=stop))
    return job


def run(job: Path, name: str = "run", *arguments: str) -> Path:
    done = partrain("run", job, "--out", job.with_name(name), *arguments)
    assert done.code == 0, done
    return job.with_name(name)


def test_label_maps_are_trained_judged_evaluated_and_predicted(tmp_path: Path) -> None:
    folder = run(write(tmp_path, MAPS, stop='patience_by = "mean_iou"\nat_least = { mean_iou = 0.01 }'))
    judged = json.loads((folder / "summary.json").read_text())["metrics"]
    found = json.loads(partrain("evaluate", folder, "--json", "--trust-code").out)["validation"]
    assert {name: found[name] for name in ("accuracy", "mean_iou")} == pytest.approx(judged)
    assert found["mean_iou"] == pytest.approx(np.mean([each["iou"] for each in found["classes"]]))
    assert found["pixel_accuracy"] == pytest.approx(judged["accuracy"])  # as many pixels in each image
    assert sum(each["pixels"] for each in found["classes"]) == 10 * 5 * 5
    predict = ("predict", folder, "--trust-code", "--input", tmp_path / "maps.npz")
    assert partrain(*predict, "--output", tmp_path / "answers.npz").code == 0
    answers, true = np.load(tmp_path / "answers.npz")["label"], np.load(tmp_path / "maps.npz")["targets"]
    assert answers.shape == true.shape
    whole = json.loads(partrain("evaluate", folder, "--json", "--trust-code", "--input", tmp_path / "maps.npz").out)
    told = whole[str(tmp_path / "maps.npz")]
    assert told["pixel_accuracy"] == pytest.approx((answers == true)[true != 255].mean())
    assert "give --output FILE.npz" in partrain(*predict).err


def test_the_loss_of_an_image_is_the_mean_over_its_labeled_pixels() -> None:
    torch.manual_seed(0)
    answers, maps = torch.randn(2, 3, 2, 2), torch.tensor([[[0, 1], [2, 255]], [[1, 255], [255, 255]]])
    task = make(BuiltinTask(kind="segmentation"), "segmentation", Path())
    images = [functional.cross_entropy(answers[i : i + 1], maps[i : i + 1], ignore_index=255) for i in range(2)]
    assert float(task.loss(answers, maps)) == pytest.approx(float(sum(images)) / 2)
    void = make(BuiltinTask(kind="segmentation", ignore_index=1), "segmentation", Path())
    assert float(void.loss(answers, torch.ones(2, 2, 2, dtype=torch.int64))) == 0.0


def test_labels_that_are_right_or_wrong_each(tmp_path: Path) -> None:
    folder = run(write(tmp_path, LABELS))
    judged = json.loads((folder / "summary.json").read_text())
    found = json.loads(partrain("evaluate", folder, "--json").out)["validation"]
    assert found["accuracy"] == pytest.approx(judged["metrics"]["accuracy"])
    assert found["loss"] == pytest.approx(judged["loss"], rel=1e-6)
    assert len(found["labels"]) == 3
    answers = partrain("predict", folder, "--input", tmp_path / "labels.npz", "--probabilities", "--output", tmp_path / "a.npz")
    assert answers.code == 0
    given = np.load(tmp_path / "a.npz")
    assert ((given["probability"] >= 0.4) == given["label"]).all()


def test_multi_label_targets_are_0_and_1(tmp_path: Path) -> None:
    job = write(tmp_path, LABELS)
    np.savez(tmp_path / "labels.npz", inputs=np.ones((100, 4), np.float32), targets=np.full((100, 3), 2.0, np.float32))
    done = partrain("run", job, "--out", tmp_path / "run")
    assert (done.code, "is for targets 0 and 1, and one is 2" in done.err) == (78, True), done


CLASSES = """
model = { name = "linear" }
dataset = { kind = "npz", path = "classes.npz", validation = 20, stratify = true }
partition = { sampling = "balanced" }
"""


def test_a_balanced_pass_draws_each_class_equally_often() -> None:
    labels = (np.arange(101) >= 95).astype(np.int64) + (np.arange(101) >= 99)
    batches = Batches(np.arange(101), 10, 10, passes=1, seed=0, rank=0, labels=labels)
    batches.begin(1)
    one, two = batches.draw(101), batches.draw(101)
    assert sorted(Counter(labels[one].tolist()).values()) == [33, 34, 34]
    assert one.tolist() != two.tolist()


def test_a_resumed_balanced_run_has_the_same_bits(tmp_path: Path) -> None:
    job = write(tmp_path, CLASSES)
    whole, part = run(job), run(job, "part", "--set", "stop.rounds=2")
    plain = run(job, "plain", "--set", 'partition.sampling="permutation"')
    assert partrain("resume", part, "--until", "rounds=4").code == 0
    ends = [checkpoint.read(folder / "checkpoint.h5") for folder in (whole, part, plain)]
    assert all(np.array_equal(ends[0].arrays[name], ends[1].arrays[name], equal_nan=True) for name in ends[0].arrays)
    assert ends[0].manifest["progress"]["item_iterations"] == ends[2].manifest["progress"]["item_iterations"]
    weights = next(name for name in ends[0].arrays if name.startswith("model/"))
    assert not np.array_equal(ends[0].arrays[weights], ends[2].arrays[weights])


@pytest.mark.parametrize(("tables", "rule"), [(LABELS + 'partition = { sampling = "balanced" }', "average"), (CLASSES, "rprop")])
def test_balanced_sampling_needs_classes_and_mini_batches(tmp_path: Path, tables: str, rule: str) -> None:
    done = partrain("validate", write(tmp_path, tables, rule))
    assert done.code == 78
    assert 'sampling = "balanced" goes by classes' in done.out or "takes full batches" in done.out
