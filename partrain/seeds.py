"""Randomness without hidden state: every generator is derived from the job's seed and a purpose (name, worker, pass, ...).

No generator depends on how much randomness was drawn before, so a resumed run needs no generator state.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the default generators of torch (CPU), Python and numpy, and restore them afterwards: user code may draw from any."""
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
