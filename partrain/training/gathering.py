"""Tensors of any shape and type from every worker of a group."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from partrain.comm.group import ArenaGroup

LENGTH_BYTES = 4
"""Bytes that give the length of a header."""


def gather(group: ArenaGroup, x: Tensor) -> list[Tensor]:
    """Return this tensor of every worker, by rank; shapes and types may differ. The workers of a process share the tensors."""
    if group.size == 1:
        return [x]
    header = json.dumps([str(x.dtype).removeprefix("torch."), list(x.shape)]).encode()
    head = torch.frombuffer(bytearray(len(header).to_bytes(LENGTH_BYTES, "little") + header), dtype=torch.uint8)
    body = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return group.gather_once(torch.cat([head, body]), _read)


def _read(message: Tensor) -> Tensor:
    length = int.from_bytes(bytes(message[:LENGTH_BYTES].tolist()), "little")
    start = LENGTH_BYTES + length
    name, shape = json.loads(bytes(message[LENGTH_BYTES:start].tolist()))
    return message[start:].clone().view(getattr(torch, name)).view(shape)
