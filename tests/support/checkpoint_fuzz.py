"""Damage files at random, repair every digest, and read them: `python -m support.checkpoint_fuzz SEED COUNT` in tests/.

With `--unrepaired` the digests stay those of the whole file, and header and numbers are damaged too. Prints how many were refused and
how many accepted (a text of the manifest that still parses). Anything but content or BadCheckpoint ends it with an error.
"""

from __future__ import annotations

import resource
import sys

import numpy as np
from support.checkpoint_samples import forge, sealed

from partrain.checkpoint import decode
from partrain.checkpoint.header import SIZE, parse
from partrain.errors import BadCheckpoint


def main(seed: int, count: int, repaired: bool = True) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (90, 90))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole = forge()
    place = parse(whole[:SIZE]).manifest
    random = np.random.default_rng(seed)
    outcomes = [0, 0]
    while sum(outcomes) < count:
        damaged = bytearray(whole)
        for byte in random.integers(place[0] if repaired else 0, len(whole), random.integers(1, 4)):
            damaged[byte] = random.integers(32, 127) if repaired else damaged[byte] ^ (1 << int(random.integers(8)))
        if damaged == whole:
            continue
        try:
            decode(sealed(bytes(damaged[SIZE:]), place) if repaired else bytes(damaged))
            outcomes[1] += 1
        except BadCheckpoint:
            outcomes[0] += 1
    print(*outcomes)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "--unrepaired" not in sys.argv)
