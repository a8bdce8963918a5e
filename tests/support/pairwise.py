"""Matrices of test cases of which the gate runs a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*, indirect: Sequence[str] = (), **axes: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize a test with the product of named values, in which the gate covers each pair of two values.

    An axis maps the names of its values to the values. Rows that repeat only pairs of earlier rows are marked `soak`.
    """
    seen: set[frozenset[tuple[str, str]]] = set()
    chosen: set[tuple[str, ...]] = set()
    rows = [tuple(names) for names in product(*axes.values())]
    while missing := {row: len(pairs(axes, row) - seen) for row in rows if row not in chosen}:
        best = max(missing, key=missing.__getitem__)  # the first of equals: the choice is the same in every process
        if not missing[best]:
            break
        chosen.add(best)
        seen |= pairs(axes, best)
    parameters = []
    for row in rows:
        values = [axis[name] for axis, name in zip(axes.values(), row, strict=True)]
        parameters.append(pytest.param(*values, id="-".join(row), marks=() if row in chosen else pytest.mark.soak))
    return pytest.mark.parametrize(tuple(axes), parameters, indirect=list(indirect))


def pairs(axes: Mapping[str, Any], row: Sequence[str]) -> set[frozenset[tuple[str, str]]]:
    """Give the pairs of values of a row, each with its axis."""
    return {frozenset(pair) for pair in combinations(zip(axes, row, strict=True), 2)}


def named(*values: object) -> dict[str, Any]:
    """Name values by their text."""
    return {str(value): value for value in values}
