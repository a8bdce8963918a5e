"""Text as tokens: characters, bytes or words, in windows over one array."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from partrain.data.base import (
    Allocate,
    ArrayField,
    DataSection,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    Training,
    fingerprint_of,
    lay_out,
    reading,
    views,
)
from partrain.data.fetch import Files, local_path
from partrain.data.folders import files_below
from partrain.data.windows import WindowSplit, refuse_fold, split_windows
from partrain.errors import InputMissing
from partrain.preprocess.texts import WORD
from partrain.tasks.kinds import LANGUAGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN = "<unknown>"
"""Placeholder for words that are not in the vocabulary."""


class TextSection(DataSection):
    """Text files (UTF-8): the network learns the next token after each token.

    The test items are at the end of the text. The held-out items come before them.
    """

    kind: Literal["text"]
    path: Files
    """A file, a list of files, or a folder of .txt files, which are joined in the order of their names. Relative to the job, or
    URLs with their digests."""
    length: int = Field(ge=1)
    """L: number of tokens in an item. Its targets are the same tokens, shifted by one."""
    stride: int | None = Field(None, ge=1)
    """Number of tokens from the start of one item to the start of the next; default: L, so that each token is the
    target of one item."""
    tokens: Literal["characters", "bytes", "words"] = "characters"
    """Kind of token: `characters`, all that occur in the files; `bytes`; or `words`, with punctuation marks, of which the most
    frequent ones in the training text are kept."""
    vocabulary: int = Field(10_000, ge=2, le=10**7)
    """With `words`: number of words to keep, `<unknown>` included."""
    test_items: int = Field(0, ge=0)
    """Number of items at the end of the text to test on. The items before them are held out (`validation`)."""
    test_path: Files | None = None
    """Files to test on, instead of `test_items`."""

    @model_validator(mode="after")
    def _only_what_counts(self) -> TextSection:
        if self.test_items and self.test_path:
            raise ValueError("test_items and test_path: keep one")
        if self.tokens != "words" and "vocabulary" in self.model_fields_set:
            raise ValueError(f'vocabulary would have no effect: tokens = "{self.tokens}" needs no choice')
        return self


def read_spec(section: TextSection, folder: Path) -> DatasetSpec:
    """Read the text and count its windows; see `data.read_spec`."""
    text, tests = _TokenFiles(section, section.path, folder), _TokenFiles(section, section.test_path, folder)
    parts = _split(section, text, len(text.tokens), section.validation, section.test_items)
    tested = _split(section, tests, len(tests.tokens), 0, 0).items if section.test_path else section.test_items
    return DatasetSpec(parts.items, tested, (section.length,), LANGUAGE, 256 if section.tokens == "bytes" else None, tokens=True)


def load(section: TextSection, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read the text and lay windows over its tokens; see `data.load`."""
    text, tests = _TokenFiles(section, section.path, folder), _TokenFiles(section, section.test_path, folder)
    parts = _split(section, text, len(text.tokens), section.validation, section.test_items)
    apart = _split(section, tests, len(tests.tokens), 0, 0) if section.test_path else None
    stride = section.stride or section.length
    vocabulary = _vocabulary(section, text, tests, parts.training_elements(section.validation, section.length + 1, stride))
    raw = lay_out({name: ("int64", (len(part.tokens),)) for name, part in (("text", text), ("tests", tests)) if part.tokens})
    buffer = allocate(raw[-1].end)
    arrays = views(raw, buffer)
    for part, slot in zip((text, tests), raw, strict=False):
        part.write(arrays[slot.name], vocabulary)
    slots = _slots(section, "", raw[0].offset, parts.items + parts.gap, stride)
    if apart:
        slots += _slots(section, "test_", raw[1].offset, apart.items, stride)
    elif parts.tests:
        slots += _slots(section, "test_", raw[0].offset + 8 * stride * parts.first_test, parts.tests, stride)
    count = 256 if section.tokens == "bytes" else len(vocabulary)
    codec = {"form": "text", "tokens": section.tokens, "vocabulary": vocabulary}
    fingerprint = fingerprint_of(raw, buffer, codec | {"windows": slots})
    return DatasetInfo(slots, LANGUAGE, count, 1.0, fingerprint, vocabulary=count, gap=parts.gap, codec=codec).open(buffer)


