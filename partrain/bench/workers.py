"""`partrain bench --workers 1,2,4`: the same job with different numbers of CPU workers, at the same and at a scaled learning rate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from partrain.bench import Case, Row, incomplete_rows, measure, refuse_seed, spread
from partrain.display.text_table import table, wrapped
from partrain.job.load import LoadedJob, load, parse
from partrain.number_format import counted
from partrain.record.added_speed import SHORT, paid
from partrain.record.result import RunResult, SharedResult, course_of
from partrain.record.run_folder import RunFolder
from partrain.record.waiting import cause
from partrain.system.cores import usable_cores

MNIST = """\
# The default benchmark: an MLP on MNIST to 97 % of held-out items.
name = "bench-mnist"

[model]
name = "mlp"
hidden = [128]

[dataset]
name = "mnist"
validation = 2500

[optimizer]
name = "sgd"
lr = 0.2
momentum = 0.9
batch_size = 64
schedule = "linear"
warmup = 0.1

[sync]
rule = "average"
iterations = 10

[[workers]]
device = "cpu"

[stop]
accuracy = 0.97
item_iterations = 192000
"""

BUSY = 2.0
"""Ratio of the largest to the smallest gain among pairs of runs above which the machine was busy."""
CADENCE = 12_800
"""Item-iterations between two judgements, for any number of workers; a job's own `judge_every` is for one worker."""


def bench(
    job: Path | None,
    counts: Sequence[int],
    overrides: Sequence[str],
    seeds: int,
    note: Callable[[str], None],
    warn: Callable[[LoadedJob], None],
) -> dict[str, Any]:
    """Measure and return the content of the tables; after a signal, only the results of completed runs.

    The second variant scales the learning rate, if there is one, with the square root of N. Before any run, `warn` receives the job
    with the most workers.
    """
    refuse_seed(overrides)
    largest = _job(job, max(counts), "none", tuple(overrides), 0)
    warn(largest)
    variants = {"equal": "none"} | ({} if largest.job.rateless else {"scaled": "sqrt"})
    cases = {
        (name, count): Case(
            f"{counted(count, 'worker')}, {name} learning rate", partial(_job, job, count, scale, tuple(overrides))
        )
        for name, scale in variants.items()
        for count in counts
        if name == "equal" or count > 1
    }
    measured, progress = measure(
        list(cases.values()), seeds, note, lambda outcome: {"course": course_of(RunFolder(outcome.folder).events())}
    )
    rows = dict(zip(cases, measured, strict=True))
    cores = usable_cores()
    result: dict[str, Any] = {
        "cores": cores, "seeds": seeds, "has_target": largest.job.stop.has_target, "shared": None, **progress, "variants": {},
    }  # fmt: skip
    shared = None
    if not result["has_target"]:
        shared = SharedResult.of(
            RunResult.of(summary) for row in measured for summary in row.summaries if summary["status"] != "diverged"
        )
        result["shared"] = str(shared) if shared else None
    for name in variants:
        # One worker has nothing to scale: its row appears in both tables.
        mine = {count: rows[name if count > 1 else "equal", count] for count in counts}
        base = mine[min(counts)]
        result["variants"][name] = [
            _numbers(count, row, base, min(counts), cores, shared)
            for count, row in mine.items()
            if row.summaries and base.summaries
        ]
    return result


def render(result: dict[str, Any], width: int | None = None) -> list[str]:
    """Render the tables and the verdict. `width`: columns of the terminal; None: any number."""
    lines = []
    titles = {"equal": "Equal learning rate", "scaled": "Learning rate times sqrt(N) (lr_scale)"}
    for name, rows in result["variants"].items():
        head = (
            "workers",
            f"seconds to {result['shared'] or 'target'}",
            "reached",
            "items/worker",
            "items",
            "loss",
            "test acc.",
            "items/s",
            "speed-up",
            "efficiency",
        )
        lines += [
            "",
            f"{titles[name]}, {counted(result['seeds'], 'seed')}" + (", median (least-most):" if result["seeds"] > 1 else ":"),
            *table(head, [_cells(row) for row in rows], width),
        ]
    if any(row["oversubscribed"] for rows in result["variants"].values() for row in rows):
        lines += ["", f"* more workers than the {result['cores']} cores: their speed-up says nothing about more cores"]
    return [*lines[1:], *incomplete_rows(result), "", *wrapped(_verdict(result), width)]


def _job(job: Path | None, count: int, scale: str, overrides: tuple[str, ...], seed: int) -> LoadedJob:
    """Return the job with `count` CPU workers; the item-iterations between judgements are the same for any count."""
    changes = [*overrides, f"seed={seed}", f'workers=[{{device="cpu", count={count}}}]', f'sync.lr_scale="{scale}"']
    changes.append('checkpoint.commit="coalesce"')

    def made(*more: str) -> LoadedJob:
        return (
            load(job, [*changes, *more])
            if job
            else parse(MNIST, Path.cwd(), "bench-mnist", local=True, overrides=[*changes, *more])
        )

    first = made()
    sync, optimizer, stop = first.job.sync, first.job.optimizer, first.job.stop
    by_partition = sync.iterations is None or sync.full_batch or optimizer.full_batch
    if by_partition or not first.job.dataset.holds_out:
        return first  # by partition: partitions divide one whole, so a round has equally many items with any number of workers
    share = (sync.iterations or 1) * optimizer.batch_size * (sync.visits_per_worker or 1)
    cadence = stop.judge_every * share if stop.judge_every else CADENCE
    return made(f"stop.judge_every={max(1, round(cadence / (count * share)))}")


