"""Data sets saved by Hugging Face datasets: a folder of pets that version 5.2 wrote, and damaged variants."""

import json
import shutil
import subprocess
import sys
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, DatasetInfo, Features, Value
from datasets import Image as ImageFeature
from PIL import Image
from pydantic import ValidationError
from support.array_files import load_error
from support.runs import SIMULATED, partrain, train, write_job

from partrain.data import DatasetSpec, load, read_spec
from partrain.data.arrays.huggingface import HuggingFace
from partrain.errors import InputMissing

PETS = Path(__file__).parent / "pets_by_datasets"
"""Five training items, in two files, and two test items; the i-th has age i, kind i % 3, and a photo of the colour (i, 2 i, 3 i)."""
AGES = np.arange(5)


def pets(**more: Any) -> HuggingFace:
    return HuggingFace.model_validate({"kind": "huggingface", "path": "pets", "inputs": "spot", "target": "kind", **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(PETS, tmp_path / "pets")
    return tmp_path


def made(features: dict[str, Any] | None = None, **columns: Any) -> Dataset:
    """A data set of columns; `features` of some of them."""
    table = pa.table(columns)
    known = Features.from_arrow_schema(table.schema) | (features or {})
    return Dataset(table.cast(Features(known).arrow_schema), DatasetInfo(features=Features(known)))


def save(folder: Path, features: dict[str, Any] | None = None, **columns: Any) -> None:
    """Write a data set without splits, in two files if there are as many rows."""
    data = made(features, **columns)
    data.save_to_disk(str(folder), num_shards=min(2, len(data)) or 1)


@pytest.mark.parametrize(("inputs", "expected"), [
    ("age", AGES[:, None]),
    ("spot", np.stack([AGES, AGES / 2], 1)),
    ("curve", np.stack([AGES, 2 * AGES, 3 * AGES], 1)),
    (["curve", "age", "spot"], np.stack([AGES, 2 * AGES, 3 * AGES, AGES, AGES, AGES / 2], 1)),
    ("grid", (AGES[:, None] + [0, 0, 0, 0, 0, 1]).reshape(5, 1, 2, 3)),
    ("photo", np.broadcast_to((AGES[:, None] * [1, 2, 3])[..., None, None], (5, 3, 2, 3))),
])  # fmt: skip
def test_columns_become_inputs_and_names_of_classes_are_kept(folder: Path, inputs: Any, expected: Any) -> None:
    section = pets(inputs=inputs)
    data = load(section, folder)
    assert np.array_equal(data.inputs, expected)
    assert data.scale == (1 / 255 if inputs in ("grid", "photo") else 1)
    assert data.targets.tolist() == [0, 1, 2, 0, 1]
    assert data.test_targets is not None
    assert data.test_targets.tolist() == [2, 0]
    assert data.codec["classes"] == ["cat", "dog", "owl"]
    assert data.spec == DatasetSpec(5, 2, expected.shape[1:], "classification", 3, classes=("cat", "dog", "owl"))


def test_photos_are_resized_if_a_size_is_given(folder: Path) -> None:
    data = load(pets(inputs="photo", size=[4, 2], channels=1), folder)
    assert data.inputs.shape == (5, 1, 4, 2)
    assert (data.inputs[4] == round(0.299 * 4 + 0.587 * 8 + 0.114 * 12)).all()


def test_targets(folder: Path) -> None:
    numbers = load(pets(target="curve", standardise_target=False), folder)
    assert (numbers.task, numbers.outputs, numbers.targets[2].tolist()) == ("regression", 3, [2, 4, 6])
    labels = load(pets(target="age"), folder)
    assert (labels.task, labels.outputs, "classes" in labels.codec) == ("classification", 7, False)  # ages 5 and 6 are tested


def test_splits(folder: Path) -> None:
    swapped = load(pets(split="test", test_split="train", inputs="age"), folder)
    assert (swapped.inputs[:, 0].tolist(), len(swapped.test_inputs)) == ([5, 6], 5)  # type: ignore[arg-type]
    assert load(pets(split="test"), folder).spec == DatasetSpec(2, 0, (2,), "classification", 3, classes=("cat", "dog", "owl"))
    assert load(pets(path="pets/train"), folder).test_inputs is None
    assert load_error(pets(split="trian"), folder) == "pets: no split `trian`, which `split` asks for: did you mean `train`?"
    assert "no split `x`, which `test_split` asks for: there are train, test" in load_error(pets(test_split="x"), folder)
    assert "pets/train: is one set without splits: leave `test_split` out" in load_error(
        pets(path="pets/train", test_split="test"), folder
    )


def test_other_types(tmp_path: Path) -> None:
    lists = pa.array([[[i, 1]] for i in range(7)], pa.list_(pa.list_(pa.int16(), 2)))
    save(
        tmp_path / "pets",
        spot=lists,
        wide=pa.array([[i] for i in range(7)], pa.large_list(pa.uint16())),
        kind=[i > 3 for i in AGES] + [True] * 2,
    )
    data = load(pets(inputs=["spot", "wide"]), tmp_path)
    assert data.inputs.tolist() == [[i, 1, i] for i in range(7)]
    assert data.targets.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_tokens(tmp_path: Path) -> None:
    save(tmp_path / "pets", spot=[[1, 2, 5], [3, 4, 0]], kind=[[2, 5, 3], [4, 0, 1]])
    data = load(pets(tokens=True), tmp_path)
    assert (data.task, data.vocabulary, data.inputs.tolist()) == ("language", 6, [[1, 2, 5], [3, 4, 0]])


def test_names_of_classes_belong_to_the_content(folder: Path) -> None:
    before = load(pets(), folder).fingerprint
    assert load(pets(), folder).fingerprint == before
    for info in folder.glob("pets/*/dataset_info.json"):
        info.write_text(info.read_text().replace('"owl"', '"fish"'))
    assert load(pets(), folder).fingerprint != before


@pytest.mark.parametrize(("columns", "fault"), [
    ({"spot": ["a", "b"]}, "pets: column `spot`: is Value('string'); inputs are numbers, lists of numbers, or images;"),
    ({"kind": ["a", ""]}, "pets: column `kind`: item 1 has no label"),
    ({"kind": ["a", None]}, "pets: column `kind`: item 1 has no value"),
    ({"kind": ["a", "a"]}, "pets: column `kind`: all 2 items have the class `a`: there is nothing to tell apart"),
    ({"kind": [["a"], ["b"]]}, "pets: column `kind`: is List(Value('string')); inputs are numbers, lists of numbers, or images"),
    ({"spot": [{"x": 1}, {"x": 2}]}, "pets: column `spot`: is {'x': Value('int64')}; inputs are numbers, lists of numbers"),
    ({"spot": [date(2026, 1, 1)] * 2}, "pets: column `spot`: is Value('date32'); inputs are numbers, lists of numbers"),
    ({"spot": [[1], [2, 3]]}, "pets: column `spot`: item 1 has a list of 2 where others have 1"),
    ({"spot": [[[1, 2], [3, 4]], [[5, 6], [7]]]}, "pets: column `spot`: item 1 has a list of 1 where others have 2"),
    ({"spot": [1.0, None]}, "pets: column `spot`: item 1 has no value"),
    ({"spot": [None, [1.0]]}, "pets: column `spot`: item 0 has no value"),
    ({"spot": [[1.0], [None]]}, "pets: column `spot`: item 1 has no value"),
    ({"spot": [1.0, float("nan")]}, "pets: column `spot`: item 1 holds a number that is not finite"),
    ({"spot": [1.0, 1e300]}, "pets: column `spot`: item 1 holds a number that is not finite"),
    ({"kind": [0, -1]}, "pets: column `kind`: item 1 has the label -1; labels are 0 or more"),
    ({"kind": [0, 2]}, "pets: column `kind`: item 1 has the label 2, but 2 classes have names"),
    ({"spots": [1, 2], "spot": None}, "pets: no column `spot`, which `inputs` asks for: did you mean `spots`?"),
    ({"spot": pa.array([], "f4"), "kind": pa.array([], "i8")}, "pets: holds no rows"),
])  # fmt: skip
def test_faults_of_columns(tmp_path: Path, columns: dict[str, Any], fault: str) -> None:
    columns = {"spot": [1.0, 2.0], "kind": [0, 1]} | columns
    features = {"kind": ClassLabel(names=["cat", "dog"])} if columns["kind"] in ([0, 1], [0, 2], [0, -1]) else {}
    save(tmp_path / "pets", features, **{name: cells for name, cells in columns.items() if cells is not None})
    assert load_error(pets(), tmp_path).startswith(fault)


def png(height: int, width: int) -> bytes:
    file = BytesIO()
    Image.new("L", (width, height)).save(file, "png")
    return file.getvalue()


def test_faults_of_images(tmp_path: Path) -> None:
    for number, (second, fault) in enumerate(
        [
            (png(2, 4), "column `spot`: item 4: is 4 x 2 pixels, expected 3 x 2; resize it first"),
            (b"no image", "column `spot`: item 4: cannot be decoded: cannot identify image file the file"),
            (None, "column `spot`: item 4 has no image"),
        ]
    ):
        cells = [{"bytes": png(2, 3), "path": None}] * 4 + [second and {"bytes": second, "path": None}]
        save(tmp_path / f"{number}", {"spot": ImageFeature()}, spot=cells, kind=[0, 1, 0, 1, 0])
        assert load_error(pets(path=f"{number}"), tmp_path) == f"{number}: {fault}"
    assert load(pets(path="0", size=[2, 2]), tmp_path).inputs.shape == (5, 1, 2, 2)


def test_images_that_lie_in_files_of_their_own(tmp_path: Path) -> None:
    """`save_to_disk` keeps the bytes of an image that it can read, and the path of another."""
    spot = [{"bytes": None, "path": str(tmp_path / "a.png")}] * 2
    plain = {"bytes": Value("binary"), "path": Value("string")}
    save(tmp_path / "pets", {"spot": plain}, spot=spot, kind=[0, 1])
    info = tmp_path / "pets/dataset_info.json"
    held = json.loads(info.read_text())
    held["features"]["spot"] = {"_type": "Image"}
    info.write_text(json.dumps(held))
    (tmp_path / "a.png").write_bytes(png(2, 3))
    assert load(pets(), tmp_path).inputs.shape == (2, 1, 2, 3)
    (tmp_path / "a.png").unlink()
    assert load_error(pets(), tmp_path).startswith("a.png: cannot be decoded")


def test_keys_that_do_not_go_together(folder: Path) -> None:
    assert load_error(pets(inputs=["photo", "age"]), folder).endswith(
        "holds images, which are inputs alone: leave out the other columns"
    )
    assert load_error(pets(size=[2, 2]), folder) == "pets/train: column `spot`: holds no images: leave `size` out"
    assert (
        load_error(pets(target="photo"), folder)
        == "pets/train: column `photo`: is Image(mode=None, decode=True); inputs are numbers, "
        "lists of numbers, or images; a target may be text"
    )
    for more in ({"inputs": "kind"}, {"test_split": "train"}, {"inputs": []}):
        with pytest.raises(ValidationError):
            pets(**more)


def test_faults_of_files(folder: Path) -> None:
    assert load_error(pets(path="none"), folder).startswith("none: holds neither dataset_dict.json nor state.json")
    rows = folder / "pets/train/data-00001-of-00002.arrow"
    whole = rows.read_bytes()
    for content in (whole[:-100], b"junk" + whole[4:], b""):
        rows.write_bytes(content)
        assert load_error(pets(), folder).startswith("pets: datasets cannot load it: ")
    rows.unlink()
    absent = "pets/train/data-00001-of-00002.arrow"
    assert load_error(pets(), folder) == f"pets: datasets cannot load it: [Errno 2] No such file or directory: '{absent}'"
    save(folder / "other", spot=[1, 2])
    shutil.copy(folder / "other/data-00000-of-00002.arrow", rows)
    assert load_error(pets(), folder).startswith("pets: datasets cannot load it: ")
    for content in ("{", "[]", "{}"):
        (folder / "pets/train/state.json").write_text(content)
        assert load_error(pets(), folder).startswith("pets: datasets cannot load it: ")


def test_rows_that_were_chosen_before_they_were_saved(folder: Path) -> None:
    made(spot=[1, 2, 3], kind=[0, 1, 2]).select([2, 0]).save_to_disk(str(folder / "chosen"))
    assert load(pets(path="chosen"), folder).inputs.tolist() == [[3], [1]]


def test_many_files_show_no_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made(spot=list(range(20)), kind=[0, 1] * 10).save_to_disk(str(tmp_path / "pets"), num_shards=20)
    capfd.readouterr()
    assert load(pets(), tmp_path).inputs.shape == (20, 1)
    assert capfd.readouterr() == ("", "")


def test_without_datasets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the same name beside a job is not taken for the package."""
    (folder / "datasets").mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(
        sys, "path", [str(folder), *(one for one in sys.path if not (Path(one) / "datasets/__init__.py").exists())]
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "datasets"]:
        monkeypatch.delitem(sys.modules, name)
    expected = "Hugging Face sets are read by `datasets`, which is not installed: pip install 'partrain[huggingface]'"
    assert load_error(pets(), folder) == expected
    with pytest.raises(InputMissing, match="which is not installed"):
        read_spec(pets(), folder)


def test_validate_imports_no_datasets(folder: Path) -> None:
    job = write_job(folder, 'dataset={kind="huggingface", path="pets", inputs="spots", target="kind"}')
    code = (
        "import sys; from partrain.job.load import load; load(sys.argv[1]); assert not {'datasets', 'pyarrow'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code, str(job)], check=True)


def test_a_set_trains_and_its_classes_are_known_afterwards(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).random((60, 2))
    cells = {"spot": numbers.tolist(), "kind": (numbers[:, 0] > 0.5).astype(int).tolist()}
    data = made({"kind": ClassLabel(names=["low", "high"])}, **cells)
    DatasetDict(train=data, test=data).save_to_disk(str(tmp_path / "pets"))
    table = 'dataset={kind="huggingface", path="pets", inputs="spot", target="kind", validation=12}'
    run = train(tmp_path, SIMULATED, table, "stop.rounds=2")
    judged = partrain("evaluate", run, "--json")
    assert judged.code == 0, judged
    assert json.loads(judged.out)["test"]["items"] == 60
    assert "high" in judged.out
    wrong = partrain("validate", "--build", write_job(tmp_path, table.replace('"spot"', '"spots"')))
    assert wrong.code == 66
    assert "no column `spots`, which `inputs` asks for: did you mean `spot`?" in wrong.err