def _split(section: TextSection, source: _TokenFiles, count: int, validation: int, tests: int) -> WindowSplit:
    refuse_fold(section)
    return split_windows(
        source.name, count, section.length + 1, section.length, section.stride or section.length, validation, tests
    )


def _vocabulary(section: TextSection, text: _TokenFiles, tests: _TokenFiles, trained: int) -> list[str]:
    """Return the vocabulary, by token number; empty for bytes."""
    if section.tokens == "characters":
        return sorted({*text.tokens, *tests.tokens})
    if section.tokens == "bytes":
        return []
    ranked = sorted(Counter(islice(text.tokens, trained)).items(), key=lambda pair: (-pair[1], pair[0]))
    return [UNKNOWN, *(word for word, _ in ranked[: section.vocabulary - 1])]


def _slots(section: TextSection, prefix: str, offset: int, count: int, stride: int) -> tuple[ArrayField, ...]:
    """Lay out inputs, and targets, which are the inputs shifted by one token."""
    shape, strides = (count, section.length), (8 * stride, 8)
    return (
        ArrayField(f"{prefix}inputs", "int64", shape, offset, strides),
        ArrayField(f"{prefix}targets", "int64", shape, offset + 8, strides),
    )


class _TokenFiles:
    """Tokens of some files."""

    def __init__(self, section: TextSection, names: tuple[str, ...] | None, folder: Path) -> None:
        paths = [path for name in names or () for path in _files(local_path(name, folder))]
        self.name = ", ".join(str(local_path(name, folder)) for name in names or ())
        self._unit = section.tokens
        self.tokens: Any
        """A text, its words or its bytes."""
        if self._unit == "bytes":
            self.tokens = b"".join(map(read_bytes, paths))
        else:
            text = "".join(map(read_utf8, paths))
            self.tokens = WORD.findall(text) if self._unit == "words" else text

    def write(self, numbers: NDArray[Any], vocabulary: list[str]) -> None:
        """Write the tokens' numbers (n,)."""
        import numpy as np

        if self._unit == "bytes":
            numbers[:] = np.frombuffer(self.tokens, "u1")
        elif self._unit == "words":
            places = {word: number for number, word in enumerate(vocabulary)}
            numbers[:] = [places.get(word, 0) for word in self.tokens]
        else:
            codes = np.frombuffer(self.tokens.encode("utf-32-le"), "<u4")
            places_of = np.zeros(int(codes.max()) + 1, "int64")
            alphabet = np.array([ord(character) for character in vocabulary])
            inside = alphabet < len(places_of)
            places_of[alphabet[inside]] = np.flatnonzero(inside)
            numbers[:] = places_of[codes]


def _files(path: Path) -> Iterator[Path]:
    """Yield the file, or the .txt files of a folder."""
    if not path.is_dir():
        yield path
        return
    files = files_below(path, [".txt"])
    if not files:
        raise InputMissing(f"{path}: a folder without .txt files")
    yield from files


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises InputMissing if it is empty or cannot be read."""
    with reading(path):
        content = path.read_bytes()
    if not content:
        raise InputMissing(f"{path}: is empty")
    return content


def read_utf8(path: Path) -> str:
    """Read a text file; each line ends with a line feed, as in Python's text files. Raises InputMissing if it is empty or not UTF-8."""
    content = read_bytes(path)
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        wrong = f"byte {column} of the line, 0x{content[error.start]:02x}, is not UTF-8"
        raise InputMissing(f'{path}:{line}: {wrong}; save it as UTF-8, or set tokens = "bytes"') from None
