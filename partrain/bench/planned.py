"""`partrain plan`: a job's partitions, memory and end on this machine; with a short measurement, also its speed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from partrain.bench import Case, outcomes
from partrain.bench.compare import facts
from partrain.bench.peak_memory import PeakMemory, held
from partrain.config.problems import Finding, WrongValue
from partrain.data import Dataset
from partrain.display.text_table import table
from partrain.errors import BadJob
from partrain.job.load import Job, LoadedJob, check_against_data, load_dataset, locating
from partrain.job.plan import PAYS, Plan, is_estimate, item_iterations, last_round, participants, plan_for, possible_items
from partrain.job.workers import has_replicas
from partrain.launch.folder.start_event import label_skews, taken_clients, unlike_partitions
from partrain.number_format import clock, count, counted, plural, size
from partrain.record.added_speed import least_worker
from partrain.record.events import JudgementEvent, RoundEvent
from partrain.record.result_lines import clients_line
from partrain.record.round_record import RoundRecord
from partrain.record.run_folder import RunFolder
from partrain.record.summary import read_summary
from partrain.system.cores import usable_cores
from partrain.system.memory import memory_limits

MOST_CLASSES = 10
"""Maximum number of classes in the workers' table."""
EVENT_BYTES = 300
"""Bytes of one worker's round in events.jsonl."""


def plan(loaded: LoadedJob) -> dict[str, Any]:
    """Plan a job: read its data, build its network. Trains and writes nothing."""
    job = loaded.job
    dataset, planned = _plan(loaded)
    last, training = last_round(job, planned.shares), participants(job, len(planned.shares))
    with locating(loaded):
        built = _network(loaded, dataset, planned, last or 0)
    return {
        "name": job.name,
        "rule": job.sync.rule,
        "transport": job.transport.kind,
        "data": {
            "training_items": planned.training_items,
            "stream": dataset.stream is not None,
            "held_out": planned.held_out,
            "test_items": dataset.spec.test_items,
            "bytes": _bytes_of(dataset),
        },
        **built,
        "clients": taken_clients(planned, label_skews(job, planned, dataset)) if planned.clients else None,
        "workers": [
            {
                "rank": share.spec.rank,
                "device": share.spec.device,
                "threads": share.spec.threads,
                "partition": share.partition,
                "iterations": share.iterations,
                "item_iterations": share.items,
                **classes,
            }
            for share, classes in zip(planned.shares, _class_counts(job, planned, dataset), strict=True)
        ],
        "round": {
            "item_iterations": planned.items * training // len(planned.shares),
            "participants": training,
            "judge_every": planned.judge_every,
        },
        "horizon": planned.horizon,
        "end": {
            "item_iterations": last and item_iterations(job, planned.shares, last),
            "rounds": last,
            "estimate": is_estimate(job, planned.shares),
        },
    }


def _class_counts(job: Job, planned: Plan, dataset: Dataset) -> list[dict[str, list[int]]]:
    """Count the items of each class in each partition, if the order makes them unequal; otherwise {}."""
    import numpy as np

    partitions = unlike_partitions(job, planned, dataset) if dataset.kind.one_class and not planned.clients else ()
    if not partitions:
        return [{}] * len(planned.shares)
    classes = dataset.outputs
    return [{"class_counts": np.bincount(dataset.item_targets[part], minlength=classes).tolist()} for part in partitions]


def _bytes_of(dataset: Dataset) -> int:
    arrays = (dataset.inputs, dataset.targets, dataset.test_inputs, dataset.test_targets)
    return sum(array.nbytes for array in arrays if array is not None)


