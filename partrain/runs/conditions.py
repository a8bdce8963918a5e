"""Conditions on recorded numbers: `test.accuracy >= 0.9 and rounds < 100`, with references to other steps in braces."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from partrain.runs.references import Reference, references, substitute

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class BadCondition(ValueError):
    """A text that is not a condition."""


class UnknownNumber(ValueError):
    """A condition names a number that was not recorded."""


@dataclass(frozen=True)
class Condition:
    """A condition: comparisons of numbers, joined by `and`, `or`, `not`."""

    text: str
    tree: ast.expr
    places: tuple[Reference, ...]
    """The references in the text, by the number in their placeholders."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition. Raises `BadCondition`."""
        parsed: list[Reference] = []

        def placeholder(reference: Reference) -> str:
            parsed.append(reference)
            return f" _reference_{len(parsed) - 1} "

        source = substitute(f" {text}", placeholder)
        try:
            tree = ast.parse(source.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise BadCondition(_EXPECTED) from None
        _check(tree)
        if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
            raise BadCondition(_EXPECTED)
        return cls(text, tree, tuple(parsed))

    @property
    def references(self) -> set[Reference]:
        """References to other steps."""
        return set(references(self.text))

    def holds(self, summary: Mapping[str, Any], resolve: Callable[[Reference], Any]) -> bool:
        """Return whether the condition holds. `summary`: the step's own numbers. Raises `UnknownNumber`."""
        return bool(self._value(self.tree, summary, resolve))

    def values(self, summary: Mapping[str, Any], resolve: Callable[[Reference], Any]) -> dict[str, Any]:
        """Return the numbers that the condition names, for messages."""
        return {self._name(node): self._value(node, summary, resolve) for node in self._named()}

    @property
    def names(self) -> list[str]:
        """The names of numbers in the condition."""
        return [self._name(node) for node in self._named()]

    def _named(self) -> list[ast.expr]:
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Attribute | ast.Name)]
        inner = {id(node.value) for node in names if isinstance(node, ast.Attribute)}
        return [node for node in names if id(node) not in inner]

    def _name(self, node: ast.expr) -> str:
        dotted = ast.unparse(node)
        return str(self.places[int(dotted.rpartition("_")[2])]) if dotted.startswith("_reference_") else dotted

    def _value(self, node: ast.expr, summary: Mapping[str, Any], resolve: Callable[[Reference], Any]) -> Any:
        def value(part: ast.expr) -> Any:
            return self._value(part, summary, resolve)

        match node:
            case ast.BoolOp(op, parts):
                return (all if isinstance(op, ast.And) else any)(value(part) for part in parts)
            case ast.UnaryOp(op, operand):
                return not value(operand) if isinstance(op, ast.Not) else -value(operand)
            case ast.BinOp(left, op, right):
                try:
                    return _ARITHMETIC[type(op)](_number(value(left)), _number(value(right)))
                except ZeroDivisionError:
                    return math.nan
            case ast.Compare(left, ops, others):
                values = [value(left), *map(value, others)]
                pairs = zip(ops, values, values[1:], strict=False)
                return all(_compared(op, left, other) for op, left, other in pairs)
            case ast.Constant(constant):
                return constant
        name = self._name(node)
        if name.startswith("{"):
            return resolve(self.places[int(ast.unparse(node).rpartition("_")[2])])
        return lookup(summary, name)


def lookup(summary: Mapping[str, Any], name: str) -> Any:
    """Return a number of a summary by its dotted name. Raises `UnknownNumber`, which lists the existing names."""
    value: Any = summary
    rest = name
    while rest:
        if isinstance(value, Mapping) and rest in value:  # a setting of a sweep has dots in its name
            return value[rest]
        part, _, rest = rest.partition(".")
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            raise UnknownNumber(f"`{name}` was not recorded; recorded: {', '.join(numbers(summary)) or 'nothing'}")
    return value


def numbers(summary: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the dotted names of the numbers in a summary."""
    names = []
    for key, value in summary.items():
        if isinstance(value, Mapping):
            names += numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            names.append(f"{prefix}{key}")
    return names


_EXPECTED = 'expected a condition, as in "test.accuracy >= 0.9"'


def _number(value: Any) -> float:
    return math.nan if value is None else value


def _compared(op: ast.cmpop, left: Any, other: Any) -> bool:
    """Compare two values. A missing number (null: it was not finite) satisfies no comparison."""
    if left is None or other is None:
        return False
    try:
        return _COMPARE[type(op)](left, other)
    except TypeError:
        return False


def _check(tree: ast.AST) -> None:
    """Refuse everything but numbers, names, arithmetic, comparisons and their combinations."""
    allowed = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Constant, ast.Attribute,
               ast.Name, ast.Load, *_COMPARE, *_ARITHMETIC)  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, allowed) or (isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str)):
            raise BadCondition(_EXPECTED)
        if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Attribute | ast.Name):
            raise BadCondition(_EXPECTED)
