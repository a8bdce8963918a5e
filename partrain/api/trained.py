"""The result of a training: the network, and all its uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain import checkpoint
from partrain.api import objects, session
from partrain.api.items import remarked, sample_of
from partrain.checkpoint.runs import checkpoint_of, run_folder_of
from partrain.config.overrides import toml_value
from partrain.config.python_objects import ABOUT, PYTHON, PythonObjects, loads, standing_for_tables
from partrain.display.notebook import summary_html, summary_text
from partrain.errors import BadCheckpoint, BadJob, CannotCreate, InputMissing, NotTrusted
from partrain.inference import network as networks
from partrain.inference.open import load_job, open_checkpoint, require_permission
from partrain.job.python_job import as_data, check_table
from partrain.launch.folder.outcome import Outcome
from partrain.launch.folder.refit import on_all_items
from partrain.launch.folder.resume import already_finished, drop_met_targets, resume
from partrain.launch.folder.run_folder import new_folder
from partrain.launch.hook_process import HookProcess
from partrain.launch.run import run
from partrain.record.run_folder import RunFolder
from partrain.system.environment import boot_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.checkpoint import Content
    from partrain.inference.export import Format
    from partrain.inference.network import Split, TrainedNetwork
    from partrain.inference.preprocessing import InputType, WordForm
    from partrain.job.load import LoadedJob

SUFFIXES: dict[str, Format] = {
    ".safetensors": "safetensors",
    ".pt": "state-dict",
    ".pth": "state-dict",
    ".pt2": "torch-export",
    ".onnx": "onnx",
}
"""Export formats by file suffix."""
_ARGUMENTS = {
    "--force": "force=True",
    "--with-preprocessing": "with_preprocessing=True",
    "--input-type": "input_type",
    "--words": "words",
}
"""Arguments of `export` for the command-line options that messages name."""
AXES = ("seconds", "items", "rounds")
"""Horizontal axes of figures."""


@dataclass(frozen=True, repr=False)
class RunFigure:
    """A figure of a run; a notebook shows it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, repr=False)
