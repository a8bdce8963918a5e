"""The whole job file as one model, composed of the tables that the other folders define, and queries about these tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from partrain.checkpoint.section import CheckpointSection
from partrain.comm.section import TransportSection
from partrain.config.problems import KeyPath, did_you_mean
from partrain.config.section import OneOf, Section
from partrain.config.usercode import UserCode
from partrain.data import AnyDataset
from partrain.data.fetch import names_in
from partrain.data.partition import Partition, training_of
from partrain.errors import UserCodeFailed
from partrain.job.sweep import SweepSection
from partrain.job.workers import WorkerGroup
from partrain.models import AnyModel
from partrain.optim import AnyOptimizer, Sgd
from partrain.rules import OTHER_NAMES, AnyRule
from partrain.seeds import derive, seeded
from partrain.tasks import KINDS, AnyTask, BuiltinTask, Kind, UserTask, make
from partrain.tasks.kinds import USER, TaskKind
from partrain.training.faults import Faults
from partrain.training.hooks import HookSection
from partrain.training.section import Engine
from partrain.training.stop import Criterion, Stop

if TYPE_CHECKING:
    from partrain.data.base import Training
    from partrain.tasks.task import Task


def caps_rounds(faults: Faults | None, partition: Partition | None) -> bool:
    """Return whether measured seconds decide about the iterations of rounds."""
    limited = faults is not None and faults.round_seconds is not None
    return limited or (partition is not None and partition.balance == "rate")


class Job(Section):
    """A job file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """Name of the job: letters, digits, `.`, `_` and `-`. Its runs are in `runs/<name>/<time>/`."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all random numbers. Under a synchronous rule, the same job and seed give the same bits on the same machine."""
    model: AnyModel
    dataset: AnyDataset
    partition: Partition = Field(default_factory=Partition)
    task: AnyTask | None = None
    optimizer: AnyOptimizer = Field(default_factory=lambda: Sgd(lr=1.0))
    """Required, unless the rule defines its own steps."""
    sync: AnyRule
    workers: list[WorkerGroup] = Field(min_length=1, max_length=1000)
    transport: TransportSection = Field(default_factory=TransportSection)
    engine: Engine = Field(default_factory=Engine)
    faults: Faults = Field(default_factory=Faults)
    stop: Stop
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    hooks: HookSection = Field(default_factory=HookSection)
    sweep: SweepSection | None = None

    @model_validator(mode="after")
    def _targets_that_are_no_measures(self) -> Self:
        """Leave labels and counts unscaled, unless the job says otherwise."""
        task = self.task
        counted = isinstance(task, BuiltinTask) and ((task.kind and KINDS[task.kind].zero_one) or task.loss == "poisson")
        default = (
            "standardise_target" in type(self.dataset).model_fields and "standardise_target" not in self.dataset.model_fields_set
        )
        if counted and default and getattr(self.dataset, "standardise_target", False):
            object.__setattr__(self, "dataset", self.dataset.model_copy(update={"standardise_target": False}))
        return self

    @property
    def training(self) -> Training:
        """The items to train on, for `data.load`."""
        return training_of(self.dataset, self.partition, self.seed)

    @property
    def user_code(self) -> list[str]:
        """User code that the job names."""
        return self.item_code + ([self.hooks.code.name] if self.hooks.code else [])

    @property
    def item_code(self) -> list[str]:
        """User code that the trained network and its data set need."""
        return self.network_code + ([self.dataset.name] if isinstance(self.dataset, UserCode) else [])

    @property
    def network_code(self) -> list[str]:
        """User code that the trained network needs."""
        tables = [table.name for table in (self.model, self.task) if isinstance(table, UserCode)]
        return tables + (self.task.metrics_code if self.task else [])

    @property
    def data_files(self) -> list[str]:
        """Files, folders and URLs that the data set names."""
        return names_in(vars(self.dataset))

    def metrics(self, implied: Kind) -> dict[str, bool]:
        """Return the names of the judged numbers other than loss and accuracy; True if lower is better."""
        return metrics_of(self.task, self.model, implied)

    def best_by(self, implied: Kind) -> Criterion | None:
        """Return the number that decides which judgement is the best; None: accuracy, or loss without it."""
        by = self.stop.patience_by
        return Criterion(by, {"loss": True, **self.metrics(implied)}.get(by, False)) if by else None

    @property
    def caps_rounds(self) -> bool:
        """True if measured seconds determine the iterations of rounds."""
        return caps_rounds(self.faults, self.partition)

    @property
    def rateless(self) -> bool:
        """True if steps define their own sizes: there is no learning rate to scale."""
        return is_rateless(self.sync, self.optimizer)

    def kind_of_task(self, implied: Kind) -> TaskKind:
        """Return the kind of task that the network is trained for; `implied`: the kind that the data set is for."""
        return kind_of_task(self.task, self.model, implied)

    def make_task(self, implied: Kind, folder: Path, weights: Sequence[float] | None = None, *, padded: bool = False) -> Task:
        """Make the task: loss, metric and backward pass.

        `folder` holds the job; `weights`: factors of losses by class; `padded`: items are of unequal length.
        """
        with seeded(derive(self.seed, "task")):
            task = make(self.task, self.model.implied_task or implied, folder, weights)
        task.padded = padded
        if self.stop.accuracy is not None and not task.accuracy:
            raise UserCodeFailed(f"[stop] accuracy: the task `{self.kind_of_task(implied)}` counts no right answers: use `loss`")
        return task


