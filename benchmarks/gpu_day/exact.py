"""Numbers of runs with a device: beside those of the CPU, and again with the same bits.

A job with a CPU worker and one on the device trains three rounds under each sync rule, twice, and once on CPUs alone. On the emulated device,
whose kernels are the CPU's, all runs have the same bits; on another one the same bits twice, and those of the CPU within the bounds that
the tests hold (`MET` in `tests/support/replicas.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from support.replicas import MET

from benchmarks.gpu_day.day import JOBS, Case, Setting, Wrong, error_line, summary
from partrain import checkpoint
from partrain.protocols import Rule
from partrain.rules import RULES, AnyRule

CHOOSE = {"rprop", "threshold", "sparseloco", "choco", "topk"}
"""Rules that decide by a sign, by a threshold or by size, where a last digit may count: their difference is recorded without a bound."""
FEW = ("average", "topk", "async", "hogwild")
JOB = """
name = "near"
seed = 3
[model]
name = "mlp"
hidden = [32]
batch_norm = true
{model}
[dataset]
kind = "synthetic"
function = "blobs"
items = 1400
features = 8
noise = 0.5
validation = 200
[engine]
compiled = false
[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
batch_size = 16
[sync]
rule = "average"
iterations = 3
[[workers]]
device = "{first}"
[[workers]]
device = "{second}"
[stop]
rounds = 3
judge_every = 1
[checkpoint]
commit = "every"
keep = 1000
"""


def write_job(folder: Path, first: str, second: str, model: str = "") -> Path:
    """Write the job for two workers on these devices."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "job.toml"
    file.write_text(JOB.format(first=first, second=second, model=model), encoding="utf-8")
    return file


def rules(setting: Setting) -> Iterator[Case]:
    """A case for each sync rule. A rule whose workers share one network is refused. Asynchronous rules run on the simulated transport, where their order is fixed."""
    for name in FEW if setting.small else RULES:
        yield name, partial(_rule, setting, name)


def _rule(setting: Setting, name: str) -> dict[str, Any]:
    rule: Rule = TypeAdapter(AnyRule).validate_python({"rule": name})
    if rule.shares_params:
        job = write_job(setting.scratch / f"{name}-job", "cpu", setting.device)
        words = ("run", job, "--out", setting.scratch / name, "--quiet", "--set", f'sync.rule="{name}"')
        return {"refused": error_line(setting.partrain(*words, codes=(78,)).stderr)}  # workers share memory of the CPU
    transport = [] if rule.synchronous else ['transport.kind="simulated"']

    def trained(run: str, second: str) -> Path:
        return setting.train(
            f"{name}-{run}", write_job(setting.scratch / f"{name}-{run}-job", "cpu", second), f'sync.rule="{name}"', *transport
        )

    runs = {"one": setting.device, "again": setting.device, "cpus": "cpu"}
    one, again, cpus = at_once(*(partial(trained, run, second) for run, second in runs.items()))
    require_same(one, again)
    bounded = name not in CHOOSE or setting.kind == "emulated"
    result = difference(one, cpus, bounded=bounded, same=setting.kind == "emulated")
    return (
        result
        | {"same bits twice": True}
        | {"accuracy": summary(one)["metrics"]["accuracy"], "accuracy of CPUs": summary(cpus)["metrics"]["accuracy"]}
    )


def bits(setting: Setting) -> Iterator[Case]:
    """Networks twice on the device, alone and beside a CPU worker: the same bits."""
    device = f'{{device="{setting.device}"}}'
    layouts = {"alone": f"[{device}]", "beside a CPU worker": f'[{device}, {{device="cpu"}}]'}
    jobs = {
        "mlp with dropout": (write_job(setting.scratch / "mlp", "cpu", "cpu", "dropout = 0.25"), []),
        "cnn": (JOBS / "mnist-cnn.toml", ["dataset.validation=1000"]),
        "lstm": (JOBS / "text-lstm.toml", []),
        "transformer": (JOBS / "text-transformer.toml", []),
        "transformer in bfloat16": (JOBS / "text-transformer.toml", ['engine.precision="bfloat16"']),
    }
    for name, (job, sets) in list(jobs.items())[: 1 if setting.small else None]:
        for layout, workers in layouts.items():
            changes = [*sets, f"workers={workers}", "stop={rounds=4, judge_every=2}"]
            yield f"{name}, {layout}", partial(_twice, setting, f"{name}-{layout}", job, changes)


def _twice(setting: Setting, name: str, job: Path, changes: list[str]) -> dict[str, Any]:
    one, again = at_once(*(partial(setting.train, f"{name}-{run}", job, *changes) for run in (1, 2)))
    require_same(one, again)
    return {"same bits": True, "arrays": len(arrays(one))}


def at_once(*works: Callable[[], Path]) -> list[Path]:
    """Run functions at the same time, and return their results in order."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


def arrays(run: Path) -> dict[str, Any]:
    """Read the arrays of a run's newest checkpoint."""
    return dict(checkpoint.read(run / "checkpoint.h5").arrays)


def require_same(run: Path, other: Path) -> None:
    """Raise Wrong unless the newest checkpoints of two runs have the same bits in each array."""
    one, two = arrays(run), arrays(other)
    others = [
        path
        for path in one.keys() | two.keys()
        if path not in one or path not in two or one[path].tobytes() != two[path].tobytes()
    ]
    if others:
        raise Wrong(f"{len(others)} of {len(one)} arrays differ: {', '.join(sorted(others)[:5])}")


def difference(run: Path, other: Path, *, bounded: bool = True, same: bool = False) -> dict[str, Any]:
    """Compare the networks of two runs. Raises Wrong if a number is beyond the bound, or, where they must be the `same`, if it differs."""
    one, two = ({path: x for path, x in arrays(folder).items() if path.startswith("model/")} for folder in (run, other))
    if not one or one.keys() != two.keys():
        raise Wrong(f"the networks have other arrays: {', '.join(sorted(one.keys() ^ two.keys())) or 'none at all'}")
    largest = max(float(np.abs(one[path] - two[path]).max()) for path in one)
    relative, absolute = (0.0, 0.0) if same else MET
    beyond = [path for path in one if not np.allclose(one[path], two[path], rtol=relative, atol=absolute)]
    if bounded and beyond:
        raise Wrong(f"{', '.join(beyond)}: off by {largest:.2g}, beyond {relative:g} of the number plus {absolute:g}")
    return {"largest difference": largest, "bound": [relative, absolute] if bounded else None}