class Trained:
    """The result of a training."""

    module: torch.nn.Module
    """The trained network, in evaluation mode, on the CPU."""
    history: dict[str, list[float]]
    """Columns with one number for each round: round, item_iterations, loss, lr, judged_loss, accuracy; NaN where not judged."""
    summary: dict[str, Any]
    """The content of `summary.json`: status, rounds, loss, metrics, test, seconds, item_iterations, workers."""
    folder: Path
    """The run folder."""
    checkpoint: Path
    """The checkpoint of the network: of the best judged round, or the newest if none was judged."""
    _newest: Path = field(kw_only=True)
    """The checkpoint from which `resume` continues."""
    _content: Content = field(kw_only=True)
    """The content of `checkpoint` at that time, without the workers' state: a continued run replaces the file."""
    _loaded: LoadedJob = field(kw_only=True)
    _objects: PythonObjects = field(default_factory=PythonObjects, kw_only=True)
    _trusted: bool = field(default=True, kw_only=True)

    @property
    def reached(self) -> bool:
        """True if the run met a target of `[stop]`."""
        return bool(self.summary.get("status") == "reached")

    def evaluate(
        self, X: Any = None, y: Any = None, *, split: Split | None = None, by_group: bool = False, fine_tune: int = 0
    ) -> dict[str, Any]:
        """Return number of items, loss and metrics, by default of the test set, or of the validation items if there is none.

        Args:
            X: Items, as in training: an array, a DataFrame (with the target's column, or `y`), a torch Dataset, the path of a file.
            y: Their targets.
            split: `training`, `validation` or `test` items of the data set, instead of `X` and `y`.
            by_group: Also judge each group of `[dataset] group`, under `groups`; X is then a DataFrame or a file with this column.
            fine_tune: Passes over half of each group's items, after which the other half is judged again, under `fine_tuned` of
                `groups`.

        Example: `trained.evaluate(X_test, y_test)["accuracy"]`
        """
        from partrain.inference import evaluate as judging
        from partrain.inference.by_group import group_column

        if isinstance(fine_tune, bool) or not isinstance(fine_tune, int) or fine_tune < 0:
            raise BadJob(f"evaluate: fine_tune is a number of passes, 0 or more, not {fine_tune!r}")
        if fine_tune and not by_group:
            raise BadJob("evaluate: fine_tune needs by_group=True: a copy of the network is fine-tuned for each group")

        if X is None:
            if not self._trusted:
                with _permission():
                    require_permission(self._loaded, self._content, self.checkpoint, "items")
            with standing_for_tables(self._objects):
                results = judging.evaluate(self.network, self._content, split, by_group=by_group, fine_tune=fine_tune)
            if not results:
                raise InputMissing('the data set has neither test nor validation items: give X and y, or split="training"')
            return dict(results.get("test") or next(iter(results.values())))
        if split is not None:
            raise BadJob("evaluate: X are items, and `split` names others: give one of the two")
        group = group_column(self.network) if by_group else None
        sample = remarked(sample_of(self.network, X, y, labeled=True, group=group), 3)
        return judging.evaluate_sample(self.network, sample, by_group=by_group, fine_tune=fine_tune)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the network's answers (n, ...): classes, numbers in the target's units, reconstruction errors, or a series' next moments.

        Example: `trained.predict(X_test)`
        """
        columns, codec = self._answers(X), self.network.codec
        if "label" in columns:
            labels = np.asarray(columns["label"])
            if self._booleans:
                return labels.astype(bool)
            return np.asarray(codec.stored["classes"])[labels] if codec.classes else labels
        moments = {} if codec.is_table else {name: columns[name] for name in codec.targets if name in columns}
        answers = (
            np.stack(list(moments.values()), 1) if moments else np.asarray(columns["answer" if "answer" in columns else "error"])
        )
        return answers[:, 0] if answers.ndim == 2 and answers.shape[1] == 1 else answers

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probability of each class (n, classes), in the order of `classes`."""
        return np.asarray(self._answers(X, probabilities=True)["probability"])

    def generate(self, prompt: str, tokens: int = 200, *, temperature: float = 1.0, seed: int = 0) -> str:
        """Return the prompt and the text with which a language network continues it. Equal seeds draw equal texts.

        Args:
            prompt: The text to continue; not empty.
            tokens: Number of tokens to add.
            temperature: 0 takes the likeliest token each time, 1 draws from the network's probabilities.
            seed: Seed of the draws.

        Example: `partrain.load("runs/text").generate("To be")`
        """
        if tokens < 1 or temperature < 0:
            raise BadJob("generate: tokens is 1 or more, and temperature 0 or more")
        from partrain.inference.generate import generate

        return generate(self.network, prompt, tokens, temperature, seed).whole

    @property
    def classes(self) -> list[Any] | None:
        """The classes of a classification, in the order of labels; None for other tasks."""
        if not self.network.kind.one_class:
            return None
        if self._booleans:
            return [False, True]
        return list(self.network.codec.stored.get("classes") or range(self.network.record.outputs))

    def export(
        self,
        path: str | os.PathLike[str],
        format: Format | None = None,  # noqa: A002
        *,
        with_preprocessing: bool = False,
        input_type: InputType | None = None,
        words: WordForm | None = None,
        card: bool = False,
        force: bool = False,
    ) -> Path:
        """Write the network in another program's format, after checking that both give the same answers. Returns the path.

        Args:
            path: The file.
            format: `safetensors`, `state-dict`, `torch-export` or `onnx`; default: by the suffix.
            with_preprocessing: Raw values in, answers in the form of `predict` out (onnx, torch-export).
            input_type: With `with_preprocessing`: `uint8` (bytes of images) or `float64`; default: as trained.
            words: With `with_preprocessing`, onnx: words as `text`, or as `codes` for runtimes without text; default: text.
            card: Write a model card next to it: `path` with the suffix .md.
            force: Replace existing files.

        Example: `trained.export("net.onnx", with_preprocessing=True, card=True)`
        """
        path = Path(path)
        from partrain.inference.card import card as describe
        from partrain.inference.deliver import deliver
        from partrain.inference.output import check, create

        if (chosen := format or SUFFIXES.get(path.suffix.lower())) is None:
            raise BadJob(f"export: {path}: the suffix says the format: {', '.join(SUFFIXES)}; or give format=")
        for name, value in (("input_type", input_type), ("words", words)):
            if value and not with_preprocessing:
                raise BadJob(f"export: `{name}` is only for with_preprocessing=True")
        beside = path.with_suffix(".md")
        if card and path == beside:
            raise BadJob(f"export: {path}: the model card takes this name; choose another suffix, and give format=")
        try:
            for file in (path, beside) if card else (path,):
                check(file, force=force)
            made = deliver(self.network, chosen, path, with_preprocessing=with_preprocessing, dtype=input_type, words=words)
        except CannotCreate as refused:
            raise CannotCreate(reduce(lambda text, pair: text.replace(*pair), _ARGUMENTS.items(), refused.message)) from None
        create(path, made.data, force=force)
        if card:
            create(beside, describe(self.network, self._content, self.checkpoint, made).encode(), force=force)
        return path

    def plot(self, what: str = "loss", by: str | None = None, path: str | os.PathLike[str] | None = None) -> RunFigure | Path:
        """Draw a figure of the run, for a notebook to show, or as a `.svg` or `.png` file.

        Args:
            what: loss, accuracy, timeline, distance, bytes, staleness, lr or speed.
            by: The horizontal axis: seconds, items or rounds.
            path: The file to write.
        """
        from partrain.inference.output import create
        from partrain.report.figures import FIGURES, FORMATS, draw
        from partrain.report.history import read_history

        if what not in FIGURES:
            raise BadJob(f"plot: no figure `{what}`; there are {', '.join(FIGURES)}")
        if by not in (None, *AXES) or (what == "timeline" and by not in (None, "seconds")):
            raise BadJob(
                f"plot: by={by!r} is no axis of `{what}`; there are {'seconds' if what == 'timeline' else ', '.join(AXES)}"
            )
        suffix = Path(path).suffix.lower() if path else ".svg"
        if suffix not in FORMATS:
            raise BadJob(f"plot: {path}: the suffix says the format: {', '.join(FORMATS)}")
        data = draw(what, [read_history(self.folder, self.folder.resolve().name)], by, suffix)
        if path is None:
            return RunFigure(data.decode())
        create(Path(path), data)
        return Path(path)

    def resume(self, *, stop: dict[str, Any] | None = None, show: bool = False) -> Trained:
        """Continue the run in its folder, with the same bits as an uninterrupted run. Returns the new result.

        Args:
            stop: Conditions of `[stop]` to change, as in `{"rounds": 80}`.
            show: Show the live table.
        """
        with session.alone(self._objects):
            path, started = self._newest, boot_seconds()
            content = checkpoint.read(path)
            check_table("stop", stop or {})
            until = [f"{key}={toml_value(value)}" for key, value in as_data(stop or {}).items()]
            with _permission():
                loaded = load_job(content, path, trusted=self._trusted, use="run", until=until)
            _check_objects(loaded, self._objects)
            loaded = drop_met_targets(loaded, content, until)
            if already_finished(loaded, content, self.folder) is not None:
                return self

            def work(hooks: HookProcess) -> Outcome:
                return resume(loaded, content, session.context(self.folder, started, show=show, hooks=hooks, made=None))

            return self._after(loaded, work)

    def refit(self, *, out: str | os.PathLike[str] | None = None, show: bool = False) -> Trained:
        """Train the job again, including its held-out items, for as many rounds as this network had. Returns the new result.

        Args:
            out: Folder of the new run; default: a new one in `runs/`.
            show: Show the live table.
        """
        with session.alone(self._objects):
            started = boot_seconds()
            with _permission():
                loaded = load_job(self._content, self.checkpoint, trusted=self._trusted, use="run")
            loaded = on_all_items(loaded, self._content, self.checkpoint)
            _check_objects(loaded, self._objects)

            def work(hooks: HookProcess) -> Outcome:
                folder, made = new_folder(Path(out) if out else None, loaded.job.name)
                return run(loaded, session.context(folder, started, show=show, hooks=hooks, made=made))

            return self._after(loaded, work)

    def _after(self, loaded: LoadedJob, work: Callable[[HookProcess], Outcome]) -> Trained:
        """Return the result of a continued or repeated training."""
        outcome, path = session.perform(work, (), self._objects)
        best = checkpoint_of(outcome.folder)
        return trained(loaded, outcome.summary, outcome.folder, best, self._objects, newest=path, trusted=self._trusted)

    def __repr__(self) -> str:
        return f"Trained({summary_text(self.summary, self.folder)})" if self.summary else f"Trained({self.checkpoint})"

    def _repr_html_(self) -> str:
        """Return a small table for a notebook."""
        return summary_html(self.summary, self.folder) if self.summary else ""

    @property
    def _booleans(self) -> bool:
        """True if the classes of the data set were True and False."""
        return self.network.kind.one_class and bool(getattr(self._loaded.job.dataset, "booleans", False))

    @cached_property
    def network(self) -> TrainedNetwork:
        """The network with its task, its job and the conversion of its data."""
        with standing_for_tables(self._objects), as_trained(self._content):
            return networks.load_network(self._loaded, self._content)

    def _answers(self, items: Any, *, probabilities: bool = False) -> dict[str, Any]:
        from partrain.inference.predict import predict

        if self.network.kind.targets == "tokens":
            raise BadJob("predict: a language network continues a text: call generate(PROMPT)")
        return predict(self.network, remarked(sample_of(self.network, items)), probabilities=probabilities).columns


