"""The file that a network starts from: `[model] from`. The checks of its kind and header need no torch.

    checkpoint     of partrain, or the newest checkpoint of a run folder: the arrays of its mixed network
    safetensors    8 bytes of length, a header in JSON, then the numbers
    state dict     written by `torch.save`, read with `weights_only=True`, which runs no code

The coordinator reads a file once, into memory that all workers share. It keeps a checkpoint's network there as safetensors.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError, safe_open

from partrain import checkpoint
from partrain.checkpoint import pretrained
from partrain.checkpoint.manifest import manifest_of
from partrain.checkpoint.runs import checkpoint_of
from partrain.data.fetch import TransferLines, fetch_url, is_url, local_path
from partrain.errors import BadCheckpoint, InputMissing
from partrain.models.image_sections import Published

if TYPE_CHECKING:
    from partrain.models.sections import Network

Form = Literal["checkpoint", "safetensors", "state dict"]

MAGIC = b"partrain checkpoint "
"""First bytes of a checkpoint."""
SUFFIXES: dict[str, Form] = {
    ".safetensors": "safetensors",
    ".pt": "state dict",
    ".pth": "state dict",
    ".bin": "state dict",
}
"""Kinds of files by suffix."""


@dataclass(frozen=True)
class StartFile:
    """A file to start from, after it was read."""

    name: str
    """Its path, for messages."""
    form: Form
    """Form of the bytes in memory; a checkpoint's network is safetensors there."""
    sha256: str
    """Digest of the file (hex)."""
    size: int
    """Bytes in memory."""
    codec: Mapping[str, Any] = field(default_factory=dict)
    """The conversion of the data that a checkpoint's network was trained on; empty for other files."""


def file_of(section: Network, folder: Path) -> Path | None:
    """Return the file that a network starts from, by `from` or by the name of weights; None if all its numbers are drawn.

    Fetches a missing file if the job gives its digest. Raises InputMissing without a file. `folder` holds the job.
    """
    if isinstance(section, Published) and section.starts_published:
        return pretrained.locate(section)
    return None if section.start_file is None else locate(section.start_file, folder)


def locate(name: str, folder: Path) -> Path:
    """Return the file that `[model] from` names; `folder` holds the job. Raises InputMissing if it does not exist."""
    if is_url(name):
        fetch_url(name, TransferLines())
        return local_path(name, folder)
    named = folder / name
    path = checkpoint_of(
        named.parent.resolve() / named.name
    )  # a link's own name shows the kind of file, as in Hugging Face's cache
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if not path.is_file():
        raise InputMissing(f"{path}: is not a regular file")
    return path


def missing_url(section: Network) -> str | None:
    """Return the URL in `from` whose file has not been fetched yet, or None. Raises InputMissing without a digest."""
    name = section.start_file
    return name if name and is_url(name) and not local_path(name, Path()).is_file() else None


def check(path: Path) -> None:
    """Check that a network can start from a file, as far as possible without torch. Raises InputMissing if it cannot."""
    form = _form(path)
    try:
        if form == "checkpoint":
            _network(checkpoint.read(path), path)
        elif form == "safetensors":
            with safe_open(path, "numpy"):  # reads the header only
                pass
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            if any("/code/" in name for name in names):
                raise InputMissing(f"{path}: holds a program (TorchScript), not a state dict; save the state dict of the network")
            if not any(name.endswith("data.pkl") for name in names):
                raise InputMissing(f"{path}: is no file that torch.save wrote")
    except BadCheckpoint as damaged:
        raise InputMissing(damaged.message) from None
    except SafetensorError as error:
        raise _no_safetensors(str(path), error) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise InputMissing(f"cannot read {path}: {error}") from None


def read(path: Path, allocate: Callable[[int], memoryview]) -> StartFile:
    """Read a file into a buffer, whose size `allocate` receives. Raises InputMissing or BadCheckpoint if it cannot be read."""
    form = _form(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None
    digest, codec = hashlib.sha256(data).hexdigest(), dict[str, Any]()
    if form == "checkpoint":
        from safetensors.numpy import save

        content = checkpoint.decode(data, str(path))
        data = save(_network(content, path))
        codec = manifest_of(content, str(path)).codec if "codec" in content.manifest else {}
        form = "safetensors"
    allocate(len(data))[: len(data)] = data
    return StartFile(str(path), form, digest, len(data), codec)


def tensors(file: StartFile, data: memoryview) -> Mapping[str, object]:
    """Return the arrays in memory, by name. Raises InputMissing if the file is damaged, or torch refuses a state dict."""
    if file.form == "safetensors":
        from safetensors.torch import load

        try:
            return dict(sorted(load(bytes(data)).items()))
        except (SafetensorError, KeyError) as error:  # KeyError: a type that torch does not have
            raise _no_safetensors(file.name, error) from None
    import io
    import pickle

    import torch

    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        unsafe = isinstance(error, pickle.UnpicklingError)  # torch's text advises to load it without protection
        reason = "it is damaged, or holds more than tensors" if unsafe else str(error).strip().splitlines()[0]
        advice = "save tensors only: torch.save(network.state_dict(), FILE)"
        raise InputMissing(f"{file.name}: cannot be read as a state dict: {reason}; {advice}") from None
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise InputMissing(f"{file.name}: holds an object of type {kind}, not a state dict; save network.state_dict()")
    return {str(name): value for name, value in content.items()}


def differences(file: StartFile, codec: Mapping[str, Any], exceptions: Sequence[str]) -> Iterator[str]:
    """Yield, in words, how the data that a checkpoint's network was trained on differ from these, where arrays do not show it.

    `codec`: of these data. `exceptions`: patterns of arrays that start from random numbers, the last layer's say.
    """
    before, now = (list(map(str, its.get("classes") or ())) for its in (file.codec, codec))
    if before != now and len(before) == len(now) and not exceptions:
        place = next(number for number, (own, other) in enumerate(zip(before, now, strict=True)) if own != other)
        yield (
            f"{file.name} answers other classes, or in another order: its class {place} is `{before[place]}`, here it is "
            f"`{now[place]}`; [model] except = [...] leaves out its last layer"
        )
    if file.codec and "cardinalities" not in codec and ("mean" in file.codec) != ("mean" in codec):
        standardised = (
            "standardised inputs, and these are not" if "mean" in file.codec else "inputs as they are, and these are standardised"
        )
        yield f"{file.name} was trained on {standardised}; give [dataset] standardise as its job does"


def _form(path: Path) -> Form:
    """Recognize the kind of a file by its first bytes, else by its suffix."""
    try:
        with path.open("rb") as file:
            first = file.read(len(MAGIC))
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None
    if first == MAGIC:
        return "checkpoint"
    if form := SUFFIXES.get(path.suffix.lower()):
        return form
    kinds = "a checkpoint of partrain, a run folder, .safetensors, or .pt, .pth or .bin with a state dict"
    raise InputMissing(f"{path}: a network cannot start from this kind of file; expected {kinds}")


def _network(content: checkpoint.Content, path: Path) -> dict[str, Any]:
    """Return the arrays of a checkpoint's mixed network, by their names in the state dict."""
    arrays = {name.removeprefix("model/"): array for name, array in content.arrays.items() if name.startswith("model/")}
    if not arrays:
        raise InputMissing(f"{path}: holds no network")
    return arrays


def _no_safetensors(name: str, error: Exception) -> InputMissing:
    return InputMissing(f"{name}: is no whole safetensors file: {str(error)[:200]}")
