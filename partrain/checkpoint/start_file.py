"""The file that a network starts from: `[model] from`. Its kind and its header are checked without torch.

    checkpoint     of partrain, or a run folder, whose newest checkpoint counts: the arrays of its mixed network
    safetensors    8 bytes of length, a header in JSON, then the numbers
    state dict     written by `torch.save`, read with `weights_only=True`, which runs no code

The coordinator reads a file once, into memory that all workers share. A checkpoint's network is kept there as safetensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from partrain import checkpoint
from partrain.checkpoint import pretrained
from partrain.checkpoint.content import ContentRefused
from partrain.checkpoint.runs import checkpoint_of
from partrain.data.fetch import TransferLines, fetch_url, is_url, local_path
from partrain.errors import BadCheckpoint, InputMissing
from partrain.models.image_sections import Published
from partrain.system.regular_file import parse_json

if TYPE_CHECKING:
    from torch import Tensor

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
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""Bytes of a number of each type of safetensors."""
DTYPES = {
    "<f8": "F64",
    "<f4": "F32",
    "<f2": "F16",
    "<i8": "I64",
    "<i4": "I32",
    "<i2": "I16",
    "|i1": "I8",
    "|u1": "U8",
    "|b1": "BOOL",
}
"""Types of safetensors by numpy's names."""
MAX_HEADER = 100_000_000
"""Maximum length of a header in bytes, as in the reference implementation."""


@dataclass(frozen=True)
class StartFile:
    """A file to start from, once it has been read."""

    name: str
    """Its path, for messages."""
    form: Form
    """Form of the bytes in memory: a checkpoint's network has become safetensors."""
    sha256: str
    """Digest of the file (hex)."""
    size: int
    """Bytes in memory."""


def file_of(section: Network, folder: Path) -> Path | None:
    """Return the file that a network starts from, by `from` or by the name of weights; None if all its numbers are drawn.

    A missing file is fetched if the job gives its digest. Raises InputMissing if there is none. `folder` holds the job.
    """
    if isinstance(section, Published) and section.starts_published:
        return pretrained.locate(section)
    return None if section.start_file is None else locate(section.start_file, folder)


def locate(name: str, folder: Path) -> Path:
    """Return the file that `[model] from` names; `folder` holds the job. InputMissing if there is none."""
    if is_url(name):
        fetch_url(name, TransferLines())
        return local_path(name, folder)
    named = folder / name
    path = checkpoint_of(
        named.parent.resolve() / named.name
    )  # a link's own name tells the kind of file, as in Hugging Face's cache
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if not path.is_file():
        raise InputMissing(f"{path}: is not a regular file")
    return path


def missing_url(section: Network) -> str | None:
    """Return the URL in `from` whose file has not been fetched yet; None if there is none. Raises InputMissing without a digest."""
    name = section.start_file
    return name if name and is_url(name) and not local_path(name, Path()).is_file() else None


def check(path: Path) -> None:
    """Check that a file can be started from, as far as that is known without torch. Raises InputMissing if it cannot."""
    form = _form(path)
    try:
        if form == "checkpoint":
            _network(checkpoint.read(path), path)
        elif form == "safetensors":
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = file.read(min(length, MAX_HEADER))
            _parse(length.to_bytes(8, "little") + header, path.stat().st_size, path)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            if any("/code/" in name for name in names):
                raise InputMissing(f"{path}: holds a program (TorchScript), not a state dict; save the state dict of the network")
            if not any(name.endswith("data.pkl") for name in names):
                raise InputMissing(f"{path}: is no file that torch.save wrote")
    except BadCheckpoint as damaged:
        raise InputMissing(damaged.message) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise InputMissing(f"cannot read {path}: {error}") from None


def read(path: Path, allocate: Callable[[int], memoryview]) -> StartFile:
    """Read a file into a buffer, whose size `allocate` receives. Raises InputMissing or BadCheckpoint if it cannot be read."""
    form = _form(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None
    digest = hashlib.sha256(data).hexdigest()
    if form == "checkpoint":
        data = _encode(_network(checkpoint.decode(data, str(path)), path))
        form = "safetensors"
    elif form == "safetensors":
        _parse(data, len(data), path)
    allocate(len(data))[: len(data)] = data
    return StartFile(str(path), form, digest, len(data))


def tensors(file: StartFile, data: memoryview) -> Mapping[str, object]:
    """Return the arrays that lie in memory, by name. InputMissing if torch refuses a state dict."""
    import torch

    if file.form == "safetensors":
        return _tensors(data, Path(file.name))
    import io
    import pickle

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
    return {str(name): one for name, one in content.items()}


def _form(path: Path) -> Form:
    """Recognize a kind of file by its first bytes, else by its suffix."""
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
    arrays = {name.removeprefix("model/"): one for name, one in content.arrays.items() if name.startswith("model/")}
    if not arrays:
        raise InputMissing(f"{path}: holds no network")
    return arrays


def _encode(arrays: Mapping[str, Any]) -> bytes:
    """Write arrays as safetensors. The header is padded, so that the numbers are aligned."""
    header, end = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": DTYPES[array.dtype.str], "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays.values())])


def _parse(data: bytes | memoryview, size: int, path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Check the header of a safetensors file of `size` bytes. Returns the start of the numbers, and the entries by name."""
    length = int.from_bytes(data[:8], "little")
    try:
        if len(data) < 8 or length > MAX_HEADER or 8 + length > size:
            raise ContentRefused("it is cut short, or no safetensors file")
        header = parse_json(bytes(data[8 : 8 + length]))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if kind not in WIDTHS:
                raise ContentRefused(f"`{name}` is of type {kind}, which networks cannot start from")
            if not 0 <= start <= end <= size - 8 - length or end - start != math.prod(shape) * WIDTHS[kind]:
                raise ContentRefused(
                    f"the numbers of `{name}` do not lie where the header says: the file is damaged or cut short"
                )
        return 8 + length, header
    except ContentRefused as problem:
        raise InputMissing(f"{path}: {problem}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputMissing(f"{path}: its header is not that of a safetensors file") from None


def _tensors(data: memoryview, path: Path) -> dict[str, Tensor]:
    """Return the arrays of a safetensors file as tensors that own their memory."""
    import torch

    kinds = {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "I64": torch.int64,
        "I32": torch.int32,
        "I16": torch.int16,
        "I8": torch.int8,
        "U8": torch.uint8,
        "BOOL": torch.bool,
    }
    first, header = _parse(data, len(data), path)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        found[name] = torch.empty(entry["shape"], dtype=kinds[entry["dtype"]])
        if end > start:
            found[name].view(-1).view(torch.uint8)[:] = torch.frombuffer(data[first + start : first + end], dtype=torch.uint8)
    return found
