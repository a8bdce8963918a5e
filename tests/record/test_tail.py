"""The growing lines of a file."""

from __future__ import annotations

from pathlib import Path

from partrain.record import tail
from partrain.record.tail import Tail


def test_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntw")
    lines = Tail(path)
    assert lines.read() == (False, [b"one"])
    assert lines.at_end
    assert lines.read() == (False, [])
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert lines.read() == (False, [b"two", b"three"])


def test_a_truncated_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\nthree\n")
    lines = Tail(path)
    lines.read()
    path.write_bytes(b"one\ntwo\n")
    assert lines.read() == (True, [b"one", b"two"])


def test_a_replaced_file_is_read_anew_also_if_it_is_longer(tmp_path: Path) -> None:
    """A resume replaces the events, and goes on before anyone looks."""
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    lines = Tail(path)
    lines.read()
    other = tmp_path / "b"
    other.write_bytes(b"one\n2\n3\n4\n5\n")
    other.replace(path)
    assert lines.read() == (True, [b"one", b"2", b"3", b"4", b"5"])


def test_a_replaced_file_with_the_same_beginning_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    lines = Tail(path)
    lines.read()
    other = tmp_path / "b"
    other.write_bytes(b"one\ntwo\nthree\n")
    other.replace(path)
    assert lines.read() == (False, [b"three"])


def test_slices_and_lines_longer_than_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    wide = b"x" * (3 * tail.CHUNK_BYTES)
    path.write_bytes(b"one\n" * tail.CHUNK_BYTES + wide + b"\nlast\n")
    lines, found, slices = Tail(path), [], 0
    while not lines.at_end:
        found += lines.read()[1]
        slices += 1
    assert slices > 3
    assert found == [b"one"] * tail.CHUNK_BYTES + [wide, b"last"]
    assert lines.share == 1
