"""Training of a plain stack of layers by C code (`mlp.c`): many mini-batches in one call.

A small network spends more time on calls of torch and autograd's bookkeeping than on its matrix products. Nearly all first jobs train
linear layers with an activation between them, on labels or numbers. For these the chain rule is written out in C, with the steps of
SGD and Adam. torch's own BLAS library computes the products. Autograd trains all other networks; its numbers are the same up
to rounding.
"""

from __future__ import annotations

import array
import ctypes
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partrain.flat import DEFINITIONS, trainable
from partrain.optim.local import LocalOptimizer
from partrain.training.blas import code_and_product
from partrain.training.compiled_step import NO_STEP, CompiledStep, addresses

ACTIVATIONS: dict[type[nn.Module], int] = {nn.ReLU: 1, nn.Tanh: 2, nn.Sigmoid: 3}
"""Number of each activation in `mlp.c`; 0: no activation."""
SOURCE = Path(__file__).with_name("mlp.c")
ANSWERED_AT_A_TIME = 256
"""Items whose activations stay in the cache while a network answers them."""


class _Layer(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("inputs", "outputs", "activation")] + [
        (name, ctypes.c_void_p) for name in ("weight", "bias", "weight_gradient", "bias_gradient", "out", "delta")
    ]


class _Network(ctypes.Structure):
    _fields_ = [("gemm", ctypes.c_void_p), ("count", ctypes.c_int64), ("layers", ctypes.POINTER(_Layer))]


class _Items(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("labels", "numbers", "index", "some_inputs", "some_numbers", "some_labels")),
    ]


