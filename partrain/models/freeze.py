"""Frozen parameters and frozen statistics: `[model] freeze` and `freeze_statistics`; and frozen parameters that a network moves itself.

A teacher that follows the network by a momentum, or the codes of a quantiser, are often frozen parameters: no gradient reaches them,
and `forward` moves them in training. The dry run finds them. They are mixed and saved like buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from types import MethodType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from partrain.config.problems import Finding, WrongValue

if TYPE_CHECKING:
    from partrain.models.sections import Network

MAX_NAMES_SHOWN = 24
"""Maximum number of parameter names in a message."""


def freeze(module: nn.Module, section: Network) -> None:
    """Exclude the parameters whose names match from training. Both names of a tied parameter count.

    A BatchNorm layer without a parameter left to train uses its running statistics in training as in evaluation, and they do not
    change. `freeze_statistics = false` lets them follow the items. Raises WrongValue if a pattern matches no parameter, or if no parameter
    is left to train.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for number, pattern in enumerate(section.freeze):
        matching = [name for name in parameters if fnmatchcase(name, pattern)]
        if not matching:
            what = f'no parameter is called "{pattern}"'
            raise WrongValue(Finding(("model", "freeze", number), what, f"there are {names_shown(list(parameters))}"))
        for name in matching:
            parameters[name].requires_grad = False
    if not section.freeze:
        return
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise WrongValue(Finding(("model", "freeze"), "the patterns match all parameters, so none is left to train"))
    if section.freeze_statistics:
        for norm in _without_training(module, section.freeze):
            norm.eval()
            norm.train = MethodType(_stay_in_evaluation, norm)  # type: ignore[method-assign]


def frozen_buffers(module: nn.Module) -> set[str]:
    """Return the names of the buffers of layers whose statistics are frozen."""
    layers = {name: part for name, part in module.named_modules() if _is_frozen(part)}
    return {f"{name}.{own}" if name else own for name, part in layers.items() for own, _ in part.named_buffers()}


def mark_moved(module: nn.Module, names: Iterable[str]) -> None:
    """Note that the network moves these frozen parameters itself."""
    parameters = dict(module.named_parameters())
    for name in names:
        parameters[name].moved_by_network = True  # type: ignore[attr-defined]


def moved_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """List the frozen parameters that the network moves itself, by name."""
    return [(name, parameter) for name, parameter in module.named_parameters() if hasattr(parameter, "moved_by_network")]


def frozen_sums(module: nn.Module) -> dict[str, int]:
    """Sum the bits of each frozen parameter that the network does not move, by name: a changed number changes the sum."""
    still = [pair for pair in module.named_parameters() if not pair[1].requires_grad and not hasattr(pair[1], "moved_by_network")]
    return {name: _sum_of_bits(frozen.detach().contiguous().view(-1)) for name, frozen in still}


def _sum_of_bits(flat: Tensor) -> int:
    wide = flat.nbytes % 8 == 0 == flat.storage_offset() * flat.itemsize % 8
    return int(flat.view(torch.int64 if wide else torch.uint8).sum())


def names_shown(names: list[str]) -> str:
    """List names for a message, only the first of many."""
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join([*names[:MAX_NAMES_SHOWN], *([f"{more} more"] if more > 0 else [])])


def _without_training(module: nn.Module, patterns: list[str]) -> Iterator[nn.Module]:
    """Yield the layers with running statistics whose parameters are all frozen; without parameters, if their names match."""
    for name, part in module.named_modules():
        if not isinstance(part, _NormBase) or not part.track_running_stats:
            continue
        own = list(part.parameters(recurse=False))
        statistics = f"{name}.running_mean"
        if (
            not any(parameter.requires_grad for parameter in own)
            if own
            else any(fnmatchcase(statistics, pattern) for pattern in patterns)
        ):
            yield part


def _stay_in_evaluation(norm: nn.Module, mode: bool = True) -> nn.Module:  # noqa: FBT001, FBT002
    """Replace `train` of a layer whose statistics are frozen."""
    return norm


def _is_frozen(part: nn.Module) -> bool:
    return getattr(vars(part).get("train"), "__func__", None) is _stay_in_evaluation
