"""What a network is built for: the shape of its items, and what its answers are to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["numbers", "series", "images", "tokens"]

FORMS: dict[Form, str] = {
    "numbers": "numbers (n,)",
    "series": "number series (steps, features)",
    "images": "images (channels, height, width)",
    "tokens": "tokens (length,)",
}


@dataclass(frozen=True)
class Interface:
    """What goes into a network and what comes out of it."""

    item: tuple[int, ...]
    """Shape of one item."""
    outputs: int
    """Classes, numbers, or tokens of the vocabulary."""
    task: str
    """The kind of task: see `partrain.tasks`; `user` for one of the user's own."""
    vocabulary: int | None = None
    """Items are tokens, whole numbers below this; None: they are numbers of any kind."""

    @property
    def form(self) -> Form | None:
        """What items of this shape are; None for numbers of other shapes."""
        if self.vocabulary is not None:
            return "tokens" if len(self.item) == 1 else None
        forms: dict[int, Form] = {1: "numbers", 2: "series", 3: "images"}
        return forms.get(len(self.item))

    @property
    def answer(self) -> tuple[int, ...]:
        """Shape of the answer to one item."""
        if self.task == "autoencoder":
            return self.item
        return (*self.item, self.outputs) if self.task == "language" else (self.outputs,)

    @property
    def in_words(self) -> str:
        """What one item is, in words."""
        shape = " x ".join(map(str, self.item)) or "one"
        if self.vocabulary is not None:
            return f"{shape} tokens"
        return {"series": f"number series of {shape}", "images": f"images of {shape}"}.get(self.form or "", f"{shape} numbers")
