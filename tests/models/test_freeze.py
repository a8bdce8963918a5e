"""Frozen layers: neither their parameters nor, by default, their statistics change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from support.networks import SECTIONS, Case
from support.runs import newest, resume, round_file, train
from torch import nn

from partrain.checkpoint import decode
from partrain.models import Interface, build
from partrain.models.freeze import frozen_buffers

POINTS = Interface((5,), 3, "classification")
NET = 'name="mlp", hidden=[16, 8], batch_norm=true'
"""0 linear, 1 norm, 2 activation, 3 linear, 4 norm, 5 activation, 6 linear."""


def network(**keys: object) -> nn.Module:
    return Case(POINTS, {"name": "mlp", "hidden": [4, 4], "batch_norm": True, **keys}).build().train()


def statistics(run: Path, rounds: int) -> dict[str, NDArray[np.float32]]:
    arrays = decode(round_file(run, rounds).read_bytes()).arrays
    return {path: array for path, array in arrays.items() if "running_" in path or path.endswith("num_batches_tracked")}


def test_a_frozen_norm_computes_as_in_evaluation_and_does_not_change() -> None:
    module = network(freeze=["0.*", "1.*"])
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.eval()
    module.train()
    module(torch.randn(7, 5) + 3)
    moved = {name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])}
    assert moved == {f"4.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert frozen_buffers(module) == {name.replace("4.", "1.") for name in moved}


@pytest.mark.parametrize("freeze", [["1.weight"], ["0.*"]])
def test_a_norm_with_a_parameter_to_train_is_not_frozen(freeze: list[str]) -> None:
    assert not frozen_buffers(network(freeze=freeze))


def test_statistics_may_follow_the_items() -> None:
    module = network(freeze=["0.*", "1.*"], freeze_statistics=False)
    module(torch.randn(7, 5) + 3)
    assert module.get_buffer("1.running_mean").any()
    assert not frozen_buffers(module)


def test_a_norm_without_parameters_goes_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        "from torch import nn\ndef Net(): return nn.Sequential(nn.BatchNorm1d(5, affine=False), nn.Linear(5, 3), nn.Linear(3, 3))\n"
    )

    def frozen(pattern: str) -> set[str]:
        section = SECTIONS.validate_python({"name": "bare.py:Net", "freeze": [pattern]})
        return frozen_buffers(build(section, tmp_path, POINTS))

    assert not frozen("1.*")
    assert frozen("[01].*") == {"0.running_mean", "0.running_var", "0.num_batches_tracked"}


def test_without_freeze_the_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="`freeze_statistics` has no effect without `freeze`"):
        SECTIONS.validate_python({"name": "mlp", "freeze_statistics": False})


@pytest.mark.parametrize("policy", ["average", "recalibrate", "local"])
def test_still_under_every_policy_and_exact_on_resume(tmp_path: Path, policy: str) -> None:
    """The second norm moves, the first does not; on both transports, and after an interruption."""
    keys = f'model={{{NET}, freeze=["0.*", "1.*"]}}', f"sync.buffers='{policy}'"
    runs = [train(tmp_path / kind, *keys, f"transport.kind='{kind}'") for kind in ("simulated", "shared")]
    for run in runs:
        for path, array in statistics(run, 4).items():
            if "/1." in path:
                assert np.array_equal(array, np.full_like(array, path.endswith("running_var"))), path
            else:
                assert not np.array_equal(array, np.full_like(array, path.endswith("running_var"))), path
    first, second = (decode(newest(run)).arrays for run in runs)
    assert all(np.array_equal(array, second[path]) for path, array in first.items())
    resume(round_file(runs[0], 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(runs[0])
