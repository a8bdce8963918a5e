"""The interface of a network: the shape of its items and of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from partrain.byte_layout import InputPart, of_unequal_lengths
from partrain.tasks.kinds import TaskKind, kind_named

Form = Literal["numbers", "series", "images", "tokens"]

FORMS: dict[Form, str] = {
    "numbers": "numbers (n,)",
    "series": "number series (steps, features)",
    "images": "images (channels, height, width)",
    "tokens": "tokens (length,)",
}


def channels_last(shape: tuple[int, ...]) -> str | None:
    """Return what is wrong with items that look like images (height, width, channels), and what to do; None if they do not."""
    if len(shape) != 3 or min(shape[:2]) <= 4 or shape[2] not in (1, 3, 4):
        return None
    what = f"the items look like images with the channels last, {shape}, and partrain takes (channels, height, width)"
    return f"{what}: save `np.moveaxis(inputs, -1, 1)` of them"


@dataclass(frozen=True)
class Interface:
    """Input and output of a network."""

    item: tuple[int, ...]
    """Shape of one item."""
    outputs: int
    """Number of classes, numbers, or tokens of the vocabulary."""
    task: str
    """Kind of task, see `partrain.tasks`; `user` for a user task."""
    vocabulary: int | None = None
    """Number of tokens, if items are tokens: integers below this. None: items are numbers."""
    categories: tuple[int, ...] = ()
    """Number of codes of each number of an item (n,), 0 if it is not a code; empty without codes."""
    parts: tuple[InputPart, ...] = ()
    """The inputs of an item, if there are several, or their lengths differ."""

    @property
    def kind(self) -> TaskKind:
        """The kind of task."""
        return kind_named(self.task)

    @property
    def unequal(self) -> bool:
        """True if items are sequences of unequal length: the network gets them, padded to `item`, and their lengths (b,)."""
        return of_unequal_lengths(self.parts)

    @property
    def form(self) -> Form | None:
        """Form of the items; None for numbers of other shapes."""
        if self.parts and not self.unequal:
            return None
        if self.vocabulary is not None:
            return "tokens" if len(self.item) == 1 else None
        forms: dict[int, Form] = {1: "numbers", 2: "series", 3: "images"}
        return forms.get(len(self.item))

    @property
    def answer(self) -> tuple[int, ...]:
        """Shape of the answer to one item."""
        return self.kind.answer_shape(self.item, self.outputs)

    @property
    def description(self) -> str:
        """Description of one item for messages."""
        if self.parts and not self.unequal:
            inputs = [f"{part.name} {part.shape}".strip() for part in self.parts]
            return f"{len(inputs)} inputs: {', '.join(inputs)}"
        shape = " x ".join(map(str, self.item)) or "one"
        if self.vocabulary is not None:
            return f"{shape} tokens"
        return {"series": f"number series of {shape}", "images": f"images of {shape}"}.get(self.form or "", f"{shape} numbers")
