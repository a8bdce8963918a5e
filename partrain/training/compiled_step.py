"""Steps of SGD and Adam in C code (`steps.h`), for all parameters in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from torch import Tensor

from partrain.optim import Sgd
from partrain.optim.local import LocalOptimizer
from partrain.optim.sections import Adam, AdamW


class _Tensor(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("param", "gradient", "first", "second", "steps")),
        ("size", ctypes.c_int64),
        ("peak", ctypes.c_double),
        ("decay", ctypes.c_double),
    ]


class OptimizerDescription(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "nesterov", "count")),
        *((name, ctypes.c_double) for name in ("peak", "momentum", "beta1", "beta2", "epsilon")),
        ("tensors", ctypes.POINTER(_Tensor)),
    ]


NO_STEP = OptimizerDescription()
"""Description of an optimizer that takes no steps."""


class CompiledStep:
    """The step of an optimizer with the numbers in the gradients' memory."""

    def __init__(self, code: ctypes.CDLL, optimizer: OptimizerDescription) -> None:
        self._step, self.optimizer = code.take_step, optimizer
        self._step.restype, self._step.argtypes = None, [ctypes.c_void_p, ctypes.c_double]

    def __call__(self, rate: float) -> None:
        """Take one step at a learning rate."""
        self._step(ctypes.byref(self.optimizer), rate)

    @classmethod
    def of(cls, code: ctypes.CDLL, optimizer: LocalOptimizer, gradients: Sequence[Tensor]) -> CompiledStep | None:
        """Describe an optimizer to C code that includes `steps.h`; return None if torch takes its steps.

        `gradients`: memory for the gradient of each parameter.
        """
        section = optimizer.section
        if section.clip_norm is not None or section.clip_value is not None:
            return None
        if isinstance(section, Sgd) and not section.dampening:
            kind, settings = (1, section.nesterov), (section.momentum, 0.0, 0.0, 0.0)
        elif isinstance(section, Adam) and not section.amsgrad:
            kind, settings = (
                (3 if isinstance(section, AdamW) else 2, False),
                (0.0, section.betas[0], section.betas[1], section.eps),
            )
        else:
            return None
        tensors = (_Tensor * len(gradients))()
        for described, tensor, gradient in zip(tensors, optimizer.tensors(), gradients, strict=True):
            described.param, described.gradient, described.steps = addresses(tensor.param, gradient, tensor.steps)
            for name, address in zip(("first", "second"), addresses(*tensor.moments), strict=False):
                setattr(described, name, address)
            described.size, described.peak, described.decay = gradient.numel(), tensor.peak, tensor.decay
        return cls(code, OptimizerDescription(*kind, len(gradients), section.lr, *settings, tensors))


def addresses(*tensors: Tensor) -> list[int]:
    """Return the addresses of tensors."""
    return [tensor.data_ptr() for tensor in tensors]
