"""Packages that take seconds to import: the forkserver of a module's tests imports them once, not each of its children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import forkserver as standard
from pathlib import Path

import pytest

from partrain.launch import forkserver


@pytest.fixture(scope="module")
def metrics_preloaded() -> Iterator[None]:
    """Start a forkserver that has torchmetrics. Other tests get one without it."""
    with forkserver_with("torchmetrics"):
        yield


@pytest.fixture(scope="module")
def torchvision_preloaded() -> Iterator[None]:
    """Start a forkserver that has torchvision and timm. Other tests get one without them."""
    with forkserver_with("torchvision"):
        yield


@contextmanager
def forkserver_with(package: str) -> Iterator[None]:
    """Have a forkserver that imports `support.PACKAGE_imported` before its first child, if the package is there."""
    if find_spec(package) is None:
        yield
        return
    preload = standard.set_forkserver_preload
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standard, "set_forkserver_preload", lambda names: preload([*names, f"support.{package}_imported"]))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        forkserver.stop()
        yield
    forkserver.stop()
