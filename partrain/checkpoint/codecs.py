"""Schemas of a network's interface and of data sets' codecs in a manifest, as data set readers write them.

A codec comes from a file: these schemas check every field before a command computes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, create_model

from partrain.byte_layout import InputPart
from partrain.checkpoint.content import manifest_text
from partrain.config.section import Section
from partrain.data.forms import SECTIONS, form_of
from partrain.data.tables.sections import Columns, Treatment
from partrain.data.tables.time_stamps import Unit
from partrain.models.interface import Interface
from partrain.preprocess.table import KINDS, OTHERS, TableSchema, kinds_of
from partrain.tasks import Kind

Count = Annotated[int, Field(ge=1, lt=2**63)]
Class = Annotated[str | int, Field(union_mode="left_to_right")]
Classes = Annotated[list[Class], Field(min_length=1)]
Numbers = Annotated[list[float], Field(min_length=1)]
Deviations = Annotated[list[PositiveFloat], Field(min_length=1)]
FLOAT32_MAX = 3.4028234663852886e38
LARGEST_MEAN = 1e300
"""Largest mean of a constant column: means are computed from sums."""


def _no_truth(value: object) -> object:
    """Refuse a truth value in place of a number: Python treats them as equal."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


NoTruth = BeforeValidator(_no_truth)


class NetworkRecord(Section):
    """Inputs, outputs and task of the network."""

    input: Annotated[list[PositiveInt], Field(max_length=8)]
    """Shape of one item."""
    outputs: Count
    task: str
    """Kind of task, or `user`."""
    vocabulary: Count | None
    of_bytes: bool
    """Items are bytes, which the network sees divided by 255."""
    data: Kind | None = None
    """Kind of the data set's items, for a user task."""
    parts: list[InputPart] = []
    """The inputs of an item, if there are several, or their lengths differ."""

    @property
    def interface(self) -> Interface:
        """The interface for rebuilding the network, except its `categories`, which the codec has."""
        return Interface(tuple(self.input), self.outputs, self.task, self.vocabulary, parts=tuple(self.parts))


