"""The content of a checkpoint, and its rules: the writer checks them before writing, the reader after reading.

    arrays      slash path -> numbers, such as `model/0.weight`, `workers/0/optimizer/momentum`, `history/loss`
    job         the text of the TOML job
    manifest    a JSON object; `run` and `round` identify the state, the training loop owns the other keys

Arrays under `history/` hold one row per round along their first axis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

JOB = "job"
MANIFEST = "manifest"
DATASETS = "datasets"
"""The stored manifest's key that lists every dataset; reserved."""

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)
"""Types of numbers a checkpoint can hold, by their numpy names. HDF5 has no booleans: `bool` is stored as `uint8` 0 and 1."""

MAX_DEPTH = 8
"""Largest number of components of a path."""
MAX_NAME_BYTES = 1024
"""Longest component of a path, in UTF-8."""
MAX_RANK = 8
ALIGNMENT = 64
ALIGNED_FROM = 1024
"""Bytes: datasets of at least ALIGNED_FROM start on a cache line."""
MAX_NESTING = 32
"""Largest number of nested levels in the manifest."""
MAX_DIGITS = 20
"""Digits of the longest integer in the manifest: 64 bits."""

RUN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class ContentRefused(Exception):
    """A content that breaks a rule. The message does not name the file. Becomes BadCheckpoint when reading, ValueError when writing."""

    advice = "use another checkpoint of the run"


class OtherFormat(ContentRefused):
    """A checkpoint of another format version."""

    advice = "use the version that wrote it, or train again"


class Shaped(Protocol):
    """An array, or the description of an array in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, eq=False)
class Content:
    """One checkpoint in memory. `manifest` must hold `run` (text) and `round` (an integer from 0), and None instead of NaN."""

    arrays: dict[str, NDArray[Any]]
    job: str
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """Number of rounds done when this state was saved."""
        return int(self.manifest["round"])

    @property
    def run(self) -> str:
        """Id of the run: a digest of job, data and versions."""
        return str(self.manifest["run"])


def check_path(path: str) -> None:
    """Refuse a dataset path that is not plain slash-separated names."""
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise ContentRefused(f"{path[:80]!r} has more than {MAX_DEPTH} levels")
    for part in parts:
        if part in ("", ".", "..") or "\0" in part or any("\ud800" <= character <= "\udfff" for character in part):
            raise ContentRefused(f"{path[:80]!r} is not a path of plain names")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise ContentRefused(f"a name in {path[:80]!r}... has more than {MAX_NAME_BYTES} bytes")


def groups_of(paths: Mapping[str, object]) -> set[str]:
    """Return all groups that contain datasets at these paths, at any level. The root is the empty path."""
    groups = {""}
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent not in groups:
            groups.add(parent)
            parent = parent.rpartition("/")[0]
    return groups


def check(manifest: Mapping[str, Any], arrays: Mapping[str, Shaped]) -> None:
    """Refuse content that no training can have written. Checks only names, types and shapes."""
    number, run = manifest.get("round"), manifest.get("run")
    if type(number) is not int or not 0 <= number < 2**63:
        raise ContentRefused(f"the manifest's `round` is {str(number)[:40]!r}, not a number of rounds")
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise ContentRefused(f"the manifest's `run` is {str(run)[:40]!r}, not a run id")
    for path, array in arrays.items():
        check_path(path)
        if len(array.shape) > MAX_RANK:
            raise ContentRefused(f"{path!r} has more than {MAX_RANK} axes")
    for path in sorted(groups_of(arrays) & ({*arrays, JOB, MANIFEST})):
        raise ContentRefused(f"{path!r} is both a dataset and a group")
    for path in sorted({JOB, MANIFEST} & set(arrays)):
        raise ContentRefused(f"{path!r} is a reserved name; no array can have it")
    rows = {path: array.shape[0] if array.shape else None for path, array in arrays.items() if path.startswith("history/")}
    if len(set(rows.values())) > 1 or None in rows.values():
        raise ContentRefused(f"the columns of /history differ in length: {sorted(map(str, set(rows.values())))}")


def check_history(rounds: NDArray[Any], number: int) -> None:
    """Refuse a `history/round` (R,) that is not a strictly increasing list of rounds up to `number`."""
    if rounds.ndim != 1 or rounds.dtype.kind not in "iu":
        raise ContentRefused("history/round is not a list of integers")
    if len(rounds) and (int(rounds[0]) < 0 or int(rounds[-1]) > number or not bool((rounds[1:] > rounds[:-1]).all())):
        raise ContentRefused(f"history/round does not increase towards round {number}")


def viewer_attributes(arrays: Mapping[str, Shaped]) -> dict[str, dict[str, list[str] | str]]:
    """Return the NeXus attributes of each group that has any. They make a viewer open on the loss curve.

    The viewer draws all losses of the same length over `round`: `loss` is the signal, the others are auxiliary. Empty without
    such a curve.
    """
    columns = {path.removeprefix("history/"): array for path, array in arrays.items() if path.startswith("history/")}
    loss, rounds = columns.get("loss"), columns.get("round")
    if loss is None or rounds is None or len(loss.shape) != 1:
        return {}
    others = sorted(name for name, array in columns.items() if name.endswith("_loss") and array.shape == loss.shape)
    curve: dict[str, list[str] | str] = {"NX_class": "NXdata", "signal": "loss", "axes": ["round"]}
    if others:
        curve["auxiliary_signals"] = others
    return {"": {"NX_class": "NXroot", "default": "history"}, "history": curve}


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """Return the canonical JSON text of a manifest. ValueError for NaN and infinities."""
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_manifest(data: bytes) -> dict[str, Any]:
    """Parse a manifest, which must be its canonical text: no duplicate keys, other spellings of numbers or spare bytes."""
    try:
        text = data.decode("ascii")
        manifest = json.loads(text, parse_int=_integer)
        _check_nesting(manifest, MAX_NESTING)
        canonical = manifest_text(manifest)
    except (ValueError, RecursionError) as error:
        raise ContentRefused(f"the manifest cannot be parsed: {str(error)[:80]}") from None
    if not isinstance(manifest, dict) or canonical != text:
        raise ContentRefused("the manifest is not in canonical form")
    return manifest


def _check_nesting(value: Any, levels: int) -> None:
    if levels == 0:
        raise ValueError(f"it is nested more than {MAX_NESTING} levels deep")
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_nesting(below, levels - 1)


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("a number is too big")
    return int(digits)
