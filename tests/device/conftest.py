"""The accelerator of these tests: the emulated device (`make test-device`), or a real one (`make test-gpu` for CUDA)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.replicas import Trainer

KIND = os.environ.get("TEST_DEVICE", "emulated")


@pytest.fixture(autouse=True)
def there() -> None:
    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None or kind.type != KIND:
        pytest.skip(f"no device of the kind {KIND}: make test-device")


@pytest.fixture
def device() -> torch.device:
    return torch.device(KIND, 0)


@pytest.fixture
def near(tmp_path: Path) -> Trainer:
    """Trains replicas on both kinds of device in this process."""
    return Trainer(tmp_path)


@pytest.fixture
def emulated() -> Iterator[Any]:
    """The emulated device's own controls; afterwards both devices are as they were."""
    if KIND != "emulated":
        pytest.skip("about the emulated device")
    library = torch.get_device_module(KIND).library
    yield library
    for index in range(2):
        library.revive(index)
        library.slow_down(index, 1.0)
        library.limit_memory(index, 1 << 40)
        library.refuse_float64(index, False)
