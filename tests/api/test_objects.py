"""Objects of a script as tables of a job: their forms, their digests, and mistakes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import partrain
from partrain.api.objects import Given, digest, given
from partrain.api.training import _parse, _with_defaults
from partrain.config.python_objects import PythonObjects, dumps, loads, standing_for_tables
from partrain.data import Dataset, load
from partrain.data.python.frames import to_polars
from partrain.data.python.section import PythonArrays, PythonTable
from partrain.job.python_job import PythonJob
from partrain.models import Interface, build

X = np.arange(24.0).reshape(12, 2)
Y = np.arange(12) % 2


class Net(nn.Module):
    """A network of this module, with a part that pickle alone cannot send."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(2, width)
        self.scale = lambda x: 2 * x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.scale(self.layer(x))
        return answer


def loaded_by(made: Given, folder: Path) -> Dataset:
    """Load the data set of objects."""
    table = made.tables["dataset"]
    with standing_for_tables(made.objects):
        return load((PythonTable if "target" in table else PythonArrays).model_validate(table), folder)


@pytest.mark.parametrize("dataset", [
    (X, Y),
    [X.tolist(), Y.tolist()],
    (torch.from_numpy(X), torch.from_numpy(Y)),
    {"inputs": X, "targets": pd.Series(Y), "validation": 0},
    {"inputs": X, "targets": Y == 1},
], ids=["arrays", "lists", "tensors", "a dict", "booleans"])  # fmt: skip
def test_arrays_become_the_same_data_set(dataset: Any, tmp_path: Any) -> None:
    made = given(dataset=dataset)
    assert made.items == 12
    loaded = loaded_by(made, tmp_path)
    assert (loaded.task, loaded.outputs, loaded.inputs.shape) == ("classification", 2, (12, 2))
    assert loaded.targets.tolist() == Y.tolist()
    assert np.array_equal(loaded.inputs, X.astype(np.float32))


@pytest.mark.parametrize(
    ("targets", "classes"),
    [(Y * 3 + 4, [4, 7]), (np.array(["no", "yes"])[Y], ["no", "yes"]), (np.array(["a", "b"], object)[Y], ["a", "b"])],
)
def test_labels_of_any_kind_are_classes_with_names(targets: Any, classes: list[Any], tmp_path: Any) -> None:
    loaded = loaded_by(given(dataset=(X, targets)), tmp_path)
    assert list(loaded.codec["classes"]) == classes
    assert loaded.targets.tolist() == Y.tolist()


def test_whole_numbers_are_numbers_where_the_task_is_a_regression(tmp_path: Any) -> None:
    assert loaded_by(given(model="mlp", dataset=(X, Y), task="regression"), tmp_path).task == "regression"


FRAME = pd.DataFrame(
    {"x": [0.5, None, 2.0, 3.0] * 3, "n": [1, 2, 3, 4] * 3, "w": ["a", "b", None, "a"] * 3, "c": pd.Categorical(["u", "v"] * 6)}
)


def test_a_dataframe_of_pandas_keeps_numbers_words_and_holes() -> None:
    found = to_polars(FRAME)
    assert found.schema == {"x": pl.Float64, "n": pl.Int64, "w": pl.String, "c": pl.String}
    assert found["x"].to_list()[:4] == [0.5, None, 2.0, 3.0]
    assert found["w"].to_list()[:4] == ["a", "b", None, "a"]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_dataframes_are_read_as_tables(kind: str, tmp_path: Any) -> None:
    frame = FRAME.drop(columns=["w"]) if kind == "pandas" else to_polars(FRAME.drop(columns=["w"]))
    loaded = loaded_by(given(dataset={"data": frame, "test": frame, "target": "c", "missing": "mean"}), tmp_path)
    assert loaded.codec["classes"] == ["u", "v"]
    assert (loaded.inputs.shape, loaded.test_inputs is not None and len(loaded.test_inputs)) == ((12, 2), 12)


