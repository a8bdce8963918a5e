"""The `[dataset]` tables of tables in files."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, model_validator

from partrain.config.section import Section
from partrain.data.base import HasValidationPath, SelectsClasses, repeated
from partrain.data.fetch import File
from partrain.data.tables.date_formats import pattern_of
from partrain.data.test_split import HasTestSplit
from partrain.preprocess.table import KINDS


def _different(names: list[str]) -> list[str]:
    if (twice := repeated(names)) is not None:
        raise ValueError(f"names the column `{twice}` twice")
    return names


def _parting(text: str) -> str:
    if text in '"\r\n\0':
        raise ValueError("a separator is between the cells of a line; quotes and line ends have another meaning")
    return text


def _date_form(form: str) -> str:
    pattern_of(form)
    return form


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Columns = Annotated[list[str], AfterValidator(_different)]
Names = Annotated[Columns, BeforeValidator(_listed, str | list[str])]
Treatment = Literal["error", "drop", "mean", "median"]
Formats = Annotated[list[Annotated[str, AfterValidator(_date_form)]], BeforeValidator(_listed, str | list[str])]
Separator = Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_parting)]


class HasNullValues(Section):
    """The key of all tables that lists the texts of cells without a value."""

    null_values: list[str] | None = None
    """Texts of cells without a value, in any case and in addition to empty cells. Default: NA, N/A, nan, null and ?. In a table
    whose words include one of these, list the others only."""


class HasDialect(HasNullValues):
    """Keys of CSV files."""

    separator: Separator | None = None
    """Separator of the cells of CSV files: one character. Default: a tab in .tsv files, else a comma."""
    encoding: str = "utf-8"
    """Encoding of CSV files, by its Python name: `latin-1`, say."""
    decimal: Literal[".", ","] = "."
    """Character between the whole and the fractional digits of numbers in CSV files."""
    thousands: Literal["", ".", ",", " ", "'", "_"] = ""
    """Character between groups of three digits of numbers in CSV files; `""`: none."""
    number_marks: str = ""
    """Characters that may precede or follow a number in CSV files, such as `$`, `%` or `*`: they are ignored. With `()` among
    them, a number in parentheses is negative; with Unicode's minus sign, it is read as a hyphen."""
    date_format: Formats = []
    """Format of dates in CSV files that are not in ISO 8601, such as `"%d.%m.%Y"`; or several. %Y year, %y its last two digits,
    %m month, %b its name, %d day, %q quarter, %V week, %H %M %S time, %I and %p for hours with am and pm. `"%H:%M"`: a time of
    day alone."""

    @model_validator(mode="after")
    def _known_encoding(self) -> Self:
        try:
            "".encode(self.encoding)  # LookupError also for an encoding that is not one of text, such as `hex`
        except (LookupError, UnicodeError):
            raise ValueError(f"`encoding`: there is no `{self.encoding}`; utf-8 and latin-1 are the usual ones") from None
        return self

    @model_validator(mode="after")
    def _readable_numbers(self) -> Self:
        if self.thousands == self.decimal:
            raise ValueError(f"`thousands` and `decimal` are both {self.decimal!r}: numbers would have two meanings")
        if wrong := [sign for sign in self.number_marks if sign.isalnum() or sign in "+-.,"]:
            raise ValueError(f"`number_marks` has `{wrong[0]}`, which is a part of numbers or words")
        return self


class InMemory(Section):
    """Key of tables that are DataFrames of a script."""

    path: str = "DataFrame"
    """The name of the DataFrame in messages."""


