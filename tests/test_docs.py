"""README, CONTRIBUTING and docs/ match the tree: layers, paths, links, jobs, keys, commands, code and pictures."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest
import typer
from generate.pictures import FILES as PICTURES
from generate.real_runs import live_table
from generate.site_links import links_of, repository_path
from support.runs import partrain, train
from test_layers import LAYERS
from typer.main import get_command

from partrain.cli.main import COMMANDS, app
from partrain.cli.reference import WORDS
from partrain.job.load import parse, validate
from partrain.job.reference import all_keys
from partrain.version import __version__
from partrain.workflow.section import WorkflowSection

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md"]
DOCS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
WRITTEN = [page for page in DOCS if "/reference/" not in page]
"""Pages of docs/ that people write."""
LINKED = [*PAGES, "SECURITY.md", "CHANGELOG.md", *DOCS]
FOLDERS = "partrain|tests|jobs|benchmarks|datasets"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def test_the_figure_has_the_layers() -> None:
    """A row has the names of a layer, two spaces or more, and a description. The names of entry points may be missing."""
    entries = {"__init__", "__main__"}
    rows = re.findall(r"^ {4}(\S+(?: {1,2}\S+)*?)(?: {3,}\S.*)?$", text_of("CONTRIBUTING.md"), re.MULTILINE)
    layers = [layer - entries for layer in reversed(LAYERS) if layer - entries]
    assert [set(row.split()) for row in rows if set(row.split()) in layers] == layers


def test_the_map_has_every_package() -> None:
    packages = {folder.parent.name for folder in (ROOT / "partrain").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `partrain/(\w+)` \|", text_of("docs/architecture.md"), re.MULTILINE)) == packages
    groups = re.findall(r"^    (engine|data|job|run|after|studies): {2,}(\w+(?: \w+)*)", text_of("CONTRIBUTING.md"), re.MULTILINE)
    grouped = [folder for _, folders in groups for folder in folders.split()]
    assert sorted([*grouped, "api", "cli", "system"]) == sorted(packages)


@pytest.mark.parametrize("page", PAGES + DOCS)
def test_every_path_exists(page: str) -> None:
    """Every path but patterns (*) and those with the placeholder NAME."""
    paths = re.findall(rf"\b(?:{FOLDERS})/[\w./*-]*\w", text_of(page))
    real = [path for path in paths if "*" not in path and "NAME" not in path]
    assert real or page in DOCS
    assert [path for path in real if not (ROOT / path).exists()] == []


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as forges and mkdocs make them."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#{1,6} (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for link in links_of(text_of(page)):
        target = repository_path(page, link[1])
        there = (ROOT / target).is_file()
        if not there or (link[2] and link[2][1:] not in anchors(target)):
            broken.append(link[0])
    own = [link for link in re.findall(r"\]\(#([^)]*)\)", text_of(page)) if link not in anchors(page)]
    assert (broken, own) == ([], [])


@pytest.mark.parametrize("page", LINKED)
def test_pictures_are_there(page: str) -> None:
    found = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text_of(page))
    assert [path for path in found if not (ROOT / repository_path(page, path)).is_file()] == []


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.stem)
def test_a_picture_is_the_one_that_is_drawn(file: Path) -> None:
    assert PICTURES[file]() == file.read_text(encoding="utf-8"), "`make pictures` writes docs/pictures/"


@pytest.mark.parametrize("page", WRITTEN)
def test_a_page_says_first_what_it_answers(page: str) -> None:
    text = text_of(page)
    assert text.count("\n") < 45 or "This page answers" in text[:500]


def test_the_words_are_those_of_explain() -> None:
    table = text_of("docs/glossary.md").partition("| word | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert dict(row.strip("| ").split(" | ", 1) for row in table.splitlines()) == WORDS


def test_the_front_page_is_short() -> None:
    lines = text_of("README.md").splitlines()
    assert len(lines) <= 200
    assert [line for line in lines if len(line) > 160] == []


@pytest.mark.parametrize("name", ["live-table", "one-and-two"])
def test_pictures_of_real_runs_need_no_host(name: str) -> None:
    svg = (ROOT / f"docs/pictures/{name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org|www\.textualize\.io)", svg) == []


def test_the_live_table_of_a_real_run(tmp_path: Path) -> None:
    """`make real-pictures` draws it from a longer run: the same lines and columns."""
    run = train(tmp_path, "stop.rounds=10")
    drawn, shown = (
        re.sub(r"<[^>]*>|&#160;", " ", svg).split() for svg in (live_table(run), text_of("docs/pictures/live-table.svg"))
    )
    words = ["judged", "so", "far", "saved", "folder", "device", "state", "iterations", "share", "items/s", "wait", "loss"]
    assert [(word in drawn, word in shown) for word in words] == [(True, True)] * len(words)


# Jobs and workflows


def jobs_in(page: str) -> list[str]:
    """Blocks of TOML that are whole jobs; the others are parts of one."""
    return [block for block in blocks(page, "toml") if "[[workers]]" in block]


@pytest.mark.parametrize(("page", "job"), [(page, job) for page in DOCS for job in jobs_in(page)])
def test_every_job_on_a_page_is_valid(page: str, job: str) -> None:
    elsewhere = any(word in job for word in ("cuda:", 'path = "photos"'))  # devices and files of the reader
    parse(job, ROOT / ("jobs" if ".py:" in job else "docs"), page, local=not elsewhere)


@pytest.mark.parametrize(("page", "part"), [(page, part) for page in ["README.md", *WRITTEN] for part in blocks(page, "toml")])
def test_parts_of_jobs_and_workflows_are_valid(page: str, part: str) -> None:
    """Nothing is wrong with a part but what it leaves out."""
    if page == "docs/series.md" and part.startswith("difference"):
        return  # one key three times
    data = tomllib.loads(part)
    if "steps" in data:
        WorkflowSection.model_validate(data)
        return
    errors = [finding.message for finding in validate(data, ROOT / "docs", local=False)[1] if finding.severity == "error"]
    assert [error for error in errors if not error.startswith(("missing ", "the job has no ")) and "..." not in error] == []


def test_the_first_job_is_valid_on_any_machine() -> None:
    first = text_of("README.md").partition("```toml\n")[2].partition("```")[0]
    assert parse(first, ROOT, "README.md", local=True).job.name == "mnist"


@pytest.mark.representative
def test_every_key_is_on_a_page_and_in_an_example() -> None:
    """A key that no page explains in its place, or that no job or page sets, goes."""
    pages = "\n".join(map(text_of, ["README.md", *WRITTEN]))
    examples = [block for page in ["README.md", *WRITTEN] for block in blocks(page, "toml")]
    examples += [path.read_text() for folder in ("jobs", "partrain/templates") for path in (ROOT / folder).rglob("*.toml")]
    text = "\n".join(examples)
    keys = sorted({description.key for description in all_keys()})
    assert [key for key in keys if not re.search(rf"(?<!\w){key}(?!\w)", pages)] == []
    assert [key for key in keys if not re.search(rf"(?<!\w){key}[\"\w.]*( = |=|\]\])", text)] == []


# Commands


def test_every_option_is_on_a_page() -> None:
    pages = "\n".join(map(text_of, ["README.md", *WRITTEN]))
    commands = [get_command(app).get_command(typer.Context(get_command(app)), name) for name in COMMANDS]  # type: ignore[attr-defined]
    leaves = [leaf for command in commands for leaf in getattr(command, "commands", {"": command}).values()]
    shown = [parameter for leaf in leaves for parameter in leaf.params if not getattr(parameter, "hidden", False)]
    options = {option for parameter in shown for option in parameter.opts if option.startswith("--")}
    assert [option for option in sorted(options) if not re.search(rf"{option}(?![\w-])", pages)] == []


def commands_in(page: str) -> list[str]:
    """Command lines of partrain: in blocks of a console or shell, in indented blocks, and alone in backticks."""
    text = text_of(page)
    shown = [line for kind in ("console", "bash") for block in blocks(page, kind) for line in block.splitlines()]
    shown += re.findall(r"^ {4}(\$? ?partrain .*)$", text, re.MULTILINE)
    shown += re.findall(r"`(partrain [a-z][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    shown = [line.removeprefix("$ ") for line in shown]
    return [line for line in dict.fromkeys(shown) if line.startswith("partrain ")]


def words_of(line: str) -> list[str]:
    """The arguments of a command line: up to a comment, a pipe, a redirection or a description behind three blanks."""
    first = re.split(r" {3,}", line.strip())[0]
    words = shlex.split(first.replace(r"\|", " | "), comments=True)
    return list(takewhile(lambda word: word not in (">", "|", "&&", "&", ";"), words))[1:]


@pytest.mark.representative
@pytest.mark.parametrize(
    ("page", "line"), [(page, line) for page in ["README.md", "CONTRIBUTING.md", *DOCS] for line in commands_in(page)]
)
def test_every_command_has_its_options(page: str, line: str) -> None:
    """A line need not be whole: placeholders stand for values, and arguments may be missing."""
    words = words_of(line)
    if not words or words[0].startswith("-") or words[0].isupper():
        return
    assert words[0] in COMMANDS, line
    command = get_command(app).get_command(typer.Context(get_command(app)), words[0])  # type: ignore[attr-defined]
    if inner := getattr(command, "commands", {}):
        command = inner[words[1] if words[1:] and words[1] in inner else "list"]  # `runs` alone lists
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"--[a-z]|-[a-z]$", word)}
    assert given <= options | {"--help", "-h"}, line


# Code


def excerpts() -> list[tuple[str, str, str]]:
    """Blocks of code that name their file: page, file, code."""
    found = []
    for page in DOCS:
        for path, code in re.findall(
            r"^From \[`[^`]+`\]\(([^)]+)\):\n\n```\w+\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL
        ):
            found.append((page, repository_path(page, path), code))
    return found


def test_there_are_excerpts() -> None:
    assert len(excerpts()) >= 5


@pytest.mark.parametrize(("page", "file", "code"), excerpts())
def test_code_of_a_file_is_that_of_the_file(page: str, file: str, code: str) -> None:
    assert code in text_of(file) or textwrap.indent(code, "    ") in text_of(file)


@pytest.mark.parametrize(("page", "code"), [(page, code) for page in WRITTEN for code in blocks(page, "python")])
def test_code_is_python(page: str, code: str) -> None:
    if not code.startswith(">>>"):
        compile(textwrap.dedent(code), page, "exec")


# The quick start


def steps(title: str) -> list[str]:
    """The command lines of one section of the quick start."""
    section = text_of("docs/quick-start.md").partition(f"## {title}\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in shown for line in block.splitlines()]


SMALL = {"rounds=200": "rounds=4"}
"""Larger numbers of the page, and those that the tests take."""


def run_steps(lines: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "datasets").symlink_to(ROOT / "datasets")
    for line in lines:
        words = words_of(line)
        for large, small in SMALL.items():
            words = [word.replace(large, small) for word in words]
        if words[0] == "run":
            words += ["--set", "stop.rounds=2"]
        said = partrain(*words)
        assert said.code == 0, (line, said.err)


@pytest.mark.representative
def test_the_first_job_of_the_quick_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_steps(steps("A first job"), tmp_path, monkeypatch)
    assert json.loads((tmp_path / "runs/first/summary.json").read_text())["rounds"] == 4


def test_the_citation_is_of_this_version() -> None:
    assert re.findall(r"^version: (.*)$", text_of("CITATION.cff"), re.MULTILINE) == [__version__]