def is_rateless(sync: AnyRule, optimizer: AnyOptimizer) -> bool:
    """Return whether steps define their own sizes, so that there is no learning rate to scale."""
    return sync.full_batch or optimizer.rateless


def kind_of_task(task: AnyTask | None, model: AnyModel, implied: Kind) -> TaskKind:
    """Return the kind of task from `[task]`, else from the model, else `implied` by the data set."""
    if isinstance(task, UserTask):
        return USER
    return KINDS[(task and task.kind) or model.implied_task or implied]


def metrics_of(task: AnyTask | None, model: AnyModel, implied: Kind) -> dict[str, bool]:
    """Return the names of the judged numbers other than loss and accuracy; True if lower is better."""
    return {**kind_of_task(task, model, implied).judged, **(task.judged if task else {})}


def tables_of(job: Job) -> dict[str, Any]:
    """Return the tables of a job by name, and under `names` the names of the tables in its file."""
    return {**{name: getattr(job, name) for name in Job.model_fields}, "names": job.model_fields_set}


SYNONYMS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "epochs": ("passes", "rounds"),
    "max_epochs": ("rounds", "passes"),
    "num_epochs": ("rounds", "passes"),
    "n_epochs": ("rounds", "passes"),
    "local_epochs": ("passes",),
    "steps": ("iterations", "rounds"),
    "max_steps": ("rounds", "iterations"),
    "num_steps": ("iterations", "rounds"),
    "local_steps": ("iterations",),
    "local_iterations": ("iterations",),
    "max_rounds": ("rounds",),
    "iterations": ("item_iterations", "rounds"),
    "samples": ("items", "item_iterations"),
    "num_samples": ("items", "item_iterations"),
    "max_samples": ("items", "item_iterations"),
    "early_stopping": ("patience",),
    "val": ("validation",),
    "val_split": ("validation",),
    "val_size": ("validation",),
    "validation_split": ("validation",),
    "test_size": ("test_share",),
    "test_split": ("test_share",),
    "eval_every": ("judge_every",),
    "eval_steps": ("judge_every",),
    "metric": ("patience_by",),
    "monitor": ("patience_by",),
    "time": ("seconds",),
    "timeout": ("seconds", "stall_seconds"),
    "batch": ("batch_size",),
    "bs": ("batch_size",),
    "minibatch": ("batch_size",),
    "batchsize": ("batch_size",),
    "num_workers": ("count", "workers"),
    "gpu": ("device", "cuda"),
    "layers": ("hidden",),
    "hidden_sizes": ("hidden",),
    "units": ("hidden",),
    "label": ("target", "targets"),
    "labels": ("targets", "target"),
    "x": ("inputs",),
    "y": ("targets", "target"),
    "normalize": ("standardise",),
    "standardize": ("standardise",),
    "shuffle": ("order",),
    "filename": ("path",),
    "nodes": ("workers",),
    "world_size": ("count",),
    "replicas": ("count",),
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
"""Names of our keys and rules in other tools."""

NAMING = ("rule", "kind", "name")
"""Keys that distinguish alternative tables. If a table has two of them, the earlier counts."""


class Location(NamedTuple):
    """A place in a job, as its models see it."""

    path: KeyPath
    """Path in the data. pydantic's own locations also contain the names of union members."""
    owner: type[Section]
    """The table that has the last key, or lacks it, or does not know it."""
    options: list[type[Section]]
    """The alternative tables of this key; empty for a plain value."""


def locate(location: Sequence[str | int]) -> Location:
    """Interpret a location in one of pydantic's errors."""
    path: KeyPath = ()
    owner: type[Section] = Job
    options: list[type[Section]] = [Job]
    for part in location:
        if len(options) > 1 and isinstance(part, str):
            naming = [option for option in options if part in identity(option)[1]]
            unnamed = [option for option in options if bool(identity(option)[1]) is (part == "known")]
            options = _unlisted(path, part) or naming or unnamed
            continue
        path = (*path, part)
        if isinstance(part, str) and options:
            owner = options[0]
            field = owner.model_fields.get(part)
            options = tables_under(field) if field else []
    return Location(path, owner, options)


