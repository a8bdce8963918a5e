"""Randomness without hidden state: every generator is derived from the job's seed and a purpose (name, worker, pass, ...).

No generator depends on how much randomness was drawn before, so a resumed run needs no generator state.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive(seed: int, *purpose: str | int) -> int:
    """Derive a 63-bit seed for one purpose, such as `derive(0, "pass", rank, number)`. Different purposes give unrelated seeds."""
    text = "\0".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Make a numpy generator for one purpose."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive(seed, *purpose)))
