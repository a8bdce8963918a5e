"""A part of the screen that shows lines of styled text, and the questions that cover it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from partrain.display.live_table import Line

COLORS = {
    "green": "#8fce8f",
    "cyan": "#5fd7e6",
    "yellow": "#f2cc60",
    "red": "#ff7b72",
    "blue": "#79b8ff",
    "magenta": "#d8a0ff",
    "orange": "#ffab70",
}
"""Colors of the screen for the names that lines use: a terminal's own green may be unreadable on a dark ground."""
HELP = """\
up, down        highlight a run         page up, page down, home, end
enter           show this run alone, and all runs again
space           overlay the run's curves, or remove them
s               next order: newest, name, loss, accuracy, items/s
l               logarithmic scale of the loss
x               horizontal axis: time, rounds, item-iterations
S               stop the run after its round, with a checkpoint
c               have the run commit a checkpoint now
q               quit; the runs go on

A slow worker computes at least 1.2 times as long as the fastest.
Runs are read from their folders; nothing is changed there."""


def content_of(lines: Sequence[Line]) -> Content:
    """Return lines as Textual shows them: no markup, no control characters."""
    return Content("\n").join(Content.assemble(*((_plain(text), _style(style)) for text, style in line)) for line in lines)


def _plain(text: str) -> str:
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def _style(style: str) -> str:
    return " ".join(COLORS.get(word, word) for word in style.split())


class LinesPanel(Static):
    """Lines of styled text. Equal lines cost nothing: they are not drawn again."""

    def __init__(self, name: str) -> None:
        super().__init__(markup=False, id=name)
        self.lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        """Show lines."""
        if lines != self.lines:
            self.lines = lines
            self.update(content_of(lines), layout=False)


class Question(ModalScreen[bool]):
    """A question that `y` answers; all other keys mean no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, text: str, hint: str) -> None:
        super().__init__()
        self._text, self._hint = text, hint

    def compose(self) -> ComposeResult:
        """Make the box."""
        lines: list[Line] = [[(line, "")] for line in self._text.split("\n")]
        with Container(classes="box"):
            yield Static(content_of([*lines, [], [(self._hint, "bold")]]), markup=False)

    def action_answer(self, yes: bool) -> None:
        """Answer."""
        self.dismiss(yes)


class HelpScreen(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,escape,enter,q,space", "close", "back")]

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Container(classes="box wide"):
            yield Static(HELP, markup=False)

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)
