"""Contradictions between tables, and what a machine and its files do not allow: each with its place, all at once."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partrain.config.overrides import as_toml
from partrain.config.problems import Rejected
from partrain.errors import BadJob
from partrain.job.load import parse, problems

JOB = """\
name = "trial"
model = {name = "mlp"}
[dataset]
kind = "synthetic"
function = "blobs"
validation = 500
[optimizer]
name = "sgd"
lr = 0.1
[sync]
rule = "average"
iterations = 10
[stop]
rounds = 3
[[workers]]
count = 2
"""


SYNTHETIC = 'kind = "synthetic"\nfunction = "blobs"\nvalidation = 500\n'


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight cores and no CUDA device."""
    monkeypatch.setattr("partrain.system.accelerator._cuda_count", lambda visible: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.fixture
def said(tmp_path: Path):
    """What is said about the job with changes, given as old and new text in turn: `line:column message; suggestion`."""

    def check(*changes: str) -> list[str]:
        text = JOB
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert text.count(old) == 1
            text = text.replace(old, new)
        path = tmp_path / "job.toml"
        path.write_text(text)
        return [
            f"{p.line}:{p.column}{' warning:' * (p.severity == 'warning')} {p.message}{'; ' * bool(p.suggestion)}{p.suggestion}"
            for p in problems(path)
        ]

    return check


@pytest.mark.parametrize(("changes", "told"), [
    # A sound job
    ((), ""),
    # The length of a round
    (("iterations = 10", "iterations = 10\npasses = 1"), "13:1 [sync] has both `iterations` and `passes`; keep one"),
    (("count = 2", "passes = 2\niterations = 3"), "16:1 [[workers]] has both `iterations` and `passes`; keep one"),
    (("count = 2", "passes = 2"), ""),
    (("iterations = 10", ""),
     "10:1 [sync] does not set the length of a round; add `iterations` or `passes`, for example `iterations = 10`"),
    (("iterations = 10", "", "count = 2", "passes = 2\n[[workers]]"),
     "17:1 neither this [[workers]] table nor [sync] has `iterations` or `passes`; add one"),
    # Items serve for what they are made for
    (("rounds = 3", 'rounds = 3\n[task]\nkind = "regression"'),
     "16:8 the data set's items are made for classification, not for regression; fitting: classification, autoencoder"),
    (("rounds = 3", 'rounds = 3\n[task]\nkind = "classification"'), ""),
    (('"blobs"', '"sine"', "rounds = 3", 'rounds = 3\n[task]\nkind = "forecast"'), ""),
    # A metric of more classes than there are
    (("rounds = 3", 'rounds = 3\n[task]\nmetrics = ["f1", "top5_accuracy"]'),
     "16:18 `top5_accuracy` needs at least 5 classes, and the data set has 3; remove it"),
    (('"blobs"', '"blobs"\nclasses = 5', "rounds = 3", 'rounds = 3\n[task]\nmetrics = ["f1", "top5_accuracy"]'), ""),
    # A key of several kinds of data names them
    (("validation = 500", 'validation = 500\naugment = ["flip"]'),
     "7:1 unknown key `augment` in [dataset]; `augment` belongs to [dataset] with kind = …"),
    # Weights of classes that there are
    (("rounds = 3", 'rounds = 3\n[task]\nclass_weights = { "0" = 2.0, "2" = 3, "9" = 1 }'),
     "16:39 the data set has no class `9`; it has 0, 1, 2"),
    # Settings of the optimizer without effect
    (("lr = 0.1", 'lr = 0.1\nschedule = "linear"\ngamma = 0.5'),
     '11:1 `gamma` has no effect under schedule = "linear"; remove it, or use "step"'),
    (("lr = 0.1", "lr = 0.1\nhorizon = 9"), "10:1 `horizon` has no effect: the learning rate is constant; remove it"),
    (('"sgd"\nlr = 0.1', '"rprop"\nlr = 0.1\nclip_norm = 1.0'),
     '10:1 `clip_norm` has no effect on the steps of "rprop"; remove it'),
    (('"sgd"', '"rprop"', 'rule = "average"', 'rule = "average"\nlr_scale = "linear"'),
     '12:1 `lr_scale` has no effect on the steps of "rprop"…'),
    # Full batches fit any partition
    (('"sgd"\nlr = 0.1', '"sgd"\nlr = 0.1\nfull_batch = true'), ""),
    (("lr = 0.1", "lr = 0.1\nfull_batch = true\nbatch_size = 8"),
     "11:1 `batch_size` has no effect on full batches; remove it, or set full_batch = false"),
    # Curvature is each worker's own
    (('"sgd"', '"lbfgs"'), '8:8 warning: averaged gradients of different partitions tell "lbfgs" little of any one of them…'),
    (('"sgd"', '"lbfgs"', "iterations = 10", 'iterations = 10\noptimizer_state = "local"'), ""),
    (('"sgd"', '"lbfgs"', '"average"', '"bsp"'), ""),
    (('"sgd"', '"lbfgs"', "count = 2", "count = 1"), ""),
    # Settings without effect
    (("lr = 0.1", "lr = 0.1\nnesterov = true"), "10:1 `nesterov` needs momentum; for example, add `momentum = 0.9`"),
    (("iterations = 10", "iterations = 10\nwarmup_rounds = 5"),
     '13:1 warning: `warmup_rounds` has no effect without `lr_scale`; add lr_scale = "linear" or "sqrt"'),
    # An overlap that the sizes decide
    (("count = 2", "count = 2\npartition_size = 2500\n[partition]\noverlap = 0.1"),
     "19:1 warning: `overlap` is ignored: every worker has a `partition_size`…"),
    (("count = 2", "count = 2\npartition_size = 2500\n[partition]\noverlap = 0.1\n[[workers]]"),
     "17:18 partition_size takes 5000 of the 4500 training items: the 1 worker without one cannot share the 0 that remain; lower it, or give every worker a partition_size"),
    (("count = 2", "count = 2\npartition_size = 1000\n[[workers]]\n[partition]\noverlap = 0.1"), ""),
    # More threads than cores
    (("count = 2", "count = 2\nthreads = 5"),
     "17:11 warning: 10 threads of CPU workers for 8 cores: they will wait for one another"),
    (("count = 2", "count = 9"), "16:9 warning: 9 threads of CPU workers for 8 cores: they will wait for one another"),
    (("count = 2", 'count = 9\n[transport]\nkind = "simulated"'), ""),
    # Shares that cannot be cut
    (("validation = 500", "validation = 5000"), "6:14 `validation` holds out 5,000 of 5,000 items: none are left to train on"),
    (("validation = 500", "validation = 500\nitems = 600", "count = 2", "count = 101"),
     "17:9 warning: 101 threads of CPU workers for 8 cores: they will wait for one another\n17:9 101 workers are more than the 100 training items"),
    (("count = 2", "count = 2\npartition_size = 4501"), "17:18 `partition_size` 4,501 exceeds the 4,500 training items"),
    (("count = 2", "count = 2\npartition_size = 2250\n[[workers]]"),
     "17:18 partition_size takes 4500 of the 4500 training items: the 1 worker without one cannot share the 0 that remain; lower it, or give every worker a partition_size"),
    (("count = 2", "count = 2\npartition_size = 1000"),
     '17:18 2,500 of the 4,500 training items belong to no worker; raise or remove `partition_size`, or set uncovered = "allow" in [partition]'),
    (("count = 2", 'count = 2\npartition_size = 1000\n[partition]\nuncovered = "allow"'), ""),
    (("validation = 500", "validation = 500\nitems = 600", "count = 2", "count = 1\n[[workers]]"),
     "8:1 `batch_size` 64 is more than the 50 items of the smallest partition; at most 50, or fewer workers, or more overlap"),
    (("validation = 500", "validation = 500\nitems = 600", "lr = 0.1", "lr = 0.1\nbatch_size = 50", "count = 2", "count = 1\n[[workers]]"),
     "17:1 warning: only 50 items in the smallest partition; too few for a replica to learn much"),
    # A million workers are refused at once
    (("count = 2", "count = 1024\n[[workers]]\ncount = 1024"),
     "15:1 2,048 workers are more than 1,024, or 16,384 simulated ones\n16:9 warning: 2,048 threads of CPU workers for 8 cores: they will wait for one another"),
    # A rule says what is wrong with its settings
    (('rule = "average"', 'rule = "easgd"\nelasticity = 2'),
     "12:14 at 2 and 2 workers replicas and center diverge; stay below 1.33; 0.9 is the authors'"),
    (('rule = "average"', 'rule = "gossip"\nstyle = "pairs"\ntopology = "exponential"'), ""),
    (('rule = "average"', 'rule = "gossip"\nstyle = "pairs"\ntopology = "exponential"', "count = 2", "count = 3"),
     "13:12 3 workers cannot be paired along an exponential topology…"),
    # An optimizer beside full batches
    (('rule = "average"', 'rule = "rprop"'),
     '7:1 warning: rule "rprop" takes its own steps on full batches: [optimizer] has no effect; remove it'),
    (('rule = "average"', 'rule = "rprop"', "lr = 0.1\n", ""),
     '7:1 rule "rprop" takes its own steps on full batches: [optimizer] has no effect; remove it'),
    (('rule = "average"', 'rule = "rprop"', '[optimizer]\nname = "sgd"\nlr = 0.1\n', ""), ""),
    (('rule = "average"', 'rule = "rprop"\nlr_scale = "sqrt"', '[optimizer]\nname = "sgd"\nlr = 0.1\n', ""),
     '9:1 `lr_scale` has no effect on the steps of "rprop"…'),
    (('[optimizer]\nname = "sgd"\nlr = 0.1\n', ""),
     '1:1 the job has no [optimizer] table; add one, for example name = "sgd" and lr = 0.1'),
    # Sizes of partitions
    (("[stop]", '[partition]\norder = "by-group"\n[stop]'), '14:9 order = "by-group" needs the column of the groups; add `group` to [dataset]'),
    (("[stop]", "[partition]\nsize_alpha = 1\n[stop]"), ""),
    (("[stop]", "[partition]\nsize_alpha = 1\noverlap = 0.5\n[stop]"),
     "15:1 `overlap` sets the sizes of partitions, and so does `size_alpha`; remove it"),
    (("[stop]", "[partition]\nsize_alpha = 1\n[stop]", "count = 2", "count = 2\npartition_size = 20"),
     "…`partition_size` sets the size of a partition, and so does `size_alpha`; remove it"),
    # Workers that sit rounds out
    (('rule = "average"', 'rule = "average"\nclients = 3'), "12:11 `clients` draws 3 of 2 workers; lower it, or add workers"),
    (('rule = "average"', 'rule = "average"\nclients = 0.5'), ""),
    (('rule = "average"', 'rule = "gossip"\nclients = 1'),
     '12:1 under rule "gossip" replicas differ, and a worker that sits rounds out needs the common network; use `average`'),
    (('rule = "average"', 'rule = "average"\nclients = 1\nramp_workers = 2'),
     "13:1 `ramp_workers` and `clients` both choose the workers of a round; keep one"),
    (('rule = "average"', 'rule = "average"\nclient_sampling = "items"'),
     "12:1 `client_sampling` has no effect: all workers train; add `clients`"),
    (('rule = "average"', 'rule = "average"\nclients = 1\nclient_sampling = "items"'),
     '13:19 warning: items count twice: for the chance of a client and for its weight; use weights = "equal"'),
    (('rule = "average"', 'rule = "average"\nclients = 1\nclient_sampling = "items"\nweights = "equal"'), ""),
    (("[stop]", "[transport]\navailability = [0.5, 0.5, 0.5]\n[stop]"), "14:16 `availability` has 3 values for 2 workers; give one or 2…"),
    (("[stop]", "[transport]\navailability = [0.5]\n[stop]"), ""),
    (("[stop]", "[transport]\navailability = [[1, 0], 0.5]\n[stop]"), ""),
    (("[stop]", "[transport]\navailability = [[0, 0]]\n[stop]"),
     "14:17 a worker that can never be reached has no use: give it a chance of 0.001 or more in some round"),
    (("[stop]", "[transport]\navailability = [0.5, 2]\n[stop]"), "14:22 expected a chance from 0 to 1, or a list of chances, one for each round"),
    (("[stop]", "[transport]\navailability = [[0.5, true]]\n[stop]"), "14:17 expected a chance from 0 to 1, or a list of chances, one for each round"),
    # Workers that take clients in turn
    (("[stop]", "[partition]\nclients = 40\n[stop]"), ""),
    (("[stop]", '[partition]\nclients = 40\n[stop]', 'rule = "average"', 'rule = "average"\nclient_sampling = "items"\nweights = "equal"'), ""),
    (("[stop]", "[partition]\nclients = 2\n[stop]", "count = 2", "count = 3"),
     "14:11 2 clients are fewer than the 3 workers that take one each; raise it, or take fewer workers"),
    (("[stop]", "[partition]\nclients = 60_000\n[stop]"), "14:11 60,000 clients are more than the 4,500 training items"),
    (("[stop]", "[partition]\nclients = 40\noverlap = 0.5\n[stop]"),
     "15:1 `overlap` sets the sizes of partitions, and so does `clients`; remove it"),
    (("[stop]", '[partition]\nclients = 40\nredraw = "round"\n[stop]'),
     '15:1 redraw = "round" draws other items for a client each round, which contradicts `clients`: leave it out'),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "average"\nclients = 1'),
     "…`clients` in [sync] is for workers that keep their items, and with `clients` a worker takes other items in each round; keep one"),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "average"\nramp_workers = 2'),
     "…`ramp_workers` is for workers that keep their items…"),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "scaffold"'),
     'under rule "scaffold" a worker keeps its own state, and with `clients` it takes another client in each round; remove it, and give each'.join("……")),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "gossip"'),
     'under rule "gossip" a worker keeps its replica, and with `clients` it takes another client in each round'.join("……")),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "rprop"'),
     '7:1 warning: rule "rprop" takes its own steps on full batches: [optimizer] has no effect; remove it\n'
     '14:1 rule "rprop" compares the gradients of successive rounds, and with `clients` these have other items; use `average`'),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "average"\noptimizer_state = "local"'), ""),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "average"\noptimizer_state = "local"', 'name = "sgd"', 'name = "adam"'),
     '…with optimizer_state = "local" a worker keeps its moments, and with `clients` it takes another client in each round…'),
    (("[stop]", "[partition]\nclients = 40\n[stop]", 'rule = "average"', 'rule = "average"\nbuffers = "local"'),
     '…buffers = "local" goes by the items that a worker keeps, and with `clients` it takes other items in each round…'),
    (("[stop]", "[partition]\nclients = 3\n[transport]\navailability = [0.5, 0.5]\n[stop]"), "16:16 `availability` has 2 values for 3 clients; give one or 3"),
    (('rule = "average"', 'rule = "easgd"', "[stop]", "[transport]\navailability = [0.5]\n[stop]"),
     '14:1 under rule "easgd" replicas differ, and a worker that sits rounds out needs the common network; use `average`'),
    # One worker has no others
    (("count = 2", "count = 1", "[stop]", '[faults]\non_nonfinite = "exclude"\n[stop]'),
     '14:16 warning: one worker has no others to go on with: the run ends as with "stop"'),
])  # fmt: skip
def test_what_is_said(said, changes: tuple[str, ...], told: str) -> None:
    """Each line in turn; `…` is for any text."""
    assert re.fullmatch(".*".join(map(re.escape, told.split("…"))), "\n".join(said(*changes)))


