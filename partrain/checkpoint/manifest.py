"""The manifest of a checkpoint: its job, data, workers and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from partrain.checkpoint.content import manifest_text
from partrain.config.section import Section
from partrain.data.fetch import describe_source
from partrain.errors import BadCheckpoint
from partrain.training.stop import Progress

if TYPE_CHECKING:
    from partrain.checkpoint import Content


class NetworkRecord(Section):
    """Inputs, outputs and task that the network was built for."""

    input: list[int]
    """Shape of one item."""
    outputs: int
    task: str
    vocabulary: int | None


class WorkerRecord(Section):
    """One worker."""

    rank: int
    device: str
    threads: int
    partition: int
    """Items of its partition."""


class Manifest(Section):
    """The part of a manifest that is the same in every checkpoint of a run."""

    format: Literal[1] = 1
    name: str
    run: str
    """Digest of job, data and versions."""
    versions: dict[str, str]
    """Versions that change results to the bit: packages, kind of processor, files of user code."""
    data: str
    """Fingerprint of the data set."""
    codec: dict[str, Any]
    """The conversion of the data set's files into items."""
    folder: str
    """The folder that the job's relative paths start from."""
    horizon: int | None
    network: NetworkRecord
    workers: list[WorkerRecord]
    start_file: str | None = None
    """SHA-256 of the file that the network started `from`; None if all its numbers were drawn."""

    def stored(self) -> dict[str, Any]:
        """Return the fields as a checkpoint holds them. Without a file to start from, the bytes are those of older versions."""
        return self.model_dump(exclude=None if self.start_file else {"start_file"})


class StoredManifest(Manifest):
    """A manifest read from a checkpoint: every field is required, `format` too."""

    format: Literal[1]
    round: int
    progress: Progress


def manifest_of(content: Content) -> StoredManifest:
    """Return the manifest of a checkpoint that a training wrote. BadCheckpoint if a field is missing or wrong."""
    try:
        stored = StoredManifest.model_validate_json(manifest_text(content.manifest))
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(map(str, first["loc"])) or "it"
        raise BadCheckpoint(f"the manifest is not that of a training: `{what}`: {first['msg'].lower()}") from None
    if missing := sorted(asdict(Progress()).keys() - content.manifest["progress"].keys()):
        raise BadCheckpoint(f"the manifest is not that of a training: `progress.{missing[0]}`: field required")
    if stored.round != stored.progress.round:
        raise BadCheckpoint(f"the manifest contradicts itself: round {stored.round} and {stored.progress.round}")
    return stored


def dataset_changed(table: Mapping[str, Any], folder: Path) -> BadCheckpoint:
    """Make the error for a data set, named by a `[dataset]` table, that has changed since training."""
    advice = "restore it; `evaluate --input` evaluates on other items, and a new run trains on them"
    return BadCheckpoint(f"{describe_source(table, folder)}: the data set is not the one the checkpoint was trained on: {advice}")
