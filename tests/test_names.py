"""Variables and arguments are named by what they hold."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "partrain"
PRONOUNS = {"one", "found", "each", "known", "given", "told", "said", "there", "here", "way", "mark", "leap", "commons", "tried"}


@pytest.mark.representative
def test_no_variable_is_named_by_a_pronoun() -> None:
    names = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg):
                names[node.arg] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
    pronouns = {name: count for name, count in names.items() if name in PRONOUNS}
    assert not pronouns
