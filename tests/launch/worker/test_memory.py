"""Memory that workers need: they are refused before the kernel kills one of them."""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.rule_forms import VARIANTS
from torch import nn

from partrain.checkpoint.section import CheckpointSection
from partrain.comm.section import TransportSection
from partrain.errors import BadJob
from partrain.launch.worker import memory
from partrain.launch.worker.memory import FILE_BYTES, ROUND_BYTES, DiskNeeds, MemoryNeeds
from partrain.launch.worker.setup import ProcessSetup
from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.system.memory import MemoryLimits
from partrain.training.replica import row_layout

NETWORK = nn.Linear(32, 2, bias=False)
LAYOUT = row_layout(NETWORK, Sgd(lr=0.1, momentum=0.9))
"""Parameters, gradient and one moment of 64 numbers each."""


class Joint(Average):
    """A rule whose workers change the same parameters."""

    @property
    def shares_params(self) -> bool:
        return True


def needs(devices: list[str], members: range, shares_params: bool) -> MemoryNeeds:
    shares = [SimpleNamespace(spec=SimpleNamespace(device=device, process=rank)) for rank, device in enumerate(devices)]
    rule = (Joint if shares_params else Average)(rule="average", iterations=1)
    job: Any = SimpleNamespace(sync=rule, transport=TransportSection())
    plan: Any = SimpleNamespace(shares=shares, held_out=10)
    return MemoryNeeds.of(NETWORK, LAYOUT, job, plan, members, 132)


CASES = {
    "all": (["cpu"] * 4, range(4), False, 4 * 3 * 64 * 4),
    "those of this machine": (["cpu"] * 4, range(2, 4), False, 2 * 3 * 64 * 4),
    "rows of other devices are not all here": (["cpu", "cuda:0"], range(2), False, 3 * 64 * 4),
    "parameters in one place": (["cpu"] * 4, range(4), True, 4 * 2 * 64 * 4),
}


@pytest.mark.parametrize(("devices", "members", "shares_params", "needed"), CASES.values(), ids=CASES)
def test_rows_that_never_fit_are_refused(devices: list[str], members: range, shares_params: bool, needed: int) -> None:
    memory = needs(devices, members, shares_params)
    memory.require(MemoryLimits(needed, needed, 0))
    with pytest.raises(BadJob, match=r"^\[\[workers\]\]: \d on the CPU need .* take fewer workers or a smaller network$"):
        memory.require(MemoryLimits(needed - 1, needed - 1, 0))


@pytest.mark.parametrize(("devices", "members", "shares_params", "needed"), CASES.values(), ids=CASES)
def test_rows_that_do_not_fit_now_are_refused(devices: list[str], members: range, shares_params: bool, needed: int) -> None:
    """Caches count as memory that is there, and so does swap."""
    memory = needs(devices, members, shares_params)
    memory.require(MemoryLimits(2 * needed, needed, 0))
    with pytest.raises(
        BadJob, match=r"^\[\[workers\]\]: \d on the CPU need .* are not in use; free memory, or take fewer workers"
    ):
        memory.require(MemoryLimits(2 * needed, needed - 1, 0))
    memory.require(MemoryLimits(needed // 2, needed, 0))


def test_a_run_that_may_not_fit_is_warned_of() -> None:
    memory = needs(["cpu"] * 2, range(2), False)
    assert memory.copies == 2 * 10 * 132
    assert memory.warning(MemoryLimits(1 << 40, 1 << 40, memory.total)) == ""
    assert memory.warning(MemoryLimits(1 << 40, 1 << 40, memory.total - 1)).startswith("memory may not suffice: this run needs")


@pytest.mark.parametrize(("rounds", "every", "files"), [(0, 1, 3), (100, 1, 3), (2, 1, 2), (100, 60, 2)])
def test_checkpoints_that_the_disk_cannot_hold_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rounds: int, every: int, files: int
) -> None:
    job: Any = SimpleNamespace(checkpoint=CheckpointSection(keep=2, every=every))
    enough = files * (1000 + FILE_BYTES + rounds * ROUND_BYTES)
    for free, warns in (enough, False), (enough - 1, True):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        needs = DiskNeeds.of(1000, job, rounds, tmp_path)
        assert needs.checkpoints == files
        assert needs.warning.startswith("disk space may not suffice: this run keeps ") is warns


def test_states_are_sized_without_an_import_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some sums on the device `meta` import torch._dynamo: two seconds in each worker."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    layout: Any = SimpleNamespace(params=SimpleNamespace(size=9, dtype=torch.float32))
    for rule in VARIANTS.values():
        memory._state(rule, layout, 2)


def test_networks_of_one_process_share_their_memory_until_they_move_into_rows() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    module[1].weight = module[0].weight
    module[0].bias.requires_grad_(False)
    setup = ProcessSetup.__new__(ProcessSetup)
    vars(setup).update(spec=SimpleNamespace(ranks=[0, 1], job=SimpleNamespace(network_code=())), _built=(module, ""))
    one, other = (setup.network()[0] for _ in range(2))
    for own, theirs, drawn in zip(one.parameters(), other.parameters(), module.parameters(), strict=True):
        assert own.data_ptr() == theirs.data_ptr() == drawn.data_ptr()
        assert own is not theirs
        assert own.requires_grad == drawn.requires_grad
    assert one[0].weight is one[1].weight
    assert one[2].running_mean.data_ptr() != other[2].running_mean.data_ptr()