@pytest.mark.parametrize(
    ("rule", "key"), [("average", "ramp_workers"), ('average"\nschedule = "post-local', "switch_round"), ("swap", "every")]
)
def test_a_change_comes_before_the_end(said, rule: str, key: str) -> None:
    line = 12 + rule.count("\n")
    (warning,) = said('rule = "average"', f'rule = "{rule}"\n{key} = 4')
    assert warning == f"{line}:1 warning: `{key}` = 4 rounds, but the run ends after 3; lower it, or raise `rounds`"
    assert said('rule = "average"', f'rule = "{rule}"\n{key} = 3') == []


def test_gradient_averaging_needs_equal_iterations(said) -> None:
    bsp = ('rule = "average"', 'rule = "bsp"')
    assert said(*bsp) == []
    assert said(*bsp, "count = 2", "count = 2\n[[workers]]\niterations = 20") == [
        '18:14 rule "bsp" needs equal `iterations` for all workers, not 10 and 20'
    ]
    assert said(*bsp, "iterations = 10", "passes = 1") == [
        '12:1 rule "bsp" synchronizes after each iteration: it cannot count a round in passes; use `iterations`'
    ]
    assert said(*bsp, "count = 2", "count = 2\npasses = 2") == [
        '17:1 rule "bsp" synchronizes after each iteration: it cannot count a round in passes; use `iterations`'
    ]


