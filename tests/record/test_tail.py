"""The growing lines of a file."""

from __future__ import annotations

import json
from pathlib import Path

from support.histories import judgement, round_of, start, write_events

from partrain.record import tail
from partrain.record.tail import FollowedState, Tail


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


def test_a_followed_state_leaves_out_events_with_odd_values(tmp_path: Path) -> None:
    """A file that no partrain wrote does not end a command or the hooks of a run in a traceback."""
    odd = {"event": "exclusion", "t": 1, "round": 1, "rank": 0, "what": "the gradient", "discarded": None}
    folder = write_events(tmp_path, start(workers=1), round_of(0, 1, compute="long"), odd, round_of(0, 1), judgement(1, 1.0, 0.5))
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(judgement(2, 2.0, 0.5, round="two")) + "\n")
    followed = FollowedState(folder / "events.jsonl")
    assert followed.read().round == 1
    assert [event.round for event in followed.judgements] == [1]
