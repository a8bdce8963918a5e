"""Texts and their classes: a table with a column of texts, or folders of .txt files. Items are tokens of unequal length.

A token is a word in lower case. The most frequent ones of the training texts form the vocabulary; 0 means any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from partrain.byte_layout import LENGTHS, InputPart, lay_out_parts, part_view
from partrain.data.base import (
    HELD_OUT,
    Allocate,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    HasValidationPath,
    SelectsClasses,
    Training,
    WrongContent,
    WrongSetting,
    fingerprint_of,
    lay_out,
    reading,
    views,
)
from partrain.data.fetch import local_path
from partrain.data.folders import files_below, folders_in
from partrain.data.tables.files import TableFile
from partrain.data.tables.formats import format_of
from partrain.data.tables.schema import open_table
from partrain.data.tables.sections import HasDialect
from partrain.data.test_split import HasTestSplit
from partrain.data.text import UNKNOWN
from partrain.errors import InputMissing
from partrain.preprocess.texts import words_of
from partrain.tasks.kinds import CLASSIFICATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

Texts = Sequence[list[str]]
"""The words of each text."""


class Documents(HasDialect, HasTestSplit, SelectsClasses, HasValidationPath):
    """Texts and their classes: a table with a column of texts, or a folder with a folder of .txt files (UTF-8) for each class."""

    test_keys = ("test_path",)

    kind: Literal["documents"]
    path: str
    """The table, or the folder, relative to the job."""
    text: str | None = None
    """Column of the texts, in a table."""
    target: str | None = None
    """Column of the classes, in a table."""
    length: int = Field(256, ge=1, le=100_000)
    """Maximum number of words of a text that the network sees; later words are cut off. A trained network sees at most as many as the
    longest text in training had."""
    vocabulary: int = Field(20_000, ge=2, le=10**7)
    """Maximum number of known words: the most frequent ones of the training texts. Words of only one training text are
    unknown."""
    test_path: str | None = None
    """A table or folder of test texts with the same columns or classes, instead of `test_items` and `test_share`."""

    validation_path: str | None = None
    """A table or folder of held-out texts with the same columns or classes, instead of `validation` and `fold`."""

    @model_validator(mode="after")
    def _columns_of_tables(self) -> Documents:
        if (self.text is None) != (self.target is None):
            raise ValueError("`text` and `target` go together: both name a column of the table")
        return self


class _Labeled:
    """Words and classes of some texts."""

    def __init__(self, section: Documents, path: Path) -> None:
        """Read the texts. Raises InputMissing for a file that cannot be read, WrongContent for a text without a class."""
        folder = path.is_dir() and format_of(path) is None
        if (section.text is None) != folder:
            what = (
                "is a folder, and `text` names the column of a table"
                if folder
                else "is no folder: `text` and `target` name columns"
            )
            raise WrongSetting("path", f"{path}: {what}", "leave `text` and `target` out of folders, and give them for tables")
        self.where = str(path)
        self.texts, self.classes = _of_folder(path) if folder else _of_table(section, path)
        if section.classes:
            chosen = set(map(str, section.classes))
            kept = [name in chosen for name in self.classes]
            self.texts = [text for text, keep in zip(self.texts, kept, strict=True) if keep]
            self.classes = [name for name in self.classes if name in chosen]
        if not self.texts:
            raise InputMissing(f"{path}: holds no texts" + " of these `classes`" * bool(section.classes))

    def names(self, section: Documents) -> list[str]:
        """Return the classes, by label. Raises WrongSetting or WrongContent if there are fewer than two, or one is missing."""
        present = set(self.classes)
        chosen = list(map(str, section.classes or ())) or sorted(present)
        if lacking := [name for name in chosen if name not in present]:
            raise WrongSetting(
                "classes", f"`classes`: no text has the class {lacking[0]}: {self.where}", "name classes of the texts"
            )
        if len(chosen) < 2:
            raise WrongContent((["path"], f"{self.where}: all texts have the class `{chosen[0]}`"))
        return chosen


def _of_folder(path: Path) -> tuple[list[list[str]], list[str]]:
    texts, classes = [], []
    for folder in folders_in(path):
        for file in files_below(folder, [".txt"]):
            texts.append(words_of(read_document(file)))
            classes.append(folder.name)
    return texts, classes


def read_document(file: Path) -> str:
    """Read a text file. Raises InputMissing."""
    with reading(file):
        content = file.read_bytes()
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputMissing(f"{file}: byte {error.start} is not UTF-8") from None


def _of_table(section: Documents, path: Path) -> tuple[list[list[str]], list[str]]:
    assert section.text is not None
    assert section.target is not None
    table = open_table(section, path)
    table.require(section.target, "target")
    texts, classes = documents_of(table, section.text), []
    for block in table.blocks([section.target]):
        for index, cell in enumerate(block.columns[section.target]):
            if block.source.is_missing(cell):
                raise WrongContent((["target"], f"{block.where(section.target, index)}: no class; fill it in, or delete the row"))
            classes.append(str(cell).strip())
    return texts, classes


def documents_of(table: TableFile, column: str) -> list[list[str]]:
    """Return the words of the texts in a column; a cell without a value has no words."""
    table.require(column, "text")
    blocks = table.blocks([column])
    return [[] if cell is None else words_of(str(cell)) for block in blocks for cell in block.columns[column]]


def read_spec(section: Documents, folder: Path) -> DatasetSpec:
    """Read the texts; see `data.read_spec`."""
    own = _Labeled(section, local_path(section.path, folder))
    tests, more = (
        _Labeled(section, local_path(path, folder)) if path else None for path in (section.test_path, section.validation_path)
    )
    names, split = own.names(section), section.count_test_items(len(own.texts), own.where, "texts") if section.split_key else 0
    length = _longest(section, own.texts)
    parts = _parts(length)
    tested = split or (len(tests.texts) if tests else 0)
    return DatasetSpec(
        len(own.texts) - split + (len(more.texts) if more else 0),
        tested,
        (length,),
        CLASSIFICATION,
        len(names),
        tokens=True,
        parts=parts,
        classes=tuple(names),
        held_out=len(more.texts) if more else None,
    )


def load(section: Documents, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read the texts and number their words; see `data.load`."""
    import numpy as np

    own = _Labeled(section, local_path(section.path, folder))
    names = own.names(section)
    labels_by_name = {name: label for label, name in enumerate(names)}
    labels = np.array([labels_by_name[name] for name in own.classes])
    stay, tested = np.arange(len(labels)), np.arange(0)
    apart = dict[str, tuple[Texts, Any]]()
    for key in ("test_path", "validation_path"):
        if path := getattr(section, key):
            other = _Labeled(section, local_path(path, folder))
            if unknown := [name for name in other.classes if name not in labels_by_name]:
                raise WrongContent(([key], f"{other.where}: the class `{unknown[0]}` is not in {own.where}"))
            apart[key] = other.texts, np.array([labels_by_name[name] for name in other.classes])
    if section.split_key:
        stay, tested = section.split_off(len(labels), section.count_test_items(len(labels), own.where, "texts"), labels)
        section.check_classes(lambda _: own.where, names, labels[stay], labels[tested])
    trained = stay[training(len(stay), labels[stay], section.gap)]
    vocabulary = _vocabulary(section, [own.texts[item] for item in trained])
    length = _longest(section, own.texts)
    parts = _parts(length, len(vocabulary))
    chosen: dict[str, tuple[Texts, Any]] = {"": ([own.texts[item] for item in stay], labels[stay])}
    if len(tested):
        chosen["test_"] = [own.texts[item] for item in tested], labels[tested]
    elif section.test_path:
        chosen["test_"] = apart["test_path"]
    if section.validation_path:
        more, answers = apart["validation_path"]
        chosen[""] = [*chosen[""][0], *more], np.concatenate([chosen[""][1], answers])
    slots = lay_out(
        {
            f"{prefix}{role}": (dtype, (len(texts), *shape))
            for prefix, (texts, _) in chosen.items()
            for role, dtype, shape in (("inputs", "uint8", (parts[-1].end,)), ("targets", "int64", ()))
        }
        | ({HELD_OUT: ("int64", (len(chosen[""][0]) - len(stay),))} if section.validation_path else {})
    )
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    if section.validation_path:
        arrays[HELD_OUT][:] = range(len(stay), len(chosen[""][0]))
    for prefix, (texts, answers) in chosen.items():
        arrays[f"{prefix}inputs"][:] = numbered(texts, vocabulary, parts)
        arrays[f"{prefix}targets"][:] = answers
    codec = {"form": "documents", "classes": names, "vocabulary": vocabulary, "text": section.text, "target": section.target}
    fingerprint = fingerprint_of(slots, buffer, codec)
    info = DatasetInfo(slots, CLASSIFICATION, len(names), 1.0, fingerprint, len(vocabulary), section.gap, codec, parts=parts)
    return info.open(buffer)


