"""The gradient of a plain stack of layers, computed layer by layer instead of by autograd: the same bits in less time.

A small network spends more time on autograd's bookkeeping than on some of its matrix products. Nearly all first jobs train linear
layers with an activation between them, on labels or numbers. For these the chain rule is a dozen calls over buffers allocated once.
They are autograd's calls in autograd's order, so the gradient has its bits; in bfloat16 those of autocast, which computes the loss in
float32 and all else in bfloat16. All other networks are left to autograd.

Symbols: b items of a batch; layer l maps z_(l-1) (b, n_(l-1)) to a_l = z_(l-1) W_l^T + c_l (b, n_l) and z_l = f(a_l).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# An overload's `_op` is its C++ function without torch's Python wrapper, which takes a fifth of a small call.
_nll = torch.ops.aten.nll_loss_forward.default._op
_mse = torch.ops.aten.mse_loss.default._op
_nll_back = torch.ops.aten.nll_loss_backward.default._op
_log_softmax_back = torch.ops.aten._log_softmax_backward_data.out._op
_mse_back = torch.ops.aten.mse_loss_backward.grad_input._op
_threshold_back = torch.ops.aten.threshold_backward.grad_input._op
_tanh_back = torch.ops.aten.tanh_backward.grad_input._op
_sigmoid_back = torch.ops.aten.sigmoid_backward.grad_input._op

Activation = tuple[Callable[[Tensor], Any], Callable[[Tensor, Tensor], Any]]

ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: (torch.relu_, lambda gradient, z: _threshold_back(gradient, z, 0, grad_input=gradient)),
    nn.Tanh: (torch.tanh_, lambda gradient, z: _tanh_back(gradient, z, grad_input=gradient)),
    nn.Sigmoid: (torch.sigmoid_, lambda gradient, z: _sigmoid_back(gradient, z, grad_input=gradient)),
}
"""f in place, and its derivative by z = f(a), in place of the gradient: da = f'(a) dz."""


@dataclass
class _Layer:
    linear: nn.Linear
    activation: Activation | None = None


class _Buffers(NamedTuple):
    """Tensors of one layer for batches of one size: all that its calls take, so that no iteration makes a view."""

    bias: Tensor
    weight: Tensor
    transposed: Tensor
    """W^T"""
    out: Tensor
    """a (b, n), then z."""
    activation: Activation | None
    delta: Tensor
    """Gradient of the loss by z (b, n), then by a."""
    delta_transposed: Tensor
    bias_gradient: Tensor
    weight_gradient: Tensor


