"""A second process that rebuilds the network from a checkpoint's contents, and must answer and train like the network in training.

Only the state dict outlives training. A network may hold more: tensors in plain attributes, layers in plain lists, Python
counters, its own generators. Later commands would then answer different numbers from the judged ones, and a resumed run would train
a different network.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from partrain.errors import Failure, UserCodeFailed
from partrain.flat import trainable
from partrain.launch.worker.setup import ProcessSetup
from partrain.launch.worker.spec import ProcessSpec
from partrain.models import build_drawn
from partrain.models.answers import agree, answers_to
from partrain.models.attributes import attributes, digests, line_of, state_of_generator
from partrain.seeds import derive, seeded
from partrain.system.child_process import ChildProcess
from partrain.system.surroundings import starting_process
from partrain.tasks.task import Task

ROUNDING = 1e-5
"""Largest relative difference of answers with equal numbers: weights may have another order in memory."""


NOISE = 1e-6
"""Largest sum of a gradient's absolute numbers, relative to the largest gradient, from rounding alone: a gradient may be zero."""
GRADIENT = "the gradient of"


class SecondProcess:
    """A fork of this process that waits for a network to compare. It is made before the import of user code, and imports it again."""

    def __init__(self, spec: ProcessSpec) -> None:
        """Fork the process. It ends with this one."""
        self._name = spec.job.model.name
        self._memory = os.memfd_create("network")
        with starting_process():
            self._child = ChildProcess.fork(lambda pipe: self._answer(spec, pipe))

    def _answer(self, spec: ProcessSpec, pipe: Connection) -> None:
        """Compare the network once it is in memory; if it never comes, do nothing."""
        step = json.loads(pipe.recv_bytes())
        pipe.send_bytes(json.dumps(_verdict(spec, f"/proc/self/fd/{self._memory}", step)).encode())

    def compare(self, module: nn.Module, task: Task, inputs: Any, targets: Tensor) -> None:
        """Raise UserCodeFailed, naming the difference, unless the rebuilt network answers and trains like `module`.

        Args:
            module: The network in training.
            task: The job's task, which has the loss.
            inputs: A batch of items.
            targets: Their targets.
        """
        tensors = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
        batch, threads = tree_map(Tensor.cpu, (inputs, targets)), torch.get_num_threads()
        answers = [answer.cpu() for answer in answers_to(module, tree_map(torch.clone, inputs))]
        with os.fdopen(os.dup(self._memory), "wb") as file:
            torch.save((tensors, *batch, answers, digests(module), threads), file)
        on_cpu = targets.is_cpu and len(targets)  # another device draws different numbers, and a stream may hold no items out
        trained = _step(module, task, tree_map(torch.clone, inputs), targets) if on_cpu else {}
        verdict = {"failed": "the process that builds it again ended"}
        with suppress(EOFError, OSError):
            self._child.pipe.send_bytes(json.dumps(trained).encode())
            verdict = json.loads(self._child.pipe.recv_bytes())
        self._child.stop(None)
        what = f"[model] name: `{self._name}`"
        if failed := verdict.get("failed"):
            raise UserCodeFailed(f"{what}: later commands could not build this network from a checkpoint: {failed}")
        if (path := verdict.get("differs")) is None:
            again = answers_to(module, tree_map(torch.clone, inputs), draws=1)
            if not all(agree(*pair, ROUNDING) for pair in zip(again, answers_to(module, inputs), strict=True)):
                raise UserCodeFailed(
                    f"{what}: it draws as it answers, so no two judgements are alike; draw only `if self.training`"
                )
            return
        effect = verdict.get("effect", "the network gives other answers")
        if not path:
            advice = (
                "its code reads something from outside or draws without a seed: pass it as a key of [model], or register a buffer"
            )
            raise UserCodeFailed(f"{what}: built again from a checkpoint, {effect}; {advice}")
        where = f" ({line})" if (line := line_of(module, path)) else ""
        raise UserCodeFailed(f"{what}: `{path}`{where} is in no checkpoint, and without it {effect}; {_advice(module, path)}")


