"""The `[dataset]` table of user code."""

from __future__ import annotations

from typing import ClassVar

from partrain.config.usercode import UserCode
from partrain.data.base import DataSection


class UserData(DataSection, UserCode):
    """A data set of your own: `name` is a class or function, and the other keys are its keyword arguments. partrain reads it once, in order.

    It has `len(...)` and `[i]`, as a torch Dataset, or it is an iterator: each item is an input and a target. Or it is an object with arrays
    `inputs` (n, ...) and `targets` (n, ...). Inputs: bytes are scaled to [0, 1], other integers are tokens, floats stay. Targets: an integer
    is a class label, floats are numbers of a regression, integers of the shape of the input are tokens. The optional attribute `test` is the
    test set, or a function that returns it.

    A data set with a method `stream` is not read into memory: each worker trains on the items that `stream` yields to it.
    """

    table: ClassVar[str] = "dataset"
