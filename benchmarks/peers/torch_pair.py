"""Two processes of PyTorch with gloo: hogwild, DDP, and local SGD by torch, accelerate and torchft, which mix every 10 iterations."""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from benchmarks.peers.common import arguments, batches, finish, mnist, rates

if TYPE_CHECKING:
    import torch

PERIOD = 10
Setup = tuple[Any, Any, Callable[[], object]]
"""The model and the optimizer of the loop, and its last call in each iteration."""


def nothing() -> None:
    pass


@contextmanager
def hogwild(model: torch.nn.Module, optimizer: Any, rank: int, memory: mmap.mmap) -> Iterator[Setup]:
    """Both processes step in the same memory; each has a momentum of its own, as in PyTorch's example."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    own = parameters_to_vector(model.parameters()).detach()
    shared = torch.frombuffer(memory, dtype=torch.float32, count=len(own))
    if rank == 0:
        shared.copy_(own)
    vector_to_parameters(shared, model.parameters())
    yield model, optimizer, nothing


@contextmanager
def ddp(model: torch.nn.Module, optimizer: Any, rank: int, memory: mmap.mmap) -> Iterator[Setup]:
    from torch.nn.parallel import DistributedDataParallel

    yield DistributedDataParallel(model), optimizer, nothing


@contextmanager
def averager(model: torch.nn.Module, optimizer: Any, rank: int, memory: mmap.mmap) -> Iterator[Setup]:
    """The averager counts from 0, so its first average follows `warmup_steps` + 1 steps."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    average = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)
    yield model, PostLocalSGDOptimizer(optimizer, average), nothing


@contextmanager
def accelerate(model: torch.nn.Module, optimizer: Any, rank: int, memory: mmap.mmap) -> Iterator[Setup]:
    from accelerate import Accelerator
    from accelerate.local_sgd import LocalSGD

    accelerator = Accelerator(cpu=True)
    model, prepared = accelerator.prepare(model, optimizer)
    with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=PERIOD, enabled=True) as local:
        yield model, prepared, local.step


@contextmanager
def torchft(outer: bool, model: torch.nn.Module, optimizer: Any, rank: int, memory: mmap.mmap) -> Iterator[Setup]:
    """A lighthouse and a manager for each process, as torchft's documentation starts them: each meeting asks for a quorum."""
    import torch
    from torch import distributed
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo, LocalSGD
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=100) if rank == 0 else None
    address = [lighthouse.address() if lighthouse else ""]
    distributed.broadcast_object_list(address)
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timedelta(seconds=30)), load_state_dict=model.load_state_dict, state_dict=model.state_dict,
                      min_replica_size=2, use_async_quorum=False, replica_id=f"worker{rank}", store_addr="127.0.0.1",
                      store_port=store.port, rank=0, world_size=1, lighthouse_addr=address[0], hostname="127.0.0.1")  # fmt: skip
    if outer:
        slow = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        local = DiLoCo(manager, [model], optimizer, slow, sync_every=PERIOD)
    else:
        local = LocalSGD(manager, model, optimizer, sync_every=PERIOD)
    with local:
        yield model, optimizer, nothing
    distributed.barrier()
    manager.shutdown(wait=False)


def local_sgd(*given: Any) -> Any:
    return torchft(False, *given)


def diloco(*given: Any) -> Any:
    return torchft(True, *given)


METHODS = {method.__name__: method for method in (hogwild, ddp, averager, accelerate, local_sgd, diloco)}


def main() -> None:
    plan = arguments()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    memory = mmap.mmap(-1, 1 << 20)
    child = os.fork()  # before torch, which both processes then import at once
    rank = int(child == 0)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}  # fmt: skip
    import torch
    from torch import distributed

    from benchmarks.peers.torch_loop import network

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    inputs, targets, tests, right = map(torch.from_numpy, mnist())
    network_, criterion = network(plan.seed), torch.nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(network_.parameters(), lr=plan.rate, momentum=plan.momentum)
    with METHODS[plan.method](network_, sgd, rank, memory) as (model, optimizer, end_iteration):
        for _ in range(20):  # memory and threads, without a step
            criterion(network_(inputs[: plan.batch]), targets[: plan.batch]).backward()
        distributed.barrier()
        began = time.perf_counter()
        for index, rate in zip(torch.from_numpy(batches(plan, len(inputs), rank, 2)), rates(plan).tolist(), strict=True):
            sgd.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            criterion(model(inputs[index]), targets[index]).backward()
            optimizer.step()
            end_iteration()
        distributed.barrier()
        seconds = time.perf_counter() - began
    if rank == 0:
        with torch.no_grad():
            finish(plan, seconds, network_(tests).argmax(1), right.numpy(), workers=2)
    distributed.destroy_process_group()
    if child:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
