"""The work of the process of a user's data set, and the position of a worker in its stream."""

from __future__ import annotations

from typing import NamedTuple

from partrain.data.base import StreamForm


class Cursor(NamedTuple):
    """A position between two items of a stream, as a checkpoint stores it."""

    pass_number: int = 0
    """Number of passes before this one."""
    drawn: int = 0
    """Number of items of this pass before the position."""
    digest: int = 0
    """Digest of the last of these items, which a resumed stream must repeat. 0 without one."""


class Reading(NamedTuple):
    """Read all items; of a stream, its first, held-out and test items."""

    held: bool
    """Number or lengths of the items are known only at the end: the process holds the items until then."""


class Lengths(NamedTuple):
    """Ask for the length of each shard of a stream."""

    size: int
    """Number of workers."""


class Share(NamedTuple):
    """Draw one worker's batches from a stream."""

    form: StreamForm
    rank: int
    size: int
    seed: int
    batch_size: int
    length: int | None
    """Number of items of the shard in each pass, if known."""
    whole_passes: bool
    """The last batch of a pass may be short; otherwise batches run on into the next pass. Requires the length."""


Work = Reading | Lengths | Share
