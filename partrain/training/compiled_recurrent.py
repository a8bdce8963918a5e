"""Recurrent layers in C code (`recurrent.c`): all steps of a direction in one call, and their gradients in another.

torch calls several operators for each step, which takes a GRU or RNN longer than its products. Autograd handles everything around
the layers.

Shapes: b items, B rows, one per item and step; I inputs, H hidden units, G gates.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from partrain.flat import DEFINITIONS
from partrain.training.blas import code_and_product

SOURCE = Path(__file__).with_name("recurrent.c")
_KINDS = {"RNN_TANH": 0, "RNN_RELU": 1, "LSTM": 2, "GRU": 3}
"""Number of each kind of layer in `recurrent.c`."""
_CELLS = {_KINDS["RNN_TANH"]: torch.rnn_tanh_cell, _KINDS["RNN_RELU"]: torch.rnn_relu_cell, _KINDS["GRU"]: torch.gru_cell}
"""One step of each kind without cells, by torch."""


class _Description(ctypes.Structure):
    _fields_ = [
        ("gemm", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("kind", "gate_count", "rows", "width", "hidden", "step_count")),
        *((name, ctypes.c_void_p) for name in ("steps", "x", "input_weight", "state_weight", "input_bias", "state_bias")),
        *((name, ctypes.c_void_p) for name in ("gates", "inner", "out", "state_gates", "zeros")),
        *((name, ctypes.c_void_p) for name in ("out_gradient", "cell_gradient", "before", "of_gates", "of_state_gates")),
        *((name, ctypes.c_void_p) for name in ("carry", "cell_carry", "input_weight_gradient", "state_weight_gradient")),
        *((name, ctypes.c_void_p) for name in ("input_bias_gradient", "state_bias_gradient", "x_gradient")),
    ]


@dataclass(frozen=True)
class _Steps:
    """The order in which a direction visits the rows of a batch."""

    table: NDArray[np.int64]
    """(steps, 4), as in `recurrent.c`."""
    last: Tensor
    """(b,): the row of each item's last state."""
    rows: int
    most: int
    """Rows of the largest step."""

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, sizes: tuple[int, ...], *, reverse: bool) -> _Steps:
        """Return the order for batches with `sizes` items at each step."""
        counts = np.array(sizes)
        starts = np.cumsum(counts) - counts
        order = np.arange(len(sizes))[:: -1 if reverse else 1]
        earlier = np.roll(order, 1)
        going = np.minimum(counts[order], counts[earlier])
        going[0] = 0
        items = np.arange(sizes[0])
        lengths = (counts[None, :] > items[:, None]).sum(1)
        last = items if reverse else starts[lengths - 1] + items
        table = np.ascontiguousarray(np.stack([starts[order], counts[order], starts[earlier], going], axis=1))
        return cls(table, torch.from_numpy(last), int(counts.sum()), max(sizes))