def test_an_end_is_certain(said) -> None:
    limits = "add `rounds`, `item_iterations`, `seconds` or `patience`"
    assert said("rounds = 3", "") == [f"13:1 [stop] has no limit; {limits}"]
    assert said("rounds = 3", "accuracy = 0.9") == [f"13:1 a target alone may never be reached; {limits}"]
    for limit in ("rounds = 1", "item_iterations = 1", "seconds = 1", "patience = 1"):
        assert said("rounds = 3", limit) == []


def test_targets_can_be_judged(said) -> None:
    unseen = "judges the mixed network on held-out items, but `validation` is 0; hold items out: `validation` in [dataset]"
    for condition in ("loss = 1", "accuracy = 0.9", "patience = 3"):
        assert said("validation = 500", "", "rounds = 3", f"rounds = 3\n{condition}") == [
            f"15:1 `{condition.split()[0]}` {unseen}"
        ]
    assert said('"blobs"', '"sine"', "rounds = 3", "rounds = 3\naccuracy = 0.9") == [
        "15:1 the task `regression` has no accuracy; use `loss`"
    ]
    assert said("rounds = 3", 'rounds = 3\naccuracy = 0.9\n[task]\nkind = "autoencoder"') == [
        "15:1 the task `autoencoder` has no accuracy; use `loss`"
    ]


