"""First jobs: templates as files, and jobs written for a data file."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from partrain.tasks.kinds import CLASSIFICATION


def names() -> dict[str, str]:
    """Return the templates, each with its first comment, the default one first."""
    templates = sorted(entry.name for entry in files(__name__).iterdir() if entry.name.endswith(".toml"))
    templates.sort(key=lambda name: name != f"{DEFAULT}.toml")
    return {name.removesuffix(".toml"): text(name.removesuffix(".toml")).partition("\n")[0].lstrip("# ") for name in templates}


def text(name: str) -> str:
    """Read a template."""
    return (files(__name__) / f"{name}.toml").read_text(encoding="utf-8")


def schema() -> str:
    """Read the JSON Schema of job files, as `partrain schema` prints it."""
    return (files(__name__) / SCHEMA).read_text(encoding="utf-8")


SCHEMA = "job.schema.json"
"""The file of the schema, here and next to the jobs that `partrain init` writes."""
SCHEMA_LINE = f"#:schema {SCHEMA}\n"
"""The first line of such a job: editors use that file to complete and check it."""
DEFAULT: Final = CLASSIFICATION
"""Name of the default template of `partrain init`. It draws its items, so it needs no file and no network access."""
