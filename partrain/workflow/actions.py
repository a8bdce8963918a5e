"""The three kinds of steps: a job that is trained, a command of partrain, and a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from partrain.checkpoint.runs import checkpoint_of
from partrain.config.overrides import assigned, flatten, toml_value
from partrain.config.toml_source import TomlSource
from partrain.data.fetch import paths_of
from partrain.errors import InputMissing
from partrain.job.load import Job
from partrain.job.workers import expand
from partrain.number_format import plural
from partrain.record.events import JudgementEvent
from partrain.record.file_names import BEST, CHECKPOINT
from partrain.record.run_folder import RunFolder
from partrain.runs.references import Reference, references, substitute
from partrain.system.cores import usable_cores
from partrain.system.regular_file import read_object
from partrain.version import __version__
from partrain.workflow.commands import CommandSpec
from partrain.workflow.resources import Resources
from partrain.workflow.tuning import PRUNED, TunedTrial

Process = Literal["command", "program", "none"]
"""A command of partrain, a program, or no process: the runner calls `perform`."""
Resolve = Callable[[Reference], Any]
"""Function that returns the result which a reference names."""
CONTINUABLE = ("stopped", "running", "failed")
"""Statuses of a step whose run can go on from its last checkpoint."""


class Action(ABC):
    """The work of a step."""

    @property
    def process(self) -> Process:
        """Its process."""
        return "command"

    tolerated: Sequence[int] = ()
    """Exit codes that are no failure."""

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """The share of the machine that it uses."""

    @abstractmethod
    def references(self) -> Iterator[Reference]:
        """Iterate over the results of other steps that it names."""

    def reads(self) -> list[Path]:
        """Return the files that it reads, as far as they are known before other steps have run."""
        return []

    @abstractmethod
    def settings(self, folder: Path, resolve: Resolve) -> dict[str, Any]:
        """Return all that changes the result beside files: settings by name. `resolve` gives digests for paths."""

    @abstractmethod
    def inputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return the files and folders that it reads. `folder` is the step's."""

    @abstractmethod
    def outputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return the files that it promises."""

    def broken_promise(self, folder: Path) -> str:
        """Return what a step that has ended did not do as it should; "" if all is well."""
        return ""

    def ends_early(self, folder: Path, judgements: Sequence[JudgementEvent]) -> str:
        """Return the reason if its run, which is in the folder, is to end before its time, else ""."""
        return ""

    @abstractmethod
    def summary(self, folder: Path) -> dict[str, Any]:
        """Return the numbers that it recorded in its folder."""

    def arguments(self, folder: Path, resolve: Resolve) -> list[str]:
        """Return the words of its command line."""
        raise AssertionError(f"{type(self).__name__} needs no process")

    def resume_arguments(self, folder: Path) -> list[str]:
        """Return the words that go on from the checkpoint in the folder; none if it has to begin again."""
        return []

    def perform(self, folder: Path) -> None:
        """Do the work, if that takes a moment and no process."""
        raise AssertionError(f"{type(self).__name__} needs a process")

    def result(self, folder: Path, name: str, resolve: Resolve) -> Path:
        """Return the path of a result, one of `FILES`. Raises `InputMissing` if there is no such file."""
        match name:
            case "folder":
                return folder
            case "checkpoint":
                path = folder / CHECKPOINT
                if not path.exists():
                    path = next((output for output in self.outputs(folder, resolve) if output.suffix == ".h5"), path)
            case "best":
                path = _best(folder)
            case _:
                written = self.outputs(folder, resolve)
                if not written:
                    raise InputMissing(f"the step in {folder} has no output")
                path = written[0]
        if not path.exists():
            raise InputMissing(f"{path} is missing")
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
    more_inputs: Sequence[Path] = ()
    launcher: tuple[str, ...] = ()
    """Words that start the job on several machines, before `run JOB.toml`."""
    machines: int = 1
    tolerated: Sequence[int] = ()
    """A trial of a sweep may miss its target, or diverge."""
    tuned: TunedTrial | None = None
    """The trial of a sweep whose settings a tuner chooses; `data` and `job` have any settings of the sweep's ranges."""

    @property
    def process(self) -> Process:
        """A launcher is a program."""
        return "program" if self.launcher else "command"

    @property
    def resources(self) -> Resources:
        """The workers' threads, and a core for each worker on an accelerator."""
        workers = expand(self.job.workers, None, None)
        cores = sum(worker.threads if worker.device == "cpu" else 1 for worker in workers)
        return Resources(cores, frozenset(worker.device for worker in workers if worker.device != "cpu"))

    def references(self) -> Iterator[Reference]:
        """Iterate over the references in the overrides."""
        return references(dict(self.overrides))

    def reads(self) -> list[Path]:
        """Return the data files, and the step's `inputs`."""
        return [*data_files(self.data.get("dataset"), self.path.parent), *self.more_inputs]

    def settings(self, folder: Path, resolve: Resolve) -> dict[str, Any]:
        """Return the job's values by dotted key, and partrain's version."""
        data = substitute(dict(self._drawn(folder).data), resolve)
        return {**dict(flatten(data, _is_dict)), "partrain": __version__}

    def inputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return data files and user code beside the job."""
        data, beside = substitute(dict(self._drawn(folder).data), resolve), self.path.parent
        code = [beside / name.partition(":")[0] for name in self.job.user_code if name.partition(":")[0].endswith(".py")]
        source = data.get("model", {}).get("from")
        start = [checkpoint_of(beside / source)] if isinstance(source, str) else []
        return [*data_files(data.get("dataset", {}), beside), *code, *start, *self.more_inputs]

    def outputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return the newest checkpoint."""
        return [folder / CHECKPOINT]

    def arguments(self, folder: Path, resolve: Resolve) -> list[str]:
        """Return the words of `partrain run`."""
        overrides = substitute(dict(self._drawn(folder).overrides), resolve)
        sets = [f"--set={key}={toml_value(value)}" for key, value in overrides.items()]
        return [*self.launcher, "run", str(self.path), "--out", str(folder), *sets, "--quiet"]

    def resume_arguments(self, folder: Path) -> list[str]:
        """Return the words of `partrain resume`."""
        return [*self.launcher, "resume", str(folder), "--trust-code", "--quiet"]

    def broken_promise(self, folder: Path) -> str:
        """Return whether the job did not run on as many machines as it should."""
        start = RunFolder(folder).start
        machines = len(start.workers) // len(expand(self.job.workers, None, None)) if start else self.machines
        return f"it ran on {machines} {plural('machine', machines)}, not on {self.machines}" if machines != self.machines else ""

    def ends_early(self, folder: Path, judgements: Sequence[JudgementEvent]) -> str:
        """Return the reason if the run is poor beside the trials before it, else ""."""
        return self.tuned.ends_early(folder, judgements) if self.tuned else ""

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return `summary.json` of the run; `pruned` in it tells that a tuner ended the run early."""
        pruned = read_object(folder / PRUNED) if self.tuned else {}
        return RunFolder(folder).summary | ({"pruned": pruned} if pruned else {})

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
        """Return the files that options name as input, and the step's `inputs`."""
        return [*self.spec.paths(self.options, "input", self.base), *self.more_inputs]

    def settings(self, folder: Path, resolve: Resolve) -> dict[str, Any]:
        """Return the options, and partrain's version."""
        return {
            **dict(flatten(substitute(dict(self.options), resolve), _is_dict)),
            "command": " ".join(self.spec.words),
            "partrain": __version__,
        }

    def inputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return the files that the options name as input; of a job also its data."""
        named = self.spec.paths(substitute(dict(self.options), resolve), "input", self.base)
        jobs = [path for path in named if path.suffix == ".toml" and path.is_file()]
        data = [file for path in jobs for file in data_files(TomlSource.read(path).data.get("dataset"), path.parent)]
        return [*named, *data, *self.more_inputs]

    def outputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return the files that the options name as output."""
        return self.spec.paths(substitute(dict(self.options), resolve), "output", folder)

    def arguments(self, folder: Path, resolve: Resolve) -> list[str]:
        """Return the words of the command line: outputs that a former attempt left are replaced."""
        options = substitute(dict(self.options), resolve)
        options |= {"json": True} if self.spec.parameter("json") else {}
        return self.spec.arguments(options, self.base, folder)

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return the JSON document that the command printed."""
        return read_object(folder / "output.json")


@dataclass(frozen=True)
class ProgramAction(Action):
    """Run a program."""

    name: str
    """The step's name: `{NAME.output}` in its words is the path of its own output."""
    words: Sequence[str]
    named_inputs: Sequence[str]
    writes: Sequence[str]
    base: Path
    """Folder of the workflow file, where the program runs."""
    resources: Resources = field(default=Resources())

    @property
    def process(self) -> Process:
        """A program."""
        return "program"

    def references(self) -> Iterator[Reference]:
        """Iterate over the references in words, inputs and outputs to other steps."""
        return (
            reference for reference in references([*self.words, *self.named_inputs, *self.writes]) if reference.step != self.name
        )

    def reads(self) -> list[Path]:
        """Return its `inputs`."""
        return [self.base / path for path in self.named_inputs]

    def settings(self, folder: Path, resolve: Resolve) -> dict[str, Any]:
        """Return the words, and the names of what it writes."""
        words = substitute(
            list(self.words), lambda reference: str(reference) if reference.step == self.name else resolve(reference)
        )
        return {"command": words, "outputs": substitute(list(self.writes), resolve)}

    def inputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return what it reads, and files among its words: a script that changes runs again."""
        named = [self.base / word for word in self.words[1:] if not any(references(word)) and word not in self.writes]
        scripts = [path for path in named if _is_file(path)]
        return [*(self.base / str(path) for path in substitute(list(self.named_inputs), resolve)), *scripts]

    def outputs(self, folder: Path, resolve: Resolve) -> list[Path]:
        """Return what it writes: a relative path lies in the step's folder if it is there, else where the program runs."""
        names = [Path(str(path)) for path in substitute(list(self.writes), resolve)]
        return [folder / name if (folder / name).exists() else self.base / name for name in names]

    def arguments(self, folder: Path, resolve: Resolve) -> list[str]:
        """Return its words."""

        def known(reference: Reference) -> Any:
            if reference.step != self.name:
                return resolve(reference)
            return folder / str(substitute(self.writes[0], resolve)) if reference.result == "output" and self.writes else folder

        return [str(word) for word in substitute(list(self.words), known)]

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return `summary.json`, if the program wrote one into the step's folder."""
        return RunFolder(folder).summary


def _best(folder: Path) -> Path:
    """Return the best checkpoint that a run kept, by the judged metric; the newest if no judgement was committed."""
    best = folder / BEST
    return best if best.exists() else folder / CHECKPOINT


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
