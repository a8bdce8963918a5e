"""All texts in the package that a person may read: its strings of three words and more, without docstrings. `make messages` writes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.sources import FILES, PACKAGE, nodes

FILE = Path(__file__).parents[1] / "golden" / "messages.txt"


def messages() -> str:
    """One text a line below the path of its module, in the order of the source."""
    lines = []
    for file in FILES:
        if found := list(dict.fromkeys(_texts(file))):
            lines += [f"[{file.relative_to(PACKAGE)}]", *found, ""]
    return "\n".join(lines)


def _texts(file: Path) -> Iterator[str]:
    skipped = {id(node.value) for node in nodes(file) if isinstance(node, ast.Expr)}  # docstrings
    skipped |= {id(part) for node in nodes(file) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes(file):
        if id(node) in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = _text(node)
        if len(re.findall(r"[a-z]{2,}", re.sub(r"\{.*?\}", "", text))) >= 3 and " " in text.strip():
            yield " ".join(text.split())


def _text(node: ast.expr) -> str:
    """The text of a string; of an f-string with its expressions in braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


if __name__ == "__main__":
    FILE.write_text(messages(), encoding="utf-8")
