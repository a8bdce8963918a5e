"""One copy of the network on one device, kept in one flat row of numbers.

The module's trainable parameters and floating-point buffers are views of the row. Frozen parameters that the network moves itself
count as buffers. All numbers of a row have one dtype; d is the number of trainable parameters, B the length of the buffers, m the
number of the optimizer's vectors:

    params d | gradient d | moments m x d | buffers B | scratch

A rule mixes slices of the row, so no rule has to concatenate tensors first. The scratch part holds copies of vectors from outside
the row while workers exchange them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from partrain.errors import UserCodeFailed
from partrain.flat import Layout, adopt, trainable
from partrain.models.freeze import frozen_sums, moved_parameters
from partrain.models.ties import Views
from partrain.optim import AnyOptimizer
from partrain.optim.groups import ParamRate, rates_of
from partrain.optim.local import LocalOptimizer, moment_names
from partrain.system.accelerator import Accelerator


@dataclass(frozen=True)
class RowLayout:
    """The parts of a row, in numbers."""

    params: Layout
    moments: tuple[str, ...]
    """Names of the optimizer's vectors."""
    buffers: Layout
    rates: tuple[ParamRate, ...] = ()
    """Learning rate and weight decay of each parameter; empty if all have the table's."""
    counts_steps: bool = False
    """True if the optimizer's steps depend on their number, which is then state in addition to its vectors."""

    @property
    def sizes(self) -> list[int]:
        """Numbers of each part, in the order of the row."""
        d = self.params.size
        return [d, d, len(self.moments) * d, self.buffers.size, max(d, 2 * self.buffers.size + 64)]

    @property
    def scratch(self) -> int:
        """Start of the scratch part."""
        return sum(self.sizes[:-1])

    @property
    def numbers(self) -> int:
        """Length of the row."""
        return sum(self.sizes)

    def part_at(self, offset: int) -> str:
        """Name the tensor that holds the number at this offset."""
        d = self.params.size
        if offset >= self.scratch:  # a vector (d,) of a rule
            return f"the update of `{self.params.name_at(min(offset - self.scratch, d - 1))}`"
        name = self.params.name_at(offset % d)
        if offset < d:
            return f"parameter `{name}`"
        return f"the gradient of `{name}`" if offset < 2 * d else f"the optimizer state of `{name}`"


def row_layout(module: nn.Module, optimizer: AnyOptimizer) -> RowLayout:
    """Lay out a worker's row for a network and an optimizer. Raises TypeError if the network cannot be trained.

    Raises BadJob if a pattern of the optimizer's groups has no effect.
    """
    parameters = trainable(module)
    if not parameters:
        raise TypeError("the network has no parameters to train")
    dtype = parameters[0][1].dtype
    if not dtype.is_floating_point or dtype.itemsize < 4:
        raise TypeError(f"parameter `{parameters[0][0]}` is {dtype}; networks of float32 or float64 can be trained")
    floating = [(name, buffer) for name, buffer in persistent_buffers(module) if buffer.dtype == dtype]
    return RowLayout(
        Layout.of(parameters, dtype),
        moment_names(optimizer),
        Layout.of(floating, dtype),
        rates_of(optimizer, module),
        optimizer.counts_steps,
    )


def persistent_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """List the buffers that belong to the state dict, by name; then the frozen parameters that the network moves itself."""
    buffers = list(module.named_buffers())
    kept = module.state_dict(keep_vars=True) if buffers else {}
    return [*((name, buffer) for name, buffer in buffers if name in kept), *moved_parameters(module)]


