"""Text to tokens and back, with the vocabulary in the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.folders import files_below
from partrain.data.text import UNKNOWN, read_bytes, read_utf8
from partrain.errors import BadCheckpoint, InputMissing
from partrain.inference.inputs.sample import Sample, Wanted, of_inputs
from partrain.preprocess.texts import WORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork


def encode(network: TrainedNetwork, text: str, where: str) -> list[int]:
    """Encode a text as tokens. InputMissing, naming `where`, for an empty text or a character missing from the training text."""
    unit, words = _vocabulary(network)
    if not text:
        raise InputMissing(f"{where}: is empty: there is nothing to continue")
    if unit == "bytes":
        return list(text.encode())
    numbers = {token: number for number, token in enumerate(words)}
    if unit == "words":
        return [numbers.get(word, numbers[UNKNOWN]) for word in WORD.findall(text)]
    if unknown := next((character for character in text if character not in numbers), None):
        raise InputMissing(f"{where}: the training text has no character {unknown!r}")
    return [numbers[character] for character in text]


def decode(network: TrainedNetwork, tokens: Sequence[int]) -> str:
    """Decode tokens as text. Words are separated by a space, except before punctuation."""
    unit, words = _vocabulary(network)
    if unit == "bytes":
        return bytes(tokens).decode(errors="replace")
    if unit == "words":
        return re.sub(r" ([.,;:!?)\]}])", r"\1", " ".join(words[token] for token in tokens))
    return "".join(words[token] for token in tokens)


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read a text as items; see `DataForm.items`."""
    tokens, targets = read_text(network, path)
    return of_inputs(network, tokens, path), targets


def read_text(network: TrainedNetwork, path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read items (n, L) of a text file, or of a folder's .txt files joined, and the token after each of their tokens."""
    files = files_below(path, [".txt"]) if path.is_dir() else [path]
    if not files:
        raise InputMissing(f"{path}: a folder without .txt files")
    if network.codec.stored.get("tokens") == "bytes":
        tokens = np.frombuffer(b"".join(map(read_bytes, files)), np.uint8).astype(np.int64)
    else:
        tokens = np.array(encode(network, "".join(map(read_utf8, files)), str(path)))
    length = network.record.input[0]
    count = (len(tokens) - 1) // length
    if not count:
        raise InputMissing(f"{path}: {len(tokens)} tokens, and an item with the token after it takes {length + 1}")
    return tokens[: count * length].reshape(count, length), tokens[1 : count * length + 1].reshape(count, length)


def _vocabulary(network: TrainedNetwork) -> tuple[str, list[str]]:
    """Return the kind of tokens (characters, bytes or words), and the vocabulary by number."""
    if "tokens" not in network.codec.stored:
        raise BadCheckpoint("the checkpoint has no vocabulary: it was not trained on text")
    return network.codec.stored["tokens"], network.codec.stored["vocabulary"]
