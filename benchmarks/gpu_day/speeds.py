"""Three networks beside a plain torch loop on the same device, and the prediction of `plan --probe` about one more CPU worker.

The loop has the same network, items and batches. Its items lie on the device, and its optimizer is torch's own. Wanted: 1.0 or more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from balance import settled
from iteration import ROUND
from probe import was_right

from benchmarks.gpu_day.copies import steps
from benchmarks.gpu_day.day import JOBS, Case, Setting, cpu_workers, events

ROWS, FEATURES, CLASSES = 20_000, 20, 4
PICTURES = 4_096
RESNET = """
name = "resnet"
seed = 0
[model]
name = "resnet"
depth = 20
[dataset]
kind = "npz"
path = "pictures.npz"
validation = 64
[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
batch_size = 128
[sync]
rule = "average"
iterations = 10
[stop]
rounds = 40
"""


def table(setting: Setting) -> tuple[Path, list[str]]:
    """Write a table, and the job that `partrain init` makes for it. Its ensemble and batch are those of `init`."""
    folder, drawn = setting.scratch / "table", np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    rows = drawn.normal(size=(ROWS // (20 if setting.small else 1), FEATURES)).round(3)
    labels = (rows[:, :3] @ drawn.normal(size=(3, CLASSES))).argmax(1)
    lines = [",".join([*map(str, row), "abcd"[label]]) for row, label in zip(rows.tolist(), labels.tolist(), strict=True)]
    head = ",".join([*(f"x{number}" for number in range(FEATURES)), "answer"])
    (folder / "table.csv").write_text("\n".join([head, *lines, ""]), encoding="utf-8")
    job = folder / "job.toml"
    setting.partrain("init", "--from", folder / "table.csv", "--target", "answer", job, "--force")
    return job, []


def resnet(setting: Setting) -> tuple[Path, list[str]]:
    """Write pictures of noise and the job of a ResNet."""
    folder, drawn = setting.scratch / "resnet", np.random.default_rng(2)
    folder.mkdir(exist_ok=True)
    count = PICTURES // (16 if setting.small else 1)
    np.savez(
        folder / "pictures.npz",
        inputs=drawn.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8),
        targets=drawn.integers(0, 10, count),
    )
    job = folder / "job.toml"
    job.write_text(RESNET, encoding="utf-8")
    return job, ["optimizer.batch_size=8"] if setting.small else []


def gpt(setting: Setting) -> tuple[Path, list[str]]:
    """The shipped transformer, larger unless all is small."""
    return JOBS / "text-transformer.toml", [] if setting.small else [
        "model.width=256",
        "model.layers=4",
        "optimizer.batch_size=64",
    ]


Network = Callable[[Setting], tuple[Path, list[str]]]
"""Function that writes a job, and returns its file and what is changed."""
NETWORKS: dict[str, Network] = {"the table network of `partrain init`": table, "ResNet-20 at 32 x 32": resnet, "GPT on text": gpt}


def speeds(setting: Setting) -> Iterator[Case]:
    """Items per second of a whole run's settled rounds, of its worker alone, and of the loop."""

    def case(number: int, network: Network) -> dict[str, Any]:
        job, sets = network(setting)
        run = setting.train(f"speed-{number}", job, *sets, *_rounds(setting, f'[{{device="{setting.device}"}}]'))
        whole, _ = settled(events(run), 3)
        result: dict[str, Any] = {"items/s of the run": whole}
        for what in ("worker", "loop", "repeatable"):
            times = [steps(setting, job, sets, what) for _ in range(1 if setting.small else 2)]
            result[f"items/s, {what}"] = times[0]["batch"] / median(one["seconds"] for one in times)
        result |= {f"run / {what}": whole / result[f"items/s, {what}"] for what in ("loop", "repeatable")}
        return result | {
            f"worker / {what}": result["items/s, worker"] / result[f"items/s, {what}"] for what in ("loop", "repeatable")
        }

    for number, (name, network) in enumerate(NETWORKS.items()):
        if not (setting.small and number == 2):  # a transformer is timed by other parts
            yield name, partial(case, number, network)


def one_more(setting: Setting, *, count: int) -> Iterator[Case]:
    """`plan --probe` measures the job with one more worker of its last group, `count` CPU workers; two runs each tell the truth."""

    def case(number: int, network: Network) -> dict[str, Any]:
        job, sets = network(setting)
        device = f'{{device="{setting.device}"}}'

        def workers(cpus: int) -> list[str]:
            return [*sets, *_rounds(setting, f"[{device}, {cpu_workers(setting, cpus)}]"), 'partition.balance="rate"']

        cpu_workers(setting, count + 1)
        words = [word for change in workers(count) for word in ("--set", change)]
        probe = json.loads(setting.partrain("plan", job, "--probe", "--json", *words).stdout)["probe"]
        result: dict[str, Any] = {"CPU workers": count, "told": {key: probe[key] for key in ("pays", "gain") if key in probe}}
        truth: dict[int, list[float]] = {}
        for _ in range(1 if setting.small else 2):
            for cpus in (count, count + 1):
                run = setting.train(f"more-{number}-{cpus}-{len(truth.get(cpus, []))}", job, *workers(cpus))
                truth.setdefault(cpus, []).append(settled(events(run), 21 if not setting.small else 2)[0])
        gain = median(truth[count + 1]) / median(truth[count])
        return result | {"gain measured": gain, "right": was_right(gain, pays=bool(probe["pays"]))}

    for number, (name, network) in enumerate(NETWORKS.items()):
        if not (setting.small and number):
            yield f"{name}, {count} and {count + 1} CPU workers", partial(case, number, network)


def _rounds(setting: Setting, workers: str) -> list[str]:
    """Write the changes for a run of some rounds by these workers, judged once."""
    rounds = 4 if setting.small else 40
    stop = f"stop={{rounds={rounds}, judge_every={rounds}}}"
    return [f"workers={workers}", f'sync={{rule="average", iterations={2 if setting.small else ROUND}}}', stop]
