"""Variables and arguments are named by what they hold."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from support.sources import FILES, nodes

PRONOUNS = {"one", "found", "each", "known", "given", "told", "said", "there", "here", "way", "mark", "leap", "commons", "tried"}


@pytest.mark.representative
def test_no_variable_is_named_by_a_pronoun() -> None:
    names = Counter[str]()
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.arg):
                names[node.arg] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
    pronouns = {name: count for name, count in names.items() if name in PRONOUNS}
    assert not pronouns
