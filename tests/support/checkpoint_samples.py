"""Sample contents, and a forge that makes wrong files with right digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from partrain.checkpoint import Content
from partrain.checkpoint.header import SIZE, Header
from partrain.training.stop import Progress

JOB = 'name = "sample"\n'


def arrays() -> dict[str, np.ndarray]:
    """Return the arrays of a small network after three rounds of two workers."""
    values = {f"model/{name}": np.linspace(-1, 1, size, dtype=np.float32) for name, size in (("0.weight", 12), ("0.bias", 3))}
    workers = {f"workers/{rank}/optimizer/momentum": np.full(15, rank, np.float32) for rank in range(2)}
    history = {"history/round": np.arange(1, 4), "history/loss": np.array([2.0, 1.0, 0.5])}
    judged = {"history/judged_loss": np.array([np.nan, np.nan, 0.6]), "history/items": np.full((3, 2), 640)}
    return {**values, **workers, **history, **judged, "rule/step": np.array(3)}


def manifest(**more: Any) -> dict[str, Any]:
    return {"run": "0123abcd", "round": 3, "item_iterations": 3840, **more}


TRAINED: dict[str, Any] = {
    "name": "sample",
    "versions": {},
    "data": "0" * 64,
    "codec": {},
    "folder": "/",
    "horizon": None,
    "network": {"input": [4], "outputs": 3, "task": "classification", "vocabulary": None, "of_bytes": False},
    "workers": [{"rank": rank, "device": "cpu", "threads": 1, "partition": 8} for rank in range(2)],
    "progress": asdict(Progress(round=3)),
}
"""The keys that a training adds to a manifest."""


def content(**more: np.ndarray) -> Content:
    return Content(arrays() | {path.replace("__", "/"): array for path, array in more.items()}, JOB, manifest())


def sealed(payload: bytes, place: tuple[int, int] = (0, 0), run: str = "0123abcd", number: int = 3) -> bytes:
    """Prefix a payload with its right header. `place`: first byte and length of the manifest."""
    return Header.of(payload, place, run, number).render() + payload


def forge(
    listed: Callable[[dict[str, Any]], None] = lambda datasets: None,
    text: Callable[[str], str] = lambda text: text,
    job: bytes = JOB.encode(),
    more_arrays: dict[str, np.ndarray] | None = None,
    run: str | None = "0123abcd",
    number: int = 3,
    **more: Any,
) -> bytes:
    """Make a file with right digests whose numbers, job or manifest are wrong. It is no HDF5: the reader does not look.

    `listed` alters the manifest's list of datasets, `text` its text, `more` its keys; `more_arrays` are stored and listed.
    """
    payload, datasets = b"", {}
    for path, array in [*sorted((arrays() | (more_arrays or {})).items()), ("job", np.array(job, f"S{len(job)}"))]:
        payload = payload.ljust(-len(payload) % 64 + len(payload), b"\0")
        kind = array.dtype.name if array.dtype.kind != "S" else f"S{array.itemsize}"
        offset, digest = SIZE + len(payload), hashlib.sha256(array.tobytes()).hexdigest()
        datasets[path] = {"dtype": kind, "shape": list(array.shape), "offset": offset, "sha256": digest}
        payload += array.tobytes()
    listed(datasets)
    stored = manifest(**{"run": run, **more}) | {"datasets": datasets}
    said = text(json.dumps(stored, sort_keys=True, separators=(",", ":"))).encode()
    payload = payload.ljust(-len(payload) % 64 + len(payload), b"\0")
    return sealed(payload + said, (SIZE + len(payload), len(said)), number=number)
