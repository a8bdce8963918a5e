"""The three kinds of steps: a job that is trained, a command of partrain, and a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from partrain.checkpoint.runs import checkpoint_of
from partrain.config.overrides import as_argument, assigned, flatten
from partrain.config.toml_source import TomlSource
from partrain.data.fetch import paths_of
from partrain.errors import InputMissing
from partrain.job.code_changes import locate
from partrain.job.load import Job
from partrain.job.workers import expand
from partrain.number_format import plural
from partrain.record.events import JudgementEvent
from partrain.record.file_names import BEST, CHECKPOINT, PLANNED
from partrain.record.run_folder import RunFolder
from partrain.runs.references import Reference, references, substitute
from partrain.system.cores import usable_cores
from partrain.system.regular_file import read_object
from partrain.version import __version__
from partrain.workflow.commands import CommandSpec
from partrain.workflow.record import VERSION
from partrain.workflow.resources import Resources
from partrain.workflow.tuning import TunedTrial

Process = Literal["command", "program", "none"]
"""A command of partrain, a program, or no process: the runner calls `perform`."""
CONTINUABLE = ("stopped", "running", "failed")
"""Statuses of a step whose run can continue from its last checkpoint."""
PATTERN = set("*?[")
"""Characters that make a path a file pattern."""


class Resolve(Protocol):
    """Provider of the results that references name."""

    def resolve(self, reference: Reference) -> Any:
        """Return the path or number. Raises `InputMissing` if it does not exist."""

    def digest(self, reference: Reference) -> Any:
        """Return the digest of the file, or the number."""


@dataclass(frozen=True)
class Prepared:
    """The work of a step, once the results that it names exist."""

    settings: dict[str, Any]
    """All settings that change the result, in addition to files, by name. Results of other steps are included by their
    digests."""
    inputs: Sequence[Path] = ()
    """The files and folders that the step reads."""
    words: Sequence[str] = ()
    """The words of the step's command line; empty if the runner calls `perform`."""
    outputs: Sequence[Sequence[Path]] = ()
    """The files that the step promises: for each, its possible places. The file name may be a pattern."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of files to write into the step's folder before it begins."""