def test_a_dataframe_and_its_targets_may_stand_apart(tmp_path: Any) -> None:
    made = given(dataset=(FRAME[["n"]], FRAME["x"].fillna(0.25)))
    assert made.tables["dataset"]["target"] == "x"
    assert loaded_by(made, tmp_path).task == "regression"


def test_faults_of_a_dataframe_name_it_and_no_file(tmp_path: Any) -> None:
    with pytest.raises(partrain.Failure, match=r"^DataFrame: no column `cc`.*did you mean `c`\?"):
        loaded_by(given(dataset={"data": FRAME, "target": "cc"}), tmp_path)


def refused(folder: Path, message: str, **arguments: Any) -> None:
    """Training with these arguments fails with the message, and writes nothing."""
    with pytest.raises(partrain.Failure) as caught:
        partrain.train(**arguments, out=folder / "run")
    assert message in str(caught.value)
    assert not (folder / "run").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    ({"model": 3, "dataset": (X, Y)}, "an object of type `int` is no network"),
    ({"model": "mlp"}, "`dataset` is missing"),
    ({"model": "mlp", "dataset": FRAME}, "a DataFrame alone names no target"),
    ({"model": "mlp", "dataset": (X,)}, "a tuple of 1; expected"),
    ({"model": "mlp", "dataset": (one for one in X)}, "a `generator` gives its items once"),
    ({"model": "mlp", "dataset": X}, "an array alone has no targets: give dataset=(X, y)"),
    ({"model": "mlp", "dataset": DataLoader(TensorDataset(torch.zeros(1, 2)))},
     "a `DataLoader` gives batches: give its data set"),
    ({"model": "mlp", "dataset": TensorDataset}, "`TensorDataset` is a class: give an object of it"),
    ({"model": "mlp", "dataset": 3}, "an object of type `int`, which has no __len__"),
    ({"model": "mlp", "dataset": (X, Y[:5])}, "holds 5 targets for 12 inputs"),
    ({"model": "mlp", "dataset": (X, np.arange(12) * 3 + 100)}, "holds no"),
    ({"model": "mlp", "dataset": {"inputs": X, "targets": Y, "valdation": 3}}, "did you mean `validation`?"),
    ({"model": "mpl", "dataset": (X, Y)}, 'did you mean "mlp"?'),
    ({"model": {"name": "mlp", "hiden": [3]}, "dataset": (X, Y)}, "did you mean `hidden`?"),
    ({"model": "mlp", "dataset": (X, Y), "stop": {"round": 3}}, "did you mean `rounds`?"),
    ({"model": "mlp", "dataset": (X, Y), "workers": [{"coun": 2}]}, "did you mean `count`?"),
    ({"model": "mlp", "dataset": (X, Y), "task": nn.CrossEntropyLoss()}, "`CrossEntropyLoss` is no task"),
    ({"model": "mlp", "dataset": (FRAME, FRAME["n"])}, "has a column `n` already"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_mistakes_are_failures_that_say_what_to_do(arguments: dict[str, Any], message: str, tmp_path: Any) -> None:
    """None reaches a process, and none is pydantic's."""
    if message == "holds no":
        arguments, message = {"model": "mlp", "dataset": (np.zeros((50, 2)), np.arange(50) * 3)}, "for a regression give floats"
    refused(tmp_path, message, **arguments)


def test_the_digest_is_of_structure_and_code_not_of_numbers() -> None:
    same = Net()
    assert digest(Net()) == digest(same)
    assert digest(Net(4)) != digest(same)
    same.layer.weight.requires_grad_(False)
    assert digest(Net()) != digest(same)

    class Other(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -super().forward(x)

    class Another(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -2 * super().forward(x)

    Another.__qualname__ = Other.__qualname__
    Another.__name__ = Other.__name__
    assert digest(Other()) != digest(Another())


def test_the_start_of_a_network_is_in_its_table() -> None:
    one, other = Net(), Net()
    assert given(model=one).tables["model"] == given(model=one).tables["model"]
    assert given(model=one).tables["model"]["class"]["initial"] != given(model=other).tables["model"]["class"]["initial"]


def test_lambdas_travel_too() -> None:
    """By cloudpickle, where pickle cannot."""
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Net())
    copied = loads(dumps("model", Net()))
    assert copied.scale(2) == 4


def job_of(**tables: Any) -> PythonJob:
    """Make the job that `train` makes of its arguments."""
    made = given(tables.pop("model", "mlp"), tables.pop("dataset", (X, Y)), tables.pop("task", None))
    with standing_for_tables(made.objects):
        return _with_defaults(made.tables | {"name": "x", "workers": 1} | tables, made.items)


def test_tables_may_be_sections() -> None:
    make = partrain.sections
    job: Any = job_of(
        model=make.Mlp(hidden=[4]), optimizer=make.Adam(lr=0.1), sync=make.Average(passes=2), stop=make.Stop(rounds=2),
        workers=make.WorkerGroup(count=2),
    )  # fmt: skip
    assert (job.model.name, job.sync.passes, job.workers[0].count) == ("mlp", 2, 2)


def test_defaults_fit_small_partitions() -> None:
    job: Any = job_of(dataset={"inputs": X, "targets": Y, "validation": 2}, workers=2)
    assert (job.optimizer.name, job.optimizer.batch_size) == ("adam", 5)
    assert (job.sync.rule, job.sync.passes, job.stop.rounds) == ("average", 1, 20)


def test_a_job_of_objects_is_refused_elsewhere() -> None:
    """Its text alone trains nothing."""
    made = given(model=Net(), dataset=(X, Y))
    tables = made.tables | {"name": "x", "sync": {"rule": "average", "passes": 1}, "workers": [{}], "stop": {"rounds": 1}}
    with standing_for_tables(made.objects):
        PythonJob(**tables)
    with (
        standing_for_tables(PythonObjects()),
        pytest.raises(partrain.Failure, match=r"in Python, partrain.load\(RUN, dataset=...\)"),
    ):
        load(PythonArrays(name="<arrays>"), Path())


class Weighted(partrain.Task):
    """A task of this module, with an argument."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def loss(self, answers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.weight * nn.functional.cross_entropy(answers, targets)


def test_keys_beside_a_class_are_its_arguments(tmp_path: Any) -> None:
    made = given(model={"name": Net, "width": np.int64(5), "freeze": ["layer.bias"]}, task={"name": Weighted, "weight": 3.0})
    with standing_for_tables(made.objects):
        job = PythonJob(
            **made.tables, name="x", dataset={"name": "mnist"}, sync={"rule": "average", "passes": 1}, workers=[{}], stop={"rounds": 1},
            optimizer={"name": "sgd", "lr": 0.1},
        )  # fmt: skip
        network = build(job.model, tmp_path, Interface((2,), 5, "user"))
        task = job.make_task("classification", tmp_path)
    assert (network.layer.out_features, [one.requires_grad for one in network.parameters()]) == (5, [True, False])  # type: ignore[union-attr]
    assert task.weight == 3.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"model": {"name": Net, "wdth": 3}}, "Job: model.wdth: `Net` takes no argument `wdth`; did you mean `width`?"),
    ({"model": {"name": Net, "freze": []}}, "Job: model.freze: `Net` takes no argument `freze`; did you mean `freeze`?"),
    ({"model": {"name": Net(), "freze": []}}, "`Net` is made already, and takes no arguments; did you mean `freeze`?"),
    ({"model": {"name": Net(), "width": 4}}, "unknown key `width` in [model]: `Net` is made already"),
    ({"model": {"name": lambda width: Net(width)}}, "needs the argument `width`; add it to [model]"),
    ({"model": {"name": Net, "width": nn.ReLU}}, "not the class `ReLU`; write a text, a number"),
    ({"model": {"name": Net, "width": None}}, "Job: model.width: `width`: a job cannot hold None"),
    ({"model": Net, "task": {"name": Weighted, "wight": 4}}, "`Weighted` takes no argument `wight`; did you mean `weight`?"),
    ({"model": Net, "task": {"name": Weighted(), "weight": 4}}, "unknown key `weight` in [task]: `Weighted` is made already"),
    ({"model": Net, "dataset": {"data": [(X[0], 1)], "valdation": 4}}, "unknown key `valdation` in [dataset]"),
])  # fmt: skip
def test_keys_beside_an_object_that_it_does_not_take_are_refused(arguments: dict[str, Any], message: str, tmp_path: Any) -> None:
    refused(tmp_path, message, **{"dataset": (X, Y), **arguments})


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    make = partrain.sections
    job: Any = job_of(
        model={"name": "mlp", "hidden": (np.int64(8), torch.tensor(4))},
        workers=np.int32(2),
        seed=np.int64(3),
        stop={"rounds": np.int64(7), "loss": np.float32(0.5)},
        optimizer={"name": "sgd", "lr": np.float64(0.1), "nesterov": np.bool_(True), "momentum": 0.9},
        dataset={"inputs": X, "targets": Y, "validation": np.uint8(2)},
    )
    assert (job.model.hidden, job.workers[0].count, job.seed, job.stop.rounds, job.stop.loss) == ([8, 4], 2, 3, 7, 0.5)
    assert (job.optimizer.lr, job.optimizer.nesterov, job.dataset.validation) == (0.1, True, 2)
    assert (make.Mlp(hidden=np.array([3, 2])).hidden, make.Stop(rounds=np.int64(4)).rounds) == ([3, 2], 4)


@pytest.mark.parametrize(("workers", "message"), [
    (2.0, "Job: workers.0.count: `count`: expected an integer, got 2.0; write 2"),
    ("2", 'expected an integer, got the string "2"; write 2 without quotes'),
    ([np.float64(2)], "Job: workers.0: expected a table"),
    (None, "Job: workers.0.count: `count`: expected an integer"),
])  # fmt: skip
def test_a_wrong_number_of_workers_is_named(workers: Any, message: str) -> None:
    with pytest.raises(partrain.Failure) as caught:
        job_of(workers=workers)
    assert message in str(caught.value)


def test_a_mistake_is_not_blamed_on_the_sections_beside_it() -> None:
    make = partrain.sections
    with pytest.raises(partrain.Failure) as caught:
        job_of(
            model=make.Mlp(hidden=[8]),
            dataset={"inputs": X, "targets": Y, "validation": 0.2},
            optimizer=make.Adam(lr=0.01),
            sync=make.Average(iterations=5),
            stop=make.Stop(rounds=3),
        )
    assert str(caught.value) == "Job: dataset.validation: `validation`: expected an integer, got 0.2"


def test_an_object_in_the_place_of_a_table_is_told_what_to_give() -> None:
    with pytest.raises(partrain.Failure) as caught:
        job_of(optimizer=torch.optim.Adam([torch.zeros(1, requires_grad=True)]))
    assert "an object of type `Adam`; give a table: a dict as {'name': 'adam', 'lr': 0.001}" in str(caught.value)


@pytest.mark.parametrize(("given", "rate"), [("adam", 0.001), ({"name": "sgd"}, 0.001), ("rmsprop", 0.01), ("lbfgs", 1.0)])
def test_an_optimizer_by_its_name_alone_has_torchs_rate(given: Any, rate: float) -> None:
    assert job_of(optimizer=given).optimizer.lr == rate


def test_a_misspelt_rate_is_named() -> None:
    with pytest.raises(partrain.Failure, match=r"unknown key `lrr` in \[optimizer\]; did you mean `lr`\?"):
        job_of(optimizer={"name": "adam", "lrr": 0.1})


def test_a_section_of_a_rule_has_the_length_of_a_dict() -> None:
    assert job_of(sync=partrain.sections.Average()).sync.passes == 1
    assert job_of(sync=partrain.sections.Average(iterations=3)).sync.iterations == 3


def test_warnings_name_keys_and_no_lines() -> None:
    made = given("mlp", (X, Y))
    with standing_for_tables(made.objects):
        warnings = _parse(_with_defaults(made.tables | {"name": "x", "workers": 2}, made.items)).warnings
    assert [warning.render().splitlines()[0] for warning in warnings] == [
        "Job: workers.0: warning: only 6 items in the smallest partition"
    ]


class Stream:
    """A table of another library: all that is known of it is the Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


ROWS = {"x": [0.5, 1.0, 2.0, 3.0] * 6, "w": ["a", "b", "c", "a"] * 6, "y": [1.5, 2.25, 3.5, 4.5] * 6}
TABLES: dict[str, Callable[[Mapping[str, list[Any]]], Any]] = {
    "arrow": pa.table,
    "stream": lambda columns: Stream(pa.table(columns)),
    "rows": lambda columns: pd.DataFrame(columns).to_dict("records"),
    "hugging face": lambda columns: pytest.importorskip("datasets").Dataset.from_dict(columns),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_other_libraries_are_read_like_a_dataframe(kind: str, tmp_path: Any) -> None:
    make = TABLES[kind]
    keys = {"target": "y", "one_hot": ["w"]}
    loaded = loaded_by(given(dataset={"data": make(ROWS), "test": make(ROWS), **keys}), tmp_path)
    expected = loaded_by(given(dataset={"data": pd.DataFrame(ROWS), "test": pd.DataFrame(ROWS), **keys}), tmp_path)
    assert loaded.fingerprint == expected.fingerprint
    refused(tmp_path, "a DataFrame alone names no target", model="mlp", dataset=make(ROWS))


def test_answers_to_tables_of_other_libraries(tmp_path: Any) -> None:
    keys = {"data": ROWS_FRAME, "target": "y", "one_hot": ["w"], "drop": ["td"]}
    trained = partrain.train(model="mlp", dataset=keys, stop={"rounds": 1}, out=tmp_path / "run")
    expected = trained.predict(ROWS_FRAME)
    for make in TABLES.values():
        assert np.array_equal(trained.predict(make({name: ROWS[name] for name in "xw"})), expected)
        assert trained.evaluate(make(ROWS)) == trained.evaluate(ROWS_FRAME)
    with pytest.raises(partrain.Failure, match="X: no column `x`"):
        trained.predict([{"w": "a"}])


ROWS_FRAME = pd.DataFrame(ROWS).assign(td=pd.to_timedelta(1, unit="s"))


def test_a_column_that_is_left_out_may_hold_anything(tmp_path: Any) -> None:
    keys = {"data": ROWS_FRAME, "test": ROWS_FRAME, "target": "y", "one_hot": ["w"], "drop": ["td"]}
    assert loaded_by(given(dataset=keys), tmp_path).inputs.shape == (24, 4)
    message = "DataFrame: column `td`: holds objects of type `Timedelta`, not numbers or words"
    refused(tmp_path, message, model="mlp", dataset={"data": ROWS_FRAME, "target": "y"})


def test_tables_that_cannot_be_read_say_what_to_give(tmp_path: Any) -> None:
    datasets = pytest.importorskip("datasets")
    lists = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]})
    message = '`Dataset`: column `x` holds lists or images, and a table cannot: give arrays, dataset=(ds["x"], ds["label"])'
    refused(tmp_path, message, model="mlp", dataset={"data": lists, "target": "y"})
    refused(tmp_path, message, model="mlp", dataset=lists)