def _step(module: nn.Module, task: Task, inputs: Any, targets: Tensor) -> dict[str, list[float]]:
    """Compute the gradient of a batch in training. Return two sums of each tensor that it makes or may change, by name."""
    names, parameters = zip(*trainable(module), strict=True)
    module.train()
    with seeded(derive(0, "step")):
        loss, gradients = task.differentiate(module, parameters, inputs, targets, 0)
    tensors = {"its loss in training": loss}
    tensors |= {f"{GRADIENT} `{name}`": gradient for name, gradient in zip(names, gradients, strict=True) if gradient is not None}
    tensors |= {f"`{name}` after a batch": tensor for name, tensor in module.state_dict().items()}
    return {name: _sums(tensor) for name, tensor in tensors.items()}


def _sums(tensor: Tensor) -> list[float]:
    """Return the sum of a tensor's numbers, and the sum of their absolute values."""
    numbers = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return [
        float(numbers.sum(dtype=torch.float64)),
        float(numbers.abs().sum(dtype=torch.float64)) if numbers.dtype != torch.bool else 0.0,
    ]


def _advice(module: nn.Module, path: str) -> str:
    """Return the advice for a value outside all checkpoints."""
    if state_of_generator(dict(attributes(module)).get(path)):
        return "draw from the default generators, which partrain seeds for each worker and round"
    if path in dict(module.named_buffers()):
        return "register this buffer without `persistent=False`"
    if "]" in path and path.rpartition(".")[2] in ("weight", "bias"):
        return "put layers into an `nn.ModuleList` or `nn.ModuleDict`"
    return f'keep it in a buffer: `self.register_buffer("{path.rpartition(".")[2].partition("[")[0]}", ...)`'


def _verdict(spec: ProcessSpec, path: str, trained: dict[str, list[float]]) -> dict[str, str]:
    """Build the network like later commands, and compare its answers and, if given, its step with the `trained` one.

    Return `failed`, or `differs` with the `effect` on training, if any, or nothing.
    """
    tensors, inputs, targets, answers, held, threads = torch.load(path, mmap=True, weights_only=True)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    shared = ProcessSetup(spec)

    def build() -> nn.Module:
        module = build_drawn(spec.job.model, spec.folder, shared.interface, spec.job.seed)
        module.load_state_dict(tensors)
        return module

    def step(module: nn.Module) -> dict[str, list[float]]:
        return _step(module, shared.task(), tree_map(torch.clone, inputs), targets) if trained else {}

    try:
        module = build()
        rebuilt, ours = answers_to(module, tree_map(torch.clone, inputs)), digests(module)
        other = [path for path in {**held, **ours} if ours.get(path) != held.get(path)]
        first = {"differs": other[0] if other else ""}
        if len(rebuilt) != len(answers) or not all(map(torch.equal if other else _agrees, rebuilt, answers)):
            return first
        effect = _difference(again := step(module), trained)
        if not effect:
            return {}
        alike = not _difference(step(build()), again)
    except Exception as error:
        return {"failed": (error.message if isinstance(error, Failure) else f"{type(error).__name__}: {error}").splitlines()[0]}
    return (first if alike else {"differs": ""}) | {"effect": f"training goes another way ({effect} differs)"}


def _agrees(answer: Tensor, other: Tensor) -> bool:
    return agree(answer, other, ROUNDING)


def _difference(step: dict[str, list[float]], trained: dict[str, list[float]]) -> str:
    """Name the first number that differs by more than rounding between two steps; "" without one."""
    noise = NOISE * max((size for name, (_, size) in trained.items() if name.startswith(GRADIENT)), default=0.0)
    for name, sums in trained.items():
        near = max(ROUNDING * sums[1], noise if name.startswith(GRADIENT) else NOISE)
        if not all(math.isclose(*pair, abs_tol=near) for pair in zip(step.get(name, [math.nan, math.nan]), sums, strict=True)):
            return name
    return ""
