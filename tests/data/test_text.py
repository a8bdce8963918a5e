"""Text as tokens: items, held-out parts, and messages for files that are no text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from partrain.data import Dataset, DatasetSpec, load, read_spec
from partrain.data.partition import hold_out
from partrain.data.text import UNKNOWN, TextSection
from partrain.data.windows import split_windows
from partrain.errors import InputMissing

ALPHABET = "".join(map(chr, range(97, 97 + 26))) * 4


def text(**more: Any) -> TextSection:
    return TextSection.model_validate({"kind": "text", "path": "a.txt", "length": 8, **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(ALPHABET)
    return tmp_path


def said(data: Dataset, tokens: np.ndarray) -> str:
    return "".join(data.codec["vocabulary"][token] for token in tokens)


def test_each_token_is_to_give_the_next(folder: Path) -> None:
    data = load(text(), folder)
    assert (data.task, data.outputs, data.vocabulary, data.inputs.dtype) == ("language", 26, 26, np.int64)
    assert len(data.inputs) == 12  # 13 windows of 8 fit, but the last has nothing behind it
    for item in range(12):
        assert said(data, data.inputs[item]) == ALPHABET[8 * item : 8 * item + 8]
        assert said(data, data.targets[item]) == ALPHABET[8 * item + 1 : 8 * item + 9]


def test_overlapping_windows_are_not_copied(folder: Path) -> None:
    asked = []

    def allocate(size: int) -> memoryview:
        asked.append(size)
        return memoryview(bytearray(size))

    data = load(text(stride=1, test_items=5), folder, allocate)
    assert asked == [8 * len(ALPHABET)]
    assert np.shares_memory(data.inputs, data.targets)
    assert (data.inputs[1, :-1] == data.inputs[0, 1:]).all()


@pytest.mark.parametrize("order", ["shuffled", "given"])
def test_the_end_is_held_out_whatever_the_order(folder: Path, order: Any) -> None:
    data = load(text(validation=3, test_items=2), folder)
    trained, held_out = hold_out(data.items, 3, order, 0, data.gap)
    assert (held_out > trained.max()).all()
    assert data.test_inputs is not None
    assert said(data, data.test_inputs[-1]) == ALPHABET[88:96]


@given(st.data(), st.integers(1, 20), st.integers(1, 25), st.integers(0, 10), st.integers(0, 10))
def test_no_token_that_is_held_out_was_trained_on(
    data: st.DataObject, length: int, stride: int, validation: int, tests: int
) -> None:
    """For any windows: no target of a later part lies in a window of an earlier one, and the gap is as small as possible."""
    elements = data.draw(st.integers((length + 1) + 2 * length + stride * (validation + tests + 3), 1000))
    given = data.draw(st.sampled_from([length, 1]))
    span = length + 1 if given == length else length + given
    parts = split_windows("x", elements, span, given, stride, validation, tests)
    trained = range(parts.items - validation)
    held_out = range(len(trained) + parts.gap, len(trained) + parts.gap + validation)
    tested = range(parts.first_test, parts.first_test + tests)
    assert max(tested, default=max(held_out, default=trained[-1])) == (elements - span) // stride
    before = trained
    for part in (held_out, tested):
        if part:
            first_target = part[0] * stride + span - given
            assert before[-1] * stride + span <= first_target
            assert (before[-1] + 1) * stride + span > first_target
            before = part


def test_facts_are_what_loading_gives(folder: Path) -> None:
    (folder / "b.txt").write_text("ünïcödé " * 20)
    for section in (
        text(path=["a.txt", "b.txt"], validation=2, test_items=3, stride=3),
        text(tokens="bytes", test_path="b.txt"),
        text(path="b.txt", tokens="words", length=2),
    ):
        known, data = read_spec(section, folder), load(section, folder)
        tests = 0 if data.test_inputs is None else len(data.test_inputs)
        outputs = 256 if section.tokens == "bytes" else None
        assert known == DatasetSpec(data.items, tests, data.inputs.shape[1:], "language", outputs, tokens=True)


def test_bytes_are_their_own_numbers(folder: Path) -> None:
    (folder / "a.txt").write_bytes(bytes(range(256)))
    data = load(text(tokens="bytes"), folder)
    assert (data.inputs.ravel() == np.arange(248)).all()
    assert (data.outputs, data.vocabulary) == (256, 256)


def test_words_are_those_of_the_training_part(folder: Path) -> None:
    (folder / "a.txt").write_text("the cat, the dog. " * 10 + "a unicorn! " * 4)
    data = load(text(tokens="words", length=4, validation=3), folder)
    assert data.codec["vocabulary"][:2] == [UNKNOWN, "the"]
    assert set(data.codec["vocabulary"]) == {UNKNOWN, "the", "cat", "dog", ",", "."}
    assert said(data, data.inputs[0]) == "thecat,the"
    assert (data.targets[-1] == 0).all()  # unicorns
    few = load(text(tokens="words", length=4, vocabulary=3), folder)
    assert few.codec["vocabulary"] == [UNKNOWN, "the", ","]


def test_characters_of_the_test_file_have_numbers_too(folder: Path) -> None:
    (folder / "t.txt").write_text("Zebra crossing")
    data = load(text(test_path="t.txt"), folder)
    assert data.test_inputs is not None
    assert said(data, data.test_inputs[0]) == "Zebra cr"
    assert data.codec["vocabulary"][:2] == [" ", "Z"]


def test_the_files_of_a_folder_follow_one_another_by_name(tmp_path: Path) -> None:
    for name, content in (("b.txt", "world"), ("a.txt", "\ufeffhello "), ("c.md", "!" * 99)):
        (tmp_path / name).write_text(content)
    data = load(text(path=".", length=10), tmp_path)
    assert said(data, data.inputs[0]) == "hello worl"


def test_settings_and_content_make_the_fingerprint(folder: Path) -> None:
    prints = {load(section, folder).fingerprint for section in (text(), text(stride=4), text(tokens="bytes"), text(test_items=1))}
    assert len(prints) == 4
    assert load(text(), folder).fingerprint in prints
    (folder / "a.txt").write_text(ALPHABET[::-1])
    assert load(text(), folder).fingerprint not in prints


@pytest.mark.parametrize(("content", "message"), [
    (b"", r"a\.txt: is empty$"),
    (b"short", r"a\.txt: too short: it has 5 elements, one window takes 9$"),
    (b"one\ntwo\nth\xffee four five", r"a\.txt:3: byte 3 of the line, 0xff, is not UTF-8; save it as UTF-8, or set tokens = "),
])  # fmt: skip
def test_files_that_will_not_do(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    for ask in (read_spec, load):
        with pytest.raises(InputMissing, match=message):
            ask(text(), tmp_path)


def test_too_short_for_what_is_to_be_tested(folder: Path) -> None:
    with pytest.raises(InputMissing, match="too short: it has 104 elements, one window takes 9, and 12 are for the test"):
        read_spec(text(test_items=12), folder)


def test_no_file_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match=r"a\.txt: No such file or directory"):
        read_spec(text(), tmp_path)
    with pytest.raises(InputMissing, match=r"a folder without \.txt files"):
        read_spec(text(path="."), tmp_path)


@pytest.mark.parametrize(("more", "message"), [
    ({"vocabulary": 50}, 'vocabulary would have no effect: tokens = "characters"'),
    ({"test_items": 3, "test_path": "t.txt"}, "test_items and test_path: keep one"),
    ({"path": []}, "expected a file or folder, or a list of files"),
    ({"path": 3}, "expected a file or folder, or a list of files"),
])  # fmt: skip
def test_settings_that_contradict_one_another(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        text(**more)


def test_windows_line_ends_are_line_feeds(folder: Path) -> None:
    """But bytes are as they are."""
    (folder / "a.txt").write_bytes(b"the cat\nthe dog\n" * 10)
    (folder / "b.txt").write_bytes(b"the cat\r\nthe dog\r\n" * 10)
    for tokens, equal in (("characters", True), ("words", True), ("bytes", False)):
        ours, theirs = (load(text(path=name, tokens=tokens), folder).fingerprint for name in ("a.txt", "b.txt"))
        assert (ours == theirs) == equal