def _network(loaded: LoadedJob, dataset: Dataset, planned: Plan, rounds: int) -> dict[str, Any]:
    """Build the network, without memory for its numbers if it is one of partrain's, and compute its workers' needs.

    `rounds`: the maximum number of rounds of the run; 0 if there is no limit.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    from partrain.inference.network import blame_user_code
    from partrain.launch.worker.memory import DiskNeeds, MemoryNeeds
    from partrain.models import Interface, build
    from partrain.training.replica import row_layout

    class WithoutDraws(TorchFunctionMode):
        """Draw no normal numbers: on the device `meta`, torch would import its compiler for them, which takes a second."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.nn.init.normal_, torch.Tensor.normal_):
                return args[0] if args else kwargs["tensor"]
            return func(*args, **(kwargs or {}))

    job = loaded.job
    kind = job.kind_of_task(dataset.task).name
    interface = Interface(
        dataset.item_shape, dataset.outputs, kind, dataset.vocabulary, categories=dataset.categories, parts=dataset.parts
    )
    without_numbers = nullcontext() if job.network_code else WithoutDraws()
    with torch.device("cpu" if job.network_code else "meta"), without_numbers, blame_user_code(loaded):
        module = build(job.model, loaded.folder, interface)
    try:
        layout = row_layout(module, job.optimizer)
    except TypeError as error:
        raise WrongValue(Finding(("model",), f"`{job.model.name}`: {error}")) from None
    item = dataset.inputs[:1].nbytes + dataset.targets[:1].nbytes
    needs = MemoryNeeds.of(module, layout, job, planned, range(len(planned.shares)), item)
    disk = DiskNeeds.of(needs.snapshot, job, rounds, Path.cwd())
    trained = sum(field.size for field in layout.params.fields)
    return {
        "network": {
            "name": job.model.name,
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "trained": trained,
            "bytes": trained * layout.params.dtype.itemsize,
            "optimizer": job.optimizer.name,
            "optimizer_vectors": len(layout.moments),
        },
        "memory": {
            "workers": needs.total - needs.snapshots,
            "snapshots": needs.snapshots,
            "free": memory_limits().free,
        },
        "disk": {**asdict(disk), "events": rounds * len(planned.shares) * EVENT_BYTES, "warning": disk.warning},
    }


