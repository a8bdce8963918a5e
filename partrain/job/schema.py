"""The whole job file as one model, composed of the tables that the modules own; and what can be asked about those tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from partrain.checkpoint.section import CheckpointSection
from partrain.comm.section import TransportSection
from partrain.config.problems import KeyPath
from partrain.config.section import OneOf, Section
from partrain.config.usercode import UserCode
from partrain.data import AnyDataset
from partrain.data.partition import Partition, training_of
from partrain.errors import UserCodeFailed
from partrain.job.workers import WorkerGroup
from partrain.models import AnyModel
from partrain.optim import AnyOptimizer, Sgd
from partrain.rules import OTHER_NAMES, AnyRule
from partrain.tasks import AnyTask, Kind, UserTask, make
from partrain.train.section import Engine
from partrain.train.stop import Stop

if TYPE_CHECKING:
    from partrain.data.base import Training
    from partrain.tasks.kinds import Task


class Job(Section):
    """A job file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    seed: int = Field(0, ge=0, lt=2**63)
    model: AnyModel
    dataset: AnyDataset
    partition: Partition = Field(default_factory=Partition)
    task: AnyTask | None = None
    optimizer: AnyOptimizer = Field(default_factory=lambda: Sgd(lr=1.0))
    """May be left out where the rule takes its steps itself."""
    sync: AnyRule
    workers: list[WorkerGroup] = Field(min_length=1, max_length=1000)
    transport: TransportSection = Field(default_factory=TransportSection)
    engine: Engine = Field(default_factory=Engine)
    stop: Stop
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)

    @property
    def training(self) -> Training:
        """Which items are trained on, for `data.load`."""
        return training_of(self.dataset, self.partition, self.seed)

    @property
    def user_code(self) -> list[str]:
        """The code of the user's own that it names."""
        return self.network_code + ([self.dataset.name] if isinstance(self.dataset, UserCode) else [])

    @property
    def network_code(self) -> list[str]:
        """So much of it as the trained network needs."""
        return [table.name for table in (self.model, self.task) if isinstance(table, UserCode)]

    @property
    def rateless(self) -> bool:
        """Steps have sizes of their own: there is no learning rate to scale."""
        return self.sync.full_batch or self.optimizer.rateless

    def kind_of_task(self, implied: Kind) -> str:
        """What the network is trained to do: by the job's own word, the model's nature, or else what the items are made for."""
        if isinstance(self.task, UserTask):
            return "user"
        return self.task.kind if self.task else self.model.implied_task or implied

    def make_task(self, implied: Kind, folder: Path) -> Task:
        """That as loss, metric and backward pass; `folder` holds the job."""
        task = make(self.task, self.model.implied_task or implied, folder)
        if self.stop.accuracy is not None and not task.accuracy:
            raise UserCodeFailed(f"[stop] accuracy: the task `{self.kind_of_task(implied)}` counts no right answers: use `loss`")
        return task


SYNONYMS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "epochs": ("passes", "rounds"),
    "steps": ("iterations", "rounds"),
    "local_steps": ("iterations",),
    "max_rounds": ("rounds",),
    "time": ("seconds",),
    "timeout": ("seconds", "stall_seconds"),
    "batch": ("batch_size",),
    "num_workers": ("count", "workers"),
    "gpu": ("device", "cuda"),
    "layers": ("hidden",),
    "dropout_rate": ("dropout",),
    "scheduler": ("schedule",),
    "max_grad_norm": ("clip_norm",),
    "accumulation_steps": ("accumulate",),
    "amp": ("precision",),
    "l2": ("weight_decay",),
    "holdout": ("validation",),
    "random_seed": ("seed",),
    "data": ("dataset",),
    "algorithm": ("rule",),
    "method": ("rule",),
    "name": ("rule", "kind"),
    "kind": ("name", "rule"),
    "type": ("kind", "name", "rule"),
} | OTHER_NAMES
"""What other tools call our keys and rules."""

NAMING = ("rule", "kind", "name")
"""Keys that say which of several tables one is; where a table has two of them, the earlier counts."""