class Replica:
    """A module, its optimizer and its buffers over one row."""

    def __init__(
        self, module: nn.Module, layout: RowLayout, row: Tensor, optimizer: AnyOptimizer, shared_params: Tensor | None = None
    ) -> None:
        """Move the module's numbers into the row (layout.numbers,).

        `shared_params` (d,) replaces the row's own parameters if all workers change one vector (hogwild).
        """
        self.module, self.layout = module, layout
        self.params, self.grads, moments, self.buffers, _ = torch.split(row, layout.sizes)
        if shared_params is not None:
            self.params = shared_params
        views = Views(module)
        adopt(module, layout.params, self.params)
        for part in module.modules():
            if isinstance(part, nn.RNNBase):  # on CUDA it would move the weights out of the row, and no step would reach them
                part.flatten_parameters = _keep_parameters  # type: ignore[method-assign]
        self._replaceable_buffers = _adopt_buffers(module, layout.buffers, self.buffers)
        views.follow()
        self.has_buffers = bool(persistent_buffers(module))
        self.accelerator = Accelerator.of(row.device)
        """The accelerator that holds the parameters; None for the CPU."""
        self.trainable_parameters = [parameter for _, parameter in trainable(module)]
        self.gradient_views = layout.params.views(self.grads)
        """Views of `grads` with the parameters' shapes, in the order of `trainable_parameters`."""
        self.unused: set[int] = set()
        """Parameters, by index, that the newest stored gradient did not reach."""
        self.optimizer = LocalOptimizer(optimizer, self.params, moments.view(-1, layout.params.size), layout.params, layout.rates)
        self.own_params = self.params
        """x_i, also while `swapped_params` shows another network."""
        self._names = set(module.state_dict())
        self._homes = {name: (parameter, parameter.data_ptr()) for name, parameter in trainable(module)}
        self._frozen: dict[str, int] | None = None
        """Sums of the frozen parameters, from the first check on."""

    @contextmanager
    def swapped_params(self, network: Tensor) -> Iterator[None]:
        """Let the module show another vector of parameters (d,) for a while."""
        if network.data_ptr() == self.params.data_ptr():
            yield
            return
        self.own_params = self.params.clone()
        self.params.copy_(network)
        yield
        self.params.copy_(self.own_params)
        self.own_params = self.params

    def store_gradient(self, gradients: Sequence[Tensor | None], share: float = 1.0, *, add: bool = False) -> None:
        """Write `share` times a gradient, given tensor by tensor, into the row, or add it to the row's gradient."""
        unused = {index for index, gradient in enumerate(gradients) if gradient is None}
        self.unused = self.unused & unused if add else unused
        for view, gradient in zip(self.gradient_views, gradients, strict=True):
            if not add:
                view.zero_() if gradient is None else torch.mul(gradient, share, out=view)
            elif gradient is not None:
                view.add_(gradient, alpha=share)

    def step(self, gradient: Tensor, lr: float) -> None:
        """Take one optimizer step with a gradient (d,). A parameter that no worker's gradient reached does not change."""
        parts = self.layout.params.views(gradient)
        unused = {index for index in self.unused if not parts[index].any()}
        self.optimizer.step([None if index in unused else part for index, part in enumerate(parts)], lr)

    def check_module(self, where: str) -> None:
        """Raise UserCodeFailed, naming `where`, if the network changed its parameters so that training or a checkpoint would miss
        it.

        Names must stay the same; so must identity, address and flag of trainable parameters, and the numbers of frozen ones.
        """
        if late := sorted(set(self.module.state_dict()) ^ self._names):
            raise UserCodeFailed(f"{where}: `{late[0]}` came or went during training; make parameters and buffers in `__init__`")
        registered = dict(self.module.named_parameters())
        for name, (parameter, address) in self._homes.items():
            if registered.get(name) is not parameter or parameter.data_ptr() != address:
                what = f"parameter `{name}` was exchanged for another tensor, and would not be trained"
                raise UserCodeFailed(f"{where}: {what}; change its numbers in place, as with `copy_` under torch.no_grad()")
        _check_flags(registered, self._homes, where)
        frozen, now = self._frozen, frozen_sums(self.module)
        self._frozen = now if frozen is None else frozen
        if moved := [name for name, total in (frozen or {}).items() if now.get(name) != total]:
            what = f"the network moves the frozen parameter `{moved[0]}`, but did not in the dry run, so replicas of it are not mixed"
            raise UserCodeFailed(f"{where}: {what}; keep its numbers in a buffer: `self.register_buffer(...)`")

    def sync_replaced_buffers(self) -> None:
        """Copy buffers that the network replaced by new tensors back into the row. Raises UserCodeFailed if a shape has changed."""
        for owner, name, view in self._replaceable_buffers:
            if owner[name].shape != view.shape:
                what = f"buffer `{name}` had shape {tuple(view.shape)}, and has {tuple(owner[name].shape)} after a training step"
                raise UserCodeFailed(f"{what}; give it its last shape in `__init__`, and change its numbers in place")
            if owner[name].data_ptr() != view.data_ptr():
                view.copy_(owner[name].detach())
                if isinstance(owner[name], nn.Parameter):
                    owner[name].data = view
                else:
                    owner[name] = view


def _check_flags(parameters: dict[str, nn.Parameter], trained: Container[str], where: str) -> None:
    """Raise UserCodeFailed, naming `where`, if `requires_grad` of a parameter has changed since the network was built."""
    for name, parameter in parameters.items():
        if parameter.requires_grad == (name in trained):
            continue
        now = "trainable" if parameter.requires_grad else "frozen"
        what = f"parameter `{name}` became {now} in training, and partrain trains those that are trainable from the start"
        advice = "let it be trainable in `__init__`, and `.detach()` it in `forward` while it is to stay"
        raise UserCodeFailed(f"{where}: {what}; {advice}; or train in two jobs by [model] freeze")


def _keep_parameters() -> None:
    """Replace `flatten_parameters` of recurrent layers: the weights stay in the row."""


def _adopt_buffers(module: nn.Module, layout: Layout, row: Tensor) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Make a module's floating-point buffers, and parameters that count as such, views of the row (B,) with the same values.

    Return the owner's dict, the name in it and the view, buffer by buffer.
    """
    owners, homes = dict(module.named_modules()), []
    for field in layout.fields:
        owner, _, name = field.name.rpartition(".")
        home: dict[str, Any] = owners[owner]._buffers if name in owners[owner]._buffers else owners[owner]._parameters
        view = field.view(row)
        home[name].data = view.copy_(home[name])
        homes.append((home, name, view))
    return homes
