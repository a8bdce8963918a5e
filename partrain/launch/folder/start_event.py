"""Warnings before training starts, and the `start` event."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from partrain.checkpoint.manifest import Manifest, manifest_of
from partrain.data import Dataset
from partrain.data.partition import share_out, windows
from partrain.data.skew import label_skew, skew_warning
from partrain.errors import BadCheckpoint
from partrain.job.code_changes import file_of
from partrain.job.plan import Plan
from partrain.job.workers import WorkerSpec
from partrain.launch.context import RunContext, Start
from partrain.launch.prepared import RecordedRun
from partrain.launch.worker.messages import Ready
from partrain.record.events import StartedWorker, StartEvent, TakenClients, WorkerBefore, WorkerHere, WorkerPlace, WorkerSkew
from partrain.record.privacy import NoisyMean
from partrain.rules import AnyRule
from partrain.system.cores import usable_cores
from partrain.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.checkpoint import Content


def start_event(
    recorded: RecordedRun, start: Start, context: RunContext, skews: list[WorkerSkew], ready: dict[int, Ready]
) -> StartEvent:
    """Build the `start` event. `skews`: the result of `label_skews`. `ready`: the messages of this machine's workers by rank."""
    job, plan, manifest = recorded.loaded.job, recorded.plan, recorded.manifest
    best_by = job.best_by(recorded.dataset.task)
    before = counts_before(start, len(plan.shares))
    own_skews = skews if skews and not plan.clients else [WorkerSkew()] * len(plan.shares)
    workers: list[StartedWorker] = [
        {
            "rank": share.spec.rank,
            "device": share.spec.device,
            "threads": share.spec.threads,
            **_place(share.spec),
            **_process(ready.get(share.spec.rank)),
            "partition": share.partition,
            **skew,
            "iterations": share.iterations,
            "passes": share.spec.passes,
            "batch_size": share.batch,
            **before[share.spec.rank],
        }
        for share, skew in zip(plan.shares, own_skews, strict=True)
    ]
    return StartEvent(
        t=context.booted + context.started,
        version=__version__,
        name=job.name,
        run_id=manifest.run,
        rule=job.sync.rule,
        resumed_from=start.point.progress.round if start.arrays is not None else None,
        start_file=manifest.start_file,
        code=start.code,
        accepted=start.accepted,
        parameters=next(iter(ready.values())).parameters,
        held_out=plan.held_out,
        judge_every=plan.judge_every,
        cores=usable_cores(),
        workers=workers,
        stop=job.stop.model_dump(exclude_none=True),
        lower_is_better=best_by is None or best_by.lower,
        privacy=_privacy(job.sync, len(plan.shares), len(plan.clients) or len(plan.shares)),
        clients=taken_clients(plan, skews),
    )


def _privacy(sync: AnyRule, workers: int, clients: int) -> NoisyMean | None:
    noise = sync.noise_multiplier
    return {"noise": noise, "clients": sync.active_workers(workers, 1), "workers": clients} if noise else None


def taken_clients(plan: Plan, skews: Sequence[WorkerSkew]) -> TakenClients | None:
    """Describe the clients that workers take in turn, if they do. `skews`: the result of `label_skews`."""
    if not plan.clients:
        return None
    taken: TakenClients = {"count": len(plan.clients), "smallest": min(plan.clients), "largest": max(plan.clients)}
    if measured := [skew["unevenness"] for skew in skews if "unevenness" in skew]:
        taken["unevenness"] = round(fmean(measured), 4)
    return taken


def _process(message: Ready | None) -> WorkerHere:
    return {"pid": message.pid, "compiled": message.compiled} if message else {"pid": None, "compiled": None}


def _place(spec: WorkerSpec) -> WorkerPlace:
    return {"cpus": list(spec.cpus)} if spec.cpus else {}


def counts_before(start: Start, size: int) -> list[WorkerBefore]:
    """Read each worker's counts before this session from the checkpoint."""
    if start.arrays is None:
        return [{}] * size
    counts: list[Any] = []
    for rank in range(size):
        array = start.arrays.get(path := f"workers/{rank}/counts")
        if array is None or array.shape != (3,):
            raise BadCheckpoint(f"the checkpoint does not fit the job: `{path}` should be <i8 (3,)")
        counts.append(array.tolist())
    return [{"before": {"iterations": iterations, "item_iterations": items}} for _, iterations, items in counts]


def label_skews(job: Any, plan: Plan, dataset: Dataset) -> list[WorkerSkew]:
    """Measure the label skew of each partition, by rank or by client; [] if a shuffle makes it random."""
    partitions = unlike_partitions(job, plan, dataset)
    if not partitions:
        return []
    return [{"unevenness": distance} for distance in label_skew(dataset.item_targets, partitions)]


def unlike_partitions(job: Any, plan: Plan, dataset: Dataset) -> Sequence[NDArray[Any]]:
    """Cut the partitions of the first round, as numbers of items; () if a shuffle makes their targets random."""
    if plan.training_items is None or dataset.stream or job.partition.order == "shuffled" or not dataset.kind.orders:
        return ()
    return share_out(dataset, job.dataset, job.partition, plan.part_sizes, job.seed).partitions


def warn_if_newer(manifest: Manifest, content: Content, context: RunContext) -> None:
    """Warn if versions of packages or the processor differ from the checkpoint's."""
    before, now = manifest_of(content).versions, manifest.versions
    if versions := [
        f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name] and not file_of(name)
    ]:
        context.warn(
            f"the checkpoint was made with {'; '.join(versions)}: the last bits may differ from a run without interruption"
        )


def warn_if_code_changed(files: list[str], context: RunContext) -> None:
    """Warn of files of user code that differ from the checkpoint's, if any."""
    if files:
        context.warn(f"{', '.join(files)} changed after the checkpoint was written: the run may go on in another way")


def warn_if_skewed(job: Any, plan: Plan, dataset: Dataset, context: RunContext) -> None:
    """Warn if windows over items in their given order would have labels far from all labels."""
    assert plan.training_items is not None  # a stream has no known order
    cuts = windows(plan.training_items, plan.part_sizes, job.partition.overlap)
    if text := skew_warning(dataset.item_targets[: plan.training_items], cuts):
        context.warn(text)
