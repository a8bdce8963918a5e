"""The `[dataset]` tables of CSV and Parquet files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from partrain.data.base import SelectsClasses
from partrain.data.fetch import File
from partrain.data.test_split import HasTestSplit


def _different(names: list[str]) -> list[str]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"names the column `{twice[0]}` twice")
    return names


def _parting(text: str) -> str:
    if text in '"\r\n\0':
        raise ValueError("a separator stands between the cells of a line; quotes and line ends have a meaning of their own")
    return text


Columns = Annotated[list[str], AfterValidator(_different)]
Names = Annotated[Columns, BeforeValidator(lambda value: [value] if isinstance(value, str) else value, str | list[str])]
Separator = Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_parting)]


class Tabular(HasTestSplit, SelectsClasses):
    """Keys of all tables, whatever their file format."""

    test_keys = ("test_path",)

    path: File
    """The file, relative to the job."""
    target: Names = Field(min_length=1)
    """The column to learn; several, as a list, for a regression."""
    inputs: Annotated[Columns, Field(min_length=1)] | None = None
    """The columns to learn from; default: all but the target and those in `drop`."""
    drop: Columns = []
    """Columns to leave out."""
    one_hot: Columns = []
    """Input columns of words: each becomes one number per word, 1 for the word in the cell."""
    target_kind: Literal["auto", "class", "number"] = "auto"
    """Kind of the target; `auto`: words and integers are classes, other numbers are numbers. If an integer has an unusual
    spelling (`007`, `+1`), all classes are words."""
    standardise: bool = True
    """Numeric inputs minus their mean, divided by their standard deviation, of the training items."""
    standardise_target: bool = False
    """The same for the targets of a regression; losses are then in these units."""
    missing: Literal["error", "drop", "mean"] = "error"
    """Treatment of cells without a value (empty, NA, nan, null, ?): an error; drop the row; or take the mean of a numeric input."""
    test_path: File | None = None
    """A file of test items with the same columns."""

    @model_validator(mode="after")
    def _without_contradiction(self) -> Tabular:
        if self.inputs and self.drop:
            raise ValueError("`inputs` and `drop` exclude each other: keep one")
        if self.inputs and (outside := [name for name in self.one_hot if name not in self.inputs]):
            raise ValueError(f"`one_hot` names `{outside[0]}`, which is not among `inputs`")
        if clash := {*self.target} & {*(self.inputs or []), *self.drop, *self.one_hot}:
            raise ValueError(f"`{min(clash)}` is the target: it cannot be an input, nor be dropped")
        if self.classes and (len(self.target) > 1 or self.target_kind == "number"):
            raise ValueError("`classes` selects classes, and these targets are numbers: remove it")
        if len(self.target) > 1 and self.target_kind == "class":
            raise ValueError('several target columns are numbers: target_kind = "class" has one')
        return self


class Csv(Tabular):
    """Separated text (CSV, TSV), plain or gzipped; line 1 has the names of columns."""

    kind: Literal["csv"]
    separator: Separator | None = None
    """Separator of cells; default: a tab in .tsv files, else a comma."""
    encoding: str = "utf-8"

    @model_validator(mode="after")
    def _known_encoding(self) -> Csv:
        try:
            "".encode(self.encoding)  # LookupError also where an encoding is not one of text, as `hex`
        except (LookupError, UnicodeError):
            raise ValueError(f"`encoding`: there is no `{self.encoding}`; utf-8 and latin-1 are the usual ones") from None
        return self


class Parquet(Tabular):
    """Parquet files, read by polars: `pip install partrain[tabular]`."""

    kind: Literal["parquet"]
