"""Damage files at random, repair every digest and checksum, and read them: `python -m support.checkpoint_fuzz SEED COUNT` in tests/.

With `--unrepaired` the digests stay those of the whole file, and the header is damaged too. Prints how many were refused and how many
accepted (a byte in a gap, or in the text of the manifest that still parses). Anything but content or BadCheckpoint ends it with an error.
"""

from __future__ import annotations

import resource
import sys

import numpy as np
from support.checkpoint_samples import forge, repair, sealed

from partrain.checkpoint import decode
from partrain.checkpoint.header import SIZE
from partrain.errors import BadCheckpoint


def main(seed: int, count: int, repaired: bool = True) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (90, 90))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole = forge()[SIZE:] if repaired else forge()
    random = np.random.default_rng(seed)
    structure = np.flatnonzero(np.frombuffer(whole, np.uint8))  # most zeros are gaps
    outcomes = [0, 0]
    while sum(outcomes) < count:
        image = bytearray(whole)
        for place in random.choice(structure, random.integers(1, 4)):
            image[place] = random.integers(256) if repaired else image[place] ^ (1 << int(random.integers(8)))
        if repaired:
            try:
                repair(image)
            except IndexError:  # the size of an object header points out of the file
                continue
        elif image == whole:  # the same bit was changed twice
            continue
        try:
            decode(sealed(bytes(image)) if repaired else bytes(image))
            outcomes[1] += 1
        except BadCheckpoint:
            outcomes[0] += 1
    print(*outcomes)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "--unrepaired" not in sys.argv)