class Action(ABC):
    """The work of a step."""

    @property
    def process(self) -> Process:
        """The kind of process that does the work."""
        return "command"

    tolerated: Sequence[int] = ()
    """Exit codes that do not count as failures."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Variables of the step's process, in addition to the runner's."""
    takes_hooks = False
    """The action is a training, which hooks can follow."""

    @property
    def shareable(self) -> bool:
        """True if the results depend only on settings and inputs, so that a cache may provide them."""
        return True

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """The share of the machine that the step uses."""

    @abstractmethod
    def references(self) -> Iterator[Reference]:
        """Iterate over the results of other steps that the action names."""

    def reads(self) -> list[Path]:
        """Return the files that the step reads, as far as known before other steps have run."""
        return []

    @abstractmethod
    def prepare(self, folder: Path, results: Resolve) -> Prepared:
        """Return the work in a folder. Raises `InputMissing` if a required result is missing."""

    def sources(self, folder: Path) -> Mapping[Path, str]:
        """Return the files of user code that a step imported and opened, with the beginnings of their digests."""
        return {}

    def change(self, before: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        """Describe a change of settings in words specific to this kind; "" for the words of all steps."""
        return ""

    def broken_promise(self, folder: Path) -> str:
        """Return the promise that a finished step broke; "" if it kept all."""
        return ""

    def ends_early(self, folder: Path, judgements: Sequence[JudgementEvent]) -> str:
        """Return why the run in the folder should end early, else ""."""
        return ""

    @abstractmethod
    def summary(self, folder: Path) -> dict[str, Any]:
        """Return the numbers that the step recorded in its folder."""

    def resume_arguments(self, folder: Path) -> list[str]:
        """Return the words that continue from the checkpoint in the folder; empty if the step must start again."""
        return []

    def perform(self, folder: Path) -> None:
        """Do the work, if it takes only a moment and no process."""
        raise AssertionError(f"{type(self).__name__} needs a process")

    def result(self, folder: Path, name: str, written: Sequence[Path]) -> Path:
        """Return the path of a result, one of `FILES`, of a step that wrote some files. Raises `InputMissing` if there is none."""
        match name:
            case "folder":
                return folder
            case "checkpoint":
                path = folder / CHECKPOINT
                if not path.exists():
                    path = next((output for output in written if output.suffix == ".h5"), path)
            case "best":
                path = folder / BEST
            case _:
                if not written:
                    raise InputMissing(f"the step in {folder} has no output")
                path = written[0]
        if not path.exists():
            never = ": the run has judged no round, or the file was removed" if name == "best" else ""
            raise InputMissing(f"{path} is missing{never}")
        return path


@dataclass(frozen=True)
class JobAction(Action):
    """Train a job."""

    path: Path
    overrides: Mapping[str, Any]
    """Values by dotted key; they may hold references."""
    data: Mapping[str, Any]
    """The job's data with the overrides, references not yet resolved."""
    job: Job
    """The job as far as it is known before other steps have run."""
    text: str
    """The job file as it was checked. This text is trained, even if the file changes meanwhile."""
    more_inputs: Sequence[Path] = ()
    launcher: tuple[str, ...] = ()
    """Words that start the job on several machines, before `run JOB.toml`."""
    machines: int = 1
    tolerated: Sequence[int] = ()
    """A trial of a sweep may miss its target, or diverge."""
    takes_hooks = True
    tuned: TunedTrial | None = None
    """The trial of a sweep whose settings a tuner chooses; `data` and `job` hold arbitrary settings from the sweep's ranges."""

    @property
    def shareable(self) -> bool:
        """False for a trial that may be pruned: its end depends on earlier trials."""
        return not (self.tuned and self.tuned.tuner.sweep.prune)

    @property
    def process(self) -> Process:
        """`program` with a launcher, else `command`."""
        return "program" if self.launcher else "command"

    @property
    def resources(self) -> Resources:
        """The workers' threads, and a core for each worker on an accelerator."""
        workers = expand(self.job.workers, None, None)
        cores = sum(worker.threads if worker.device == "cpu" else 1 for worker in workers)
        return Resources(cores, devices=frozenset(worker.device for worker in workers if worker.device != "cpu"))

    def references(self) -> Iterator[Reference]:
        """Iterate over the references in the overrides."""
        return references(dict(self.overrides))

    def reads(self) -> list[Path]:
        """Return the data files, and the step's `inputs`."""
        return [*data_files(self.data.get("dataset"), self.path.parent), *self.more_inputs]

    def prepare(self, folder: Path, results: Resolve) -> Prepared:
        """Return the words of `partrain run`. The step reads data files and user code next to the job."""
        drawn = self._drawn(folder)
        data, beside = substitute(dict(drawn.data), results.resolve), self.path.parent
        code = [beside / name.partition(":")[0] for name in self.job.user_code if name.partition(":")[0].endswith(".py")]
        source = data.get("model", {}).get("from")
        start = [checkpoint_of(beside / source)] if isinstance(source, str) else []
        sets = [f"--set={as_argument(key, value)}" for key, value in substitute(dict(drawn.overrides), results.resolve).items()]
        words = ["run", str(self.path), "--text", str(folder / PLANNED), "--out", str(folder), *sets, "--quiet"]
        return Prepared(
            settings={
                **dict(flatten(substitute(dict(drawn.data), results.digest), _is_dict)),
                VERSION: __version__,
                **({"machines": self.machines} if self.machines > 1 else {}),
            },
            inputs=[*data_files(data.get("dataset", {}), beside), *code, *start, *matching(*self.more_inputs)],
            words=[*self.launcher, *words],
            outputs=[[folder / CHECKPOINT]],
            files={PLANNED: self.text},
        )

    def resume_arguments(self, folder: Path) -> list[str]:
        """Return the words of `partrain resume`."""
        return [*self.launcher, "resume", str(folder), "--trust-code", "--quiet"]

    def sources(self, folder: Path) -> Mapping[Path, str]:
        start, beside = RunFolder(folder).start, self.path.parent
        return {locate(name, beside) or beside / name: digest for name, digest in (start.code if start else {}).items()}

    def broken_promise(self, folder: Path) -> str:
        """Return a message if the job ran on fewer or more machines than required."""
        start = RunFolder(folder).start
        machines = len(start.workers) // len(expand(self.job.workers, None, None)) if start else self.machines
        return f"it ran on {machines} {plural('machine', machines)}, not on {self.machines}" if machines != self.machines else ""

    def ends_early(self, folder: Path, judgements: Sequence[JudgementEvent]) -> str:
        """Return the reason if the run is poor compared with earlier trials, else ""."""
        return self.tuned.ends_early(folder, judgements) if self.tuned else ""

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return `summary.json` of the run; `pruned` in it means that a tuner ended the run early."""
        run = RunFolder(folder)
        pruned = run.pruned if self.tuned else {}
        return run.summary | ({"pruned": pruned} if pruned else {})

    def _drawn(self, folder: Path) -> JobAction:
        """Return the action with the settings that the tuner chose."""
        if not self.tuned:
            return self
        settings = self.tuned.settings(folder)
        return replace(self, overrides={**self.overrides, **settings}, data=assigned(self.data, settings))


@dataclass(frozen=True)
class CommandAction(Action):
    """Run a command of partrain."""

    spec: CommandSpec
    options: Mapping[str, Any]
    base: Path
    """Folder of the workflow file, where relative paths of inputs start."""
    more_inputs: Sequence[Path] = ()

    @property
    def resources(self) -> Resources:
        """All cores if it trains, else one."""
        return Resources(usable_cores() if self.spec.trains else 1)

    def references(self) -> Iterator[Reference]:
        """Iterate over the references in the options."""
        return references(dict(self.options))

    def reads(self) -> list[Path]:
        """Return the input files that options name, and the step's `inputs`."""
        return [*self.spec.paths(self.options, "input", self.base), *self.more_inputs]

    def prepare(self, folder: Path, results: Resolve) -> Prepared:
        """Return the words of the command line. The step reads the files that options name, and for a job also its data."""
        options = substitute(dict(self.options), results.resolve)
        named = self.spec.paths(options, "input", self.base)
        jobs = [path for path in named if path.suffix == ".toml" and path.is_file()]
        data = [file for path in jobs for file in data_files(TomlSource.read(path).data.get("dataset"), path.parent)]
        return Prepared(
            settings={
                **dict(flatten(substitute(dict(self.options), results.digest), _is_dict)),
                "command": " ".join(self.spec.words),
                VERSION: __version__,
            },
            inputs=[*named, *data, *matching(*self.more_inputs)],
            words=self.spec.arguments(options | ({"json": True} if self.spec.parameter("json") else {}), self.base, folder),
            outputs=[[path] for path in self.spec.paths(options, "output", folder)],
        )

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return the JSON document that the command printed."""
        return read_object(folder / "output.json")


@dataclass(frozen=True)
class ProgramAction(Action):
    """Run a program."""

    name: str
    """The step's name: `{NAME.output}` in its words is the path of the step's own output."""
    words: Sequence[str]
    named_inputs: Sequence[str]
    writes: Sequence[str]
    base: Path
    """Folder of the workflow file, where the program runs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default=Resources())

    @property
    def process(self) -> Process:
        """`program`."""
        return "program"

    def references(self) -> Iterator[Reference]:
        """Iterate over the references in words, inputs and outputs to other steps."""
        return (
            reference for reference in references([*self.words, *self.named_inputs, *self.writes]) if reference.step != self.name
        )

    def reads(self) -> list[Path]:
        """Return the step's `inputs`."""
        return [self.base / path for path in self.named_inputs]

    def prepare(self, folder: Path, results: Resolve) -> Prepared:
        """Return the step's words. It reads its `inputs`, and files among the words: a changed script runs again."""
        writes = [str(path) for path in substitute(list(self.writes), results.resolve)]

        def own(reference: Reference) -> Any:
            return folder / writes[0] if reference.result == "output" and writes else folder

        def words(others: Callable[[Reference], Any], mine: Callable[[Reference], Any]) -> list[str]:
            return [
                str(word)
                for word in substitute(list(self.words), lambda name: mine(name) if name.step == self.name else others(name))
            ]

        named = [self.base / word for word in self.words[1:] if not any(references(word)) and word not in self.writes]
        inputs = [str(path) for path in substitute(list(self.named_inputs), results.resolve)]
        return Prepared(
            settings={
                "command": words(results.digest, str),
                "inputs": substitute(list(self.named_inputs), results.digest),
                "outputs": substitute(list(self.writes), results.digest),
                **{f"env.{name}": value for name, value in self.environment.items()},
            },
            inputs=[*matching(*(self.base / name for name in inputs)), *filter(_is_file, named)],
            words=words(results.resolve, own),
            outputs=[
                [folder / name] if self.keeps(number) else [folder / name, self.base / name] for number, name in enumerate(writes)
            ],
        )

    def keeps(self, number: int) -> bool:
        """Return whether an output is certainly in the step's folder: the words give the program its path there."""
        return number == 0 and any(reference == (self.name, "output") for reference in references(list(self.words)))

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return `summary.json`, if the program wrote one into the step's folder."""
        return RunFolder(folder).summary


def matching(*paths: Path) -> list[Path]:
    """Return the files that match each path with a pattern, as `parts/*.csv`, sorted; and paths without one unchanged."""
    return [
        file
        for path in paths
        for file in (sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if PATTERN & set(str(path)) else [path])
    ]


def data_files(table: Any, folder: Path) -> list[Path]:
    """Return the files and folders that a `[dataset]` table names."""
    if not isinstance(table, dict):
        return []
    try:
        return paths_of(table, folder)
    except (InputMissing, TypeError):
        return []


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