class Location(NamedTuple):
    """A place in a job, as its models see it."""

    path: KeyPath
    """In the data: pydantic puts the names of union members in between."""
    owner: type[Section]
    """The table that has the last key, or lacks it, or should not have it."""
    options: list[type[Section]]
    """The tables that may stand there; none for a plain value."""


def spot_of(location: Sequence[str | int]) -> Location:
    """What a location in one of pydantic's errors means."""
    path: KeyPath = ()
    owner: type[Section] = Job
    options: list[type[Section]] = [Job]
    for part in location:
        if len(options) > 1 and isinstance(part, str):
            options = [o for o in options if part in identity(o)[1]] or [o for o in options if not identity(o)[1]]
            continue
        path = (*path, part)
        if isinstance(part, str) and options:
            owner = options[0]
            field = owner.model_fields.get(part)
            options = tables_of(field) if field else []
    return Location(path, owner, options)


def tables_of(field: FieldInfo) -> list[type[Section]]:
    """The tables that may stand under a key."""
    return _tables_in(field.annotation, *field.metadata)


def _tables_in(*annotations: Any) -> list[type[Section]]:
    for one in annotations:
        if isinstance(one, OneOf):
            return one.tables
    tables = [[one] if isinstance(one, type) and issubclass(one, Section) else _tables_in(*get_args(one)) for one in annotations]
    return list(chain.from_iterable(tables))


def identity(table: type[Section]) -> tuple[str, tuple[str, ...]]:
    """The key that tells a table from its alternatives, and what it says there (`known_as`, where that has parts); nothing for
    the user's own."""
    key = next((key for key in NAMING if key in table.model_fields), "")
    annotation = table.model_fields[key].annotation if key else None
    if known_as := getattr(table, "known_as", None):
        return key, (known_as,)
    return key, get_args(annotation) if get_origin(annotation) is Literal else ()


def names_of(options: Sequence[type[Section]]) -> dict[str, str]:
    """The names of alternative tables, each with the key it stands under; an empty name for the user's own."""
    return {name: key for key, names in map(identity, options) for name in names or ("",)}


def naming_key(table: Any, names: dict[str, str]) -> str:
    """The key under which a table says which one it is; nothing if it does not."""
    return next((key for key in NAMING if isinstance(table, dict) and key in table and key in names.values()), "")


def homes_of(key: str) -> str:
    """Where in a job this key belongs, in words; nothing if nowhere."""
    if key in NAMING:
        return ""
    if key in Job.model_fields:
        return "the top of the file, before the first table"
    homes = []
    for name, field in Job.model_fields.items():
        options = tables_of(field)
        having = [option for option in options if key in option.model_fields]
        if having:
            which = "" if len(having) == len(options) else f' with {identity(having[0])[0]} = "{identity(having[0])[1][0]}"'
            homes.append(heading((name,)) + which)
    return either(homes)


def given_in(section: Section) -> dict[str, Any]:
    """What was given for a table, as a job file would give it: nothing that stands there by default, but for its name."""
    keys = section.model_fields_set | {key for key in NAMING if key in type(section).model_fields}
    values = {key: getattr(section, key) for key in type(section).model_fields if key in keys}
    return {key: _plain(value) for key, value in (values | (section.model_extra or {})).items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return given_in(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value


def heading(path: KeyPath) -> str:
    """A table's header as users write it."""
    *parents, last = [part for part in path if isinstance(part, str)] or [""]
    field = Job.model_fields.get(last) if not parents else None
    many = field is not None and get_origin(field.annotation) is list
    name = ".".join([*parents, last])
    return f"[[{name}]]" if many else f"[{name}]"


def either(words: Sequence[str]) -> str:
    """The words as alternatives: ``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def meant_by(word: str, legal: Sequence[str], fuzzy: bool = True) -> str:
    """What a word was most likely meant to be; nothing if nobody knows."""
    known = {other: name for other, names in SYNONYMS.items() for name in reversed(names) if name in legal}
    if word in known or not fuzzy:
        return known.get(word, "")
    from difflib import get_close_matches

    word = word.lower()[:100]
    near = get_close_matches(word, legal, n=1) or [known[other] for other in get_close_matches(word, known, n=1, cutoff=0.8)]
    return near[0] if near else ""