def test_targets_of_metrics_that_no_network_reaches(said) -> None:
    """Accuracies above 1 are refused, too."""
    task = '\n[task]\nmetrics = ["f1", "mcc", "calibration_error"]'
    assert said("rounds = 3", f"rounds = 3\nat_least = {{ f1 = 1.5, mcc = 1.0 }}{task}") == [
        "15:19 the target 1.5 cannot be reached: `f1` is never above 1"
    ]
    assert said("rounds = 3", f"rounds = 3\nat_most = {{ calibration_error = -0.1 }}{task}") == [
        "15:33 the target -0.1 cannot be reached: `calibration_error` is never below 0"
    ]
    numbers = '\n[task]\nmetrics = ["r2", "rmse"]'
    sine = ('"blobs"', '"sine"')
    assert said(*sine, "rounds = 3", f"rounds = 3\nat_least = {{ r2 = -5.0 }}\nat_most = {{ rmse = 1e9 }}{numbers}") == []
    assert len(said(*sine, "rounds = 3", f"rounds = 3\nat_least = {{ r2 = 1.1 }}\nat_most = {{ rmse = -1 }}{numbers}")) == 2


def test_balanced_sampling_names_the_task(said, tmp_path: Path) -> None:
    np.savez(tmp_path / "l.npz", inputs=np.zeros((300, 3), np.float32), targets=np.zeros((300, 2), bool))
    labels = 'kind = "npz"\npath = "l.npz"\nvalidation = 100\n'
    found = said(
        SYNTHETIC,
        labels,
        "rounds = 3",
        'rounds = 3\n[partition]\nsampling = "balanced"\n[task]\nkind = "multi-label"',
    )
    assert '16:1 sampling = "balanced" goes by classes, one of each item, and the task is multi-label; remove it' in found


TABLE = """\
a,b,kind,one,two
1,2,lo,0,1
2,3,mid,1,0
3,1,hi,0,1
4,1,lo,1.5,-3.5
"""


