"""README and CONTRIBUTING match the tree: the figure of the layers, and every path they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from test_layers import LAYERS

from partrain.config.section import Section
from partrain.job.load import parse
from partrain.job.schema import Job, tables_under
from partrain.job.words import WORDS

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md"]
DOCS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))
FOLDERS = "partrain|tests|jobs|benchmarks|datasets"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_the_figure_has_the_layers(page: str) -> None:
    """A row has the names of a layer, two spaces or more, and a description. The names of entry points may be missing."""
    entries = {"__init__", "__main__"}
    rows = re.findall(r"^ {4}(\S+(?: {1,2}\S+)*?)(?: {3,}\S.*)?$", text_of(page), re.MULTILINE)
    layers = [layer - entries for layer in reversed(LAYERS) if layer - entries]
    assert [set(row.split()) for row in rows if set(row.split()) in layers] == layers


@pytest.mark.parametrize("page", PAGES + DOCS)
def test_every_path_exists(page: str) -> None:
    """Every path but patterns (*) and those with the placeholder NAME."""
    paths = re.findall(rf"\b(?:{FOLDERS})/[\w./*-]*\w", text_of(page))
    real = [path for path in paths if "*" not in path and "NAME" not in path]
    assert real or page in DOCS
    assert [path for path in real if not (ROOT / path).exists()] == []


def test_the_words_are_those_of_explain() -> None:
    table = text_of("README.md").partition("| word | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert dict(row.strip("| ").split(" | ", 1) for row in table.splitlines()) == WORDS


def jobs_in(page: str) -> list[str]:
    """Blocks of TOML that are whole jobs; the others are parts of one."""
    return [
        block for block in re.findall(r"^```toml\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL) if "[[workers]]" in block
    ]


@pytest.mark.parametrize(("page", "job"), [(page, job) for page in DOCS for job in jobs_in(page)])
def test_every_job_on_a_page_is_valid(page: str, job: str) -> None:
    parse(job, ROOT / "docs", page, here=True)


def tables_in(page: str) -> list[tuple[str, str, Any]]:
    """Tables in blocks of TOML that are parts of a job: key, text of the block, table. Keys without the header of a table do not count."""
    found = []
    for block in re.findall(r"^```toml\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL):
        data = tomllib.loads(block) if "[[workers]]" not in block and re.search(r"^\[", block, re.MULTILINE) else {}
        found += [(key, block, table) for key, table in data.items() if not data.keys() & {"steps", "folder"}]
    return found


def misfits(options: list[type[Section]], table: Any) -> list[str]:
    """Return why a table is none of the alternatives, as the nearest of them says it. A part of a table may lack keys."""
    told = []
    for option in options:
        try:
            option.model_validate(table)
            return []
        except ValidationError as error:
            told.append([f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors() if one["type"] != "missing"])
    return min(told, key=len, default=[])


@pytest.mark.parametrize(("page", "key", "block", "table"), [(page, *one) for page in DOCS for one in tables_in(page)])
def test_every_table_on_a_page_is_valid(page: str, key: str, block: str, table: Any) -> None:
    assert key in Job.model_fields, block
    options = tables_under(Job.model_fields[key])
    for one in table if isinstance(table, list) else [table]:
        assert not options or misfits(options, one) == [], block


def test_the_first_job_is_valid_on_any_machine() -> None:
    first = text_of("README.md").partition("```toml\n")[2].partition("```")[0]
    assert parse(first, ROOT, "README.md", here=True).job.name == "mnist"
