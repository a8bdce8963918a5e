"""The commands of partrain that a step may run, as defined by the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from partrain.config.problems import did_you_mean

Kind = Literal["input", "output", "value", "switch"]
"""An input file, an output file, another value, or an option without a value."""


class Parameter(NamedTuple):
    """An argument or option of a command."""

    key: str
    """The parameter's key in a step."""
    flag: str
    """The option, as in `--output` or `--items/--no-items`; "" for an argument."""
    kind: Kind
    several: bool = False
    required: bool = False


@dataclass(frozen=True)
class CommandSpec:
    """A command and its parameters."""

    words: tuple[str, ...]
    """The command's name: two words for a command of a group."""
    parameters: tuple[Parameter, ...]
    trains: bool = False
    """The command starts workers, so it may use all cores."""

    def parameter(self, key: str) -> Parameter | None:
        """Return the parameter of a key."""
        return next((parameter for parameter in self.parameters if parameter.key == key), None)

    def problems(self, options: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Find unfit keys: key ("" for the whole table), message, suggestion."""
        name = " ".join(self.words)
        for key, value in options.items():
            parameter = self.parameter(key)
            if parameter is None:
                near = did_you_mean(key, [parameter.key for parameter in self.parameters])
                legal = f"legal: {', '.join(parameter.key for parameter in self.parameters)}"
                yield key, f"`{name}` has no option `{key}`", f"did you mean `{near}`?" if near else legal
            elif isinstance(value, dict) or (isinstance(value, list) and not parameter.several):
                yield key, f"`{key}` of `{name}` takes one value", ""
            elif (parameter.kind == "switch") != isinstance(value, bool):
                yield key, f"`{key}` of `{name}` " + ("is true or false" if parameter.kind == "switch" else "takes a value"), ""
        for parameter in self.parameters:
            if parameter.required and parameter.key not in options:
                yield "", f"`{name}` needs `{parameter.key}`", f'add {parameter.key} = "..."'

    def paths(self, options: Mapping[str, Any], kind: str, folder: Path) -> list[Path]:
        """Return the files of one kind that the options name; relative paths start from `folder`."""
        return [
            folder / str(path) for parameter, value in self._given(options) if parameter.kind == kind for path in _listed(value)
        ]

    def arguments(self, options: Mapping[str, Any], inputs: Path, outputs: Path) -> list[str]:
        """Return the words of a command line. Relative paths start from `inputs` or `outputs`."""
        words, positional = list(self.words), []
        for parameter, value in self._given(options):
            if parameter.kind == "switch":
                positive, _, negative = parameter.flag.partition("/")
                words += [word for word in [positive if value else negative] if word]
                continue
            base = {"input": inputs, "output": outputs}.get(parameter.kind)
            for item in _listed(value):
                text = str(base / str(item)) if base else str(item)
                if parameter.flag:
                    words.append(f"{parameter.flag}={text}")
                else:
                    positional.append(text)
        return [*words, *positional]

    def _given(self, options: Mapping[str, Any]) -> Iterator[tuple[Parameter, Any]]:
        for parameter in self.parameters:
            if parameter.key in options:
                yield parameter, options[parameter.key]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


Commands = Mapping[str, CommandSpec]
"""Commands by the key of a step: a command of a group is `GROUP COMMAND`."""