def _numbers(count: int, row: Row, base: Row, base_count: int, cores: int, shared: SharedResult | None) -> dict[str, Any]:
    """Return the numbers of a row. Speed-up is the ratio of times to the target or shared result, for each seed separately."""
    seconds, alone = _seconds(row, shared), _seconds(base, shared)
    ratios = [before / after for before, after in zip(alone, seconds, strict=False)]  # a signal may come between two rows
    complete = len(seconds) == len(row.summaries) and len(alone) == len(base.summaries)
    gains = [other / rate for rate, other in zip(base.rates, row.rates, strict=False) if rate]
    return {
        "workers": count,
        "oversubscribed": count > cores,
        "reached": len(seconds),
        "runs": len(row.summaries),
        "seconds": seconds,
        "items_per_worker": row.items_per_worker,
        "items": row.values("item_iterations"),
        "loss": [loss for summary in row.summaries if (loss := RunResult.of(summary).loss) is not None],
        "test_accuracy": row.values("test", "accuracy"),
        "items_per_second": row.rates,
        "throughput_gain": gains,
        "limits": [cause(summary) for summary in row.summaries],
        "speed_up": ratios if complete else None,
        "efficiency": [ratio * base_count / count for ratio in ratios] if complete and count <= cores else None,
    }


def _seconds(row: Row, shared: SharedResult | None) -> list[float]:
    """Return the training seconds of a row's runs to the result that all reached, or to the target."""
    if not shared:
        return [summary["seconds"]["train"] for summary in row.summaries if summary["status"] == "reached"]
    return [seconds for summary in row.summaries if (seconds := shared.seconds(summary["course"])) is not None]


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['workers']}{'*' if row['oversubscribed'] else ''}",
        spread(row["seconds"]),
        f"{row['reached']}/{row['runs']}",
        f"{statistics.median(row['items_per_worker']):,.0f}",
        f"{statistics.median(row['items']):,.0f}",
        spread(row["loss"], ".4f"),
        spread(row["test_accuracy"], ".4f"),
        spread(row["items_per_second"], ",.0f"),
        spread(row["speed_up"] or []),
        f"{statistics.median(row['efficiency']):.0%}" if row["efficiency"] else "-",
    ]


def _verdict(result: dict[str, Any]) -> list[str]:
    """State in words whether more workers paid."""
    lines = []
    for name, rows in result["variants"].items():
        how = "at equal learning rate" if name == "equal" else "with the learning rate scaled"
        for row in rows[1:]:
            gain = f"{_of_pairs(row['throughput_gain'])} times" if row["throughput_gain"] else "no measure of"
            speed = f"{counted(row['workers'], 'worker')} {how}: {gain} the items per second"
            goal = f"{result['shared']} comes" if result["shared"] else "the target"
            if not result["has_target"] and not result["shared"]:
                lines.append(f"{speed}.")
                continue
            if row["speed_up"] is None:
                short = row if row["reached"] < row["runs"] else rows[0]
                why = f"{counted(short['workers'], 'worker')} reached the target in {short['reached']} of {short['runs']} runs"
                lines.append(f"{speed}, but {why}: there are no times to compare.")
                continue
            shortest = min(*row["seconds"], *rows[0]["seconds"])
            answer, sooner = paid(row["speed_up"], shortest), sum(ratio > 1 for ratio in row["speed_up"])
            pairs = len(row["speed_up"])
            some = f" ({sooner} of {counted(pairs, 'pair')} sooner)" if 0 < sooner < pairs else ""
            unclear = "short" if shortest < SHORT else "unlike" if some else "close"
            order = f"sooner in each of {counted(pairs, 'pair')}" if pairs > 1 else "sooner"
            answers = {True: order, False: "they did not pay", None: f"too {unclear} to tell whether they pay"}
            reason = "" if answer else next(filter(None, row["limits"]), "")
            lines.append(f"{speed}, {goal} {_of_pairs(row['speed_up'])} times as soon: {answers[answer]}{some}{f'; {reason}' if reason else ''}.")  # fmt: skip
    every = [row for rows in result["variants"].values() for row in rows]
    if any(gains and max(gains) > BUSY * min(gains) for gains in (row["throughput_gain"] for row in every)):
        lines.append("The pairs differ by more than two times, so this machine was busy: repeat the bench.")
    if result.get("seeds") == 1 and any(row["speed_up"] for row in every):
        lines.append("One run of each says little: --seeds 3.")
    if result["shared"]:
        lines.append(f"The job has no target: {result['shared']} is the result that all of these runs reached.")
    elif not result["has_target"]:
        lines.append("The job has no target ([stop] accuracy or loss), and its runs share no judged result: whether more workers paid is not known.")  # fmt: skip
    return lines


def _of_pairs(ratios: Sequence[float]) -> str:
    """Return the median of the ratios of pairs of runs, each with one seed; with their range if there are several."""
    middle = f"{statistics.median(ratios):.2f}"
    return middle if len(ratios) < 2 else f"{middle} (median of {len(ratios)} pairs, {min(ratios):.2f} to {max(ratios):.2f})"
