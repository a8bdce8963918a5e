"""Tags of a run: words in `tags.txt` in its folder, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from partrain.launch.folder.run_folder import stage_file
from partrain.record.file_names import TAGS
from partrain.system.regular_file import read_regular

_LONGEST = 64


def read_tags(folder: Path) -> list[str]:
    """Return the tags of a run, in the order in which they were given."""
    try:
        return list(dict.fromkeys(read_regular(folder / TAGS).decode(errors="replace").split()))
    except OSError:
        return []


def change_tags(folder: Path, words: Sequence[str], *, remove: bool) -> list[str]:
    """Add or remove tags; return the run's current tags.

    Raises:
        ValueError: A word is empty, too long, or contains spaces or invisible characters.
        CannotCreate: The file cannot be written.
    """
    for word in words:
        if not word or word.split() != [word] or not word.isprintable() or len(word) > _LONGEST:
            raise ValueError(f"{word!r} is no tag: a tag is one word of at most {_LONGEST} characters")
    before = read_tags(folder)
    after = [tag for tag in before if tag not in words] if remove else list(dict.fromkeys([*before, *words]))
    if after != before:
        stage_file(folder / TAGS, "".join(f"{tag}\n" for tag in after))
    return after