def _unlisted(path: KeyPath, name: str) -> list[type[Section]]:
    """Return the unlisted table of this name that a table of the job may be; empty for other names."""
    choices = [part for part in Job.model_fields[str(path[0])].metadata if isinstance(part, OneOf)] if len(path) == 1 else []
    return [choice.table(name) for choice in choices if name in choice.unlisted]


def tables_under(field: FieldInfo) -> list[type[Section]]:
    """Return the alternative tables of a key."""
    return _tables_in(field.annotation, *field.metadata)


def _tables_in(*annotations: Any) -> list[type[Section]]:
    for item in annotations:
        if isinstance(item, OneOf):
            return item.tables
    tables = [
        [annotation] if isinstance(annotation, type) and issubclass(annotation, Section) else _tables_in(*get_args(annotation))
        for annotation in annotations
    ]
    return list(chain.from_iterable(tables))


def identity(table: type[Section]) -> tuple[str, tuple[str, ...]]:
    """Return the key that distinguishes a table from its alternatives, and its values there (`known_as`, if that has parts).

    User code has no fixed name: no values.
    """
    key = next((key for key in NAMING if key in table.model_fields), "")
    annotation = table.model_fields[key].annotation if key else None
    if known_as := getattr(table, "known_as", None):
        return key, (known_as,)
    literal = next((hint for hint in (annotation, *get_args(annotation)) if get_origin(hint) is Literal), None)
    return key, get_args(literal)


def names_of(options: Sequence[type[Section]]) -> dict[str, str]:
    """Map the names of alternative tables to their naming keys; user code has an empty name."""
    return {name: key for key, names in map(identity, options) for name in names or ("",)}


def naming_key(table: Any, names: dict[str, str]) -> str:
    """Return the key that holds a table's name; "" if it has none."""
    return next((key for key in NAMING if isinstance(table, dict) and key in table and key in names.values()), "")


def tables_with_key(key: str) -> str:
    """Describe the tables of a job that have this key; "" if none has it."""
    if key in NAMING:
        return ""
    if key in Job.model_fields:
        return "the top of the file, before the first table"
    homes = []
    for name, field in Job.model_fields.items():
        options = tables_under(field)
        having = [option for option in options if key in option.model_fields]
        if having:
            homes.append(heading((name,)) + ("" if len(having) == len(options) else f" with {_identities(having)}"))
    return join_or(homes)


def _identities(tables: Sequence[type[Section]]) -> str:
    """Return how users distinguish tables from their alternatives: `kind = "npz", "hdf5" or name = "mnist"`."""
    values: dict[str, list[str]] = {}
    for key, names in map(identity, tables):
        values.setdefault(key, []).extend(f'"{name}"' for name in names[:1])
    return join_or([f"{key} = {join_or(names)}" for key, names in values.items() if names])


def given_in(section: Section) -> dict[str, Any]:
    """Return the given keys of a table, as in a job file: no defaults, except for its name."""
    keys = section.model_fields_set | {key for key in NAMING if key in type(section).model_fields}
    values = {key: getattr(section, key) for key in type(section).model_fields if key in keys}
    return {key: _plain(value) for key, value in (values | (section.model_extra or {})).items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return given_in(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def heading(path: KeyPath) -> str:
    """Return a table's header as users write it."""
    parts = [part for part in path if isinstance(part, str)]
    fields: dict[str, FieldInfo] = Job.model_fields
    field = None
    for part in parts:
        field = fields.get(part)
        fields = {name: part for table in (tables_under(field) if field else []) for name, part in table.model_fields.items()}
    name = ".".join(parts)
    return f"[[{name}]]" if field is not None and get_origin(field.annotation) is list and tables_under(field) else f"[{name}]"


def join_or(words: Sequence[str]) -> str:
    """Join words as alternatives: ``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def likely_meaning(word: str, legal: Sequence[str], *, fuzzy: bool = True) -> str:
    """Return the legal word that a user most likely meant, through `SYNONYMS` or by similarity; "" if none is likely."""
    meanings = {other: name for other, names in SYNONYMS.items() for name in reversed(names) if name in legal}
    if word in meanings or not fuzzy:
        return meanings.get(word, "")
    word = word.lower()
    return did_you_mean(word, legal) or meanings.get(did_you_mean(word, meanings, cutoff=0.8), "")
