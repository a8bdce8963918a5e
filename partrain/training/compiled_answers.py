"""The answers of networks in evaluation mode: by C code for those that also train in C code, else by torch.

Judgements and later commands answer in the same way, so that `evaluate` gives the numbers of the judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from partrain.system.compiler import CannotCompile
from partrain.training.compiled_mlp import MlpAnswers
from partrain.training.compiled_tabular import TabularAnswers


def answers_of(module: nn.Module, *, compiled: bool = True) -> Callable[[Any], Any]:
    """Return the function that answers items with a network's present parameters, up to the rounding of C code.

    `compiled`: False for a job whose `[engine]` wants none.
    """
    try:
        return (compiled and (MlpAnswers.of(module) or TabularAnswers.of(module))) or module
    except CannotCompile:  # the engine has reported it
        return module
