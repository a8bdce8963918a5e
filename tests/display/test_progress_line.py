"""The line on the progress of what takes long."""

from __future__ import annotations

import io

import pytest

from partrain.display.progress_line import ProgressLine


class Terminal(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_only_what_takes_long_is_shown(terminal: bool) -> None:
    stream, now = Terminal(terminal=terminal), [0.0]
    line = ProgressLine(stream, lambda: now[0])
    for what in ("short", "long"):
        for step in range(11):
            now[0] += 0.1 if what == "short" else 1.5
            line.note(what, step / 10)
    texts = stream.getvalue()
    assert "short" not in texts
    if terminal:
        assert texts.startswith("\r\x1b[Klong: 20%, 12 s left\r\x1b[Klong: 30%, 10 s left")
        assert texts.endswith("\r\x1b[K")
    else:
        assert texts.startswith("long: 20%, 12 s left\nlong: 90%, ")
