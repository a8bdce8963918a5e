"""What a worker looks at before it begins: whether there is memory for all."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from partrain.errors import BadJob
from partrain.launch.worker import setup
from partrain.optim import Sgd
from partrain.system.memory import MemoryLimits
from partrain.training.replica import row_layout

LAYOUT = row_layout(nn.Linear(32, 2, bias=False), Sgd(lr=0.1, momentum=0.9))
"""Parameters, gradient and one moment of 64 numbers each."""


def spec(devices: list[str], members: range, shares_params: bool, memory: MemoryLimits) -> Any:
    shares = [SimpleNamespace(spec=SimpleNamespace(device=device)) for device in devices]
    job = SimpleNamespace(sync=SimpleNamespace(shares_params=shares_params))
    return SimpleNamespace(plan=SimpleNamespace(shares=shares), members=members, job=job, memory=memory)


CASES = {
    "all": (["cpu"] * 4, range(4), False, 4 * 3 * 64 * 4),
    "those of this machine": (["cpu"] * 4, range(2, 4), False, 2 * 3 * 64 * 4),
    "rows of other devices are not all here": (["cpu", "cuda:0"], range(2), False, 3 * 64 * 4),
    "parameters in one place": (["cpu"] * 4, range(4), True, 4 * 2 * 64 * 4),
}


@pytest.mark.parametrize(("devices", "members", "shares_params", "needed"), CASES.values(), ids=CASES)
def test_rows_that_never_fit_are_refused(devices: list[str], members: range, shares_params: bool, needed: int) -> None:
    setup.require_memory(spec(devices, members, shares_params, MemoryLimits(needed, needed, 0)), LAYOUT)
    with pytest.raises(BadJob, match=r"^\[\[workers\]\]: \d on the CPU need .* take fewer workers or a smaller network$"):
        setup.require_memory(spec(devices, members, shares_params, MemoryLimits(needed - 1, needed - 1, 0)), LAYOUT)


@pytest.mark.parametrize(("devices", "members", "shares_params", "needed"), CASES.values(), ids=CASES)
def test_rows_that_do_not_fit_now_are_refused(devices: list[str], members: range, shares_params: bool, needed: int) -> None:
    """Caches count as memory that is there, and so does swap."""
    setup.require_memory(spec(devices, members, shares_params, MemoryLimits(2 * needed, needed, 0)), LAYOUT)
    with pytest.raises(
        BadJob, match=r"^\[\[workers\]\]: \d on the CPU need .* are not in use; free memory, or take fewer workers"
    ):
        setup.require_memory(spec(devices, members, shares_params, MemoryLimits(2 * needed, needed - 1, 0)), LAYOUT)
    setup.require_memory(spec(devices, members, shares_params, MemoryLimits(needed // 2, needed, 0)), LAYOUT)
