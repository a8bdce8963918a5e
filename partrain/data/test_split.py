"""Test items split off a data set: the keys and the rule, shared by tables and arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from partrain.data.base import DataSection, WrongContent
from partrain.data.partition import hold_out
from partrain.errors import InputMissing
from partrain.preprocess.cells import Class
from partrain.seeds import derive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[Any]


class HasTestSplit(DataSection):
    """Keys of data sets from which test items can be split off."""

    test_keys: ClassVar[tuple[str, ...]]
    """Keys that name separate test items."""

    test_items: int = Field(0, ge=0)
    """Number of items (rows of a table) to split off as test items, instead of separate ones."""
    test_share: float = Field(0.0, ge=0, lt=1)
    """Share of the items to split off as test items, instead of separate ones."""
    test_from: Literal["shuffled", "end"] = "shuffled"
    """Choice of the items to split off: `shuffled` draws them, the same for all seeds; `end` takes the last ones, for items in
    the order of time; the items before them are then held out."""

    @model_validator(mode="after")
    def _one_way_to_test_items(self) -> Self:
        apart = any(key in self.model_fields_set and getattr(self, key) for key in self.test_keys)
        if sum(map(bool, (apart, self.test_items, self.test_share))) > 1:
            raise ValueError(f"`{self.test_keys[0]}`, `test_items` and `test_share` exclude one another: keep one")
        if self.fold and self.in_time:
            raise ValueError(
                "`fold` holds out any part of the items, and these are in the order of time: use `validation`, which holds out the last"
            )
        if "test_from" in self.model_fields_set and not self.split_key:
            raise ValueError("`test_from` has no effect without `test_items` or `test_share`")
        return self

    @property
    def in_time(self) -> bool:
        """True if items are in the order of time: the last ones are tested on, the ones before them held out."""
        return self.test_from == "end"

    @property
    def gap(self) -> int | None:
        """Gap of the data set; see `DatasetInfo`."""
        return 0 if self.in_time else None

    @property
    def split_key(self) -> str:
        """The key that splits test items off; empty if there is none."""
        return "test_items" if self.test_items else "test_share" if self.test_share else ""

    def count_test_items(self, items: int, where: str, noun: str) -> int:
        """Count the test items among `items`; InputMissing if training or test would be empty."""
        tests = self.test_items or round(self.test_share * items)
        if tests >= items or (self.test_share and not tests):
            raise InputMissing(f"{where}: holds {items:,} {noun}: with {tests:,} test items, training or test would be empty")
        return tests

    def split_off(self, items: int, tests: int, labels: Indices | None, groups: Indices | None = None) -> tuple[Indices, Indices]:
        """Split indices into items that stay (items - tests,) and test items (tests,), both in the order given.

        The draw has a fixed seed: jobs with different seeds are tested on the same items. If the job stratifies, the draw takes
        each class of `labels` (items,) in proportion. With `groups` (items,) it takes whole groups, so the number of items is
        approximate.
        """
        import numpy as np

        order: Any = "given" if self.in_time else "shuffled"
        stay, tested = hold_out(
            items, tests, order, derive(0, "test items"), None, labels if self.stratify else None, None, groups
        )
        return np.sort(stay), np.sort(tested)

    def check_classes(
        self, locate: Callable[[Class], str], names: Sequence[Class] | None, trained: Indices, tested: Indices
    ) -> None:
        """Raise WrongContent for a class that only test items have: it could not be learnt.

        Args:
            locate: Returns the place of a class in a file, for the message.
            names: Names of the classes, by label; None: the labels are the names.
            trained: Labels (n,) of the items that stay.
            tested: Labels (n,) of the test items.
        """
        import numpy as np

        if not len(only := np.setdiff1d(tested, trained)):
            return
        name, count = names[int(only[0])] if names else int(only[0]), int((tested == only[0]).sum())
        if count == 1:
            what, advice = "occurs once, as a test item", "add items of it, or leave it out by `classes`"
        else:
            ways = {"end": 'set test_from = "shuffled"', "shuffled": "set stratify = true"}
            remedy = (
                "leave it out by `classes`"
                if (self.stratify and self.test_from == "shuffled") or self.in_time > (self.test_from == "end")
                else ways[self.test_from]
            )
            what, advice = f"occurs among the test items only, {count:,} times", f"{remedy}, or hold fewer items out"
        more = f" (one of {len(only):,} such classes)" if len(only) > 1 else ""
        raise WrongContent(([self.split_key], f"{locate(name)}: the class `{name}`{more} {what}; {advice}"))