class CompiledMlp:
    """The training of one network: loss, gradient and, for some optimizers, the step."""

    def __init__(
        self, layers: Sequence[tuple[nn.Linear, int]], gradients: Sequence[Tensor], optimizer: LocalOptimizer, *, flattens: bool
    ) -> None:
        """Describe the network to `mlp.c`.

        Args:
            layers: Each layer, and the number of its activation.
            gradients: Memory for the gradient of each parameter.
            optimizer: The optimizer of the parameters.
            flattens: True if items are flattened first.

        Raises:
            CannotCompile: There is no C compiler, or torch has no BLAS library.
        """
        self._flattens, self._linear, self._gradients = flattens, [layer for layer, _ in layers], gradients
        self._dtype = gradients[0].dtype
        code, product = code_and_product(SOURCE, self._dtype)
        self._train = code.train
        self._train.restype = ctypes.c_int64
        self._train.argtypes = [*[ctypes.c_void_p] * 5, ctypes.c_int64, ctypes.c_void_p]
        self._layers = _layers_of(layers)
        for described, pair in zip(self._layers, zip(gradients[::2], gradients[1::2], strict=True), strict=True):
            described.weight_gradient, described.bias_gradient = addresses(*pair)
        self._network = _Network(product, len(layers), self._layers)
        self.step = CompiledStep.of(code, optimizer, gradients)
        """A step of the optimizer with the numbers in `gradients`; None if torch takes the steps, and `train` takes none."""
        self._most_items = 0
        self._memory: list[Tensor] = []
        self._some: list[int] = []
        self._described: tuple[Any, ...] = (None, None)
        """Inputs, targets, their description and its memory: items given by number are the same in each call."""

    @classmethod
    def of(cls, module: nn.Module, gradients: Sequence[Tensor], optimizer: LocalOptimizer) -> CompiledMlp | None:
        """Recognise a plain stack of layers on the CPU that trains all parameters; return None for other networks.

        Raises CannotCompile.
        """
        layers, flattens = plain_stack(module)
        owned = [parameter for layer, _ in layers for parameter in (layer.weight, layer.bias)]
        in_order = [id(parameter) for parameter in owned] == [id(parameter) for _, parameter in trainable(module)]
        if not (layers and in_order and gradients[0].is_cpu):
            return None
        return cls(layers, gradients, optimizer, flattens=flattens)

    def differentiate(self, inputs: Tensor, targets: Tensor) -> float:
        """Compute the mean loss over a batch (b, ...), and write its gradient to `gradients`."""
        return self.train(inputs, targets, [len(targets)])[0]

    def train(
        self,
        inputs: Tensor,
        targets: Tensor,
        sizes: Sequence[int],
        rates: Sequence[float] = (),
        index: NDArray[np.int64] | None = None,
        scale: float = 1.0,
    ) -> list[float]:
        """Compute a gradient and take an optimizer step for each mini-batch. Return the losses.

        Args:
            inputs: Inputs (n, ...) of the network's type; with an index also bytes.
            targets: Targets (n,) or (n, outputs).
            sizes: Items of each mini-batch.
            rates: Learning rate of each step; if empty, compute only gradients.
            index: Numbers of the items that the mini-batches take in turn; default: all items in order.
            scale: Factor of bytes.

        Raises:
            IndexError: A label is not a class.
            ValueError: Inputs or targets do not have the network's shapes.
        """
        self._make_room(max(sizes))
        numbered = index is not None
        if not (numbered and inputs is self._described[0] and targets is self._described[1]):
            self._described = (inputs, targets, *self._describe(inputs, targets, numbered=numbered))
        items = self._described[2]
        items.scale, items.index = scale, torch.from_numpy(index).data_ptr() if index is not None else None
        losses = array.array("f" if self._dtype == torch.float32 else "d", bytes(len(sizes) * self._dtype.itemsize))
        lengths, steps = array.array("q", sizes), array.array("d", rates)
        structures = map(ctypes.byref, (self._network, self.step.optimizer if self.step and rates else NO_STEP, items))
        lengths_at, steps_at, losses_at = (numbers.buffer_info()[0] for numbers in (lengths, steps, losses))
        done = self._train(*structures, lengths_at, steps_at, len(sizes), losses_at)
        if done < len(sizes):
            batch = (targets if index is None else targets[torch.from_numpy(index)])[sum(sizes[:done]) :][: sizes[done]]
            wrong = next(label for label in batch.tolist() if not 0 <= label < self._linear[-1].out_features)
            raise IndexError(f"Target {wrong} is out of bounds.")
        return losses.tolist()

    def _describe(self, inputs: Tensor, targets: Tensor, *, numbered: bool) -> tuple[_Items, Tensor, Tensor]:
        """Describe items to `mlp.c`. Also return the memory that the description points to."""
        inputs = self._rows(inputs, bytes_too=numbered)
        labelled, width = targets.dtype == torch.int64, self._linear[-1].out_features
        if targets.shape != (inputs.shape[:1] if labelled else (len(inputs), width)):
            raise ValueError(f"the network gives answers {(len(inputs), width)} to targets {tuple(targets.shape)}")
        targets = targets.contiguous() if labelled else targets.to(self._dtype).contiguous()
        labels, numbers = (targets.data_ptr(), None) if labelled else (None, targets.data_ptr())
        items = _Items(inputs.data_ptr(), inputs.dtype == torch.uint8, 1.0, labels, numbers, None, *self._some)
        return items, inputs, targets

    def _rows(self, inputs: Tensor, *, bytes_too: bool) -> Tensor:
        """Return the inputs (b, n) in memory order."""
        if self._flattens:
            inputs = inputs.flatten(1)
        elif inputs.dim() != 2:
            raise ValueError(f"the network begins with a linear layer and has no Flatten for items {tuple(inputs.shape[1:])}")
        fits = inputs.dtype == self._dtype or (bytes_too and inputs.dtype == torch.uint8)
        if inputs.shape[1] != self._linear[0].in_features or not fits:
            self._linear[0](inputs)  # raises torch's own error
        return inputs.contiguous()

    def _make_room(self, items: int) -> None:
        """Allocate memory for the answers to `items` items, each array on its own cache lines: alignment changes rounding."""
        if items <= self._most_items:
            return
        self._described = (None, None)
        self._most_items, (width, outputs) = items, (self._layers[0].inputs, self._layers[-1].outputs)
        self._memory = [torch.empty(items, width, dtype=self._dtype), torch.empty(items, outputs, dtype=self._dtype)]
        self._memory.append(torch.empty(items, dtype=torch.int64))
        self._some = addresses(*self._memory)
        for layer in self._layers:
            out, delta = (torch.empty(items, layer.outputs, dtype=self._dtype) for _ in range(2))
            self._memory += [out, delta]
            layer.out, layer.delta = addresses(out, delta)