def probe(loaded: LoadedJob, planned: dict[str, Any], seconds: float, own: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Train for some seconds with the job's workers, and with one more in its last group if a core is free for it; each twice.

    `own`: bytes that this process held before planning; the process of a run holds as much, as it imports no torch.
    """
    if loaded.job.transport.kind == "simulated":
        raise BadJob("`--probe` measures real workers, and this job simulates them; leave it out")
    cores, threads, size = usable_cores(), sum(worker["threads"] for worker in planned["workers"]), len(planned["workers"])
    result: dict[str, Any] = {"seconds": seconds, "cores": cores, "threads": threads, "more": None, "pays": False}
    jobs, plans = [loaded], [_plan(loaded)[1]]
    if threads + loaded.job.workers[-1].threads <= cores:
        try:
            jobs.append(_with_one_more(loaded))
            plans.append(_plan(jobs[1])[1])
        except BadJob as refused:
            result |= {"refused": refused.message, "pays": None}
    labels = [_workers(size), _workers(size + 1)][: len(plans)]
    measured = [_measured(job, plan.horizon, seconds) for job, plan in zip(jobs, plans, strict=False)]
    cases = [Case(label, lambda _, job=job: job) for label, job in zip(labels, measured, strict=False)]  # type: ignore[misc]
    speeds: dict[str, list[dict[str, Any]]] = {label: [] for label in labels}
    pid = os.getpid()
    with PeakMemory(pid, held(pid) - own) as memory, closing(outcomes(cases, [loaded.job.seed] * 2, note)) as runs:
        for case, outcome in runs:  # interleaved: other load affects both equally
            if outcome.failure:  # it diverged: its speed means nothing
                raise outcome.failure
            number = labels.index(case.label)
            if number == 0:
                content = read_summary(RunFolder(outcome.folder).summary_file)
                least = "" if has_replicas(loaded.job.workers) else least_worker(content["workers"], content["seconds"]["train"])
                result["least_worker"] = least or None
            speed = _speed(jobs[number].job, plans[number], outcome.folder)
            speeds[case.label].append(speed | {"memory": memory.take() or None})
    for key, both in zip(("now", "more"), speeds.values(), strict=False):
        readings = {
            name: [run[name] for run in both if run[name] is not None] for name in both[0]
        }  # a short run may miss a reading
        result[key] = {name: mean(values) if values else None for name, values in readings.items()}
        result[key]["items_per_second"] = result[key].pop("items_per_round") / result[key]["seconds_per_round"]
    result["seconds_to_end"] = result["now"].pop("seconds_to_end")
    if result["more"]:
        result["more"].pop("seconds_to_end")
        result["gain"] = result["more"]["items_per_second"] / result["now"]["items_per_second"]
        rates = ([run["items_per_round"] / run["seconds_per_round"] for run in both] for both in speeds.values())
        gains = [after / before for before, after in zip(*rates, strict=True)]
        result |= {"gains": gains, "pays": gain_pays(gains)}
    return result


def gain_pays(gains: Sequence[float]) -> bool | None:
    """Return whether more item-iterations per second pay; None if repeated measurements do not agree."""
    pay = {gain > PAYS for gain in gains}
    return pay.pop() if len(pay) == 1 else None


def measured_end(loaded: LoadedJob, seconds: float) -> tuple[int, float]:
    """Train for some seconds, and predict the rounds and seconds of the whole run, at most."""
    planned = _plan(loaded)[1]
    case = Case(loaded.job.name, lambda _: _measured(loaded, planned.horizon, seconds))
    with closing(outcomes([case], [loaded.job.seed], lambda _: None)) as runs:
        _, outcome = next(runs)
        if outcome.failure:
            raise outcome.failure
        return forecast(loaded.job, planned, *_records(outcome.folder))


def _records(folder: Path) -> tuple[list[RoundRecord], set[int]]:
    """Return the rounds of worker 0, and the numbers of the judged ones."""
    events = list(RunFolder(folder).events())
    records = [event.record for event in events if isinstance(event, RoundEvent) and event.rank == 0]
    return records, {event.round for event in events if isinstance(event, JudgementEvent)}


def _plan(loaded: LoadedJob) -> tuple[Dataset, Plan]:
    with locating(loaded):
        dataset = load_dataset(loaded)
        check_against_data(loaded, dataset.spec)
        return dataset, plan_for(loaded, dataset)


def _with_one_more(loaded: LoadedJob) -> LoadedJob:
    count = loaded.job.workers[-1].count + 1
    return loaded.edited("the job with one more worker", lambda tables: tables["workers"][-1].update(count=count))


def _measured(loaded: LoadedJob, horizon: int | None, seconds: float) -> LoadedJob:
    """Return the job to measure: stopped by time alone, with the rate and judgements of the whole run."""

    def edit(tables: dict[str, Any]) -> None:
        kept = {key: value for key, value in tables["stop"].items() if key == "judge_every"}
        tables["stop"] = {"seconds": seconds} | kept
        if loaded.job.optimizer.needs_horizon:
            tables["optimizer"]["horizon"] = horizon

    return loaded.edited("the job that is measured", edit)


def _speed(job: Job, plan: Plan, folder: Path) -> dict[str, Any]:
    run, (records, judged) = facts(folder), _records(folder)
    rounds, seconds = forecast(job, plan, records, judged)
    ends = [end for end in (last_round(job, plan.shares) and seconds, job.stop.seconds) if end]
    return {
        "rounds": len(records),
        "seconds_per_round": seconds / rounds,
        "items_per_round": item_iterations(job, plan.shares, rounds) / rounds,
        "bytes_per_round": run["bytes_per_round"],
        "waiting": run["waiting"],
        "seconds_to_end": min(ends, default=None),
    }


def forecast(job: Job, plan: Plan, records: Sequence[RoundRecord], judged: Container[int]) -> tuple[int, float]:
    """Predict the seconds of the whole run from the first `records` of worker 0, which waits for the others.

    Returns the rounds as well: without a last one, the recorded rounds. Iterations, meetings and judgements recur; the first
    round's extra seconds do not, and a short run judges more often, because it judges at its end.
    """
    spans = [end - begin for begin, end in pairwise([0.0, *(record.seconds for record in records)])]
    steady = [(span, record) for span, record in zip(spans[1:], records[1:], strict=True) if record.items] or [
        (spans[0], records[0])
    ]
    compute = sum(record.compute for _, record in steady) / max(1, sum(record.items for _, record in steady))
    plain = [span - record.compute for span, record in steady if record.round not in judged]
    meeting = mean(plain or [record.wait + record.mix for _, record in steady])
    judging = mean([max(0.0, span - record.compute - meeting) for span, record in steady if record.round in judged] or [0.0])
    further = spans[0] - compute * records[0].items - meeting - judging * (records[0].round in judged)

    rounds = last_round(job, plan.shares) or plan.judge_every * math.ceil(len(records) / plan.judge_every)
    judgements = math.ceil(rounds / plan.judge_every) if plan.held_out else 0
    own = possible_items(job, plan.shares[:1], rounds)
    return rounds, max(0.0, further) + compute * own + meeting * rounds + judging * judgements


def render(result: dict[str, Any], width: int | None = None) -> list[str]:
    """Format the plan for people. `width`: columns of the terminal for its table; None: any number."""
    data, network, memory, disk, per_round = (result[name] for name in ("data", "network", "memory", "disk", "round"))
    held = [f"{data['held_out']:,} to judge with"] if data["held_out"] else []
    tests = [f"{data['test_items']:,} to test with"] if data["test_items"] else []
    items = ", ".join([_training_items(data), *held, *tests])
    by_class = 0 < len(result["workers"][0].get("class_counts", ())) <= MOST_CLASSES
    frozen = network["parameters"] - network["trained"]
    vectors = network["optimizer_vectors"]
    lines = [
        f"plan: {result['name']}, {_workers(len(result['workers']))}, rule {result['rule']}, transport {result['transport']}",
        f"data: {items}; {size(data['bytes'])}",
        f"network: {network['name']}, {network['parameters']:,} parameters"
        + (f", {frozen:,} of them frozen" if frozen else "")
        + f"; {size(network['bytes'])} that workers mix"
        + (f", and {vectors} {plural('vector', vectors)} of {network['optimizer']}" if vectors else ""),
        f"memory: workers {size(memory['workers'])}, snapshots and files {size(memory['snapshots'])}, data {size(data['bytes'])};"
        f" {size(memory['free'])} are free (libraries not counted)",
        f"disk: {counted(disk['checkpoints'], 'checkpoint')}, the best one among them, of {size(disk['checkpoint'])} each"
        + (f" at the last round; events {size(disk['events'])}" if result["end"]["rounds"] else "")
        + f"; {size(disk['free'])} are free",
        *filter(None, [disk["warning"]]),
        *([clients_line(result["clients"], len(result["workers"]))] if result["clients"] else []),
        f"round: {_participants(per_round['participants'], len(result['workers']))}{per_round['item_iterations']:,} item-iterations; judged every {_rounds(per_round['judge_every'])}",
        f"end: {_end(result)}",
        "",
        *table(
            ("worker", "device", "threads", "partition", "iterations/round", "items/round", *["items of each class"] * by_class),
            [
                (
                    str(worker["rank"]),
                    worker["device"],
                    str(worker["threads"]),
                    "stream" if worker["partition"] is None else f"{worker['partition']:,}",
                    f"{worker['iterations']:,}",
                    f"{worker['item_iterations']:,}",
                    *[" ".join(map(str, worker.get("class_counts", ())))] * by_class,
                )
                for worker in result["workers"]
            ],
            width,
        ),
        "",
    ]
    return [
        *lines,
        *(
            _speeds(result)
            if "probe" in result
            else ["`--probe` trains for some seconds, and prints speed, bytes per round and waiting"]
        ),
    ]


def _participants(number: int, workers: int) -> str:
    return f"{number:,} of {_workers(workers)}, drawn anew; " if number < workers else ""


def _end(result: dict[str, Any]) -> str:
    rounds, items, estimate = result["end"]["rounds"], result["end"]["item_iterations"], result["end"]["estimate"]
    if not rounds:
        return "by time, by a target or by patience"
    training = result["data"]["training_items"]
    passes = f", {items / training:,.1f} per item" if training else ""
    if estimate:
        return f"after about {rounds:,} rounds or {items:,} item-iterations{passes}: rounds vary in length as the run goes"
    return f"at the latest after {rounds:,} rounds: {items:,} item-iterations{passes}"


def _training_items(data: dict[str, Any]) -> str:
    count = "" if data["training_items"] is None else f"{data['training_items']:,} "
    return f"a stream of {count}items to train with" if data["stream"] else f"{count}items to train with"


def _speeds(result: dict[str, Any]) -> Iterator[str]:
    """Describe the measurement, and whether one more worker pays."""
    measured, workers = result["probe"], len(result["workers"])
    now = measured["now"]
    speed = f"{now['seconds_per_round']:.3g} s a round, {count(now['items_per_second'])} item-iterations a second"
    yield f"measured twice for {measured['seconds']:g} s: {speed}"
    if workers > 1:
        waiting = "" if now["waiting"] is None else f", and waits {now['waiting']:.0%} of its time"
        yield f"each worker sends {size(now['bytes_per_round'] or 0)} a round{waiting}"
    if measured["seconds_to_end"]:
        yield f"predicted: {clock(measured['seconds_to_end'])} (h:mm:ss) to the end"
    if now["memory"]:
        yield f"memory of all processes: {size(now['memory'])} at most, libraries not counted"
    if measured["least_worker"]:
        yield measured["least_worker"]
    more = _workers(workers + 1)
    if measured["more"]:
        verdict = "one more worker pays" if measured["pays"] else "one more worker does not pay"
        if measured["pays"] is None:
            verdict = f"the two measurements gave {' and '.join(f'{gain:.2f}' for gain in measured['gains'])}, so it is unknown whether that pays"
        yield f"{more}: {measured['gain']:.2f} times the item-iterations per second; {verdict}"
    elif "refused" in measured:
        yield f"{more} cannot be tried: {measured['refused']}"
    else:
        cores = f"{measured['cores']} {plural('core', measured['cores'])}"
        yield f"{more} would share {cores}, all in use: one more worker does not pay here"
    yield "whether a target comes sooner with more workers: partrain bench"


def _rounds(number: int) -> str:
    return "round" if number == 1 else f"{number:,} rounds"


def _workers(number: int) -> str:
    return f"{number} {plural('worker', number)}"
