"""The `[dataset]` table of user code."""

from __future__ import annotations

from partrain.config.usercode import UserCode
from partrain.data.base import DataSection


class UserData(DataSection, UserCode):
    """The user's own: what `name` gives when it is called with the other keys, read once, in order.

    Either something with `len(...)` and `[i]`, as a torch Dataset is, of which each item is an input and a target; or else an object
    with arrays `inputs` (n, ...) and `targets` (n, ...). Numbers, arrays and tensors will do. Bytes are scaled to [0, 1]; other whole
    numbers as inputs are tokens. A target that is a whole number is a class label, numbers are what a regression is to give, and
    whole numbers of an input's shape are tokens to give. `test`, if it has that, is or returns the same for the test set.
    """
