"""`[dataset] classes`: the items that stay, their labels, and the names that answers have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter, ValidationError
from support.array_files import write_dataset
from support.cores import two_cores
from support.runs import SIMULATED, partrain, train, write_job

from partrain.data import AnyDataset, load, read_spec
from partrain.data.base import WrongSetting
from partrain.data.partition import Partition, training_of
from partrain.errors import InputMissing
from partrain.job.load import problems

LABELS = np.array([2, 0, 1, 2, 3, 0, 2, 1, 0, 3])
NUMBERS = np.arange(20, dtype=np.float32).reshape(10, 2)
PETS = Path(__file__).parent / "arrays" / "pets_by_datasets"


def section(**keys: Any) -> Any:
    return TypeAdapter[Any](AnyDataset).validate_python(keys)


@pytest.mark.parametrize("kind", ["npz", "npy", "hdf5"])
@pytest.mark.parametrize("names", [False, True])
def test_arrays(tmp_path: Path, kind: str, names: bool) -> None:
    """Labels follow the order given; the test items too."""
    given, classes = (np.array(list("abcd"))[LABELS].astype("S"), ["c", "a"]) if names else (LABELS, [2, 0])
    one = write_dataset(
        tmp_path, kind, {"classes": classes}, inputs=NUMBERS, targets=given, test_inputs=NUMBERS[:4], test_targets=given[:4]
    )
    data, spec = load(one, tmp_path), read_spec(one, tmp_path)
    assert data.spec == spec
    assert data.targets.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.inputs.tolist() == NUMBERS[[0, 1, 3, 5, 6, 8]].tolist()
    assert data.test_targets is not None
    assert data.test_targets.tolist() == [0, 1, 0]
    assert data.codec["classes"] == classes
    assert data.outputs == 2


def test_the_selected_items_alone_decide_what_is_learnt_from_data(tmp_path: Path) -> None:
    """Means, test items and held-out items are of the selected classes."""
    keys = {"classes": [0, 2], "standardise": True, "test_items": 2, "validation": 1}
    one = write_dataset(tmp_path, "npz", keys, inputs=NUMBERS, targets=LABELS)
    chosen = np.isin(LABELS, [0, 2])
    training = training_of(one, Partition(), 3)
    data = load(one, tmp_path, None, training)
    (tmp_path / "same").mkdir()
    few = {"standardise": True, "test_items": 2, "validation": 1}
    same = write_dataset(tmp_path / "same", "npz", few, inputs=NUMBERS[chosen], targets=LABELS[chosen] // 2)
    expected = load(same, tmp_path / "same", None, training_of(same, Partition(), 3))
    for name in "inputs", "targets", "test_inputs", "test_targets":
        assert np.array_equal(getattr(data, name), getattr(expected, name))
    assert data.fingerprint != expected.fingerprint


def test_embedded_digits() -> None:
    full, some = (load(section(name="mnist", **keys), Path()) for keys in ({}, {"classes": [7, 3]}))
    kept = np.isin(full.targets, [7, 3])
    assert np.array_equal(some.inputs, full.inputs[kept])
    assert np.array_equal(np.array([7, 3])[some.targets], full.targets[kept])
    assert read_spec(section(name="mnist", classes=[7, 3]), Path()) == some.spec


def test_tables(tmp_path: Path) -> None:
    """Words of columns are those of the rows that stay."""
    rows = [f"{number},{'uvw'[number % 3]},{'xyz'[number % 3]},{number % 3 + 5}" for number in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d", *rows]))
    table = {"kind": "csv", "path": "t.csv", "one_hot": ["b"], "standardise": False}
    for target, drop, classes in (("c", "d", ["z", "x"]), ("d", "c", [7, 5])):
        one = section(**table, target=target, drop=[drop], classes=classes)
        data = load(one, tmp_path)
        assert data.spec == read_spec(one, tmp_path)
        assert data.targets.tolist() == [1, 0] * 4
        assert data.inputs.tolist() == [[number, number % 3 == 0, number % 3 == 2] for number in range(12) if number % 3 != 1]
        assert data.codec["classes"] == classes
    one = section(**table, target="c", drop=["d"], classes=["z", "x"], test_items=3)
    assert (load(one, tmp_path).items, read_spec(one, tmp_path).items) == (5, 5)  # type: ignore[union-attr]
    with pytest.raises(WrongSetting, match="no row has the class q"):
        load(section(**table, target="c", drop=["d"], classes=["z", "q"]), tmp_path)
    (tmp_path / "t.csv").write_text("a,b,c,d\n" + "\n".join(f"{number},u,x,{number}.5" for number in range(9)))
    with pytest.raises(WrongSetting, match="these targets are numbers"):
        read_spec(section(**table, target="d", drop=["c"], classes=["0.5", "1.5"]), tmp_path)


def test_images(tmp_path: Path) -> None:
    for number, name in enumerate(["ant", "bee", "cow", "dog"]):
        for part in "train", "test":
            (tmp_path / "pets" / part / name).mkdir(parents=True)
            Image.fromarray(np.full((2, 2), number, np.uint8)).save(tmp_path / "pets" / part / name / "1.png")
    keys = {"kind": "images", "path": "pets", "size": [2, 2], "channels": 1}
    data = load(section(**keys, classes=["dog", "ant"]), tmp_path)
    assert data.spec == read_spec(section(**keys, classes=["dog", "ant"]), tmp_path)
    assert sorted(zip(data.targets.tolist(), data.inputs[:, 0, 0, 0].tolist(), strict=True)) == [(0, 3), (1, 0)]
    assert data.codec["classes"] == ["dog", "ant"]
    with pytest.raises(WrongSetting, match=r"no folder `beee`; did you mean `bee`\?"):
        load(section(**keys, classes=["dog", "beee"]), tmp_path)


def test_hugging_face(tmp_path: Path) -> None:
    """Names of labels stay with them, whether the job gives labels or names."""
    shutil.copytree(PETS, tmp_path / "pets")
    keys = {"kind": "huggingface", "path": "pets", "inputs": "spot", "target": "kind"}
    full = load(section(**keys), tmp_path)
    names = full.codec["classes"]
    for classes in ([2, 0], [names[2], names[0]]):
        data = load(section(**keys, classes=classes), tmp_path)
        assert data.spec.classes == (names[2], names[0])
        assert data.codec["classes"] == [names[2], names[0]]
        assert data.targets.tolist() == [[1, -1, 0][label] for label in full.targets if label != 1]


@pytest.mark.parametrize(("classes", "message"), [
    ([1], "at least two classes"),
    ([1, 1], "names 1 twice"),
    (["1", 1], "twice"),
    ("ab", "expected a list of labels or names"),
    ([1.5, 2], "expected a list of labels or names"),
    ([True, False], "expected a list of labels or names"),
])  # fmt: skip
def test_lists_that_select_nothing(classes: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        section(name="mnist", classes=classes)


def test_classes_that_are_not_there(tmp_path: Path) -> None:
    one = write_dataset(tmp_path, "npz", {"classes": [0, 9]}, inputs=NUMBERS, targets=LABELS)
    with pytest.raises(WrongSetting, match=r"no item has the class 9: .*; there are 0, 1, 2, 3"):
        read_spec(one, tmp_path)
    keys = {"classes": [0, 3]}
    one = write_dataset(
        tmp_path, "npz", keys, inputs=NUMBERS, targets=LABELS, test_inputs=NUMBERS[:1], test_targets=np.array([1])
    )
    with pytest.raises(InputMissing, match="no test item is of a class that `classes` names"):
        load(one, tmp_path)
    one = write_dataset(tmp_path, "npz", {"classes": [0, 1]}, inputs=NUMBERS, targets=NUMBERS)
    with pytest.raises(WrongSetting, match="these targets are no labels"):
        load(one, tmp_path)


@two_cores
def test_validate_points_at_the_key(tmp_path: Path) -> None:
    path = write_job(tmp_path, 'dataset={name="mnist", classes=[3, 12], validation=100}', 'model={name="linear"}')
    (found,) = problems(path)
    assert (found.message.partition(":")[0], found.suggestion) == ("`classes`", "there are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9")
    assert path.read_text().splitlines()[found.line - 1].startswith("classes")
    path = write_job(tmp_path, 'dataset={name="mnist", classes=[3], validation=100}', 'model={name="linear"}')
    (found,) = problems(path)
    assert "at least two classes" in found.message


def test_items_of_files_have_the_classes_own_numbers(tmp_path: Path) -> None:
    labels = np.tile([4, 7, 9], 40)
    np.savez(tmp_path / "a.npz", inputs=np.eye(3, dtype=np.float32)[labels % 4 % 3], targets=labels)
    dataset = 'dataset={kind="npz", path="a.npz", classes=[9, 4], validation=10}'
    run = train(tmp_path, SIMULATED, dataset, 'model={name="linear"}', "stop={rounds=30}", "optimizer.lr=0.5")
    np.savez(tmp_path / "new.npz", inputs=np.eye(3, dtype=np.float32)[np.array([4, 9]) % 4 % 3], targets=[4, 9])
    said = partrain("predict", run, "--input", tmp_path / "new.npz")
    assert said.out.splitlines() == ["item,label,class", "0,1,4", "1,0,9"]
    said = partrain("evaluate", run, "--input", tmp_path / "new.npz")
    assert "accuracy 1" in said.out, said
    np.savez(tmp_path / "other.npz", inputs=np.zeros((1, 3), np.float32), targets=[7])
    said = partrain("evaluate", run, "--input", tmp_path / "other.npz")
    assert (said.code, "the class `7` is not one that was trained on" in said.err) == (66, True)
    assert partrain("evaluate", run).code == 0
