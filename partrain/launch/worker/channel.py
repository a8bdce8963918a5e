"""The pipe from a worker process to the coordinator, and the translation of exceptions into failures that a user understands."""

from __future__ import annotations

import contextlib
import threading
import traceback
from multiprocessing.connection import Connection

from partrain.config import usercode
from partrain.config.problems import WrongValue
from partrain.errors import BadJob, Failure, UserCodeFailed, WorkersLost
from partrain.launch.worker.messages import Failed, Message, encode
from partrain.optim import SINGLE_ITEMS

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
"""Words in torch's messages where torch has no exception type: pinned memory, a device's context, the CPU, CUDA's libraries."""


class Channel:
    """Sends messages to the coordinator, from any thread."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message. A dead coordinator is no error: this process ends with it."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._pipe.send_bytes(encode(message))


def report(rank: int | None, process: str, error: BaseException, failure: Failure | None, channel: Channel) -> None:
    """Send an error. `failure` explains it to the user; None means a defect of partrain."""
    if failure:
        finding = list(failure.finding) if isinstance(failure, WrongValue) else None
        channel.send(Failed(rank, failure.code, failure.name, failure.message, failure.detail, finding))
    else:
        trace = "".join(traceback.format_exception(error))
        channel.send(Failed(rank, 70, "internal", f"{process}: {_describe(error)}", trace))


def explain(error: BaseException, where: str, user_code: str, *, built: bool) -> Failure | None:
    """Turn an exception into a failure that the user can act on, or None for a defect of partrain.

    Args:
        error: The exception.
        where: Worker, round and iteration.
        user_code: Names of the job's user code, if any. It is blamed until everything is `built`.
        built: True if the network and its data were ready.
    """
    import torch

    if isinstance(error, Failure):
        return error
    text = _describe(error)
    if "more than 1 value per channel" in text:  # a short last batch, or a part of one
        return BadJob(f"{where}: BatchNorm needs at least two items at a time: {SINGLE_ITEMS}")
    if frames := usercode.frames(error):
        return UserCodeFailed(f"{where}: {text.splitlines()[0]}", frames + text)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in text for words in OUT_OF_MEMORY):
        return (UserCodeFailed if user_code else BadJob)(f"{where}: out of memory: {text.splitlines()[0]}")
    if user_code and (not built or isinstance(error, TypeError | RuntimeError | ValueError | IndexError)):
        return UserCodeFailed(f"{where}: {user_code}: {text.splitlines()[0]}", text)
    if isinstance(error, torch.AcceleratorError):
        return WorkersLost(f"{where}: the device failed: {text.splitlines()[0]}")
    return None


def _describe(error: BaseException) -> str:
    """Describe an exception in words. Its `__str__` may be user code, and fail."""
    try:
        words = f": {error}"[: 64 << 10].rstrip(": \n")
    except Exception:
        words = ""
    return type(error).__name__ + words