class MlpAnswers:
    """The answers of a plain stack of layers in evaluation mode."""

    def __init__(self, module: nn.Module, layers: Sequence[tuple[nn.Linear, int]], *, flattens: bool) -> None:
        """Describe the network to `mlp.c`, with its parameters' present memory. Raises CannotCompile."""
        self._module, self._flattens, self._dtype = module, flattens, layers[0][0].weight.dtype
        code, product = code_and_product(SOURCE, self._dtype)
        self._answer = code.answer
        self._answer.restype, self._answer.argtypes = None, [*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p]
        self._layers, self._memory = _layers_of(layers), list[Tensor]()
        for layer in self._layers[:-1]:
            self._memory.append(torch.empty(ANSWERED_AT_A_TIME, layer.outputs, dtype=self._dtype))
            (layer.out,) = addresses(self._memory[-1])
        self._network = _Network(product, len(layers), self._layers)

    @classmethod
    def of(cls, module: nn.Module) -> MlpAnswers | None:
        """Recognise a plain stack of layers on the CPU; return None for other networks. Raises CannotCompile."""
        layers, flattens = plain_stack(module)
        return cls(module, layers, flattens=flattens) if layers else None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Compute the answers (b, outputs) to inputs (b, ...)."""
        rows = inputs.flatten(1) if self._flattens and inputs.dim() > 1 else inputs
        if rows.dim() != 2 or rows.shape[1] != self._layers[0].inputs or rows.dtype != self._dtype or not rows.is_cpu:
            return self._module(inputs)  # type: ignore[no-any-return]  # torch says what is wrong
        rows, answers = rows.contiguous(), torch.empty(len(rows), self._layers[-1].outputs, dtype=self._dtype)
        self._answer(ctypes.byref(self._network), rows.data_ptr(), len(rows), ANSWERED_AT_A_TIME, answers.data_ptr())
        return answers


def plain_stack(module: nn.Module) -> tuple[list[tuple[nn.Linear, int]], bool]:
    """Recognise a plain stack of layers on the CPU. Exact types only: a subclass may do anything.

    Return the layers, each with the number of its activation, and whether items are flattened first; no layers for other networks.
    """
    layers: list[tuple[nn.Linear, int]] = []
    if type(module) is not nn.Sequential or hooked(module):
        return [], False
    parts = [part for part in module if type(part) is not nn.Identity]
    flattens = bool(parts) and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1)
    for part in parts[flattens:]:
        if type(part) is nn.Linear and part.bias is not None and _in_memory_order(part):
            layers.append((part, 0))
        elif type(part) in ACTIVATIONS and layers and not layers[-1][1]:
            layers[-1] = layers[-1][0], ACTIVATIONS[type(part)]
        else:
            return [], False
    alike = len({layer.weight.dtype for layer, _ in layers}) == 1
    return (layers, flattens) if alike and _shapes_fit([layer for layer, _ in layers]) else ([], False)


def _in_memory_order(layer: nn.Linear) -> bool:
    """Return whether C can read a layer's parameters: torch takes whatever was put into a layer."""
    tensors, dtype = (layer.weight, layer.bias), layer.weight.dtype
    return dtype in DEFINITIONS and all(x.is_cpu and x.dtype == dtype and x.is_contiguous() for x in tensors)


def _layers_of(layers: Sequence[tuple[nn.Linear, int]]) -> Any:
    """Describe layers with an activation each, without memory for gradients and answers."""
    structures = (
        _Layer(layer.in_features, layer.out_features, activation, *addresses(layer.weight, layer.bias))
        for layer, activation in layers
    )
    return (_Layer * len(layers))(*structures)


def _shapes_fit(layers: Sequence[nn.Linear]) -> bool:
    """Return whether the tensors have the sizes that the layers declare: torch multiplies any tensors that a layer has."""
    widths = [layers[0].in_features, *(layer.out_features for layer in layers)]
    shapes = [(layer.weight.shape, layer.bias.shape) for layer in layers]
    return all(widths) and shapes == [((out, width), (out,)) for width, out in itertools.pairwise(widths)]


def hooked(module: nn.Module) -> bool:
    """Return whether the network, or all networks, have a hook, or a `forward` was replaced."""
    watched = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "parametrizations")
    if nn.modules.module._has_any_global_hook() or any(  # type: ignore[no-untyped-call]
        getattr(parameter, name, None)
        for parameter in module.parameters()
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
    ):
        return True
    return any("forward" in vars(part) or any(getattr(part, name, None) for name in watched) for part in module.modules())
