"""Every sync rule on MNIST to 97 % of held-out items: two real workers, many simulated ones, one slow among four.

    python benchmarks/rules.py real                two worker processes, wall-clock seconds, seeds in turn: on an idle machine only
    python benchmarks/rules.py simulated 4 8       so many simulated workers, simulated seconds (an iteration takes 1 ms, each
                                                   message or meeting 0.3 ms): the same figures on any machine of one kind
    python benchmarks/rules.py straggler           four simulated workers, then one of them four times slower

Names of rules behind any of these: of these only.

One budget for all rules but rprop: 320,000 item-iterations (more than four workers: 80,000 each), over which the learning rate warms
up (a tenth) and falls linearly to zero; rprop, whose full batches take some fifty times the work, has 20 rounds of 10. For each rule
and number of workers the learning rate (of rprop the step size) is the best of 1/2, 1 and 2 times the one of its job in jobs/rules, by
simulated seconds to the target on seed 1000 (of hogwild on two real workers by real ones); where the best is the smallest or the
largest, it is halved or doubled further as long as that helps, four times at most. All workers have equal work, those of fednova, too.
Then the seeds 0, 1, ... are run.
"""

from __future__ import annotations

import math
import statistics
import sys
import tomllib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from runs import machine

from partrain.bench import Case, outcomes, spread
from partrain.bench.compare import Facts, facts
from partrain.job.load import LoadedJob, load

JOBS = Path(__file__).parents[1] / "jobs" / "rules"
RULES = ("average", "bsp", "slowmo", "diloco", "fednova", "easgd", "easgd-async", "gossip", "push-sum", "async", "hogwild",
         "threshold", "topk", "fp16", "choco", "sparseloco", "swap", "rprop")  # fmt: skip
SLOWED = ("average", "bsp", "easgd", "easgd-async", "gossip", "push-sum", "async", "hogwild")
BUDGET, SHARE, CADENCE = 320_000, 80_000, 12_800
"""Item-iterations of a run, at least so many for each worker, and between two judgements."""
FACTORS, FURTHER = (0.5, 1.0, 2.0), 4
HEAD = ("rule", "workers", "lr", "reached", "seconds to target", "item-iterations to target", "judged", "test",
        "bytes / round / worker", "waiting", "staleness", "distance")  # fmt: skip


def settings(name: str, workers: int, factor: float, simulated: bool, speed: str = "[1.0]") -> tuple[list[str], float]:
    """What is changed in a rule's job, and the learning rate (of rprop the step size) that comes out."""
    job = tomllib.loads((JOBS / f"{name}.toml").read_text())
    sync = job["sync"]
    full = sync["rule"] == "rprop"
    rate = factor * (sync["step"] if full else job["optimizer"]["lr"])
    iterations = sync.get("iterations", 10)
    visits = sync.get("visits", 1)
    per_round = 55_000 * iterations if full else workers * iterations * visits * job["optimizer"]["batch_size"]
    limit = "rounds=20" if full else f"item_iterations={max(BUDGET, workers * SHARE)}"
    changes = [
        f"sync.step={rate}" if full else f"optimizer.lr={rate}",
        f"sync.iterations={iterations}",
        f'workers=[{{device="cpu", count={workers}}}]',
        f"stop={{accuracy=0.97, {limit}, judge_every={max(1, round(CADENCE / per_round))}}}",
    ]
    if name == "async":
        changes.append(f"sync.outer_lr={1 / workers}")
    if simulated:
        changes.append(f'transport={{kind="simulated", delay=[0.0003], speed={speed}}}')
    return changes, rate


def case(name: str, changes: list[str], label: str = "") -> Case:
    """A rule's job with these changes."""
    return Case(label or name, partial(changed, name, changes))


def changed(name: str, changes: list[str], seed: int) -> LoadedJob:
    return load(JOBS / f"{name}.toml", [*changes, f"seed={seed}"])


def train(cases: Sequence[Case], seeds: Iterable[int]) -> dict[str, list[Facts]]:
    """What came of every case's runs, by label."""
    found: dict[str, list[Facts]] = {one.label: [] for one in cases}
    for one, outcome in outcomes(cases, seeds, lambda text: print(text, file=sys.stderr)):
        found[one.label].append(facts(outcome.folder))
    return found


