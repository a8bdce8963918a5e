"""Learning rates and weight decays by groups of parameters: `[[optimizer.groups]]` and `layer_decay`.

Parameter k has the peak rate  lr_k = lr_g d^(L - 1 - l_k)  and the decay of its group, where g is the first group that one of its names
matches (else the table), d is `layer_decay`, and l_k its layer among L. A schedule multiplies all rates alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn

from partrain.config.problems import Finding, WrongValue
from partrain.flat import trainable
from partrain.optim import AnyOptimizer

MAX_NAMES = 12
"""Maximum number of names in a message."""


class ParamRate(NamedTuple):
    """Peak learning rate and weight decay of one parameter."""

    lr: float
    decay: float


def rates_of(section: AnyOptimizer, module: nn.Module) -> tuple[ParamRate, ...]:
    """Return the rates of all parameters to train, in the order of the row; () if all have the table's.

    Raises WrongValue for a pattern that matches no parameter or only frozen ones, and for a group without a parameter because
    earlier groups have them all.
    """
    if not section.groups and section.layer_decay is None:
        return ()
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    params = trainable(module)
    _check_patterns(
        section, [pattern for some in names.values() for pattern in some], [names[id(parameter)] for _, parameter in params]
    )
    layer = {name: number for number, part in enumerate(layers(module)) for name in part}
    last, rates, used = max(layer.values(), default=0), [], set()
    for name, parameter in params:
        number = next((index for index, group in enumerate(section.groups) if _matches(group.match, names[id(parameter)])), None)
        used.add(number)
        group = None if number is None else section.groups[number]
        lr = section.lr if group is None or group.lr is None else group.lr
        decay = getattr(section, "weight_decay", 0.0)
        decay = decay if group is None or group.weight_decay is None else group.weight_decay
        rates.append(ParamRate(lr if section.layer_decay is None else lr * section.layer_decay ** (last - layer[name]), decay))
    for number, group in enumerate(section.groups):
        if number not in used:
            what = f"earlier groups have all these parameters: {', '.join(group.match)}"
            raise WrongValue(Finding(("optimizer", "groups", number, "match"), what, "put this one first"))
    return tuple(rates)


def layers(module: nn.Module) -> list[list[str]]:
    """Return the names of a network's parameters by layer, the input's first.

    A layer is a child of a `Sequential`, `ModuleList` or `ModuleDict`, or another submodule that contains none of these. Modules
    that contain one are taken apart. A layer of only vectors, such as a norm, belongs to the layer before it, as do parameters of
    a module that is taken apart; at the beginning of the network, to the layer after them.
    """
    by_depth: list[list[str]] = []
    waiting: list[str] = []
    for params in _parts(module, ""):
        own = any(parameter.dim() > 1 for _, parameter in params.values)
        names = [name for name, _ in params.values]
        if params.whole and own:
            by_depth.append(waiting + names)
            waiting = []
        elif by_depth:
            by_depth[-1] += names
        else:
            waiting += names
    if waiting:
        by_depth.append(waiting)
    return by_depth


class _Part(NamedTuple):
    values: list[tuple[str, nn.Parameter]]
    whole: bool
    """True for a submodule with all its parameters."""


_CONTAINERS = nn.Sequential, nn.ModuleList, nn.ModuleDict


def _parts(module: nn.Module, prefix: str) -> Iterator[_Part]:
    """Take a module apart: yield its parts in the order of its parameters."""
    if own := list(module.named_parameters(prefix.removesuffix("."), recurse=False)):
        yield _Part(own, whole=False)
    for name, child in module.named_children():
        inner = () if isinstance(module, _CONTAINERS) else child.modules()  # a block of a container is one layer
        if isinstance(child, _CONTAINERS) or any(isinstance(grandchild, _CONTAINERS) for grandchild in inner):
            yield from _parts(child, f"{prefix}{name}.")
        elif values := list(child.named_parameters(f"{prefix}{name}")):
            yield _Part(values, whole=True)


def _matches(patterns: list[str], names: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _check_patterns(section: AnyOptimizer, names: list[str], trained: list[list[str]]) -> None:
    """Refuse a pattern that cannot have an effect."""
    for number, group in enumerate(section.groups):
        for index, pattern in enumerate(group.match):
            place = ("optimizer", "groups", number, "match", index)
            if not _matches([pattern], names):
                shown = ", ".join([*names[:MAX_NAMES], *([f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else [])])
                raise WrongValue(Finding(place, f'no parameter is called "{pattern}"', f"there are {shown}"))
            if not any(_matches([pattern], some) for some in trained):
                raise WrongValue(Finding(place, f'all parameters called "{pattern}" are frozen by [model] freeze'))
