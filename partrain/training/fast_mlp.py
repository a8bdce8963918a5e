"""The gradient of a plain stack of layers, computed layer by layer instead of by autograd: the same bits in less time.

A small network spends more time on autograd's bookkeeping than on some of its matrix products. Nearly all first jobs train linear
layers with an activation between them, on labels or numbers. For these the chain rule is a dozen calls over buffers allocated once.
They are autograd's calls in autograd's order, so the gradient has its bits; in bfloat16 those of autocast, which computes the loss in
float32 and all else in bfloat16. All other networks are left to autograd.

Symbols: b items of a batch; layer l maps z_(l-1) (b, n_(l-1)) to a_l = z_(l-1) W_l^T + c_l (b, n_l) and z_l = f(a_l). R replicas of
a network are computed at once, each on a batch of its own: then every tensor has R in front, and a batched product stands for R products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# An overload's `_op` is its C++ function without torch's Python wrapper, which takes a fifth of a small call.
_nll = torch.ops.aten.nll_loss_forward.default._op
_mse = torch.ops.aten.mse_loss.default._op
_SUM = 2  # a reduction of torch's losses
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


class _Buffers(NamedTuple):
    """Tensors of one layer for batches of one size: all that its calls take, so that no iteration makes a view.

    Those of several replicas have R in front.
    """

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
    """Loss and gradient of one network, or of R replicas of it. `gradients` receive the gradient of each parameter."""

    def __init__(
        self,
        activations: Sequence[Activation | None],
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        dtype: torch.dtype,
        *,
        flattens: bool,
    ) -> None:
        """Make the buffers of the parameters.

        Args:
            activations: Activation of each layer.
            parameters: Weight (n_l, n_(l-1)) and bias (n_l,) of each layer, in turn; all with R in front for R replicas.
            gradients: Memory for the gradient of each.
            dtype: Type of all but the loss, the parameters and their gradients.
            flattens: Items are flattened first.
        """
        self._activations, self._flattens = activations, flattens
        self._lead = parameters[0].shape[:-2]
        """(R,), or () for one network."""
        self._affine: Callable[..., Tensor] = torch.baddbmm if self._lead else torch.addmm
        self._product: Callable[..., Tensor] = torch.bmm if self._lead else torch.mm
        self._replicas = torch.full((), float(self._lead.numel()), dtype=gradients[0].dtype)
        """R, or 1: the gradient of the sum of the replicas' losses by their mean, from which torch's mean over all items starts."""
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
        layers: list[nn.Linear] = []
        activations: list[Activation | None] = []
        for part in parts:
            if type(part) is nn.Linear and part.bias is not None:
                layers.append(part)
                activations.append(None)
            elif type(part) in ACTIVATIONS and layers and activations[-1] is None:
                activations[-1] = ACTIVATIONS[type(part)]
            else:
                return None
        owned = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
        if any(layer.in_features == 1 for layer in layers[1:]):
            return None  # autograd may choose another of two equal products there, with other last bits
        whole = len(owned) == len(gradients) == len({id(tensor) for tensor in owned}) and all(
            gradient.requires_grad for gradient in owned
        )
        return cls(activations, [tensor.detach() for tensor in owned], gradients, dtype, flattens=flattens) if whole else None

    def of_replicas(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> MlpGradient:
        """Return the gradient of R replicas of this network at once, whose parameters (R, ...) and gradients (R, ...) these are."""
        return MlpGradient(self._activations, parameters, gradients, self._parameters[0].dtype, flattens=self._flattens)

    def differentiate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean loss () over a batch (b, ...), or (R,) over R batches (R, b, ...), and write its gradient to `gradients`."""
        before = len(self._lead) + 1
        if self._flattens:
            inputs = inputs.flatten(before)
        elif inputs.dim() != before + 1:
            raise ValueError(
                f"the network begins with a linear layer and has no Flatten for items {tuple(inputs.shape[before:])}"
            )
        count = inputs.shape[before - 1]
        layers = self._buffers.get(count) or self._make_buffers(count)
        if self._converted:
            inputs = inputs.to(layers[0].out.dtype)
            for own, parameter in self._converted:
                own.copy_(parameter)
        z = inputs
        for layer in layers:
            self._affine(layer.bias, z, layer.transposed, out=layer.out)
            z = layer.out
            if layer.activation:
                layer.activation[0](z)
        loss = self._loss(z, targets, layers[-1].delta)
        for index in range(len(layers) - 1, -1, -1):
            layer = layers[index]
            if layer.activation:
                layer.activation[1](layer.delta, layer.out)
            torch.sum(layer.delta, -2, out=layer.bias_gradient)
            self._product(layer.delta_transposed, layers[index - 1].out if index else inputs, out=layer.weight_gradient)
            if index:
                self._product(layer.delta, layer.weight, out=layers[index - 1].delta)
        for gradient, own in self._returned:
            gradient.copy_(own)
        return loss

    def _loss(self, answers: Tensor, targets: Tensor, delta: Tensor) -> Tensor:
        """Compute the mean loss of each replica, and write its gradient with respect to the answers (..., b, n) to `delta`."""
        loss: Tensor
        if delta.dtype != self._replicas.dtype:
            exact = delta.to(self._replicas.dtype)
            loss = self._loss(answers.to(exact.dtype), targets, exact)
            delta.copy_(exact)
        elif targets.dtype == torch.int64:
            shape = targets.shape
            if self._lead:
                answers, targets, delta = answers.flatten(0, 1), targets.flatten(), delta.flatten(0, 1)
            logs = torch.log_softmax(answers, 1)
            loss, total = _nll(logs, targets, None, 1, -100)
            _log_softmax_back(_nll_back(self._replicas, logs, targets, None, 1, -100, total), logs, 1, logs.dtype, out=delta)
            if self._lead:
                loss = logs.gather(1, targets.unsqueeze(1)).neg_().view(shape).mean(1)
        elif answers.shape == targets.shape and self._lead:
            loss = _mse(answers, targets, 0).flatten(1).mean(1)
            _mse_back(self._replicas / answers.numel(), answers, targets, _SUM, grad_input=delta)
        elif answers.shape == targets.shape:
            loss = _mse(answers, targets, 1)
            _mse_back(self._replicas, answers, targets, 1, grad_input=delta)
        else:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        return loss

    def _make_buffers(self, count: int) -> list[_Buffers]:
        """Make the buffers for batches of `count` items."""
        if len(self._buffers) > 8:
            self._buffers.clear()
        made = []
        tensors = self._parameters[::2], self._parameters[1::2], self._gradients[::2], self._gradients[1::2]
        for activation, weight, bias, weight_gradient, bias_gradient in zip(self._activations, *tensors, strict=True):
            out, delta = (
                weight.new_empty(*self._lead, count, bias.shape[-1]) for _ in range(2)
            )  # on cache lines: products round by alignment
            added = bias.unsqueeze(1) if self._lead else bias
            made.append(_Buffers(added, weight, weight.mT, out, activation, delta, delta.mT, bias_gradient, weight_gradient))
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
