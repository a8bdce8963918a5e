"""Jobs for running text."""

from __future__ import annotations

from pathlib import Path

from partrain.config.overrides import toml_value
from partrain.errors import InputMissing
from partrain.templates.assemble import Asked, Draft, assemble


def propose(path: Path, shown: str, asked: Asked, folder: Path) -> Draft | None:
    """Write a job for a text; see `DataForm.proposal`."""
    if not path.name.lower().endswith(".txt"):
        return None
    if asked.targets:
        raise InputMissing(f"{path}: a text by its suffix, and --target concerns tables: name a table .csv or .tsv")
    size = path.stat().st_size
    length = 64 if size >= 20_000 else 16
    items = size // length
    if items < 20:
        raise InputMissing(f"{path}: {size:,} bytes are too few to train on")
    dataset = [
        'kind = "text"',
        f"path = {toml_value(shown)}",
        f"length = {length}                  # characters that the network sees at most",
        f"test_items = {items // 10}",
        f"validation = {items // 10}               # windows from the end of the text",
    ]
    model = ['name = "gru"', "hidden = 128"]
    what = f"Continue the text {path.name} character by character."
    return Draft(assemble(path, what, model, dataset, items * 8 // 10))
