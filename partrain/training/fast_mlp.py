"""The gradient of a plain stack of layers, computed layer by layer instead of by autograd: the same bits in less time.

A small network spends more time on autograd's bookkeeping than on some of its matrix products. Nearly all first jobs train linear
layers with an activation between them, on labels or numbers. For these the chain rule is a dozen calls over buffers allocated once.
They are autograd's calls in autograd's order, so the gradient has its bits. All other networks are left to autograd.

Symbols: b items of a batch; layer l maps z_(l-1) (b, n_(l-1)) to a_l = z_(l-1) W_l^T + c_l (b, n_l) and z_l = f(a_l).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_log_softmax = torch.ops.aten._log_softmax.default
_log_softmax_back = torch.ops.aten._log_softmax_backward_data.default
_nll = torch.ops.aten.nll_loss_forward.default
_nll_back = torch.ops.aten.nll_loss_backward.default
_mse = torch.ops.aten.mse_loss.default
_mse_back = torch.ops.aten.mse_loss_backward.default
_threshold_back = torch.ops.aten.threshold_backward.default
_tanh_gradient = torch.ops.aten.tanh_backward.default
_sigmoid_gradient = torch.ops.aten.sigmoid_backward.default


def _relu(a: Tensor) -> Tensor:
    return a.relu_()


def _relu_back(gradient: Tensor, z: Tensor) -> Tensor:
    result: Tensor = _threshold_back(gradient, z, 0)
    return result


def _tanh(a: Tensor) -> Tensor:
    return a.tanh_()


def _tanh_back(gradient: Tensor, z: Tensor) -> Tensor:
    result: Tensor = _tanh_gradient(gradient, z)
    return result


def _sigmoid(a: Tensor) -> Tensor:
    return a.sigmoid_()


def _sigmoid_back(gradient: Tensor, z: Tensor) -> Tensor:
    result: Tensor = _sigmoid_gradient(gradient, z)
    return result


Step = Callable[[Tensor], Tensor]
Back = Callable[[Tensor, Tensor], Tensor]

ACTIVATIONS: dict[type[nn.Module], tuple[Step, Back]] = {
    nn.ReLU: (_relu, _relu_back),
    nn.Tanh: (_tanh, _tanh_back),
    nn.Sigmoid: (_sigmoid, _sigmoid_back),
}
"""f in place, and its derivative by z = f(a): da = f'(a) dz."""


@dataclass
class _Layer:
    linear: nn.Linear
    activation: tuple[Step, Back] | None


_Buffers = tuple[list[Tensor], list[Tensor]]
"""The layers' outputs, and the gradients with respect to their inputs."""


class MlpGradient:
    """Loss and gradient of one network. `gradients` receive the gradient of each parameter, in the order of parameters."""

    def __init__(self, layers: Sequence[_Layer], gradients: Sequence[Tensor], *, flattens: bool) -> None:
        self._layers, self._flattens = layers, flattens
        self._gradients = [gradients[2 * index : 2 * index + 2] for index in range(len(layers))]
        self._one = torch.ones((), dtype=gradients[0].dtype)
        self._buffers: dict[int, _Buffers] = {}

    @classmethod
    def of(cls, module: nn.Module, gradients: Sequence[Tensor]) -> MlpGradient | None:
        """Recognise a plain stack of layers on the CPU; None for other networks. Exact types only: a subclass may do anything."""
        if type(module) is not nn.Sequential or _hooked(module) or gradients[0].is_cuda:
            return None
        parts = [part for part in module if type(part) is not nn.Identity]
        flattens = bool(parts) and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1)
        parts = parts[flattens:]
        layers: list[_Layer] = []
        for part in parts:
            if type(part) is nn.Linear and part.bias is not None:
                layers.append(_Layer(part, None))
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
        return cls(layers, gradients, flattens=flattens) if whole else None

    def differentiate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean loss () over a batch (b, ...), and write its gradient to `gradients`."""
        with torch.no_grad():
            if inputs.dim() != 2 and not self._flattens:
                raise ValueError(f"the network begins with a linear layer and has no Flatten for items {tuple(inputs.shape[1:])}")
            z = inputs.flatten(1)
            outs, ins = self._buffers_for(len(z))
            kept = [z]
            for layer, out in zip(self._layers, outs, strict=True):
                torch.addmm(layer.linear.bias, z, layer.linear.weight.t(), out=out)
                z = layer.activation[0](out) if layer.activation else out
                kept.append(z)
            loss, gradient = self._loss(z, targets)
            for index in range(len(self._layers) - 1, -1, -1):
                layer, (weight, bias) = self._layers[index], self._gradients[index]
                if layer.activation:
                    gradient = layer.activation[1](gradient, kept[index + 1])
                torch.sum(gradient, 0, out=bias)
                torch.mm(gradient.t(), kept[index], out=weight)
                if index:
                    gradient = torch.mm(gradient, layer.linear.weight, out=ins[index])
        return loss

    def _loss(self, answers: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean loss, and its gradient with respect to the answers (b, n)."""
        if targets.dtype == torch.int64:
            logs = _log_softmax(answers, 1, half_to_float=False)
            loss, total = _nll(logs, targets, None, 1, -100)
            gradient = _nll_back(self._one, logs, targets, None, 1, -100, total)
            return loss, _log_softmax_back(gradient, logs, 1, logs.dtype)
        if answers.shape != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        return _mse(answers, targets, 1), _mse_back(self._one, answers, targets, 1)

    def _buffers_for(self, count: int) -> _Buffers:
        """Give the buffers for batches of `count` items."""
        if count not in self._buffers:
            if len(self._buffers) > 8:
                self._buffers.clear()
            outs = [layer.linear.weight.new_empty(count, layer.linear.out_features) for layer in self._layers]
            ins = [
                layer.linear.weight.new_empty(count, layer.linear.in_features if index else 0)
                for index, layer in enumerate(self._layers)
            ]
            self._buffers[count] = outs, ins
        return self._buffers[count]


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
