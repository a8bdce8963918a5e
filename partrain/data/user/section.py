"""The `[dataset]` table of user code."""

from __future__ import annotations

from typing import ClassVar

from partrain.config.usercode import UserCode
from partrain.data.base import DataSection


class UserData(DataSection, UserCode):
    """User code: the result of calling `name` with the other keys, read once, in order.

    The result has `len(...)` and `[i]`, as a torch Dataset, and each item is an input and a target. Or it is an object with
    arrays `inputs` (n, ...) and `targets` (n, ...). Items are numbers, arrays or tensors. Bytes as inputs are scaled to [0, 1]; other
    integers are tokens. An integer target is a class label, float numbers are values of a regression, and integers of an input's
    shape are tokens. The optional attribute `test` is the same for the test set, or a function that returns it.

    A result with a method `stream` is not read: workers train on what it yields. See `data.user.shard`.
    """

    table: ClassVar[str] = "dataset"