class CodecField(Exception):
    """A field of a codec that does not fit the others or the network: its name, and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason


class _HasTargetScale(Section):
    target_mean: Numbers | None = None
    target_std: Deviations | None = None

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        if (self.target_mean is None) != (self.target_std is None):
            raise CodecField("target_std", "`target_mean` and `target_std` go together")
        if self.target_mean is not None and self.target_std is not None:
            _same("target_std", self.target_std, "target_mean", len(self.target_mean))
            _standardises("target_mean", zip(self.target_mean, self.target_std, strict=True))
            _divides("target_mean", len(self.target_mean), network)


class ArrayCodec(_HasTargetScale):
    """Arrays of numbers, and columns of Hugging Face data. Empty if numbers are used unchanged."""

    classes: Classes | None = None
    renumbered: bool = False
    targets: list[str] | None = None
    mean: Numbers | None = None
    std: Deviations | None = None
    axis: Annotated[Literal[1, -1] | None, NoTruth] = None
    by_batch: bool = False
    """Batches are standardised, not the items in memory."""
    learnt: bool = True
    """`mean` and `std` come from the training items, not from the job."""
    parts: list[InputPart] = []

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        super().check(network)
        _named_classes(self.classes, network)
        if self.targets is not None:
            _divides("targets", len(self.targets), network)
        keys = [name for name in ("mean", "std", "axis") if getattr(self, name) is not None]
        if keys and len(keys) < 3:
            raise CodecField(keys[0], "`mean`, `std` and `axis` go together")
        if self.mean is not None and self.std is not None and self.axis is not None:
            features = 0 if not network.input else network.input[0 if self.axis == 1 else -1]
            _same("mean", self.mean, "network.input", features)
            _same("std", self.std, "mean", len(self.mean))
            _standardises("mean", zip(self.mean, self.std, strict=True))


class ImageCodec(ArrayCodec):
    """Images that are resized."""

    form: Literal["images"]
    size: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]
    channels: PositiveInt

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        super().check(network)
        if [self.channels, *self.size] != network.input:
            raise CodecField("size", f"images of {self.channels} x {self.size} for a network of items {network.input}")


class TextCodec(Section):
    """Text, as tokens."""

    form: Literal["text"]
    tokens: Literal["characters", "bytes", "words"]
    vocabulary: list[str]

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        count = 256 if self.tokens == "bytes" else len(self.vocabulary)
        if not network.vocabulary == network.outputs == count or len(network.input) != 1:
            raise CodecField("vocabulary", f"{count} tokens for a network of {network.vocabulary}")
        if len(set(self.vocabulary)) != len(self.vocabulary):
            raise CodecField("vocabulary", "a token is there twice")
        if self.tokens == "characters" and (longer := [token for token in self.vocabulary if len(token) != 1]):
            raise CodecField("vocabulary", f"{longer[0][:20]!r} is not one character")


class DocumentCodec(Section):
    """Texts and their classes."""

    form: Literal["documents"]
    classes: Classes
    vocabulary: Annotated[list[str], Field(min_length=1)]
    text: str | None
    target: str | None

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        if network.vocabulary != len(self.vocabulary) or not network.interface.unequal:
            raise CodecField("vocabulary", f"{len(self.vocabulary)} tokens for a network of {network.vocabulary}")
        if len(set(self.vocabulary)) != len(self.vocabulary):
            raise CodecField("vocabulary", "a token is there twice")
        _named_classes(self.classes, network)


class SeriesCodec(Section):
    """Windows of a series."""

    form: Literal["series"]
    columns: Annotated[Columns, Field(min_length=1)]
    target: Annotated[Columns, Field(min_length=1)]
    window: PositiveInt
    steps: PositiveInt
    mean: dict[str, float]
    deviation: dict[str, PositiveFloat]
    difference: list[PositiveInt] | None = None
    season: PositiveInt | None = None
    time: str | None = None
    group: str | None = None
    missing: str | None = None
    step: tuple[Unit, PositiveFloat] | None = None

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        for key, numbers in ("mean", self.mean), ("deviation", self.deviation):
            if lacking := {*self.columns, *self.target} - numbers.keys():
                raise CodecField(key, f"none for the column `{min(lacking)}`")
        _standardises("mean", ((self.mean[name], self.deviation[name]) for name in (*self.columns, *self.target)))
        if [self.window, len(self.columns)] != network.input:
            raise CodecField(
                "window", f"{self.window} rows of {len(self.columns)} columns for a network of items {network.input}"
            )
        if self.steps * len(self.target) != network.outputs:
            raise CodecField("steps", f"{self.steps} of {len(self.target)} columns for a network of {network.outputs} outputs")
        if self.step is not None and self.time is None:
            raise CodecField("time", "missing where there is a `step`")


class RowsCodec(_HasTargetScale):
    """Rows of a table, without the columns of each kind in `KINDS`."""

    form: Literal["table"]
    inputs: Annotated[Columns, Field(min_length=1)]
    one_hot: dict[str, list[str]]
    features: list[str]
    targets: Annotated[Columns, Field(min_length=1)]
    classes: Classes | None
    missing: Treatment | dict[str, Treatment | Literal["category"] | float]
    fill: Numbers
    mean: Numbers
    std: Deviations
    target_log: Deviations | None = None
    cardinalities: list[Annotated[int, Field(ge=0)]] = []
    missing_indicator: list[str] = []

    def check(self, network: NetworkRecord) -> None:
        """Raise CodecField unless the fields fit each other and the network."""
        super().check(network)
        for key in (*(kind.key for kind in KINDS), "missing_indicator"):
            if unknown := sorted(set(getattr(self, key)) - {*self.inputs}):
                raise CodecField(key, f"`{unknown[0]}` is not among `inputs`")
        kinds = kinds_of(self.inputs, partial(getattr, self))
        schema = TableSchema(kinds, (), None, self.missing, indicators=dict.fromkeys(self.missing_indicator))
        if schema.features != self.features:
            raise CodecField("features", "not those that the columns of `inputs` become")
        if schema.categories != tuple(self.cardinalities):
            raise CodecField("cardinalities", "not the numbers of codes of `categories`")
        for key in ("fill", "mean", "std"):
            _same(key, getattr(self, key), "features", len(self.features))
        _standardises("mean", zip(self.mean, self.std, strict=True))
        if not isinstance(self.missing, str) and (unknown := sorted({*self.missing} - {*self.inputs, *self.targets, OTHERS})):
            raise CodecField("missing", f"`{unknown[0]}` is not among `inputs` and `targets`")
        if self.target_log is not None:
            if self.target_mean is None:
                raise CodecField("target_mean", "missing where there is a `target_log`")
            _same("target_log", self.target_log, "targets", len(self.targets))
        if network.input != [len(self.features)]:
            raise CodecField("features", f"{len(self.features)} for a network of items {network.input}")
        _named_classes(self.classes, network)
        if self.classes is not None and len(self.targets) > 1:
            raise CodecField("targets", "several for one class")
        if self.classes is None and len(self.targets) != network.outputs:
            raise CodecField("targets", f"{len(self.targets)} for a network of {network.outputs} outputs")


_NAMED: dict[str, Any] = {kind.key: (dict[str, kind.stored_type], {}) for kind in KINDS if kind.key not in RowsCodec.model_fields}  # type: ignore[name-defined]
TableCodec = create_model("TableCodec", __base__=RowsCodec, **_NAMED)
FORMS: dict[Any, type[ArrayCodec | TextCodec | DocumentCodec | SeriesCodec | RowsCodec]] = {
    None: ArrayCodec,
    "images": ImageCodec,
    "text": TextCodec,
    "documents": DocumentCodec,
    "series": SeriesCodec,
    "table": TableCodec,
}
"""Schema of a codec, by its form."""


def check_codec(codec: Mapping[str, Any], network: NetworkRecord, kind: object = None) -> None:
    """Check every field of a codec, and the codec against the network. Raises ValidationError or CodecField.

    `kind`: kind of the job's data set, if the job names one.
    """
    form = codec.get("form")
    if isinstance(kind, str) and kind in SECTIONS and form != (form_of(kind).codec or form):
        raise CodecField("form", f"{str(form)[:40]!r} for a data set of the kind {kind}")
    if form is not None and (not isinstance(form, str) or form not in FORMS):
        raise CodecField("form", f"{str(form)[:40]!r} is none of {', '.join(filter(None, FORMS))}")
    FORMS[form].model_validate_json(manifest_text(codec)).check(network)


def _same(name: str, values: list[float], other: str, count: int) -> None:
    if len(values) != count:
        raise CodecField(name, f"{len(values)} numbers where `{other}` has {count}")


def _standardises(name: str, scales: Iterable[tuple[float, float]]) -> None:
    """Raise CodecField for a mean so far from 0, by its deviation, that no training can have found it. A constant has the deviation 1."""
    if any(abs(mean) > FLOAT32_MAX * deviation and (deviation != 1 or abs(mean) > LARGEST_MEAN) for mean, deviation in scales):
        raise CodecField(name, "a number so large that items could not be standardised by it")


def _divides(name: str, count: int, network: NetworkRecord) -> None:
    if not count or network.outputs % count:
        raise CodecField(name, f"{count} for a network of {network.outputs} outputs")


def _repeated(values: list[Class]) -> list[Class]:
    """Return the further occurrences of values."""
    seen: set[Class] = set()
    return [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]


def _named_classes(classes: list[Class] | None, network: NetworkRecord) -> None:
    if classes is not None and len(classes) != network.outputs:
        raise CodecField("classes", f"{len(classes)} for a network of {network.outputs} outputs")
    if classes is not None and (twice := _repeated(classes)):
        raise CodecField("classes", f"{str(twice[0])[:40]!r} is there twice")
