"""The manifest of a checkpoint: which job, data, workers and versions it comes from."""

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
from partrain.train.stop import Progress

if TYPE_CHECKING:
    from partrain.checkpoint import Content


class NetworkRecord(Section):
    """What the network was built for."""

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
    """What is the same in every checkpoint of a run."""

    format: Literal[1] = 1
    name: str
    run: str
    """Digest of job, data and versions."""
    versions: dict[str, str]
    """Of what decides bits: packages, the kind of processor, the user's own files."""
    data: str
    """Fingerprint of the data set."""
    codec: dict[str, Any]
    """How items were made of what the data set's files say."""
    folder: str
    """Where the job's relative paths start from."""
    horizon: int | None
    network: NetworkRecord
    workers: list[WorkerRecord]


class Stored(Manifest):
    """A manifest as it is read back: `format` and all must be there."""

    format: Literal[1]
    round: int
    progress: Progress


def manifest_of(content: Content) -> Stored:
    """The manifest of a checkpoint of ours; BadCheckpoint for one that has lost something, or is of another kind."""
    try:
        stored = Stored.model_validate_json(manifest_text(content.manifest))
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(map(str, first["loc"])) or "it"
        raise BadCheckpoint(f"the manifest is not that of a training: `{what}`: {first['msg'].lower()}") from None
    if lacking := sorted(asdict(Progress()).keys() - content.manifest["progress"].keys()):
        raise BadCheckpoint(f"the manifest is not that of a training: `progress.{lacking[0]}`: field required")
    if stored.round != stored.progress.round:
        raise BadCheckpoint(f"the manifest contradicts itself: round {stored.round} and {stored.progress.round}")
    return stored


def other_data(table: Mapping[str, Any], folder: Path) -> BadCheckpoint:
    """What to say where the data set that a `[dataset]` table names has changed since."""
    advice = "bring it back as it was; `evaluate --input` judges other items, and a new run trains on them"
    return BadCheckpoint(f"{describe_source(table, folder)}: the data set is not the one the checkpoint was trained on: {advice}")