@pytest.mark.parametrize(("dataset", "task", "words"), [
    ('target = "kind"', "class_weights = { hii = 2.0 }", "20:19 the data set has no class `hii`; did you mean `hi`?"),
    ('target = "kind"\nclasses = ["lo", "hi"]', "class_weights = { mid = 2.0 }", "no class `mid`; it has lo, hi"),
    ('target = ["one", "two"]', 'kind = "multi-label"', '"multi-label" is for targets 0 and 1, and one is 1.5'),
    ('target = "two"\ntest_path = "t.csv"', 'loss = "poisson"', '"poisson" is for counts, and a target is -3.5'),
    ('target = ["one", "two"]\nstandardise_target = true', 'kind = "multi-label"',
     '"multi-label" is for 0 and 1, and these are standardised; set standardise_target = false in [dataset]'),
])  # fmt: skip
def test_targets_of_a_table_that_do_not_fit_the_task(said, tmp_path: Path, dataset: str, task: str, words: str) -> None:
    """`validate` reads the rows anyway, so it compares their classes and numbers with [task]."""
    (tmp_path / "t.csv").write_text(TABLE)
    columns = 'path = "t.csv"\ninputs = ["a", "b"]\nvalidation = 1\n'
    changes = (SYNTHETIC, f'kind = "csv"\n{columns}{dataset}\n')
    found = said(*changes, "count = 2", f"count = 2\n[task]\n{task}")
    assert [one for one in found if words in one], found


def test_a_mean_for_each_channel(said, tmp_path: Path) -> None:
    np.savez(tmp_path / "i.npz", inputs=np.zeros((9, 3, 4, 4), np.uint8), targets=np.arange(9) % 3)
    images = 'kind = "npz"\npath = "i.npz"\nvalidation = 1\nmean = [0.5]\ndeviation = [0.2]\n'
    found = said(SYNTHETIC, images)
    assert "7:1 `mean` has 1 number, and images have 3 channels; give one for each" in found


def test_augmented_items_are_images_and_torchvision_changes_them(said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "i.npz", inputs=np.zeros((300, 3), np.float32), targets=np.arange(300) % 3)
    monkeypatch.setattr("partrain.job.contradictions.find_spec", lambda name: None)
    assert [
        line
        for line in said(SYNTHETIC, 'kind = "npz"\npath = "i.npz"\nvalidation = 90\naugment = ["flip"]\n')
        if "augment" in line
    ] == [
        "7:1 `augment` needs torchvision, which is not installed; pip install 'partrain[vision]'",
        "7:1 `augment` is for images (channels, height, width), and items are (3,); remove it",
    ]


def test_a_schedule_has_an_end(said) -> None:
    todo = "needs the length of the run, which [stop] does not imply; add `horizon` to [optimizer], or `rounds` or `item_iterations` to [stop]"
    seconds = ("rounds = 3", "seconds = 3")
    for schedule in "linear", "step", "polynomial", "exponential", "one-cycle":
        table = "lr = 0.1", f'lr = 0.1\nschedule = "{schedule}"'
        assert said(*seconds, *table) == [f"10:12 `schedule` {todo}"]
        assert said(*table) == []
    assert said(*seconds, "lr = 0.1", "lr = 0.1\nwarmup = 0.1") == [f"10:10 `warmup` {todo}"]
    assert said(*seconds, "lr = 0.1", "lr = 0.1\nwarmup = 0.1\nhorizon = 1000") == []
    assert said("lr = 0.1", "lr = 0.1\nwarmup = 0.1") == []


