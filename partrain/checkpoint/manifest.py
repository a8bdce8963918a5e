"""The manifest of a checkpoint: its job, data, workers and versions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, NonNegativeInt, ValidationError

from partrain.checkpoint.codecs import FLOAT32_MAX, CodecField, Count, NetworkRecord, check_codec
from partrain.checkpoint.content import manifest_text
from partrain.config.problems import Rejected
from partrain.config.section import Section
from partrain.config.toml_source import TomlSource
from partrain.data.fetch import describe_source
from partrain.errors import BadCheckpoint
from partrain.tasks.kinds import KINDS, USER
from partrain.training.stop import Progress

if TYPE_CHECKING:
    from partrain.checkpoint.content import Content


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
CountFromZero = Annotated[int, Field(ge=0, lt=2**63)]
MAX_ITEM = 1 << 31
"""Largest number of numbers in one item."""


class WorkerRecord(Section):
    """One worker: its device, threads and number of items."""

    rank: NonNegativeInt
    device: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}(:[0-9]{1,4})?$")]
    threads: CountFromZero
    partition: CountFromZero | None
    """Items of its partition, or of its shard of a stream; None if the stream does not know."""


class Manifest(Section):
    """The part of a manifest that is the same in every checkpoint of a run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    run: str
    """Digest of job, data and versions."""
    versions: dict[str, str]
    """Versions on which the bits of results depend: packages, kind of processor, files of user code."""
    data: Digest
    """Fingerprint of the data set."""
    codec: dict[str, Any]
    """The conversion of the data set's files into items."""
    folder: Annotated[str, Field(pattern=r"^/[^\x00]*$")]
    """The folder that the job's relative paths start from."""
    horizon: Count | None
    network: NetworkRecord
    workers: Annotated[list[WorkerRecord], Field(min_length=1)]
    start_file: Digest | None = None
    """SHA-256 of the file that the network started `from`; None if all its numbers were drawn."""
    average_from: CountFromZero | None = None
    """Item-iterations from which networks count for the average of `[sync] swa`; None without it."""
    class_weights: list[float] | None = None
    """Factors of the items' losses, in the order of the classes."""
    accepted: list[str] | None = None
    """Changes of user code during the run that the user accepted, in words; None without any."""

    def stored(self) -> dict[str, Any]:
        """Return the fields as a checkpoint holds them, without the fields that a run does not use."""
        fields = self.model_dump()
        if self.network.data is None:
            del fields["network"]["data"]
        if not self.network.parts:
            del fields["network"]["parts"]
        unused = {name for name in ("start_file", "average_from", "class_weights", "accepted") if fields[name] is None}
        return {name: value for name, value in fields.items() if name not in unused}


class StoredManifest(Manifest):
    """A manifest read from a checkpoint: every field is required."""

    round: int
    progress: Progress


def manifest_of(content: Content, name: str = "") -> StoredManifest:
    """Return the manifest of a training's checkpoint. Raises BadCheckpoint, with the field's name, if one is missing or wrong.

    `name`: the file's name, for the message.
    """
    try:
        return _checked(content)
    except BadCheckpoint as bad:
        raise BadCheckpoint(f"{name}: {bad.message}" if name else bad.message) from None


def _checked(content: Content) -> StoredManifest:
    try:
        stored = StoredManifest.model_validate_json(manifest_text(content.manifest))
        if missing := sorted(Progress().stored().keys() - content.manifest["progress"].keys()):
            raise _wrong(f"progress.{missing[0]}", "field required")
        if stored.progress.best is not None and stored.progress.best_loss is None:
            raise _wrong("progress.best_loss", "field required")
        _check(stored)
        _check_counts(stored.progress, content.arrays)
        check_codec(stored.codec, stored.network, _kind_of_data(content.job))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":  # it is JSON, except for a text that no encoding has
            raise BadCheckpoint("the manifest is not that of a training: one of its texts is no Unicode") from None
        prefix = ("codec",) if error.title.endswith("Codec") else ()
        reason = first["msg"].removeprefix("Value error, ")
        raise _wrong(".".join(map(str, (*prefix, *first["loc"]))), reason[:1].lower() + reason[1:]) from None
    except CodecField as error:
        raise _wrong(f"codec.{error.name}", error.reason) from None
    return stored


def _check(stored: StoredManifest) -> None:
    """Raise BadCheckpoint unless the fields fit each other."""
    if stored.round != stored.progress.round:
        raise BadCheckpoint(f"the manifest contradicts itself: round {stored.round} and {stored.progress.round}")
    progress = stored.progress
    for name, value in vars(progress).items():
        if isinstance(value, int) and not 0 <= value < 2**63:
            raise _wrong(f"progress.{name}", "not a count")
        if name.endswith("_round") and value > stored.round:
            raise _wrong(f"progress.{name}", f"a round after round {stored.round}")
    for name in ("loss", *(() if progress.metrics else ("best", "lead"))):  # a metric may be any number
        if abs(getattr(progress, name) or 0.0) > FLOAT32_MAX:
            raise _wrong(f"progress.{name}", "beyond the numbers of a network")
    if not 0 <= (progress.accuracy or 0.0) <= 1:
        raise _wrong("progress.accuracy", "not between 0 and 1")
    if (caps := stored.progress.caps) and (len(caps) != len(stored.workers) or not all(0 < cap < 2**63 for cap in caps)):
        raise _wrong("progress.caps", "not a number of iterations, from 1, for each worker")
    if stored.network.task not in (*KINDS, USER.name):
        raise _wrong("network.task", "no kind of task")
    if math.prod(stored.network.input) > MAX_ITEM:
        raise _wrong("network.input", f"an item of more than {MAX_ITEM:,} numbers")
    if [worker.rank for worker in stored.workers] != list(range(len(stored.workers))):
        raise _wrong("workers", "their ranks are not 0, 1, 2, ...")


def _check_counts(progress: Progress, arrays: Mapping[str, Any]) -> None:
    """Raise BadCheckpoint unless the item-iterations equal those of the workers and of the history's newest round."""
    counts = [array for path, array in arrays.items() if path.startswith("workers/") and path.endswith("/counts")]
    if counts and all(count.shape == (3,) for count in counts):
        trained = sum(int(count[2]) for count in counts)
        if progress.item_iterations != trained:
            raise _wrong("progress.item_iterations", f"{progress.item_iterations:,}, but the workers have trained {trained:,}")
    rounds, items = (arrays.get(f"history/{name}") for name in ("round", "item_iterations"))
    if rounds is None or items is None or items.ndim != 1 or items.dtype.kind not in "iu" or not len(items):
        return
    if rounds[-1] == progress.round and items[-1] != progress.item_iterations:
        raise _wrong("progress.item_iterations", f"{progress.item_iterations:,}, but /history has {int(items[-1]):,}")


def _kind_of_data(job: str) -> object:
    """Return the `kind` of the job's data set; None without one, or if the job is unreadable."""
    try:
        return TomlSource.parse(job, "").data["dataset"].get("kind")
    except (Rejected, LookupError, AttributeError, TypeError):
        return None


def _wrong(name: str, reason: str) -> BadCheckpoint:
    return BadCheckpoint(f"the manifest is not that of a training: `{name}`: {reason}")


def dataset_changed(table: Mapping[str, Any], folder: Path) -> BadCheckpoint:
    """Make the error for a data set, named by a `[dataset]` table, that has changed since training."""
    advice = "restore it; `evaluate --input` evaluates on other items, and a new run trains on them"
    return BadCheckpoint(f"{describe_source(table, folder)}: the data set is not the one the checkpoint was trained on: {advice}")
