"""Texts to classify: from a table's column, from .txt files in a folder, or a single one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.data.documents import documents_of, numbered, read_document
from partrain.data.folders import files_below
from partrain.data.tables.files import cells_of
from partrain.data.tables.formats import format_of
from partrain.errors import InputMissing
from partrain.inference.inputs.sample import Sample, Wanted
from partrain.inference.inputs.tables import open_table
from partrain.number_format import counted
from partrain.preprocess.texts import words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

COLUMN = "text"
"""Column of the texts in a table, for a network that was trained on text files."""


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read texts as items (n, bytes), and their classes; see `DataForm.items`."""
    if wanted.skip_bad:
        raise InputMissing(f"{path}: --skip-bad: any text can be read")
    codec, parts = network.codec.stored, network.record.parts
    classes: list[str] | None
    if format_of(path):
        table = open_table(network, path)
        texts = documents_of(table, codec["text"] or COLUMN)
        names = list(map(str, range(len(texts))))
        carried = wanted.carried(table)
        columns = cells_of(table.blocks(carried), carried) if carried else {}
        classes = None
        if wanted.targets:
            table.require(target := codec["target"] or "class", "target")
            classes = [str(cell).strip() for cell in cells_of(table.blocks([target]), [target])[target]]
    else:
        files = files_below(path, [".txt"]) if path.is_dir() else [path]
        if not files:
            raise InputMissing(f"{path}: a folder without .txt files")
        texts, columns = [words_of(read_document(file)) for file in files], {}
        names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]
        classes = (
            [file.relative_to(path).parts[0] if path.is_dir() else file.parent.name for file in files] if wanted.targets else None
        )
    if not texts:
        raise InputMissing(f"{path}: holds no texts")
    items = torch.from_numpy(numbered(texts, codec["vocabulary"], parts))
    remarks = [f"{path}: {remark}" for remark in _remarks(texts, names, codec["vocabulary"], parts[0].shape[0])]
    return Sample(items, None, names, columns, remarks=remarks), None if classes is None else np.array(classes)


def _remarks(texts: Sequence[list[str]], names: Sequence[str], vocabulary: Sequence[str], longest: int) -> Iterator[str]:
    """Yield what the network does not see of some texts, in words. `longest`: words of the longest text in training."""
    words = set(vocabulary)
    if unread := [name for name, text in zip(names, texts, strict=True) if words.isdisjoint(text)]:
        yield f"{counted(len(unread), 'text')} without a word that the network knows; the first: {unread[0]}"
    if cut := [name for name, text in zip(names, texts, strict=True) if len(text) > longest]:
        what = f"{counted(len(cut), 'text')} of more than {counted(longest, 'word')}, the most that the network saw of a text in training"
        yield f"{what}: it does not see the rest; the first: {cut[0]}"
