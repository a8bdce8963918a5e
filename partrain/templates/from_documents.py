"""Jobs that classify texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from partrain.config.overrides import toml_value
from partrain.data.folders import files_below, folders_in
from partrain.errors import InputMissing
from partrain.templates.assemble import Asked, Draft, Recipe, assemble, listed
from partrain.templates.targets import RARE

STRATIFIED = 20
"""Number of texts of the rarest class from which held-out texts have the classes in proportion."""


def documents_job(path: Path, source: Sequence[str], classes: Mapping[str, int], *, whole: bool = True) -> str:
    """Write a job that classifies texts.

    Args:
        path: The table or folder.
        source: Lines of `[dataset]` that locate the texts.
        classes: Texts of each class.
        whole: The file has no other classes.
    """
    items = sum(classes.values())
    if len(classes) < 2 or items < 20:
        raise InputMissing(f"{path}: {items} texts of {len(classes)} classes: too few to train on")
    lines = [
        'kind = "documents"',
        *source,
        *([] if whole else [f"classes = {toml_value(sorted(classes))}"]),
        "length = 256                 # words of a text that the network sees at most",
        "vocabulary = 20000           # words that are known, the most frequent ones",
        "test_share = 0.15",
        f"validation = {max(items * 15 // 100, 1)}",
        *(
            ["stratify = true              # held-out texts have the classes in proportion"]
            if min(classes.values()) >= STRATIFIED
            else []
        ),
    ]
    model = ['name = "bag"                 # the mean of the embeddings of all words; or gru, transformer', "hidden = [64]"]
    what = f"Tell {len(classes)} classes of texts apart: {items:,} texts."
    return assemble(path, what, model, lines, int(items * 0.7), Recipe(32, 0.01, 40, 10))


def propose(path: Path, shown: str, asked: Asked, folder: Path) -> Draft | None:
    """Write a job for a folder with a folder of .txt files for each class; see `DataForm.proposal`."""
    if not path.is_dir() or asked.kind == "images":
        return None
    counts = {entry.name: len(files_below(entry, [".txt"])) for entry in folders_in(path)}
    classes = {name: count for name, count in counts.items() if count}
    if len(classes) < 2 and asked.kind == "text":
        raise InputMissing(f"{path}: expected a folder of .txt files for each of at least two classes")
    if len(classes) < 2:
        return None
    learned = {name: count for name, count in classes.items() if count >= RARE}
    notes = [f"{path}: texts of {len(classes)} classes, a folder each"]
    if rare := [f"`{name}`" for name in classes if name not in learned]:
        notes.append(f"classes of fewer than {RARE} texts left out: {listed(rare)} (`classes` names those that are learned)")
    return Draft(documents_job(path, [f"path = {toml_value(shown)}"], learned, whole=not rare), notes)
