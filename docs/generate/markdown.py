"""Markdown for forges and mkdocs alike: tables, and texts of docstrings with their indented formulas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `make references`. Change the code that this page describes, not the page. -->"


def page(title: str, lead: str, *parts: str) -> str:
    """Return a page: title, lead and parts, with a blank line between two of them."""
    return "\n\n".join([NOTE, f"# {title}", lead, *(part for part in parts if part)]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; "" if it has no rows."""
    lines = ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *lines]) if lines else ""


def cell(text: str) -> str:
    """Return a text as a cell of a table: one line, without HTML. Renderers treat `|` within code differently, so none stands there."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part.replace("|", "/") if part.startswith("`") else plain(part).replace("|", r"\|") for part in parts)


def plain(text: str) -> str:
    """Escape what renderers take for HTML."""
    return re.sub(r"<(?=[a-z/])", "&lt;", text)


def code(text: str) -> str:
    """Return a text as code; "" stays empty."""
    return f"`{text}`" if text else ""


def fence(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def prose(docstring: str | None) -> str:
    """Return a docstring as Markdown: indented paragraphs and those in columns are code, arguments a list."""
    paragraphs: list[str] = []
    block: list[str] = []
    for paragraph in [*re.split(r"\n\s*\n", inspect.cleandoc(docstring or "")), ""]:
        lines = paragraph.splitlines()
        if lines and (all(line.startswith("    ") for line in lines) or re.match(r"\w+ {3,}\S", lines[0])):
            block.append(paragraph)
            continue
        if block:
            paragraphs.append(fence(inspect.cleandoc("\n" + "\n\n".join(block)), _language(block)))
            block = []
        paragraphs += _parts(lines)
    return "\n\n".join(each for each in paragraphs if each)


def _language(block: list[str]) -> str:
    return "python" if re.search(r"^\s*(class|def|import|\w+ = partrain)\b", "\n".join(block), re.MULTILINE) else "text"


def _parts(lines: list[str]) -> list[str]:
    """Split the lines of a paragraph: `Source:` starts a new one, `Args:` a list, a line `Example:` code."""
    if lines and lines[0].strip() == "Example:":
        return ["Example:", fence(inspect.cleandoc("\n" + "\n".join(lines[1:])), "python")]
    parts: list[str] = []
    for line in lines:
        argument = re.match(r" +(\w+): (.*)", line)
        if argument and parts:
            starts = "\n" if parts[-1].startswith("- ") else "\n\n"
            parts[-1] += f"{starts}- `{argument[1]}`: {argument[2]}"
            parts = [*parts[:-1], *parts[-1].split("\n\n")]
        elif not parts or re.match(r"(Source|Example|Returns|Raises|Args|Attributes): ?", line):
            parts.append(re.sub(r"^Args:", "Arguments:", line.strip()))
        else:
            parts[-1] += f" {line.strip()}"
    return [plain(part) if "`" not in part else part for part in parts]