def tuned(name: str, workers: int, simulated: bool = True) -> float:
    """The factor whose run on a seed of its own reaches the target first, or else comes nearest."""
    merits = {factor: merit(name, workers, factor, simulated) for factor in FACTORS}
    for _ in range(FURTHER):
        best = min(merits, key=merits.__getitem__)
        if min(merits) < best < max(merits):
            break
        further = best / 2 if best == min(merits) else best * 2
        merits[further] = merit(name, workers, further, simulated)
    return min(merits, key=merits.__getitem__)


def merit(name: str, workers: int, factor: float, simulated: bool) -> tuple[float, float]:
    """How soon, or else how nearly, a factor gets there; less is better."""
    label = f"{name} at {factor:g} times its learning rate"
    (run,) = train([case(name, settings(name, workers, factor, simulated)[0], label)], [1000])[label]
    return float(run["seconds_to_target"] or math.inf), -float(run["accuracy"] or 0.0)


def row(name: str, workers: int, rate: float, found: list[Facts]) -> str:
    """A line of the table."""

    def values(key: str) -> list[float]:
        return [float(value) for one in found if (value := one[key]) is not None]

    def middle(key: str, digits: str) -> str:
        return f"{statistics.median(values(key)):{digits}}" if values(key) else "-"

    reached = sum(one["status"] == "reached" for one in found)
    whole = reached == len(found)
    cells = [name, str(workers), f"{rate:g}", f"{reached}/{len(found)}",
             spread(values("seconds_to_target")) if whole else "not reached",
             spread(values("items_to_target"), ",.0f") if whole else "-", spread(values("accuracy"), ".4f"),
             middle("test_accuracy", ".4f"), middle("bytes_per_round", ",.0f"), middle("waiting", ".0%"), middle("staleness", ".2f"),
             middle("distance", ".1e")]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def head(title: str, seeds: int) -> None:
    print(f"\n{title}; {seeds} seeds; {machine()}\n\n| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)


def real(seeds: int, rules: Sequence[str]) -> None:
    """Two processes: rules in turn, seeds outermost, so that what the machine does meanwhile falls on all alike."""
    head("Two real workers, wall-clock seconds", seeds)
    # Steps that nobody locks collide on real workers only: what is best where they do not is too fast.
    plans = {name: settings(name, 2, tuned(name, 2, simulated=name != "hogwild"), simulated=False) for name in rules}
    found = train([case(name, changes) for name, (changes, _) in plans.items()], range(seeds))
    for name, (_, rate) in plans.items():
        print(row(name, 2, rate, found[name]), flush=True)


def simulated(counts: list[int], seeds: int, rules: Sequence[str]) -> None:
    for workers in counts:
        head(f"{workers} simulated workers, simulated seconds", seeds)
        for name in rules:
            changes, rate = settings(name, workers, tuned(name, workers), simulated=True)
            print(row(name, workers, rate, train([case(name, changes)], range(seeds))[name]), flush=True)


def straggler(seeds: int, rules: Sequence[str]) -> None:
    """What a worker four times slower costs: seconds to target with it over those without, seed by seed."""
    head("Four simulated workers, all alike and with one of them four times slower", seeds)
    for name in rules:
        factor = tuned(name, 4)
        alike, rate = settings(name, 4, factor, simulated=True)
        slow, _ = settings(name, 4, factor, simulated=True, speed="[1.0, 1.0, 1.0, 0.25]")
        found = train([case(name, alike), case(name, slow, f"{name}, one slow")], range(seeds))
        for label, runs in found.items():
            print(row(label, 4, rate, runs), flush=True)
        times = [[one["seconds_to_target"] for one in runs] for runs in found.values()]
        ratios = [float(slowed) / float(even) for even, slowed in zip(*times, strict=True) if slowed and even]
        print(f"<!-- {name}: slowed down {spread(ratios)} times -->", flush=True)


def main(words: list[str]) -> None:
    numbers = [int(word) for word in words if word.isdigit()]
    named = [name for name in RULES if name in words]
    match words[0] if words else "":
        case "real":
            real(numbers[0] if numbers else 5, named or RULES)
        case "simulated":
            simulated(numbers or [4, 8, 16, 64], 5, named or RULES)
        case "straggler":
            straggler(numbers[0] if numbers else 5, named or SLOWED)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
