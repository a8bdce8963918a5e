"""Plain English: docstrings, comments, messages, README, CONTRIBUTING, docs/ and the comments of jobs avoid the phrases listed here.

CONTRIBUTING.md states the rule. `ALLOWED` is a ratchet: it counts the hits that remain in each folder, and may only fall.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import FILES, PACKAGE, nodes

ROOT = PACKAGE.parent

PHRASES = re.compile(
    r"""
    \b(nobody|whoever|somebody|no\s+one)\b
    | \b(is|are|was|were|be|been|being)\s+(said|told|heard)\b
    | \b(user's|users')\s+own\b
    | \bhas\s+no\s+say\b
    | \bhad\s+better\b
    | \bso\s+many\b
    | \b(comes?|came|becomes?|became|makes?|made)\s+of\b
    | 's\s+word\s+for
    | \bby\s+(\w+'s|its|their)\s+(word|account)\b
    | \bis\s+to\s+(be|have|do)\b
    | \bare\s+to\s+(be|have)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
BEGINNINGS = re.compile(r"(What|Whether|Where|Who|Whose|Whom|Which|How|Whoever|Whatever|That which|Told|Heard)\b")
"""First words of a docstring, a paragraph of it, or a paragraph of a page."""

ALLOWED: dict[str, int] = {}
"""Remaining hits by top-level name of the package, page or folder; other names have none."""

Place = tuple[Path, int]


def hits(text: str, file: Path, line: int, starts: bool) -> Iterator[tuple[Place, str]]:
    """Banned phrases of a text that begins at this line; with `starts`, banned beginnings of its paragraphs, too."""
    for match in PHRASES.finditer(text):
        yield (file, line + text[: match.start()].count("\n")), " ".join(match[0].split())
    for start in re.finditer(r"\A\s*|\n\s*\n\s*", text) if starts else ():
        if first := BEGINNINGS.match(text, start.end()):
            yield (file, line + text[: first.start()].count("\n")), f"{first[0]} ... (beginning)"


def of_python(file: Path) -> Iterator[tuple[Place, str]]:
    """Hits in the docstrings, other strings and comments of a module."""
    source = file.read_text(encoding="utf-8")
    statements = {id(node.value) for node in nodes(file) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in nodes(file) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes(file):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield from hits("".join(map(str, parts)), file, node.lineno, starts=False)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield from hits(node.value, file, node.lineno, starts=id(node) in statements)
    if "#" in source:
        yield from of_comments(list(tokenize.generate_tokens(io.StringIO(source).readline)), file)


def of_comments(tokens: list[tokenize.TokenInfo], file: Path) -> Iterator[tuple[Place, str]]:
    """Hits in comments; consecutive comment lines are one text."""
    block: list[str] = []
    first = last = 0
    for token in [token for token in tokens if token.type == tokenize.COMMENT]:
        if block and token.start[0] > last + 1:
            yield from hits("\n".join(block), file, first, starts=True)
            block = []
        first = first if block else token.start[0]
        last = token.start[0]
        block.append(token.string.lstrip("#! "))
    yield from hits("\n".join(block), file, first, starts=True)


def of_page(file: Path) -> Iterator[tuple[Place, str]]:
    """Hits in the prose of a Markdown page: code in backticks and code blocks count for nothing."""
    text = file.read_text(encoding="utf-8")
    blank = re.compile(r"```[\s\S]*?```|`[^`\n]*`|^ {4}.*$", re.MULTILINE)
    yield from hits(blank.sub(lambda code: re.sub(r"[^\n]", "x", code[0]), text), file, 1, starts=True)


def of_job(file: Path) -> Iterator[tuple[Place, str]]:
    """Hits in the comments of a job file."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if comment := re.search(r"(?:^|\s)#\s?(.*)", line):
            yield from hits(comment[1], file, number, starts=number == 1)


def found() -> dict[str, list[str]]:
    """All hits as `file:line: phrase`, by top-level name."""
    sources = [
        *((file, file.relative_to(PACKAGE).parts[0], of_python) for file in FILES),
        *((ROOT / name, name, of_page) for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *((file, "docs", of_page) for file in sorted((ROOT / "docs").rglob("*.md"))),
        *((file, "docs", of_python) for file in sorted((ROOT / "docs").rglob("*.py"))),
        *((file, "jobs", of_job) for file in sorted((ROOT / "jobs").rglob("*.toml"))),
        *((file, "jobs", of_python) for file in sorted((ROOT / "jobs").rglob("*.py"))),
    ]
    result: dict[str, list[str]] = {name: [] for _, name, _ in sources}
    for file, name, read in sources:
        result[name] += [f"{place[0].relative_to(ROOT)}:{place[1]}: {phrase}" for place, phrase in read(file)]
    return result


@pytest.mark.representative
def test_the_prose_is_plain() -> None:
    for name, hits in found().items():
        allowed = ALLOWED.get(name, 0)
        assert len(hits) <= allowed, "\n".join([f"{len(hits)} phrases to rewrite in {name}, {allowed} allowed:", *hits])
        assert len(hits) == allowed, f"{name} has {len(hits)} hits: lower its number in ALLOWED from {allowed}"


@pytest.mark.parametrize(("text", "phrases"), [
    ("Nobody waits for a worker that is told to stop.", ["Nobody", "is told"]),
    ("A limit of so\nmany rounds.", ["so many"]),
    ("Return a row.\n\nWhether it is full.", ["Whether ... (beginning)"]),
    ("What a row holds.", ["What ... (beginning)"]),
    ("The worker that waits. Which one? The one where no row is.", []),
])  # fmt: skip
def test_phrases_are_found(text: str, phrases: list[str]) -> None:
    assert [phrase for _, phrase in hits(text, PACKAGE, 1, starts=True)] == phrases


def test_a_hit_has_its_line() -> None:
    (place, _) = next(hits("Line one.\nLine two is told.", PACKAGE, 10, starts=True))
    assert place == (PACKAGE, 11)
