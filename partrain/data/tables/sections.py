"""The `[dataset]` tables of CSV and Parquet files."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, model_validator

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
Treatment = Literal["error", "drop", "mean", "median"]
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
    """Input columns of words: each becomes one number per word, 1 for the word in the cell. A word that is not among those of the
    file has 0 everywhere."""
    categories: Columns = []
    """Input columns of words (or of codes) for a network with embeddings, `tabular`: each becomes the code of its word. Cells
    without a value have a code of their own, and share none with words that no other training item has, which count as unseen."""
    dates: Columns = []
    """Input columns of ISO 8601 dates or times: each becomes the day, and sine and cosine of its place in year, week and day."""
    target_kind: Literal["auto", "class", "number"] = "auto"
    """Kind of the target; `auto`: words are classes, and so are at most 20 different integers, or more if each is in 20 rows; other
    numbers are numbers. If an integer has an unusual spelling (`007`, `+1`), all classes are words."""
    standardise: bool = True
    """Numeric inputs minus their mean, divided by their standard deviation, of the training items."""
    standardise_target: bool = True
    """The same for the targets of a regression; losses are then in these units, answers and errors in those of the file."""
    missing: Treatment | dict[str, Treatment | Literal["category"] | FiniteFloat] = "error"
    """Treatment of cells without a value (empty, NA, N/A, nan, null, ?): an `error`; `drop` the row; take the `mean` or the `median`
    of a number, and for words a `category` of its own. Or a table by column, in which numbers are taken as they are, and `"*"`
    stands for all other columns."""
    missing_indicator: Columns = []
    """Input columns that get another number: 1 where a cell has no value, else 0."""
    test_path: File | None = None
    """A file of test items with the same columns."""

    @model_validator(mode="after")
    def _without_contradiction(self) -> Tabular:
        if self.inputs and self.drop:
            raise ValueError("`inputs` and `drop` exclude each other: keep one")
        kinds = {key: getattr(self, key) for key in ("one_hot", "categories", "dates")}
        for key, names in {**kinds, "missing_indicator": self.missing_indicator}.items():
            if self.inputs and (outside := [name for name in names if name not in self.inputs]):
                raise ValueError(f"`{key}` names `{outside[0]}`, which is not among `inputs`")
            if clash := {*self.target} & {*(self.inputs or []), *self.drop, *names}:
                raise ValueError(f"`{min(clash)}` is the target: it cannot be an input, nor be dropped")
        for first, second in combinations(kinds, 2):
            if both := {*kinds[first]} & {*kinds[second]}:
                raise ValueError(f"`{first}` and `{second}` both name `{min(both)}`: keep one")
        self._check_missing({*self.one_hot, *self.categories})
        if self.classes and (len(self.target) > 1 or self.target_kind == "number"):
            raise ValueError("`classes` selects classes, and these targets are numbers: remove it")
        if len(self.target) > 1 and self.target_kind == "class":
            raise ValueError('several target columns are numbers: target_kind = "class" has one')
        if self.target_kind == "class" and self.standardise_target and "standardise_target" in self.model_fields_set:
            raise ValueError("`standardise_target` is for numbers, and these targets are classes: remove it")
        return self

    def _check_missing(self, words: set[str]) -> None:
        """Raise ValueError for a treatment of missing values that does not go with its column, or with an indicator."""
        treatments = {"*": self.missing} if isinstance(self.missing, str) else self.missing
        for name, how in treatments.items():
            if name in words and isinstance(how, float):
                raise ValueError(f'`missing`: `{name}` is a column of words, and {how:g} is a number: use "category"')
            if name in self.target and how not in ("error", "drop"):
                raise ValueError(f'`missing`: `{name}` is the target, which cannot be filled in: use "drop" or "error"')
            if how == "category" and name not in words:
                which = "names no column" if name == "*" else "is no column of words (`one_hot`, `categories`)"
                raise ValueError(f'`missing`: `{name}` {which}, and "category" is for words: use "mean" or "median"')
        for name in self.missing_indicator:
            if treatments.get(name, treatments.get("*", "error")) in ("error", "drop"):
                raise ValueError(
                    f'`missing_indicator`: `{name}` has no missing values to tell: `missing` must fill it, say by "mean"'
                )


class Csv(Tabular):
    """Separated text (CSV, TSV), plain or gzipped; line 1 has the names of columns."""

    kind: Literal["csv"]
    separator: Separator | None = None
    """Separator of cells; default: a tab in .tsv files, else a comma."""
    encoding: str = "utf-8"
    """Encoding of the files, by Python's name."""

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
