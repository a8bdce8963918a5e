"""A part of the screen that shows lines of styled text, and the questions that cover it."""

from __future__ import annotations

from functools import cache
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
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
"""Screen colors for the color names in lines: a terminal's own green may be unreadable on a dark background."""
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

A slow worker takes 1.5 times as long per item as the others, or more.
Runs are read from their folders; nothing is changed there."""


@cache
def _style(style: str) -> Style:
    return Style.parse(" ".join(COLORS.get(word, word) for word in style.split()))


def _plain(text: str) -> str:
    """Replace control characters."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


class LinesPanel(Widget):
    """Lines of styled text, which is never markup. Only changed lines are redrawn."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        """Show lines."""
        before, self.lines = self.lines, lines
        changed = [y for y, (line, other) in enumerate(zip_longest(before, lines)) if line != other]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return a line for Textual."""
        ground, width = self.rich_style, self.size.width
        if y >= len(self.lines):
            return Strip.blank(width, ground)
        strip = Strip([Segment(_plain(text), ground + _style(style)) for text, style in self.lines[y]])
        return strip.adjust_cell_length(width, ground)


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
        with Container(classes="box"):
            yield Static("\n".join([_plain(line) for line in self._text.split("\n")] + ["", self._hint]), markup=False)

    def action_answer(self, yes: bool) -> None:  # noqa: FBT001
        """Return the answer."""
        self.dismiss(yes)


class HelpScreen(ModalScreen[None]):
    """A screen that lists the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,escape,enter,q,space", "close", "back")]

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Container(classes="box wide"):
            yield Static(HELP, markup=False)

    def action_close(self) -> None:
        """Close the screen."""
        self.dismiss(None)
