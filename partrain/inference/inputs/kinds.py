"""Kinds of files that hold items, recognized by their first bytes or their suffix; standard input as a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from partrain.data.arrays.saved import is_saved
from partrain.data.forms import FORMS
from partrain.data.tables.formats import NAMES, format_of, suffix_of
from partrain.errors import InputMissing
from partrain.tasks.kinds import TaskKind

_IMAGES = re.compile(
    rb"(?P<png>\x89PNG\r\n)|(?P<jpg>\xff\xd8\xff)|(?P<gif>GIF8[79]a)|(?P<bmp>BM....\0\0\0\0)|(?P<tif>II\*\0|MM\0\*)"
    rb"|(?P<webp>RIFF....WEBP)|(?P<pbm>P4\s)|(?P<pgm>P5\s)|(?P<ppm>P6\s)",
    re.DOTALL,
)
"""First bytes of images, by suffix."""
STDIN = "<stdin>"
"""Name of standard input in messages."""


def kind_of(path: Path, task: TaskKind) -> str:
    """Recognize the `kind` of a file's form by its suffix or its first bytes."""
    if path.is_dir():
        usual = "text" if task.targets == "tokens" else "images"
        return "huggingface" if is_saved(path) else "table" if format_of(path) else usual
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None
    if format_of(path):
        return "table"
    if kind := next((kind for form in FORMS if (kind := form.of_file(path, start))), None):
        return kind
    if task.targets == "tokens":
        return "text"
    raise InputMissing(
        f"{path}: is no NPZ, NPY, HDF5, IDX or converted file, and its suffix is not one of a table ({NAMES}) or an image"
    )


@contextmanager
def stored_stdin(task: TaskKind) -> Iterator[Path]:
    """Store standard input in a file while it is read. Its first bytes determine its kind; without a mark it is CSV or text."""
    content = sys.stdin.buffer.read()
    if not content:
        raise InputMissing(f"{STDIN}: is empty")
    with TemporaryDirectory(prefix="partrain-") as folder:
        path = Path(folder, f"stdin{_suffix(content, task)}")
        path.write_bytes(content)
        yield path


def _suffix(content: bytes, task: TaskKind) -> str:
    """Return the suffix of a file with this content; "" if the first bytes suffice."""
    marks = [
        start for form in FORMS for start in form.starts if start[:1] != b"\0" or task.targets != "tokens"
    ]  # a text may begin with that byte
    table = suffix_of(content)
    if task.targets == "tokens" or (table is None and content.startswith(tuple(marks))):
        return ""
    if image := _IMAGES.match(content):
        return f".{image.lastgroup}"
    return table or ".csv"
