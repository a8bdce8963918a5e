"""Snapshots: every array has its place, and comes back as it was."""

import json

import numpy as np
import pytest
import torch
from support.lab import Trial, restless
from support.rule_forms import VARIANTS
from torch import nn

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.rules.average import Average
from partrain.training.replica import row_layout
from partrain.training.snapshot import restore, save, slot_map
from partrain.training.snapshot_layout import SlotMap

ARRAYS = [("a", "<f4", (3, 5)), ("b", "<i8", ()), ("empty", "<f4", (0, 4)), ("c", "|u1", (7,)), ("d", "<f8", (2,))]


def test_arrays_lie_on_cache_lines_one_behind_the_other() -> None:
    entries = SlotMap.of(ARRAYS).entries
    assert [entry.start for entry in entries] == [0, 64, 128, 128, 192]
    assert SlotMap.of(ARRAYS).size == 208


def test_what_is_written_into_a_view_lies_in_the_slot() -> None:
    slots = SlotMap.of(ARRAYS)
    buffer = bytearray(slots.size)
    for number, array in enumerate(slots.view(memoryview(buffer)).values()):
        array[...] = number + 1
    again = slots.view(memoryview(buffer))
    assert {path: (array.dtype.str, array.shape, set(array.flatten().tolist())) for path, array in again.items()} == {
        "a": ("<f4", (3, 5), {1.0}), "b": ("<i8", (), {2}), "empty": ("<f4", (0, 4), set()), "c": ("|u1", (7,), {4}), "d": ("<f8", (2,), {5.0}),
    }  # fmt: skip


def test_each_worker_has_a_part_of_its_own() -> None:
    slots = SlotMap.of(ARRAYS[:2], ARRAYS[3:], 2)
    assert [(entry.path, entry.start) for entry in slots.entries] == [
        ("a", 0), ("b", 64), ("workers/0/c", 128), ("workers/0/d", 192), ("workers/1/c", 256), ("workers/1/d", 320),
    ]  # fmt: skip
    assert [slots.part(rank) for rank in range(2)] == [slice(128, 208), slice(256, 336)]
    assert slots.size == 336
    slot = memoryview(bytearray(slots.size))
    slots.view(slot)["workers/1/d"][...] = 7.0
    own = slots.view(slot, 1)
    assert list(own) == ["a", "b", "workers/1/c", "workers/1/d"]
    assert own["workers/1/d"].tolist() == [7.0, 7.0]


def test_a_map_travels_as_json() -> None:
    slots = SlotMap.of(ARRAYS, ARRAYS[:1], 3)
    assert SlotMap.from_json(json.loads(json.dumps(slots.to_json()))) == slots


def paths(rule: Average, optimizer: Sgd | Adam) -> set[str]:
    network = restless()
    return {entry.path for entry in slot_map(network, row_layout(network, optimizer), rule, 2).entries}


def test_a_snapshot_holds_the_network_under_its_own_names() -> None:
    assert {path.removeprefix("model/") for path in paths(Average(), Sgd(lr=1.0)) if path.startswith("model/")} == set(
        restless().state_dict()
    )


def test_a_snapshot_holds_what_only_a_worker_has() -> None:
    found = paths(Average(buffers="local", optimizer_state="local"), Adam(name="adam", lr=1.0))
    assert {path.removeprefix("workers/1/") for path in found if path.startswith("workers/1/")} == {
        "counts", "optimizer/exp_avg", "optimizer/exp_avg_sq", "optimizer/step",
        "buffers/1.running_mean", "buffers/1.running_var", "buffers/1.num_batches_tracked",
    }  # fmt: skip


def test_averaged_moments_are_kept_once() -> None:
    found = paths(Average(), Adam(name="adam", lr=1.0))
    assert {path for path in found if "optimizer" in path} == {"optimizer/exp_avg", "optimizer/exp_avg_sq", "optimizer/step"}
    assert {path for path in found if path.startswith("workers/1/")} == {"workers/1/counts"}


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_averaged_moments_are_equal_on_all_workers(name: str) -> None:
    """A checkpoint keeps one copy of them on the strength of the configuration alone."""
    rule = VARIANTS[name].model_copy(update={"optimizer_state": "average"})
    members, _ = Trial(rule, Adam(name="adam", lr=0.01, batch_size=5)).run(2)
    first, *others = [member.worker.optimizer.moments for member in members]
    assert others
    assert all(torch.equal(first, moments) for moments in others)


def test_what_is_reset_is_not_kept() -> None:
    assert not [path for path in paths(Average(optimizer_state="reset"), Adam(name="adam", lr=1.0)) if "optimizer" in path]


def test_counts_come_back() -> None:
    trial = Trial(optimizer=Adam(name="adam", lr=0.1, batch_size=5))
    worker, other = trial.worker(0), trial.worker(0)
    worker.begin(1, 0)
    worker.train()
    worker.close_round()
    slots = slot_map(worker.module, worker.replica.layout, trial.rule, 2)
    arrays = slots.view(memoryview(bytearray(slots.size)))
    save(worker, arrays)
    restore(other, arrays)
    assert (other.batches.position, other.tally.total_iterations, other.tally.total_items) == (15, 3, 15)
    assert other.optimizer.counts.tolist() == [3.0] * len(other.replica.layout.params.fields)


def test_every_kind_of_tensor_comes_back() -> None:
    class Various(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(5, 3))
            self.frozen = nn.Parameter(torch.rand(2).half(), requires_grad=False)
            for name, buffer in {"flag": torch.tensor([True, False]), "short": torch.tensor(-3, dtype=torch.int16),
                                 "fine": torch.rand(2).double(), "none": torch.zeros(0)}.items():  # fmt: skip
                self.register_buffer(name, buffer)

    trial = Trial(network=Various, partitions=[range(9)])
    worker = trial.worker()
    slots = slot_map(worker.module, worker.replica.layout, trial.rule, 1)
    arrays = slots.view(memoryview(bytearray(slots.size)))
    save(worker, arrays)
    other = trial.worker()
    with torch.no_grad():
        for tensor in other.module.state_dict().values():
            tensor.zero_()
    restore(other, arrays)
    expected, found = worker.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_tensor_of_a_type_no_file_can_hold_is_named() -> None:
    network = nn.Linear(2, 2)
    network.register_buffer("odd", torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match=r"`odd` is torch\.bfloat16"):
        slot_map(network, row_layout(network, Sgd(lr=1.0)), Average(), 1)


def test_a_snapshot_is_a_copy() -> None:
    _, taken = Trial().run(1)
    kept = {path: array.copy() for path, array in taken.arrays.items()}
    Trial().run(3, since=taken)
    assert all(np.array_equal(kept[path], array) for path, array in taken.arrays.items())
