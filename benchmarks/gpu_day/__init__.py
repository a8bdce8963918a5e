"""A day with a GPU: all that only a device can show, in parts of some minutes each. See `benchmarks/gpu_day/__main__.py`."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent
sys.path += [str(BENCHMARKS), str(ROOT / "tests")]  # `runs`, `balance`, `support` and others go by these names
