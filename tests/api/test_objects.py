"""Objects of a script as tables of a job: their forms, their digests, and mistakes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import partrain
from partrain.api.objects import digest, given
from partrain.api.training import _with_defaults
from partrain.config.python_objects import PythonObjects, dumps, loads, standing_for_tables
from partrain.data import load
from partrain.data.python.frames import to_polars
from partrain.data.python.section import PythonArrays, PythonTable
from partrain.job.python_job import PythonJob

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


@pytest.mark.parametrize(
    "dataset",
    [
        (X, Y),
        [X.tolist(), Y.tolist()],
        (torch.from_numpy(X), torch.from_numpy(Y)),
        {"inputs": X, "targets": pd.Series(Y), "validation": 0},
        {"inputs": X, "targets": Y == 1},
    ],
    ids=["arrays", "lists", "tensors", "a dict", "booleans"],
)
def test_arrays_become_the_same_data_set(dataset: Any, tmp_path: Any) -> None:
    made = given(dataset=dataset)
    assert made.items == 12
    with standing_for_tables(made.objects):
        loaded = load(PythonArrays.model_validate({**made.tables["dataset"]}), tmp_path)
    assert (loaded.task, loaded.outputs, loaded.inputs.shape) == ("classification", 2, (12, 2))
    assert loaded.targets.tolist() == Y.tolist()
    assert np.array_equal(loaded.inputs, X.astype(np.float32))


@pytest.mark.parametrize(
    ("targets", "classes"),
    [(Y * 3 + 4, [4, 7]), (np.array(["no", "yes"])[Y], ["no", "yes"]), (np.array(["a", "b"], object)[Y], ["a", "b"])],
)
def test_labels_of_any_kind_are_classes_with_names(targets: Any, classes: list[Any], tmp_path: Any) -> None:
    made = given(dataset=(X, targets))
    with standing_for_tables(made.objects):
        loaded = load(PythonArrays(name="<arrays>"), tmp_path)
    assert list(loaded.codec["classes"]) == classes
    assert loaded.targets.tolist() == Y.tolist()


def test_whole_numbers_are_numbers_where_the_task_is_a_regression(tmp_path: Any) -> None:
    made = given(model="mlp", dataset=(X, Y), task="regression")
    with standing_for_tables(made.objects):
        assert load(PythonArrays(name="<arrays>"), tmp_path).task == "regression"


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
    keys = {"target": "c", "missing": "mean"}
    made = given(dataset={"data": frame, "test": frame, **keys})
    with standing_for_tables(made.objects):
        loaded = load(PythonTable.model_validate(made.tables["dataset"]), tmp_path)
    assert loaded.codec["classes"] == ["u", "v"]
    assert (loaded.inputs.shape, loaded.test_inputs is not None and len(loaded.test_inputs)) == ((12, 2), 12)


def test_a_dataframe_and_its_targets_may_stand_apart(tmp_path: Any) -> None:
    made = given(dataset=(FRAME[["n"]], FRAME["x"].fillna(0.25)))
    assert made.tables["dataset"]["target"] == "x"
    with standing_for_tables(made.objects):
        assert load(PythonTable.model_validate(made.tables["dataset"]), tmp_path).task == "regression"


def test_faults_of_a_dataframe_name_it_and_no_file(tmp_path: Any) -> None:
    made = given(dataset={"data": FRAME, "target": "cc"})
    with (
        standing_for_tables(made.objects),
        pytest.raises(partrain.Failure, match=r"^DataFrame: no column `cc`.*did you mean `c`\?"),
    ):
        load(PythonTable.model_validate(made.tables["dataset"]), tmp_path)


def test_the_file_of_a_dataframe_is_private_and_goes_with_it() -> None:
    made = given(dataset={"data": FRAME, "target": "c"})
    folder = made.objects.data.path
    assert (folder.stat().st_mode & 0o777, folder.is_dir()) == (0o700, True)
    del made
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3, "dataset": (X, Y)}, "an object of type `int` is no network"),
        ({"model": "mlp"}, "`dataset` is missing"),
        ({"model": "mlp", "dataset": FRAME}, "a DataFrame alone names no target"),
        ({"model": "mlp", "dataset": (X,)}, "a tuple of 1; expected"),
        ({"model": "mlp", "dataset": (one for one in X)}, "`generator`, which has no __len__"),
        ({"model": "mlp", "dataset": (X, Y[:5])}, "holds 5 targets for 12 inputs"),
        ({"model": "mlp", "dataset": (X, np.arange(12) * 3 + 100)}, "holds no"),
        ({"model": "mlp", "dataset": {"inputs": X, "targets": Y, "valdation": 3}}, "did you mean `validation`?"),
        ({"model": "mpl", "dataset": (X, Y)}, 'did you mean "mlp"?'),
        ({"model": {"name": "mlp", "hiden": [3]}, "dataset": (X, Y)}, "did you mean `hidden`?"),
        ({"model": "mlp", "dataset": (X, Y), "stop": {"round": 3}}, "did you mean `rounds`?"),
        ({"model": "mlp", "dataset": (X, Y), "workers": [{"coun": 2}]}, "did you mean `count`?"),
        ({"model": "mlp", "dataset": (X, Y), "task": nn.CrossEntropyLoss()}, "`CrossEntropyLoss` is no task"),
        ({"model": "mlp", "dataset": (FRAME, FRAME["n"])}, "has a column `n` already"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_failures_that_say_what_to_do(arguments: dict[str, Any], message: str, tmp_path: Any) -> None:
    """None reaches a process, and none is pydantic's."""
    if message == "holds no":
        arguments, message = {"model": "mlp", "dataset": (np.zeros((50, 2)), np.arange(50) * 3)}, "for a regression give floats"
    with pytest.raises(partrain.Failure) as caught:
        partrain.train(**arguments, out=tmp_path / "run")
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


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
    assert given(model=one).tables["model"]["initial"] != given(model=other).tables["model"]["initial"]


def test_lambdas_travel_too() -> None:
    """By cloudpickle, where pickle cannot."""
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Net())
    copied = loads(dumps("model", Net()))
    assert copied.scale(2) == 4


def test_tables_may_be_sections() -> None:
    make = partrain.sections
    made = given(model=make.Mlp(hidden=[4]), dataset=(X, Y))
    tables = made.tables | {
        "name": "x",
        "optimizer": make.Adam(lr=0.1),
        "sync": make.Average(passes=2),
        "stop": make.Stop(rounds=2),
    }
    with standing_for_tables(made.objects):
        job = _with_defaults(tables | {"workers": make.WorkerGroup(count=2)}, made.items)
    assert (job.model.name, job.sync.passes, job.workers[0].count) == ("mlp", 2, 2)


def test_defaults_fit_small_partitions() -> None:
    made = given(model="mlp", dataset={"inputs": X, "targets": Y, "validation": 2})
    with standing_for_tables(made.objects):
        job = _with_defaults(made.tables | {"name": "x", "workers": 2}, made.items)
    assert (job.optimizer.name, job.optimizer.batch_size, job.sync.rule, job.sync.passes, job.stop.rounds) == (
        "adam",
        5,
        "average",
        1,
        20,
    )


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
        load(PythonArrays(name="<arrays>"), __import__("pathlib").Path())
