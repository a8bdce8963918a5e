"""The work that the process of a user's data set does, and the position of a worker in its stream."""

from __future__ import annotations

from typing import NamedTuple

from partrain.data.base import StreamForm


class Cursor(NamedTuple):
    """A position between two items of a stream: what a checkpoint keeps of it."""

    pass_number: int = 0
    """Passes before this one."""
    drawn: int = 0
    """Items of this pass before the position."""
    digest: int = 0
    """Digest of the last of these items: a resumed stream must give the same. 0 if there is none."""


class Reading(NamedTuple):
    """Reading of all items; of a stream, of its first, held-out and test items."""

    held: bool
    """Their number, or their lengths, are known only at the end: the process holds them until then."""


class Lengths(NamedTuple):
    """Asking for the length of each shard of a stream."""

    size: int
    """Number of workers."""


class Share(NamedTuple):
    """Drawing of one worker's batches from a stream."""

    form: StreamForm
    rank: int
    size: int
    seed: int
    batch_size: int
    length: int | None
    """Items of the shard in each pass, if known."""
    whole_passes: bool
    """The last batch of a pass may be short; otherwise batches run on into the next pass. They need the length."""


Work = Reading | Lengths | Share