def test_a_precision_the_processor_emulates(said, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("rounds = 3", 'rounds = 3\n[engine]\nprecision = "bfloat16"')
    monkeypatch.setattr("partrain.job.contradictions.cpu_has_bfloat16", lambda: False)
    (warning,) = said(*asked)
    assert warning == "16:13 warning: this machine's CPU has no bfloat16: CPU workers emulate it, and are slower than in float32"
    monkeypatch.setattr("partrain.job.contradictions.cpu_has_bfloat16", lambda: True)
    assert said(*asked) == []


def test_a_device_that_is_not_there(said, monkeypatch: pytest.MonkeyPatch) -> None:
    todo = "give --set 'workers.0.device=\"cpu\"', or run the job on a machine that has it"
    assert said("count = 2", 'device = "cuda"') == [f"16:10 no device cuda on this machine (devices: cpu); {todo}"]
    monkeypatch.setattr("partrain.system.accelerator._cuda_count", lambda visible: 2)
    assert said("count = 2", 'device = "cuda:2"') == [
        f"16:10 no device cuda:2 on this machine (devices: cpu, cuda:0, cuda:1); {todo}"
    ]
    assert said("count = 2", 'device = "gpu"') == [
        f"16:10 no device gpu on this machine (devices: cpu, cuda:0, cuda:1); did you mean cuda? Or {todo}"
    ]
    assert "--set '~workers.1'" in said("count = 2", 'count = 2\n[[workers]]\ndevice = "cuda:7"')[0]
    assert said("count = 2", 'device = "cpu:0"')[0].startswith("16:10 no device cpu:0 on this machine")
    assert said("count = 2", 'device = "cuda:1"') == said("count = 2", 'device = "cuda"\ncount = 3') == []


def test_a_file_that_is_missing(said, tmp_path: Path) -> None:
    idx = 'kind = "idx"\ninputs = "images.idx"\ntargets = "labels.idx"'
    (problem,) = said('kind = "synthetic"\nfunction = "blobs"', idx)
    assert problem.startswith("5:10 ")
    assert "images.idx" in problem


def test_all_at_once(said) -> None:
    found = said(
        "validation = 500", "", "iterations = 10", "", "rounds = 3", "accuracy = 0.9", "count = 2", 'device = "cuda"\nlr = 0.1'
    )
    assert [line.split()[0] for line in found] == ["10:1", "13:1", "14:1", "16:10", "17:1"]


def test_a_momentum_that_the_local_optimizer_does_not_have(said) -> None:
    rule = ('rule = "average"', 'rule = "fednova"\nlocal_momentum = 0.9\noptimizer_state = "reset"')
    assert said(*rule, "lr = 0.1", "lr = 0.1\nmomentum = 0.9") == []
    (warning,) = said(*rule)
    assert warning.startswith("12:18 warning: the local optimizer has another momentum, 0: ")


def test_unequal_work_without_its_momentum(said) -> None:
    rule, momentum = ('rule = "average"', 'rule = "fednova"'), ("lr = 0.1", "lr = 0.1\nmomentum = 0.9")
    unequal = ("count = 2", "count = 1\n[[workers]]\niterations = 30")
    assert said(*rule, *unequal) == said(*rule, *momentum) == [], "no momentum, or equal work"
    (warning,) = said(*rule, *momentum, *unequal)
    assert warning.endswith(
        "warning: the optimizer's momentum, 0.9, is left out of the amount of work: the bias towards more work stays; "
        'set local_momentum = 0.9 and optimizer_state = "reset"'
    )
    counted = 'rule = "fednova"\nlocal_momentum = 0.9\noptimizer_state = "reset"'
    assert said(rule[0], counted, *momentum, *unequal) == []
    assert len(said(rule[0], 'rule = "fednova"\noptimizer_state = "reset"', *momentum, *unequal)) == 1
    assert said(rule[0], 'rule = "fednova"\noptimizer_state = "local"', *momentum, *unequal) == []
    (warning,) = said(*rule, *unequal, '"sgd"', '"adam"')
    assert 'with "adam" the bias towards more work stays' in warning
    assert len(said(*rule, *momentum, "iterations = 10", "passes = 1", "count = 2", "partition_size = 500\n[[workers]]")) == 1


def test_workers_that_are_not_one_with_all_items(said) -> None:
    rprop = ('rule = "average"', 'rule = "rprop"', '[optimizer]\nname = "sgd"\nlr = 0.1\n', "")
    half = ("count = 2", "count = 2\n[partition]\noverlap = 0.5")
    (warning,) = said(*rprop, *half)
    assert "warning: partitions overlap by 1,500 items, which count twice: so these workers do something else than one" in warning
    assert said(*rprop, half[0], half[1].replace("2", "1", 1)) == said(*half) == []
    assert said(*rprop, "count = 2", "count = 7") == [], "sizes are rounded up"
    sizes = ("count = 2", "partition_size = 1500\n[[workers]]\npartition_size = 3000")
    assert said(*rprop, *sizes) == []
    (warning,) = said('rule = "average"', 'rule = "rprop"\nweights = "equal"', *rprop[2:], *sizes)
    assert "warning: items of partitions of 1,500 count more than those of 3,000" in warning
    assert said('rule = "average"', 'rule = "rprop"\nweights = "equal"', *rprop[2:]) == []


@pytest.mark.parametrize(
    ("rule", "warned"),
    [("easgd", True), ("async", True), ("threshold", True), ('threshold"\ncombine = "mean', False), ("bsp", False)],
)
def test_weights_that_have_no_say(said, rule: str, warned: bool) -> None:
    found = said('rule = "average"', f'rule = "{rule}"\nweights = "equal"')
    assert [line.partition(" ")[2] for line in found] == [
        f'warning: rule "{rule}" does not mix parameters by `weights`: they apply to moments and buffers only'
    ] * warned


def test_a_rule_that_shares_its_numbers_is_for_processors(said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partrain.system.accelerator._cuda_count", lambda visible: 1)
    hogwild = ('rule = "average"', 'rule = "hogwild"', "count = 2", 'count = 2\n[[workers]]\ndevice = "cuda:0"')
    assert said(*hogwild) == ['18:10 under rule "hogwild" all workers train the same numbers in memory: CPU workers only']


def test_paces_are_simulated(said) -> None:
    stop = "[stop]\nrounds = 3\n"
    assert said(stop, stop + "[transport]\nspeed = [1.0, 0.5]\n") == [
        '16:1 `speed` works in simulation only; use kind = "simulated"'
    ]
    simulated = stop + '[transport]\nkind = "simulated"\n'
    assert said(stop, simulated + "speed = [1.0, 0.5]\ndelay = [0.001]\n") == []
    assert said(stop, simulated + "jitter = [0.1, 0.1, 0.1]\n") == ["17:10 `jitter` has 3 values for 2 workers; give one or 2"]


def test_inexact_sums_are_for_several_machines(said, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = "[stop]\nrounds = 3\n"
    (warning,) = said(stop, stop + "[engine]\nexact = false\n")
    assert "16:1 warning" in warning
    assert "`exact = false` has no effect on one machine" in warning
    assert said(stop, stop + "[engine]\nexact = true\n") == []
    for key, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "h",
                       "MASTER_PORT": "1", "TORCHELASTIC_ERROR_FILE": "/a/b/0/error.json"}.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    assert said(stop, stop + "[engine]\nexact = false\n") == [warning]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert said(stop, stop + "[engine]\nexact = false\n") == []


def test_a_schedule_of_the_learning_rate_over_rounds_that_change_their_length(said) -> None:
    qsr, decaying = (
        ('rule = "average"', 'rule = "average"\nschedule = "qsr"\nalpha = 0.01'),
        ("lr = 0.1", 'lr = 0.1\nschedule = "cosine"'),
    )
    (refusal,) = said(*qsr, *decaying)
    assert "rounds vary in length as the run goes, so their number does not give `schedule` its share of the run" in refusal
    (refusal,) = said('rule = "average"', 'rule = "average"\nschedule = "qsr"\nalpha = 0.01\nswa = 0.5')
    assert "does not give `swa` its share of the run" in refusal
    post_local = 'rule = "average"', 'rule = "average"\nschedule = "post-local"\nswitch_round = 2\nswa = 0.5'
    assert said(*post_local, *decaying) == []
    assert said(*qsr) == []
    assert said(*decaying) == []
    assert said(*qsr, *decaying, "rounds = 3", "rounds = 3\nitem_iterations = 9000") == []


def test_a_wrong_value_hides_no_contradiction(said) -> None:
    """What does not depend on it is said with it."""
    crowd = ("validation = 500", "validation = 500\nitems = 600", "count = 2", "count = 101")
    wrong = ("lr = 0.1", 'lr = "fast"', "rounds = 3", "rounds = true")
    found = [line for line in said(*crowd, *wrong, "iterations = 10", "iterations = 10\npasses = 1") if "warning" not in line]
    assert found == [
        '10:6 `lr`: expected a number, got the string "fast"',
        "14:1 [sync] has both `iterations` and `passes`; keep one",
        "16:10 `rounds`: expected an integer, got true",
        "18:9 101 workers are more than the 100 training items",
    ]
    assert said("lr = 0.1", "lr = 0", "count = 2", "count = 2\npartition_size = 1000") == [
        "9:6 `lr`: expected more than 0, got 0",
        "17:18 2,500 of the 4,500 training items belong to no worker; raise or remove `partition_size`, or set "
        'uncovered = "allow" in [partition]',
    ]
    found = [line for line in said(*crowd, "[stop]\nrounds = 3\n", "") if "warning" not in line]
    assert found == [
        "1:1 missing table [stop]; add [stop] and below it rounds = 100",
        "15:9 101 workers are more than the 100 training items",
    ]


JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.toml"))


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_a_wrong_value_is_all_that_is_wrong(job: Path) -> None:
    """No check takes it for another one: each value of a sound job in turn is a date."""
    data, sound = tomllib.loads(job.read_text()), {problem.message for problem in problems(job)}
    for path in _places(data):
        if path[0] in ("model", "dataset", "task") and ":" in str(data[path[0]].get("name")):
            continue  # arguments of the user's own code may be dates
        changed = deepcopy(data)
        table = reduce(lambda table, key: table[key], path[:-1], changed)
        table[path[-1]] = date(2026, 11, 22)
        with pytest.raises(BadJob) as caught:
            parse(as_toml(changed), job.parent, "job.toml", local=True)
        assert isinstance(caught.value, Rejected)
        assert len({problem.message for problem in caught.value.problems} - sound) == 1, path


def _places(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if isinstance(data, dict):
            yield (*path, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*path, key))


FAULTS = ("[stop]", "[faults]\n{}\n[stop]")


@pytest.mark.parametrize(("sync", "reason"), [
    ('rule = "gossip"', "each worker keeps a network of its own, and there is no mean to leave a worker out of"),
    ('rule = "swap"', "each worker keeps a network of its own, and there is no mean to leave a worker out of"),
    ('rule = "async"', "its workers do not mix at one moment"),
    ('rule = "easgd"\nasynchronous = true', "its workers visit the center one by one"),
])  # fmt: skip
def test_rules_without_a_common_mean_exclude_no_worker(said, sync, reason):
    name = sync.split('"')[1]
    table = FAULTS[1].format('on_nonfinite = "exclude"')
    told = said('rule = "average"', sync, FAULTS[0], table)
    message = f'"exclude" has no meaning under rule = "{name}": {reason}; use "stop"'
    assert any(message in one and "warning" not in one for one in told), told
    assert not any("exclude" in one for one in said('rule = "average"', 'rule = "easgd"', FAULTS[0], table))


@pytest.mark.parametrize(("sync", "reason"), [
    ('rule = "bsp"', "workers mix gradients"),
    ('rule = "rprop"', "workers mix gradients"),
    ('rule = "hogwild"', "all workers change one vector"),
])  # fmt: skip
def test_rules_without_updates_have_no_bound_of_them(said, sync, reason):
    told = said('rule = "average"', sync, FAULTS[0], FAULTS[1].format("max_update_norm = 2.0"))
    assert any(f"{reason}: no worker has its own update to bound" in one for one in told), told


@pytest.mark.parametrize("bound", ["0", "-1.0", "inf", "nan", "true"])
def test_a_bound_of_updates_is_a_positive_number(said, bound):
    assert said(*FAULTS[:1], FAULTS[1].format(f"max_update_norm = {bound}"))


ROUND_SECONDS = "[stop]", "[faults]\nround_seconds = 0.5\n[stop]"


@pytest.mark.parametrize(("changes", "reason"), [
    (('rule = "average"', 'rule = "bsp"'),
     'under rule "bsp" `round_seconds` cannot cap a round: its workers meet after each iteration'),
    (('rule = "average"', 'rule = "average"\nschedule = "overhead"'),
     'schedule = "overhead" already decides the iterations of a round'),
    (('rule = "average"', 'rule = "async"\npaced = true'), "`paced` already gives slower workers fewer iterations"),
    (("iterations = 10", "passes = 1"), "`round_seconds` caps iterations, and a round is counted in `passes`; use `iterations`"),
    (("count = 2", "count = 2\n[[workers]]\npasses = 1"), "`round_seconds` caps iterations, and a round is counted in `passes`"),
    (("iterations = 10", "iterations = 1"), "`round_seconds` caps iterations, and a round has only one; raise `iterations`"),
])  # fmt: skip
def test_rounds_that_cannot_be_capped(said, changes: tuple[str, str], reason: str) -> None:
    (line,) = said(*ROUND_SECONDS, *changes)
    assert reason in line
    assert "warning" not in line


@pytest.mark.parametrize("rule", ["average", "diloco", "easgd", "async", "hogwild", "gossip", "fednova", "slowmo"])
def test_rounds_that_can_be_capped(said, rule: str) -> None:
    assert not [line for line in said(*ROUND_SECONDS, 'rule = "average"', f'rule = "{rule}"') if "round_seconds" in line]


@pytest.mark.parametrize(("changes", "reason"), [
    (('rule = "average"', 'rule = "async"'), 'under rule "async" no worker waits for another'),
    (('rule = "average"', 'rule = "bsp"'), 'under rule "bsp" it cannot set iterations: its workers meet after each iteration'),
    (("iterations = 10", "iterations = 1"), "a round has only one iteration of each worker: raise `iterations`"),
    (("count = 2", "count = 2\npartition_size = 4000"), "`balance` sets the sizes of partitions, and [[workers]] has `partition_size`"),
    (("[partition]", "[faults]\nround_seconds = 0.5\n[partition]"), "both set the iterations of a round"),
])  # fmt: skip
def test_workers_that_cannot_be_balanced(said, changes: tuple[str, str], reason: str) -> None:
    lines = said("[stop]", '[partition]\nbalance = "rate"\n[stop]', *changes)
    assert any(reason in line for line in lines), lines


def test_cores_of_workers(said) -> None:
    assert said("count = 2", 'count = 2\ncpus = "0-1"') == said("count = 2", 'count = 2\ncpus = "0,3-4,7"\nthreads = 2') == []
    assert said("count = 2", 'count = 2\ncpus = "7-8"')[0].startswith("17:8 this process may not use core 8 (cores: 0, 1, 2")
    assert said("count = 2", 'count = 2\ncpus = "0-2"') == [
        "17:8 3 cores cannot be dealt out equally to 2 processes; name as many for each"
    ]
    assert "2 threads for 1 core of each process" in said("count = 2", 'count = 2\ncpus = "0-1"\nthreads = 2')[0]
    assert "they have no cores" in said("count = 2", 'count = 2\ncpus = "0-1"\n[transport]\nkind = "simulated"')[0]


def test_batches_of_a_groups_own(said) -> None:
    assert said("count = 2", "count = 2\nbatch_size = 128") == []
    assert "`batch_size` 9,999 is more than" in said("count = 2", "count = 2\nbatch_size = 9999")[0]
    assert any(
        "`batch_size` has no effect on full batches" in line
        for line in said('"average"', '"rprop"', "count = 2", "count = 2\nbatch_size = 8")
    )


def test_capped_rounds_and_other_tables(said) -> None:
    """The learning rate's schedule may not end with the rounds; unequal work matters to rules that compensate for it."""
    (refusal,) = said(*ROUND_SECONDS, "lr = 0.1", 'lr = 0.1\nschedule = "cosine"')
    assert "rounds vary in length as the run goes" in refusal
    adam = 'rule = "average"', 'rule = "fednova"', '"sgd"', '"adam"'
    assert "the bias towards more work stays" in said(*ROUND_SECONDS, *adam)[0]
    assert said(*adam) == []
