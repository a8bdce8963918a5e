"""Keys next to a script's object, as in `model={"name": Net, "width": 16}`: table keys, or arguments of a class or function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from partrain.config.problems import Finding, Problem, Rejected, did_you_mean
from partrain.config.section import Section
from partrain.config.usercode import Parameters, unfit_arguments
from partrain.data.user.section import UserData
from partrain.models.sections import UserModel
from partrain.tasks import UserTask

_TABLES: dict[str, type[Section]] = {"model": UserModel, "task": UserTask, "dataset": UserData}


def check_keys(table: str, thing: Any, keys: Mapping[str, Any], *, made: bool, whole: bool = True) -> dict[str, Any]:
    """Return the keys of a table, without those that are None like their defaults.

    Args:
        table: The table of the object.
        thing: The object.
        keys: The keys next to it.
        made: The object is the network, task or data set itself. False: it is a class or function, and the keys are its
            arguments.
        whole: All arguments are given; otherwise a checkpoint has the others.

    Raises:
        Rejected: A key is neither a key of the table nor an argument.
    """
    own = [key for key in _TABLES[table].model_fields if key != "name"]
    name = getattr(thing, "__qualname__", type(thing).__name__)
    written = {key: value for key, value in keys.items() if key not in own}
    takes = None if made else _parameters(thing)
    defaults = {} if takes is None else {take.name: take.default for take in takes}
    written = {key: value for key, value in written.items() if value is not None or defaults.get(key, ...) is not None}
    faults = (
        _no_arguments(table, name, written, own)
        if made
        else unfit_arguments(name, table, written, _described(takes, whole=whole), own)
    )
    findings = [Finding((table, key), message, advice) for key, message, advice in faults]
    for key in (key for key, value in written.items() if value is None and not findings):
        advice = f"leave it out, or give a function without arguments: {table}=lambda: {name}({key}=None)"
        findings.append(Finding((table, key), f"`{key}`: a job cannot hold None", advice))
    if findings:
        raise Rejected.in_python(map(Problem.in_python, findings))
    return {key: value for key, value in keys.items() if key in own or key in written}


def _no_arguments(table: str, name: str, written: Mapping[str, Any], own: list[str]) -> Iterator[tuple[str, str, str]]:
    for key in written:
        near = did_you_mean(key, own)
        advice = f"did you mean `{near}`?" if near else f"legal: {', '.join(own)}; arguments go with a class, or a function"
        yield key, f"unknown key `{key}` in [{table}]: `{name}` is made already, and takes no arguments", advice


def _parameters(thing: Any) -> list[inspect.Parameter] | None:
    """Return the parameters of a class or function; None if Python does not know them."""
    try:
        return list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None


def _described(parameters: list[inspect.Parameter] | None, *, whole: bool) -> Parameters:
    if parameters is None:
        return Parameters((), (), any=True)
    named = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)]
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return Parameters(
        [parameter.name for parameter in named],
        needed if whole else (),
        any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
    )