def load(
    run: str | os.PathLike[str],
    *,
    model: Any = None,
    dataset: Any = None,
    task: Any = None,
    hooks: Any = None,
    trust_code: bool = False,
) -> Trained:
    """Load a trained network from a run folder, a folder of runs (its newest), or a checkpoint.

    Args:
        run: The path.
        model: The network as given to `train`, if it was an object: its class, or a module of the same structure.
        dataset: The data set as given to `train`, if it was objects. Only `evaluate` without items and `resume` need it.
        task: The task as given to `train`, if it was an object.
        hooks: The function as given to `train`, if it was an object. Only `resume` needs it.
        trust_code: Run the code and read the data files that the checkpoint's job names.

    Raises:
        Failure: The checkpoint is missing or damaged, or the network does not fit it.

    Example: `partrain.load("runs/mnist").predict(X)`
    """
    path, content = open_checkpoint(Path(run))
    given_objects = objects.given(model, dataset, task, hooks, whole=False)
    own_objects = given_objects.objects
    with standing_for_tables(own_objects):
        with _permission():
            loaded = load_job(content, path, trusted=trust_code)
        _check_keys(loaded, given_objects.tables)
        folder = run_folder_of(path) or path.parent
        files = RunFolder(folder)
        newest = files.newest_checkpoint if Path(run).is_dir() else None
        return trained(loaded, files.summary, folder, path, own_objects, newest=newest, trusted=trust_code)


