"""Data sets saved by Hugging Face datasets: a folder of pets that version 5.2 wrote, and damaged variants."""

import json
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pydantic import ValidationError
from support.runs import partrain, train, write_job

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


def save(folder: Path, features: dict[str, Any] | None = None, state: dict[str, Any] | None = None, **columns: Any) -> None:
    """Write a data set without splits, in batches of three rows, without plain features."""
    folder.mkdir()
    table = pa.table(columns)
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=3)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}], "_split": None} | (state or {})))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features or {}}))


def said(section: HuggingFace, folder: Path) -> str:
    with pytest.raises(InputMissing) as caught:
        load(section, folder)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("age", AGES[:, None]),
        ("spot", np.stack([AGES, AGES / 2], 1)),
        ("curve", np.stack([AGES, 2 * AGES, 3 * AGES], 1)),
        (["curve", "age", "spot"], np.stack([AGES, 2 * AGES, 3 * AGES, AGES, AGES, AGES / 2], 1)),
        ("grid", (AGES[:, None] + [0, 0, 0, 0, 0, 1]).reshape(5, 1, 2, 3)),
        ("photo", np.broadcast_to((AGES[:, None] * [1, 2, 3])[..., None, None], (5, 3, 2, 3))),
    ],
)
def test_columns_become_inputs_and_names_of_classes_are_kept(folder: Path, inputs: Any, expected: Any) -> None:
    section = pets(inputs=inputs)
    data = load(section, folder)
    assert np.array_equal(data.inputs, expected)
    assert data.scale == (1 / 255 if inputs in ("grid", "photo") else 1)
    assert data.targets.tolist() == [0, 1, 2, 0, 1]
    assert data.test_targets is not None
    assert data.test_targets.tolist() == [2, 0]
    assert data.codec["classes"] == ["cat", "dog", "owl"]
    assert (
        read_spec(section, folder)
        == data.spec
        == DatasetSpec(5, 2, expected.shape[1:], "classification", 3, classes=("cat", "dog", "owl"))
    )


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
    assert read_spec(pets(split="test"), folder) == DatasetSpec(2, 0, (2,), "classification", 3, classes=("cat", "dog", "owl"))
    assert load(pets(path="pets/train"), folder).test_inputs is None
    assert said(pets(split="trian"), folder) == "pets: no split `trian`, which `split` asks for: did you mean `train`?"
    assert "no split `x`, which `test_split` asks for: there are train, test" in said(pets(test_split="x"), folder)
    assert "pets/train: is one set without splits: leave `test_split` out" in said(
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


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"spot": ["a", "b"]}, 'pets: column `spot`: holds text; write it to a file for kind = "text"'),
        ({"kind": ["a", ""]}, "pets: column `kind`: item 1 has no label"),
        ({"kind": ["a", None]}, "pets: column `kind`: item 1 has no value"),
        ({"kind": ["a", "a"]}, "pets: column `kind`: all 2 items have the class `a`: there is nothing to tell apart"),
        (
            {"kind": [["a"], ["b"]]},
            "pets: column `kind`: holds lists of text; a target is one text, the name of a class, or numbers",
        ),
        ({"spot": [{"x": 1}, {"x": 2}]}, "pets: column `spot`: holds struct<x: int64>; numbers and lists of numbers can be used"),
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
    ],
)
def test_faults_of_columns(tmp_path: Path, columns: dict[str, Any], fault: str) -> None:
    columns = {"spot": [1.0, 2.0], "kind": [0, 1]} | columns
    features = {"kind": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    save(tmp_path / "pets", features, **{name: cells for name, cells in columns.items() if cells is not None})
    assert said(pets(), tmp_path).startswith(fault)


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
        cells = [{"bytes": png(2, 3), "path": None}] * 4 + [{"bytes": second, "path": None}]
        save(tmp_path / f"{number}", {"spot": {"_type": "Image"}}, spot=cells, kind=[0, 1, 0, 1, 0])
        assert said(pets(path=f"{number}"), tmp_path) == f"{number}: {fault}"
    assert load(pets(path="0", size=[2, 2]), tmp_path).inputs.shape == (5, 1, 2, 2)


def test_images_that_lie_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(2, 3))
    cells = [{"bytes": None, "path": str(tmp_path / "a.png")}]
    save(
        tmp_path / "pets",
        {"spot": {"_type": "Image"}},
        spot=pa.array(cells * 2, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
        kind=[0, 1],
    )
    assert load(pets(), tmp_path).inputs.shape == (2, 1, 2, 3)
    (tmp_path / "a.png").unlink()
    assert said(pets(), tmp_path).startswith("a.png: cannot be decoded")


def test_keys_that_do_not_go_together(folder: Path) -> None:
    assert said(pets(inputs=["photo", "age"]), folder).endswith(
        "holds images, which are inputs alone: leave out the other columns"
    )
    assert said(pets(size=[2, 2]), folder) == "pets/train: column `spot`: holds no images: leave `size` out"
    assert (
        said(pets(target="photo"), folder) == "pets/train: column `photo`: holds images; numbers and lists of numbers can be used"
    )
    for more in ({"inputs": "kind"}, {"test_split": "train"}, {"inputs": []}):
        with pytest.raises(ValidationError):
            pets(**more)


def test_faults_of_files(folder: Path) -> None:
    assert said(pets(path="none"), folder).startswith("none: holds neither dataset_dict.json nor state.json")
    rows = folder / "pets/train/data-00001-of-00002.arrow"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-8])
    assert said(pets(), folder) == f"{rows.relative_to(folder)}: its end is missing: it was not written or copied to the end"
    rows.write_bytes(b"junk" + whole[-8:])
    assert said(pets(), folder).startswith(f"{rows.relative_to(folder)}: ")
    rows.unlink()
    assert said(pets(), folder) == f"{rows.relative_to(folder)}: No such file or directory"
    save(folder / "other", spot=[1, 2])
    shutil.copy(folder / "other/data.arrow", rows)
    assert said(pets(), folder) == f"{rows.relative_to(folder)}: has other columns than data-00000-of-00002.arrow"
    (folder / "pets/train/state.json").write_text("{")
    assert said(pets(), folder) == "pets/train/state.json: damaged: no JSON object"
    save(folder / "chosen", state={"_indices_data_files": [{"filename": "indices.arrow"}]}, spot=[1, 2], kind=[0, 1])
    assert said(pets(path="chosen"), folder).startswith("chosen: saved by an old version of datasets")


def test_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    expected = "Hugging Face sets are read by pyarrow, which is not installed: pip install 'partrain[huggingface]'"
    assert said(pets(), folder) == expected


def test_a_set_trains_and_its_classes_are_known_afterwards(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).random((60, 2))
    cells = {"spot": numbers.tolist(), "kind": (numbers[:, 0] > 0.5).astype(int).tolist()}
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for split in ("train", "test"):
        save(tmp_path / "pets" / split, {"kind": {"_type": "ClassLabel", "names": ["low", "high"]}}, **cells)
    table = 'dataset={kind="huggingface", path="pets", inputs="spot", target="kind", validation=12}'
    run = train(tmp_path, table, "stop.rounds=2")
    judged = partrain("evaluate", run, "--json")
    assert judged.code == 0, judged
    assert json.loads(judged.out)["test"]["items"] == 60
    assert "high" in judged.out
    wrong = partrain("validate", write_job(tmp_path, table.replace('"spot"', '"spots"')))
    assert wrong.code == 66
    assert "no column `spots`, which `inputs` asks for: did you mean `spot`?" in wrong.out
