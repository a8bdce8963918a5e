"""Messages from a worker process to the coordinator, and how an exception becomes a failure that a user understands."""

from __future__ import annotations

import contextlib
import json
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from partrain.config import usercode
from partrain.errors import BadJob, Failure, UserCodeFailed

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
"""What torch says of it where it has no exception for it: of pinned memory and a device's context, of the CPU's, of CUDA's libraries."""


class Channel:
    """Messages to the coordinator: JSON, one pipe, any thread."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, kind: str, **content: Any) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._pipe.send_bytes(json.dumps({"kind": kind, **content}).encode())


def report(rank: int, who: str, error: BaseException, failure: Failure | None, talk: Channel) -> None:
    """Say what went wrong; `failure` is how the user may understand it, None if the defect is ours."""
    internal = None if failure else "".join(traceback.format_exception(error))
    talk.send(
        "failed",
        rank=rank,
        code=failure.code if failure else 70,
        name=failure.name if failure else "internal",
        message=failure.message if failure else f"{who}: {_text(error)}",
        detail=failure.detail if failure else internal,
    )


def explain(error: BaseException, where: str, users: str, built: bool) -> Failure | None:
    """The failure the user can act on, or None if the defect is ours; `users` names the code of the user's own, if there is any:
    until all is `built`, it is to blame."""
    if isinstance(error, Failure):
        return error
    text = _text(error)
    if frames := usercode.frames(error):
        return UserCodeFailed(f"{where}: {text.splitlines()[0]}", frames + text)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in text for words in OUT_OF_MEMORY):
        return (UserCodeFailed if users else BadJob)(f"{where}: out of memory: {text.splitlines()[0]}")
    if "more than 1 value per channel" in text:  # a short last batch, or a part of one
        message = "BatchNorm needs at least two items at a time: change `batch_size` or `accumulate`, or use `iterations`"
        return BadJob(f"{where}: {message}")
    if users and (not built or isinstance(error, TypeError | RuntimeError | ValueError | IndexError)):
        return UserCodeFailed(f"{where}: {users}: {text.splitlines()[0]}", text)
    return None


def _text(error: BaseException) -> str:
    """An exception in words, as far as it can say any."""
    try:
        words = f": {error}"[: 64 << 10].rstrip(": \n")
    except Exception:
        words = ""
    return type(error).__name__ + words