class _Direction(torch.autograd.Function):
    """One direction of one layer: (x (B, I), weights, biases) -> (states (B, H), cells of an LSTM (B, H))."""

    @staticmethod
    def forward(ctx: Any, kind: int, steps: _Steps, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        x, *parameters = (tensor.contiguous() for tensor in inputs)  # some utilities of torch recompute weights
        width, hidden = parameters[1].shape
        gates, out = x.new_empty(steps.rows, width), x.new_empty(steps.rows, hidden)
        inner = torch.empty_like(out) if kind in (_KINDS["LSTM"], _KINDS["GRU"]) else x.new_empty(0)
        ctx.kind, ctx.steps = kind, steps
        ctx.save_for_backward(*inputs, gates, inner, out)
        ctx.set_materialize_grads(False)
        layer, code, _memory = _described(kind, steps, x, parameters, gates, inner, out)
        code.forward(ctypes.byref(layer))
        return out, inner

    @staticmethod
    def backward(ctx: Any, of_out: Tensor | None, of_cell: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, gates, inner, out = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            with torch.autocast("cpu", enabled=False):  # as in the forward pass
                return None, None, *_differentiable_gradients(ctx.kind, ctx.steps, inputs, of_out, of_cell)
        x, *parameters = (tensor.contiguous() for tensor in inputs)
        steps, hidden = ctx.steps, out.shape[1]
        layer, code, _memory = _described(ctx.kind, steps, x, parameters, gates, inner, out)
        arrived = {"out_gradient": of_out, "cell_gradient": of_cell}
        needed = {name: gradient.contiguous() for name, gradient in arrived.items() if gradient is not None}
        of_gates = torch.empty_like(gates)
        needed |= {"before": torch.empty_like(out), "of_gates": of_gates}
        needed["of_state_gates"] = torch.empty_like(gates) if ctx.kind == _KINDS["GRU"] else of_gates
        needed |= {name: x.new_zeros(steps.most, hidden) for name in ("carry", "cell_carry")}
        names = ("input_weight_gradient", "state_weight_gradient", "input_bias_gradient", "state_bias_gradient")
        gradients = [torch.empty_like(parameter) for parameter in parameters]
        of_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        needed |= dict(zip(names, gradients, strict=True)) | ({} if of_x is None else {"x_gradient": of_x})
        for name, tensor in needed.items():
            setattr(layer, name, tensor.data_ptr())
        code.backward(ctypes.byref(layer))
        return None, None, of_x, *gradients


def _differentiable_gradients(
    kind: int, steps: _Steps, inputs: Sequence[Tensor], of_out: Tensor | None, of_cell: Tensor | None
) -> Iterator[Tensor | None]:
    """Compute the gradients of `inputs` with torch's cells, one step after the other, and keep their graph."""
    x, *parameters = inputs = [tensor.view_as(tensor) for tensor in inputs]  # a layer may be its own input: gradients stop here
    state = cell = x.new_zeros(0, parameters[1].shape[1])
    states, cells = {}, {}
    for start, count, _earlier, going in steps.table.tolist():
        state, cell = (nn.functional.pad(tensor[:going], (0, 0, 0, count - going)) for tensor in (state, cell))
        rows = x[start : start + count]
        if kind == _KINDS["LSTM"]:
            state, cell = torch.lstm_cell(rows, (state, cell), *parameters)
        else:
            cell = state = _CELLS[kind](rows, state, *parameters)
        states[start], cells[start] = state, cell
    arrived = [(by_start, gradient) for by_start, gradient in ((states, of_out), (cells, of_cell)) if gradient is not None]
    if not arrived:
        return (None for _ in inputs)
    outs = [torch.cat([by_start[start] for start in sorted(by_start)]) for by_start, _ in arrived]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    gradients = iter(torch.autograd.grad(outs, wanted, [gradient for _, gradient in arrived], create_graph=True))
    return (next(gradients) if tensor.requires_grad else None for tensor in inputs)


_compute_direction: Callable[..., tuple[Tensor, Tensor]] = _Direction.apply


def _described(
    kind: int, steps: _Steps, x: Tensor, parameters: Sequence[Tensor], gates: Tensor, inner: Tensor, out: Tensor
) -> tuple[_Description, ctypes.CDLL, list[Tensor]]:
    """Describe a direction to `recurrent.c`. Also return the memory that it needs during a call."""
    code, product = code_and_product(SOURCE, x.dtype)
    hidden, memory = out.shape[1], [x.new_empty(steps.most, gates.shape[1]), x.new_zeros(out.shape[1])]
    sizes = gates.shape[1] // hidden, steps.rows, x.shape[1], hidden, len(steps.table)
    addresses = [tensor.data_ptr() for tensor in (x, *parameters, gates, inner, out, *memory)]
    return _Description(product, kind, *sizes, steps.table.ctypes.data, *addresses), code, memory


class CompiledRecurrent:
    """The `forward` of torch's recurrent layers in training; torch handles every case that it does not know."""

    def __init__(self, layers: nn.RNNBase) -> None:
        self._layers = layers

    def __call__(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:  # noqa: A002 (torch's name)
        """Compute what torch's `forward` computes, up to rounding."""
        layers = self._layers
        packed = input if isinstance(input, PackedSequence) else None
        data = input.data if isinstance(input, PackedSequence) else input
        weight = layers.weight_ih_l0
        fits = (
            data.dim() == 3 - bool(packed) and data.dtype == weight.dtype and data.shape[-1] == layers.input_size and data.numel()
        )
        trains = layers.training and torch.is_grad_enabled()  # a judged network has torch's bits, as in other programs
        transformed = torch._C._are_functorch_transforms_active()  # by torch.func, whose tensors have no memory
        sizes = tuple(packed.batch_sizes.tolist()) if packed else ()
        wrong = packed and (sum(sizes) != len(data) or sizes != tuple(sorted(sizes, reverse=True)))  # torch reports the error
        if (
            not trains
            or hx is not None
            or not fits
            or not data.is_cpu
            or torch.is_autocast_enabled("cpu")
            or transformed
            or wrong
        ):
            return type(layers).forward(layers, input, hx)
        if not packed:
            data = data.transpose(0, 1) if layers.batch_first else data
            sizes = (data.shape[1],) * len(data)
            data = data.reshape(-1, layers.input_size)
        hidden, cells = [], []
        for layer in range(layers.num_layers):
            outs = []
            for reverse in range(1 + layers.bidirectional):
                steps = _Steps.of(sizes, reverse=bool(reverse))
                names = (f"{name}_l{layer}" + "_reverse" * reverse for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
                out, inner = _compute_direction(_KINDS[layers.mode], steps, data, *(getattr(layers, name) for name in names))
                outs.append(out)
                hidden.append(out[steps.last])
                cells.append(inner[steps.last] if layers.mode == "LSTM" else inner)
            data = torch.cat(outs, 1) if len(outs) > 1 else outs[0]
            if layers.dropout and layer < layers.num_layers - 1:
                data = nn.functional.dropout(data, layers.dropout, layers.training)
        # A copy: users may change their states in place, and autograd has saved these.
        return self._answer(data if layers.bidirectional else data.clone(), sizes, packed, hidden, cells)

    def _answer(
        self, data: Tensor, sizes: Sequence[int], packed: PackedSequence | None, hidden: list[Tensor], cells: list[Tensor]
    ) -> Any:
        """Return states and last states in the order of the items."""
        layers = self._layers
        last = [torch.stack(some) for some in ((hidden, cells) if layers.mode == "LSTM" else (hidden,))]
        if packed:
            states: Any = packed._replace(data=data)
            if packed.unsorted_indices is not None:
                last = [some.index_select(1, packed.unsorted_indices) for some in last]
        else:
            states = data.view(len(sizes), sizes[0], -1)
            states = states.transpose(0, 1) if layers.batch_first else states
        return states, tuple(last) if layers.mode == "LSTM" else last[0]


def compile_recurrent(module: nn.Module) -> bool:
    """Let the recurrent layers of a network compute in C, and return whether it has any. Exact types only: a subclass may do anything.

    Raises CannotCompile.
    """
    own = [part for part in module.modules() if isinstance(part, nn.RNNBase) and type(part) in (nn.RNN, nn.LSTM, nn.GRU)]
    plain = [part for part in own if part.bias and not part.proj_size and "forward" not in vars(part) and _in_c(part)]
    for part in plain:
        code_and_product(SOURCE, next(part.parameters()).dtype)
        vars(part)["forward"] = CompiledRecurrent(part)  # hooks and the names of parameters do not change
    return bool(plain)


def _in_c(layers: nn.RNNBase) -> bool:
    """Return whether the weights are in memory, in a type of the C code, and have the sizes that the layers declare."""
    inputs, hidden = layers.input_size, layers.hidden_size
    for number, name in enumerate(layers._flat_weights_names):  # four of each direction of each layer
        tensor, above = getattr(layers, name), number >= 4 * (1 + layers.bidirectional)
        width = hidden if "_hh" in name else hidden * (1 + layers.bidirectional) if above else inputs
        gates = {"LSTM": 4, "GRU": 3}.get(layers.mode, 1) * hidden
        shape = (gates,) if name.startswith("bias") else (gates, width)
        if not (tensor.is_cpu and tensor.dtype in DEFINITIONS and tensor.shape == shape):
            return False
    return True
