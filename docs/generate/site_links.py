"""A hook of mkdocs: pages of docs/ link to other files of the repository, as on a forge, and the site has them.

Markdown files of the repository become pages. Other files (jobs, code) become pages that show them, out of the search. So no link
leaves the site, and links in the pages stay those of the repository.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s#]+)(#[^()\s]*)?\)")
"""An inline link: its target and its anchor."""
CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml"}


def links_of(text: str) -> list[re.Match[str]]:
    """Find the links of a page that lead to files, outside code."""
    blank = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    return [link for link in LINK.finditer(blank) if "://" not in link[1] and not link[1].startswith("mailto:")]


def repository_path(page: str, target: str) -> str:
    """Return the path in the repository of a link's target; `page` is that of the page."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def site_path(path: str) -> str:
    """Return the path among the site's sources of a file of the repository."""
    path = path.removeprefix(f"{DOCS}/") if path.startswith(f"{DOCS}/") else path
    return path if path.endswith((".md", ".svg", ".png")) else f"{path}.md"


def linked_files() -> list[str]:
    """List the files to which the pages of docs/ lead, directly or through Markdown files, and which mkdocs itself would leave out."""
    waiting = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / DOCS).rglob("*.md"))]
    found: dict[str, None] = dict.fromkeys(waiting)
    while waiting:
        page = waiting.pop()
        if not page.endswith(".md"):
            continue
        for link in links_of((ROOT / page).read_text(encoding="utf-8")):
            path = repository_path(page, link[1])
            if path not in found and (ROOT / path).is_file():
                found[path] = None
                waiting.append(path)
    return [path for path in found if not (path.startswith(f"{DOCS}/") and path.endswith((".md", ".svg", ".png")))]


def shown(path: str) -> str:
    """Return the page that shows a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(path).suffix, "text")
    body = _cells(text) if path.endswith(".ipynb") else f"````{language}\n{text.rstrip()}\n````"
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{body}\n"


def _cells(notebook: str) -> str:
    """Return the cells of a notebook as Markdown, without their results."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(notebook)["cells"]]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that are linked to."""
    for path in linked_files():
        files.append(_added(path, config))
    return files


def _added(path: str, config: MkDocsConfig) -> File:
    from mkdocs.structure.files import File

    if path == "README.md":  # docs/README.md is the front page
        return File.generated(config, "project.md", content=(ROOT / path).read_text(encoding="utf-8"))
    if path.endswith(".md"):
        return File.generated(config, path, abs_src_path=str(ROOT / path))
    return File.generated(config, site_path(path), content=shown(path))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links between the site's pages."""
    here = page.file.src_uri
    source = _source(here)
    boost = 3 if here.startswith("reference/") else 1 if source.startswith(f"{DOCS}/") else 0.2
    page.meta.setdefault("search", {}).setdefault("boost", boost)  # keys first, recorded results last
    for link in reversed(links_of(markdown)):
        path = repository_path(source, link[1])
        target = "project.md" if path == "README.md" else site_path(path)
        relative = posixpath.relpath(target, posixpath.dirname(here) or ".")
        markdown = markdown[: link.start(1)] + relative + markdown[link.end(1) :]
    return markdown


def _source(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    if page == "project.md":
        return "README.md"
    if (ROOT / DOCS / page).is_file():
        return f"{DOCS}/{page}"
    return page if page.endswith(".md") and (ROOT / page).is_file() else page.removesuffix(".md")