def trained(
    loaded: LoadedJob,
    summary: dict[str, Any],
    folder: Path,
    path: Path,
    python_objects: PythonObjects,
    *,
    newest: Path | None = None,
    trusted: bool = True,
) -> Trained:
    """Read the result of a training from its checkpoint. Meanwhile objects of the script replace their tables.

    `path`: the checkpoint of the network. `newest`: the newest checkpoint, if it is a different one.
    """
    content = last = checkpoint.read(path)
    if newest and newest != path:
        last = checkpoint.read(newest)
    history = {
        name.removeprefix("history/"): array.tolist() for name, array in last.arrays.items() if name.startswith("history/")
    }
    content = replace(content, arrays={name: array for name, array in content.arrays.items() if not name.startswith("workers/")})
    with as_trained(content):
        module = networks.build_network(loaded, content)
    return Trained(
        module,
        history,
        summary,
        folder,
        path,
        _newest=newest or path,
        _content=content,
        _loaded=loaded,
        _objects=python_objects,
        _trusted=trusted,
    )


@contextmanager
def _permission() -> Iterator[None]:
    """Name the argument instead of the option if a checkpoint's job needs permission."""
    try:
        yield
    except NotTrusted as refused:
        raise NotTrusted(refused.message.replace("run this again with --trust-code", "load it with trust_code=True")) from None


@contextmanager
def as_trained(content: Content) -> Iterator[None]:
    """Build networks on the CPU and in the trained dtype, regardless of the caller's settings; keep the caller's random state."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(
        next(tensor.dtype for tensor in networks.network_tensors(content).values() if tensor.is_floating_point())
    )
    try:
        with torch.device("cpu"), torch.inference_mode(mode=False), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(before)


def _check_keys(loaded: LoadedJob, tables: dict[str, Any]) -> None:
    """Raise BadJob if the value of a key next to an object differs from the trained job."""
    for name in ("model", "task"):
        table, section = tables.get(name), getattr(loaded.job, name)
        if not isinstance(table, dict) or table.get("name") != PYTHON or getattr(section, "name", "") != PYTHON:
            continue
        trained = section.model_dump(by_alias=True)
        for key, value in table.items():
            if key not in ("name", ABOUT) and value != trained.get(key):
                raise BadJob(f"{name}: the run was trained with {key} = {trained.get(key)!r}, not {value!r}; leave `{key}` out")


def _check_objects(loaded: LoadedJob, python_objects: PythonObjects) -> None:
    """Raise BadCheckpoint if the code of a network or task differs from the trained code."""
    for table in ("model", "task"):
        section = getattr(loaded.job, table)
        if (
            getattr(section, "name", "") == PYTHON
            and objects.digest(loads(python_objects.pickled[table])) != section.about["digest"]
        ):
            what = f"the {'network' if table == 'model' else table} given is not the `{section.about['name']}` that was trained"
            raise BadCheckpoint(f"{what}: its structure or code differs; a new run trains it")
