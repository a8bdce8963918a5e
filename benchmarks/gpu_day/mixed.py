"""MNIST by one device alone, by a device beside CPU workers, and by several workers on one device: seconds to a target and items per second.

The mixed network is judged. All runs of a job have the same budget of item-iterations, over which the learning rate falls.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from balance import settled

from benchmarks.gpu_day.day import JOBS, Case, Setting, cpu_workers, engine_has, events, summary

ITERATIONS = 50
"""Local iterations of a round before they are balanced: few cannot be divided finely."""
BESIDE = 2, 4, 8, 14
"""Numbers of CPU workers beside the device."""
SHARED = 2, 4
"""Numbers of workers on one device."""


def perceptron(setting: Setting) -> Iterator[Case]:
    """An MLP, to the target and by the items of its job: 60 rounds of 2 * 640 + 6,400."""
    return _cases(setting, "mnist-mixed", 0.977, 460_800)


def convolutions(setting: Setting) -> Iterator[Case]:
    """A CNN, by the items of its job: 250 rounds of 1,280. The job has no target."""
    return _cases(setting, "mnist-cnn", 0.985, 320_000)


def _cases(setting: Setting, job: str, target: float, budget: int) -> Iterator[Case]:
    device = f'{{device="{setting.device}"}}'

    def alone() -> dict[str, Any]:
        return _trained(setting, job, "alone", device, target, budget)

    def beside(count: int) -> dict[str, Any]:
        return _trained(setting, job, f"beside-{count}", f"{device}, {cpu_workers(setting, count)}", target, budget)

    def shared(count: int) -> dict[str, Any]:
        return _trained(setting, job, f"shared-{count}", f'{{device="{setting.device}", count={count}}}', target, budget)

    yield "1 device alone", alone
    for count in (1,) if setting.small else BESIDE:
        yield f"1 device and {count} CPU workers", partial(beside, count)
    for count in () if setting.small else SHARED:
        yield f"{count} workers on one device", partial(shared, count)
    yield "CUDA graphs", partial(engine_has, "graph")


def _trained(setting: Setting, job: str, name: str, workers: str, target: float, budget: int) -> dict[str, Any]:
    """Train to the target or to the end of the budget."""
    stop = f"stop={{accuracy={target}, item_iterations={budget}, judge_every=2}}"
    sets = [f"workers=[{workers}]", f"sync.iterations={ITERATIONS}", 'partition.balance="rate"', stop]
    if setting.small:
        sets[1:] = ["sync.iterations=2", 'partition.balance="rate"', "stop={rounds=4}", "dataset.validation=100"]
    run = setting.train(name, JOBS / f"{job}.toml", *sets)
    done, told = summary(run), events(run)
    rounds = [event for event in told if event["event"] == "round"]
    since = max(2, rounds[-1]["round"] // 2)
    rate, waiting = settled(told, since)
    result: dict[str, Any] = {
        "status": done["status"],
        "target": target,
        "seconds to target": done["seconds"]["train"] if done["status"] == "reached" else None,
        "startup_s": done["seconds"]["startup"],
        "accuracy": done["metrics"]["accuracy"],
        "item_iterations": done["item_iterations"],
        f"items/s from round {since} on": rate,
        "share of waiting": waiting,
        "workers": [],
    }
    for worker in done["workers"]:
        own = [event for event in rounds if event["rank"] == worker["rank"] and event["round"] >= since]
        speed = sum(event["items"] for event in own) / sum(event["compute"] for event in own)
        numbers = {
            "device": worker["device"],
            "items/s of computing": speed,
            "iterations of the last round": own[-1]["iterations"],
        }
        result["workers"].append(numbers | {"seconds": worker["seconds"]})
    return result