class Tabular(HasNullValues, HasTestSplit, SelectsClasses, HasValidationPath):
    """Keys of all tables, whatever their file format."""

    test_keys = ("test_path",)

    @property
    def in_time(self) -> bool:
        return super().in_time or bool(self.time)

    path: File
    """The file, relative to the job; or a URL with its digest, `https://host/file#sha256=...`."""
    target: Names = Field(min_length=1)
    """The column to learn. A list of several columns is a regression, or several labels with `[task] kind = "multi-label"`."""
    inputs: Annotated[Columns, Field(min_length=1)] | None = None
    """The input columns; default: all but the target and those in `drop`."""
    drop: Columns = []
    """Columns to leave out, instead of `inputs`."""
    one_hot: Columns = []
    """Input columns of words. Each becomes one number for each word: 1 for the word in the cell, else 0. A word that is not
    in the file gives 0 for all of them."""
    categories: Columns = []
    """Input columns of words (or of codes), for the network `tabular`, which learns an embedding of each word. A missing word has
    a separate code, and so has an unseen word; words of a single training item count as unseen."""
    dates: Columns = []
    """Input columns of ISO 8601 dates or times. Each becomes the day (since 1970), and sine and cosine of the place in
    year, week and day."""
    texts: Columns = []
    """Input columns of sentences. Each becomes one number for each of its 200 most frequent words: 1 if the cell has the word, else 0."""
    logs: Columns = []
    """Input columns of numbers over several orders of magnitude, such as concentrations. Each x becomes two numbers: x, and
    asinh(x / s), where s is smaller than 98 % of the different numbers of the column without their signs: like a logarithm, and
    straight near 0."""
    target_kind: Literal["auto", "class", "number"] = "auto"
    """Kind of the target. `auto`: words are classes; whole numbers are classes if there are at most 20 different ones, or if each
    is in 20 rows or more; other numbers are a regression. Whole numbers of unusual spelling (`007`, `+1`) are words."""
    standardise: bool = True
    """Subtract the mean of each numeric input and divide by its standard deviation, both of the training items."""
    standardise_target: bool = True
    """Standardise the targets of a regression in the same way. Losses are then in standardised units; answers and errors are in
    the units of the file."""
    target_transform: Literal["log"] | None = None
    """`log`: learn asinh(y / m) of a target y, where m is the median of |y| of the training items: like a logarithm for large
    numbers of either sign, straight near 0. For targets of which a few are far larger than the others. Answers and errors are in
    the units of the file."""
    missing: Treatment | dict[str, Treatment | Literal["category"] | FiniteFloat] = "error"
    """Treatment of cells without a value (see `null_values`). `error`: refuse the file. `drop`: leave the row out.
    `mean`, `median`: fill in the mean or median of the training items; missing words become a separate category. Or a table by
    column, such as `{age = "median", city = "category", rooms = 0.0, "*" = "mean"}`: `"*"` means all other columns, a number
    itself."""
    time: Names = []
    """Column of time stamps, numbers or dates, in any order; or several columns of the parts of a date, the longest part first:
    `["year", "month", "day"]`. The newest rows are the test items that are split off, and the rows before them are held out: both
    are later than all rows that the network learns from."""
    sample_weight: str | None = None
    """Column of weights of the rows, 0 or more, which is not an input. In a pass each item occurs as often as its weight says,
    relative to the other items of the worker. Items that are held out or tested on all count equally."""
    group: str | None = None
    """Column that names the person, machine or place of a row, which is not an input. Test items that are split off, held-out
    items and folds are then whole groups, with about as many rows as asked for: no group is in two parts, and none in two
    files."""
    missing_indicator: Columns = []
    """Input columns for which each item gets one more number: 1 if the cell has no value, else 0."""
    test_path: File | None = None
    """A file of test items with the same columns, instead of `test_items` and `test_share`."""
    validation_path: File | None = None
    """A file of held-out items with the same columns, instead of `validation` and `fold`."""

    @model_validator(mode="after")
    def _without_contradiction(self) -> Tabular:
        if self.time and (self.stratify or self.fold or "test_from" in self.model_fields_set):
            key = "stratify" if self.stratify else "fold" if self.fold else "test_from"
            raise ValueError(f"`time` holds the newest rows out, and `{key}` others: keep one")
        if self.group is not None and self.in_time:
            raise ValueError(
                f"`{'time' if self.time else 'test_from'}` tests on the newest rows, and `group` on whole groups: keep one"
            )
        for key, what in (("sample_weight", "a weight"), ("group", "a name of groups")):
            if (name := getattr(self, key)) is not None and name in (*self.target, *(self.inputs or []), *self.drop):
                raise ValueError(f"`{key}`: `{name}` has another role: {what} is no input, and no target")
        if self.inputs and self.drop:
            raise ValueError("`inputs` and `drop` exclude each other: keep one")
        kinds, inputs = {kind.key: getattr(self, kind.key) for kind in KINDS}, {*(self.inputs or [])}
        for key, names in {**kinds, "missing_indicator": self.missing_indicator}.items():
            if self.inputs and (outside := [name for name in names if name not in inputs]):
                raise ValueError(f"`{key}` names `{outside[0]}`, which is not among `inputs`")
            if clash := {*self.target} & {*inputs, *self.drop, *names}:
                raise ValueError(f"`{min(clash)}` is the target: it cannot be an input, nor be dropped")
        for first, second in combinations(kinds, 2):
            if both := {*kinds[first]} & {*kinds[second]}:
                raise ValueError(f"`{first}` and `{second}` both name `{min(both)}`: keep one")
        self._check_missing({name for kind in KINDS if kind.holds_words for name in kinds[kind.key]})
        if self.classes and (len(self.target) > 1 or self.target_kind == "number"):
            raise ValueError("`classes` selects classes, and these targets are numbers: remove it")
        if self.target_transform and (self.target_kind == "class" or not self.standardise_target):
            why = (
                "these targets are classes"
                if self.target_kind == "class"
                else "`standardise_target` = false keeps them as they are"
            )
            raise ValueError(f"`target_transform` is for numbers that are standardised, and {why}: remove it")
        if len(self.target) > 1 and self.target_kind == "class":
            raise ValueError('several target columns are numbers: target_kind = "class" has one')
        if self.target_kind == "class" and self.standardise_target and "standardise_target" in self.model_fields_set:
            raise ValueError("`standardise_target` is for numbers, and these targets are classes: remove it")
        return self

    def _check_missing(self, words: set[str]) -> None:
        """Raise ValueError for a treatment of missing values that does not fit its column, or an indicator."""
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


class Csv(HasDialect, Tabular):
    """A CSV or TSV file, plain or compressed. Line 1 has the names of the columns."""

    kind: Literal["csv"]


class Parquet(Tabular):
    """A Parquet file."""

    kind: Literal["parquet"]


class AnyTable(HasDialect, Tabular):
    """A table of any file format, which the suffix of the file determines."""

    kind: Literal["table"]