def numbered(texts: Texts, vocabulary: Sequence[str], parts: Sequence[InputPart]) -> NDArray[Any]:
    """Return items (n, bytes): the number of each word, padded, and the word count. A text without words is one unknown word."""
    import numpy as np

    numbers = {word: number for number, word in enumerate(vocabulary)}
    rows: NDArray[Any] = np.zeros((len(texts), parts[-1].end), np.uint8)
    tokens, lengths = (part_view(rows, part) for part in parts)
    for item, words in enumerate(texts):
        places = [numbers.get(word, 0) for word in words[: parts[0].shape[0]]] or [0]
        tokens[item, : len(places)] = places
        lengths[item] = len(places)
    return rows


def _longest(section: Documents, texts: Texts) -> int:
    return max(1, min(section.length, max(map(len, texts))))


def _vocabulary(section: Documents, texts: Iterable[Sequence[str]]) -> list[str]:
    """Return the words by number: those in two texts or more, the most frequent first."""
    held: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for words in texts:
        counts.update(words)
        held.update(set(words))
    ranked = sorted((word for word, count in held.items() if count > 1), key=lambda word: (-counts[word], word))
    return [UNKNOWN, *ranked[: section.vocabulary - 1]]


def _parts(length: int, vocabulary: int | None = None) -> tuple[InputPart, ...]:
    """Lay out an item: its tokens (length,), and their number ()."""
    (tokens, lengths), _ = lay_out_parts([("", "int64", (length,)), (LENGTHS, "int64", ())])
    return InputPart(tokens.name, tokens.dtype, tokens.shape, tokens.offset, vocabulary), lengths
