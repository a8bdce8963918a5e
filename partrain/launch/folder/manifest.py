"""The manifest of a run's checkpoints. It has no times and no host: equal states have equal manifests."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from partrain.checkpoint.codecs import NetworkRecord
from partrain.checkpoint.manifest import Manifest, WorkerRecord, dataset_changed, manifest_of
from partrain.data.fetch import describe_source
from partrain.errors import BadCheckpoint, BadJob
from partrain.job.code_changes import code_digests
from partrain.launch.targets import class_weights
from partrain.system.environment import processor, versions
from partrain.tasks import UserTask

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.data import Dataset
    from partrain.job.load import LoadedJob
    from partrain.job.plan import Plan


def manifest_for(loaded: LoadedJob, plan: Plan, dataset: Dataset, start_file: str | None = None) -> Manifest:
    """Make the manifest of a new run. `start_file`: SHA-256 of the file that the network starts from."""
    identity = {"job": loaded.text, "data": dataset.fingerprint, "versions": versions()}
    identity |= {"from": start_file} if start_file else {}
    return Manifest(
        name=loaded.job.name,
        run=hashlib.sha256(repr(sorted(identity.items())).encode()).hexdigest()[:32],
        versions=surroundings() | code_digests(loaded),
        data=dataset.fingerprint,
        folder=str(loaded.folder.resolve()),
        horizon=plan.horizon,
        average_from=plan.average_from,
        codec=dict(dataset.codec),
        network=NetworkRecord(
            input=list(dataset.item_shape),
            outputs=dataset.outputs,
            task=loaded.job.kind_of_task(dataset.task).name,
            vocabulary=dataset.vocabulary,
            data=dataset.task if isinstance(loaded.job.task, UserTask) else None,
            parts=list(dataset.parts),
            of_bytes=dataset.scale != 1,
        ),
        workers=[
            WorkerRecord(rank=share.spec.rank, device=share.spec.device, threads=share.spec.threads, partition=share.partition)
            for share in plan.shares
        ],
        start_file=start_file,
        class_weights=class_weights(loaded.job, dataset),
    )


def surroundings() -> dict[str, str]:
    """Return what, besides job, data and code, may change the bits of results: versions of packages, and the kind of processor."""
    return versions() | {"processor": processor().kind}


def continued(
    plan: Plan, manifest: Manifest, content: Content, moved: LoadedJob | None = None, *, other_workers: bool = False
) -> tuple[Plan, Manifest]:
    """Take horizon and identity from the checkpoint. Raises BadCheckpoint if anything else differs, except workers if `other_workers`.

    `moved`: the user's job, which names other paths. The folder may then differ, and different data are the job's error: BadJob.
    """
    stored = manifest_of(content)
    as_before = {name: getattr(stored, name) for name in ("horizon", "average_from", "run", "versions", "start_file", "accepted")}
    kept = manifest.model_copy(update=as_before)
    for key in Manifest.model_fields:
        if getattr(stored, key) != getattr(kept, key):
            if (key == "folder" and moved) or (key == "workers" and other_workers):
                continue
            if key == "data" and moved:
                source = describe_source(moved.source.data.get("dataset", {}), moved.folder)
                raise BadJob(f"{source}: not the data set that the checkpoint was trained on; --job may only name its new place")
            if key == "data":
                raise dataset_changed(tomllib.loads(content.job).get("dataset", {}), Path(kept.folder))
            raise BadCheckpoint(
                _other_workers(stored, kept) if key == "workers" else _difference(key, vars(stored)[key], vars(kept)[key])
            )
    return replace(plan, horizon=stored.horizon, average_from=stored.average_from), kept


def accepting(manifest: Manifest, changes: Sequence[str], number: int, digests: Mapping[str, str]) -> Manifest:
    """Add code changes that the user agreed to after a round, and the digests of the changed files; without changes, add nothing."""
    if not changes:
        return manifest
    accepted = [*(manifest.accepted or ()), *(f"after round {number}: {change}" for change in changes)]
    return manifest.model_copy(update={"accepted": accepted, "versions": {**manifest.versions, **digests}})


def _difference(name: str, before: Any, now: Any) -> str:
    """Name the first field that differs, with its values before and now; cut long values."""
    if isinstance(before, NetworkRecord) and isinstance(now, NetworkRecord):
        return _difference(name, vars(before), vars(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *now]:
            if before.get(key) != now.get(key):
                return _difference(f"{name}.{key}", before.get(key), now.get(key))
    shown = (shorten(str(value), LONGEST_VALUE, placeholder=" ...") for value in (before, now))
    return f"its `{name}` is {' and not '.join(shown)}, as the job has it"


LONGEST_VALUE = 60
"""Most characters of a value in a message."""


def _other_workers(stored: Manifest, now: Manifest) -> str:
    """Explain that a run's workers differ from its checkpoint's."""
    what = "the job's workers or partitions differ from the checkpoint's: it continues to the bit or not at all"
    machines, rest = divmod(len(stored.workers), len(now.workers))
    if machines < 2 or rest:
        return what
    return (
        f"{what}. It was trained on {machines} machines: resume it on as many, under torchrun or srun, "
        f"or give one machine all workers, as in --set workers.0.count={len(stored.workers)}"
    )
