"""The emulated device: it is as unforgiving as a real one, or the tests on it would show nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("emulated")]


def test_devices_must_not_meet(device: torch.device) -> None:
    here, there, other = torch.ones(4, 4), torch.ones(4, 4, device=device), torch.ones(4, 4, device="emulated:1")
    index = torch.tensor([1])
    fails: list[Callable[[], Any]] = [
        lambda: here + there,
        lambda: here.add_(there),
        lambda: here[0, 0].clone().add_(there[0, 0]),
        lambda: torch.mm(here, there),
        lambda: torch.cat([here, there]),
        lambda: torch.where(there > 0, here, there),
        lambda: there.index_select(0, index),
        lambda: there.index_put_((index,), here[1:2]),
        lambda: there + other,
        lambda: torch._fused_sgd_(
            [there], [here], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False, maximize=False,
            is_first_step=False,
        ),
    ]  # fmt: skip
    for number, fail in enumerate(fails):
        with pytest.raises(RuntimeError, match="same device"):
            print(number, fail())
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    fine = [there[index], there * torch.tensor(2.0), there.new_zeros(3), there.new_tensor([1.0]), torch.empty_like(there)]
    assert all(x.device == device for x in fine)
    assert here.to(there).device == device
    assert float(there.sum()) == 16
    assert other.to(device).add(there).sum().item() == 32


@pytest.mark.parametrize("read", ["ctypes.string_at(x.data_ptr(), 4)", "ctypes.memset(x.data_ptr(), 0, 4)"])
def test_its_memory_is_not_the_hosts(read: str) -> None:
    """The host's reading or writing it is a crash, not luck."""
    code = f"import ctypes, torch; x = torch.ones(3, device='emulated'); print(float(x.sum())); {read}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert (done.stdout.strip(), done.returncode) == ("3.0", -11)


def test_work_is_done_late(device: torch.device, emulated: Any) -> None:
    torch.accelerator.synchronize(device)
    x = torch.arange(4.0, device=device) * 2 + 1
    assert emulated.queued(0) > 0
    torch.accelerator.synchronize(device)
    assert emulated.queued(0) == 0
    assert x.tolist() == [1, 3, 5, 7]
    assert emulated.queued(0) == 0


def test_an_asynchronous_copy_is_late_in_both_directions(device: torch.device) -> None:
    host, there = torch.zeros(3).pin_memory(), torch.ones(3, device=device)
    host.copy_(there, non_blocking=True)
    assert host.tolist() == [0, 0, 0]
    torch.accelerator.synchronize(device)
    assert host.tolist() == [1, 1, 1]
    there.copy_(host.fill_(5), non_blocking=True)
    host.fill_(7)  # too early: the copy has not begun
    assert there.tolist() == [7, 7, 7]
    plain = torch.full((3,), 5.0)
    there.copy_(plain, non_blocking=True)  # of memory that is not pinned torch makes a copy first
    plain.fill_(7)
    assert there.tolist() == [5, 5, 5]


def test_streams_wait_for_each_other_by_events_only(device: torch.device) -> None:
    x, side = torch.zeros(2, device=device), torch.Stream(device=device)
    torch.accelerator.synchronize(device)
    with side:
        late = x + 1
    early = late * 10  # no event: what the side stream writes is not there yet
    assert not early.equal(torch.full_like(early, 10))
    torch.accelerator.synchronize(device)
    done = torch.Event(device=device)
    with side:
        late = x + 2
        done.record(side)
    assert not done.query()
    torch.accelerator.current_stream(device).wait_event(done)
    assert (late * 10).tolist() == [20, 20]
    assert done.query()


def test_random_numbers_come_from_the_devices_own_generator(device: torch.device) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        torch.emulated.manual_seed(7)  # type: ignore[attr-defined]
        one = [
            torch.rand(3, device=device),
            torch.randperm(5, device=device),
            torch.dropout(torch.ones(9, device=device), 0.5, True),
        ]
        assert before.equal(torch.get_rng_state())
        torch.emulated.manual_seed(7)  # type: ignore[attr-defined]
        two = [
            torch.rand(3, device=device),
            torch.randperm(5, device=device),
            torch.dropout(torch.ones(9, device=device), 0.5, True),
        ]
        assert all(x.equal(y) for x, y in zip(one, two, strict=True))
        assert not torch.rand(3, device=device).equal(one[0])
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, device=device, generator=torch.Generator())


def test_what_nobody_wrote_is_no_number(device: torch.device) -> None:
    assert torch.empty(5, device=device).isnan().all()


def test_a_limit_of_memory(emulated: Any) -> None:
    emulated.limit_memory(1, 1000)
    with pytest.raises(torch.OutOfMemoryError, match="emulated:1 out of memory: 1001 bytes wanted, 1000 of 1000 free"):
        torch.empty(1001, dtype=torch.uint8, device="emulated:1")
    held = torch.empty(600, dtype=torch.uint8, device="emulated:1")
    del held
    assert torch.empty(1000, dtype=torch.uint8, device="emulated:1").numel() == 1000


def test_an_error_comes_late_and_stays(emulated: Any) -> None:
    x = torch.ones(2, device="emulated:1")
    torch.accelerator.synchronize("emulated:1")
    emulated.fail_at(1, 2)
    x + 1
    x + 2  # the one that fails; nothing is known of it yet
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError, match="emulated device error"):
            torch.accelerator.synchronize("emulated:1")
    with pytest.raises(torch.AcceleratorError, match="emulated device error"):
        x + 1


def test_a_slow_device_takes_its_time_when_it_is_waited_for(device: torch.device, emulated: Any) -> None:
    x = torch.randn(400, 400, device=device)
    torch.accelerator.synchronize(device)

    emulated.slow_down(0, 30.0)
    for _ in range(8):
        x @ x
    assert emulated.queued(0) >= 8
    began, computed = time.perf_counter(), time.process_time()
    torch.accelerator.synchronize(device)
    # It rests for 29 times as long as it has computed, whatever else the machine is at.
    assert time.perf_counter() - began > 5 * (time.process_time() - computed)


def test_no_float64(device: torch.device, emulated: Any) -> None:
    emulated.refuse_float64(0, True)
    with pytest.raises(TypeError, match="float64"):
        torch.ones(3, device=device, dtype=torch.float64)
    with pytest.raises(TypeError, match="float64"):
        torch.ones(3, device=device).double()
