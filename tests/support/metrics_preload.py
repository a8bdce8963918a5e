"""torchmetrics takes seconds to import: the forkserver of a module's tests imports it once, not each of its children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import forkserver as standard
from pathlib import Path

import pytest

from partrain.launch import forkserver


@pytest.fixture(scope="module")
def metrics_preloaded() -> Iterator[None]:
    """Start a forkserver that has torchmetrics. Other tests get one without it."""
    if find_spec("torchmetrics") is None:
        yield
        return
    preload = standard.set_forkserver_preload
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standard, "set_forkserver_preload", lambda names: preload([*names, "support.torchmetrics_imported"]))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        forkserver.stop()
        yield
    forkserver.stop()