class MlpGradient:
    """Loss and gradient of one network. `gradients` receive the gradient of each parameter, in the order of parameters."""

    def __init__(self, layers: Sequence[_Layer], gradients: Sequence[Tensor], dtype: torch.dtype, *, flattens: bool) -> None:
        """Make the buffers of the parameters. `dtype`: type of all but the loss, the parameters and their gradients."""
        self._layers, self._flattens = layers, flattens
        self._one = torch.ones((), dtype=gradients[0].dtype)
        parameters = [tensor.detach() for layer in layers for tensor in (layer.linear.weight, layer.linear.bias)]
        converts = dtype != gradients[0].dtype
        self._parameters = [parameter.to(dtype) for parameter in parameters]
        self._gradients = [gradient.to(dtype) for gradient in gradients]
        self._converted = list(zip(self._parameters, parameters, strict=True)) if converts else []
        self._returned = list(zip(gradients, self._gradients, strict=True)) if converts else []
        self._buffers: dict[int, list[_Buffers]] = {}

    @classmethod
    def of(cls, module: nn.Module, gradients: Sequence[Tensor], dtype: torch.dtype) -> MlpGradient | None:
        """Recognise a plain stack of layers on the CPU; None for other networks. Exact types only: a subclass may do anything."""
        if type(module) is not nn.Sequential or _hooked(module) or not gradients[0].is_cpu:
            return None
        parts = [part for part in module if type(part) is not nn.Identity]
        flattens = bool(parts) and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1)
        parts = parts[flattens:]
        layers: list[_Layer] = []
        for part in parts:
            if type(part) is nn.Linear and part.bias is not None:
                layers.append(_Layer(part))
            elif type(part) in ACTIVATIONS and layers and layers[-1].activation is None:
                layers[-1].activation = ACTIVATIONS[type(part)]
            else:
                return None
        owned = [parameter for layer in layers for parameter in (layer.linear.weight, layer.linear.bias)]
        if any(layer.linear.in_features == 1 for layer in layers[1:]):
            return None  # autograd may choose another of two equal products there, with other last bits
        whole = len(owned) == len(gradients) == len({id(tensor) for tensor in owned}) and all(
            gradient.requires_grad for gradient in owned
        )
        return cls(layers, gradients, dtype, flattens=flattens) if whole else None

    def differentiate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean loss () over a batch (b, ...), and write its gradient to `gradients`."""
        if self._flattens:
            inputs = inputs.flatten(1)
        elif inputs.dim() != 2:
            raise ValueError(f"the network begins with a linear layer and has no Flatten for items {tuple(inputs.shape[1:])}")
        layers = self._buffers.get(inputs.shape[0]) or self._make_buffers(inputs.shape[0])
        if self._converted:
            inputs = inputs.to(layers[0].out.dtype)
            for own, parameter in self._converted:
                own.copy_(parameter)
        z = inputs
        for layer in layers:
            torch.addmm(layer.bias, z, layer.transposed, out=layer.out)
            z = layer.out
            if layer.activation:
                layer.activation[0](z)
        loss = self._loss(z, targets, layers[-1].delta)
        for index in range(len(layers) - 1, -1, -1):
            layer = layers[index]
            if layer.activation:
                layer.activation[1](layer.delta, layer.out)
            torch.sum(layer.delta, 0, out=layer.bias_gradient)
            torch.mm(layer.delta_transposed, layers[index - 1].out if index else inputs, out=layer.weight_gradient)
            if index:
                torch.mm(layer.delta, layer.weight, out=layers[index - 1].delta)
        for gradient, own in self._returned:
            gradient.copy_(own)
        return loss

    def _loss(self, answers: Tensor, targets: Tensor, delta: Tensor) -> Tensor:
        """Compute the mean loss, and write its gradient with respect to the answers (b, n) to `delta`."""
        loss: Tensor
        if delta.dtype != self._one.dtype:
            exact = delta.to(self._one.dtype)
            loss = self._loss(answers.to(exact.dtype), targets, exact)
            delta.copy_(exact)
        elif targets.dtype == torch.int64:
            logs = torch.log_softmax(answers, 1)
            loss, total = _nll(logs, targets, None, 1, -100)
            _log_softmax_back(_nll_back(self._one, logs, targets, None, 1, -100, total), logs, 1, logs.dtype, out=delta)
        elif answers.shape == targets.shape:
            loss = _mse(answers, targets, 1)
            _mse_back(self._one, answers, targets, 1, grad_input=delta)
        else:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        return loss

    def _make_buffers(self, count: int) -> list[_Buffers]:
        """Make the buffers for batches of `count` items."""
        if len(self._buffers) > 8:
            self._buffers.clear()
        made = []
        for layer, weight, bias, weight_gradient, bias_gradient in zip(
            self._layers, self._parameters[::2], self._parameters[1::2], self._gradients[::2], self._gradients[1::2], strict=True
        ):
            out, delta = (weight.new_empty(count, len(bias)) for _ in range(2))  # on cache lines: products round by alignment
            made.append(
                _Buffers(bias, weight, weight.t(), out, layer.activation, delta, delta.t(), bias_gradient, weight_gradient)
            )
        self._buffers[count] = made
        return made


def _hooked(module: nn.Module) -> bool:
    """Return whether a hook watches the network, or a `forward` was replaced."""
    watched = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "parametrizations")
    if any(
        getattr(parameter, name, None)
        for parameter in module.parameters()
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
    ):
        return True
    return any("forward" in vars(part) or any(getattr(part, name, None) for name in watched) for part in module.modules())
