"""A second process builds the network from what a checkpoint holds, and must give the answers of the network in training.

Only the state dict outlives a training. A network may hold more: tensors in plain attributes, layers in plain lists, counters of
Python. Later commands would then answer other numbers than those that were judged.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from partrain.errors import Failure, UserCodeFailed
from partrain.launch.worker.setup import interface_of
from partrain.launch.worker.spec import ProcessSpec
from partrain.models import build_drawn
from partrain.models.answers import agree, answers_to
from partrain.models.attributes import digests, line_of
from partrain.system.child_process import ChildProcess
from partrain.system.surroundings import starting_process

ROUNDING = 1e-5
"""Largest relative difference of answers where all numbers are the same: weights may lie in another order in memory."""


class SecondProcess:
    """A fork of this process that waits for a network to compare. It is made before user code is imported, and imports it again."""

    def __init__(self, spec: ProcessSpec) -> None:
        """Fork it. It ends with this process."""
        self._name = spec.job.model.name
        self._memory = os.memfd_create("network")
        with starting_process():
            self._child = ChildProcess.fork(lambda pipe: self._answer(spec, pipe))

    def _answer(self, spec: ProcessSpec, pipe: Connection) -> None:
        """Compare the network once it is in memory; do nothing if it never comes."""
        pipe.recv_bytes()
        pipe.send_bytes(json.dumps(_verdict(spec, f"/proc/self/fd/{self._memory}")).encode())

    def compare(self, module: nn.Module, item: tuple[int, ...], inputs: Any) -> None:
        """Raise UserCodeFailed, naming what differs, unless the network that it builds answers as `module` does.

        Args:
            module: The network in training.
            item: Shape of an item.
            inputs: A batch of them.
        """
        tensors = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
        inputs = tree_map(torch.clone, inputs)
        answers = [answer.cpu() for answer in answers_to(module, tree_map(torch.clone, inputs))]
        with os.fdopen(os.dup(self._memory), "wb") as file:
            torch.save((item, tensors, tree_map(Tensor.cpu, inputs), answers, digests(module), torch.get_num_threads()), file)
        verdict = {"failed": "the process that builds it again ended"}
        with suppress(EOFError, OSError):
            self._child.pipe.send_bytes(b"")
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
        if not path:
            advice = (
                "its code reads something from outside or draws without a seed: pass it as a key of [model], or register a buffer"
            )
            raise UserCodeFailed(f"{what}: built again from a checkpoint, the network gives other answers; {advice}")
        where = f" ({line})" if (line := line_of(module, path)) else ""
        raise UserCodeFailed(
            f"{what}: `{path}`{where} is in no checkpoint, and without it the network gives other answers; {_advice(module, path)}"
        )


def _advice(module: nn.Module, path: str) -> str:
    """Return the advice for a value that is in no checkpoint."""
    if path in dict(module.named_buffers()):
        return "register this buffer without `persistent=False`"
    if "]" in path and path.rpartition(".")[2] in ("weight", "bias"):
        return "put layers into an `nn.ModuleList` or `nn.ModuleDict`"
    return f'keep it in a buffer: `self.register_buffer("{path.rpartition(".")[2].partition("[")[0]}", ...)`'


def _verdict(spec: ProcessSpec, path: str) -> dict[str, str]:
    """Build the network as later commands do, and compare its answers. Returns `failed` or `differs`, or neither."""
    item, tensors, inputs, answers, held, threads = torch.load(path, mmap=True, weights_only=True)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        module = build_drawn(spec.job.model, Path(spec.folder), interface_of(spec, item), spec.job.seed)
        module.load_state_dict(tensors)
        rebuilt = answers_to(module, inputs)
    except Exception as error:
        return {"failed": (error.message if isinstance(error, Failure) else f"{type(error).__name__}: {error}").splitlines()[0]}
    if len(rebuilt) == len(answers) and all(map(torch.equal, rebuilt, answers)):
        return {}
    ours = digests(module)
    other = [path for path in {**held, **ours} if ours.get(path) != held.get(path)]
    if not other and len(rebuilt) == len(answers) and all(agree(*pair, ROUNDING) for pair in zip(rebuilt, answers, strict=True)):
        return {}
    return {"differs": other[0] if other else ""}
