"""The table, and the page around it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks.audit.case import Case
from benchmarks.audit.replica import Replica
from benchmarks.audit.trainings import LEAST_MOVE

HEAD = "| what | compared with | largest absolute difference | bound | verdict |\n|---|---|---|---|---|"
PACKAGES = "partrain", "torch", "torchft", "numpy", "scikit-learn", "onnx", "onnxruntime"

PAGE = """# The audit: partrain's numbers against implementations that others wrote

`make audit` makes an environment of its own (`.venv-audit`), runs this comparison and writes this page; `benchmarks/audit/` is its code.
Python {python}, {packages}; {processor}.

{verdict}

{table}

## How it compares

Each training is a `partrain run` with worker processes over shared memory. Its network is user code in float64 whose `forward` writes the
identities of its items to a file of its process. The other implementation starts from the same parameters and trains on exactly these items
in this order, so neither the order of batches nor the count of items comes from partrain's code. The difference is the largest of the {count}
parameters at the end, read from the checkpoint by h5py; under `gossip`, `choco` and `easgd` of the network that counts, the mean or the
center. Every training must move some parameter by {least} or more. DDP, `PostLocalSGDOptimizer` and torchft run as two processes of gloo.
torchft's `Manager` is replaced by gloo's mean; its cluster of replica groups is not what is compared. Formulas are written anew from the
papers, around local steps by torch.optim.

* `network.py` also has a network with a BatchNorm, whose running statistics are compared with the parameters, and one that answers label maps.
* Rates across a resume: each round has one iteration, so the events hold each rate. The training is resumed from the checkpoint of round 17.
* Losses: the difference is the larger one of the losses of the rounds and of the parameters that their gradients led to.
* Poisoned rows: `forward` tells which rows are held out or tested on. These get huge numbers, other words, dates and classes, and other cells
  without a value. Everything that a checkpoint holds of the training must be the same to the bit; the difference counts what is not. For series
  a last run poisons one row that is trained on, too: it must differ.
* `compare`, `bench`, `report` and sweeps: their numbers against sums over events.jsonl and against the summaries, read by the `json` module alone.

## Why these bounds

* 1e-14: both sides compute the same sums in float64 in other orders. Numbers up to 2 are rounded by at most 2.2e-16 in each of 30 to 200 iterations.
* 0: counts, ratios of equal counts, and Rprop, whose steps depend on nothing but the signs of gradients.
* 1e-11: L-BFGS amplifies roundings from step to step. The row below it shows how much: torch against torch, with the items of a batch in another order.
* 5 standard deviations: balanced sampling draws items at random; 240 counts are compared with their distribution.
* 0.006: numbers that a report prints with three digits.
* The rest is computed in float32; `benchmarks/audit/commands.py` has the reason of each bound.

## Not compared

* Words of `one_hot` columns, and whether dates have a time, are those of the whole file, held-out rows included, as the job reference says of words.
  So these rows are poisoned with words that the file has elsewhere.
* Trajectories of `async`, `hogwild`, push-sum `gossip` and asynchronous `easgd`: the order of their visits depends on time. Only items are counted here;
  `tests/rules/` has their formulas on the simulated clock.
* `swap` and `sparseloco`: no package on PyPI has them. torchdistx (SlowMo) and the code of FedNova's authors are not on PyPI, either: formulas stand in.
* Schedules of `average` other than a constant number of iterations, bfloat16, CUDA, several machines.
* The compiled training of partrain's own `mlp`: the network here is user code. `tests/training/test_compiled_mlp.py` compares it with autograd.
"""


def row(case: Case, peer: str, difference: float, passes: bool) -> str:
    """Give one row of the table."""
    bound = f"{case.bound:.0e}" if case.bound else "0"
    found = f"{difference:.1e}" if difference else "0"
    return f"| {case.what} | {peer} | {found} | {bound} | {'equal' if passes else 'DIFFERENT'} |"


def verdict(comparisons: int, failed: int) -> str:
    """Say how many comparisons hold."""
    return f"{comparisons} comparisons, {failed} beyond their bounds."


def processor() -> str:
    """Name the processor: other kinds compute other last bits."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def text(rows: list[str], failed: int) -> str:
    """Give the page. It has no date, so that it changes only if a number or a version does."""
    return PAGE.format(
        python=platform.python_version(),
        packages=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        processor=processor(),
        count=len(Replica().params),
        least=LEAST_MOVE,
        verdict=verdict(len(rows), failed),
        table="\n".join([HEAD, *rows]),
    )
