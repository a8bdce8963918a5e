"""Datasets of HDF5 as netCDF, MATLAB, Octave and others write them."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t
from support.array_files import is_mapped, load_error, section_of

from partrain.data import load
from partrain.data.arrays.files import hdf5
from partrain.data.inspect import describe_file
from partrain.data.partition import Partition, split, training_of
from partrain.templates.assemble import Asked
from partrain.templates.from_data import job_for

X = np.arange(80, dtype="f4").reshape(20, 4)
Y = np.arange(20) % 2
SECTION = section_of({"kind": "hdf5", "path": "a.h5"})


def write(folder: Path, inputs: Callable[[h5py.File], Any], targets: Any = Y) -> Path:
    """Write a file, whose inputs a function adds."""
    with h5py.File(folder / "a.h5", "w") as file:
        file["targets"] = targets
        inputs(file)
    return folder / "a.h5"


def described(values: Any, **attributes: Any) -> Callable[[h5py.File], None]:
    def add(file: h5py.File) -> None:
        file["inputs"] = values
        file["inputs"].attrs.update(attributes)

    return add


def brain_float(file: h5py.File) -> None:
    """Add inputs of bfloat16, which h5py calls float32."""
    kind = h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_precision(16)
    kind.set_size(2)
    kind.set_ebias(127)
    h5d.create(file.id, b"inputs", kind, h5s.create_simple(X.shape)).write(h5s.ALL, h5s.ALL, X)


def octave(file: h5py.File) -> None:
    group = file.create_group("inputs")
    group.attrs["OCTAVE_NEW_FORMAT"] = 1
    group["value"] = X.T


def linked(file: h5py.File) -> None:
    file["g/x"] = X
    file["inputs"] = h5py.SoftLink("/g/x")


def aliased(file: h5py.File) -> None:
    file["a"] = X
    file["inputs"] = file["a"]


FORMS: dict[str, tuple[Callable[[h5py.File], None], Any]] = {
    "bfloat16": (brain_float, X),
    "packed": (described(X.astype("i2"), scale_factor=0.5, add_offset=[10.0], _FillValue=np.array([-1], "i2")), X / 2 + 10),
    "packed bytes": (described(X.astype("u1"), scale_factor=np.float32(0.5)), X / 2),
    "unsigned": (described((X.astype("u2") + 65_000).view("i2"), _Unsigned="true"), X + 65_000),
    "no fill": (described(X, _FillValue=np.float32("nan"), scale_factor=1.0), X),
    "MATLAB": (described(X.T, MATLAB_class=np.bytes_("single")), X),
    "logical": (described((X.T > 40).astype("u1"), MATLAB_class=np.bytes_("logical")), X > 40),
    "link": (linked, X),
    "alias": (aliased, X),
}


@pytest.mark.parametrize("name", FORMS)
def test_types_and_attributes_say_what_the_numbers_are(tmp_path: Path, name: str) -> None:
    add, wanted = FORMS[name]
    path = write(tmp_path, add)
    data = load(SECTION, tmp_path)
    assert np.array_equal(data.inputs, wanted)
    assert is_mapped(data.inputs) == (name in ("no fill", "link", "alias"))
    assert np.array_equal(hdf5(path)["inputs"].values(), wanted), "and so `predict` reads them"
    ranges = {array["name"]: (array["min"], array["max"]) for array in describe_file(path)["arrays"]}
    assert ranges["inputs"] == (wanted.min(), wanted.max())


def test_a_large_packed_dataset_is_standardised_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never in memory in double precision, which takes twice the memory of the items; means and deviations are as exact."""
    monkeypatch.setattr("partrain.data.base._BLOCK", 1 << 14)
    monkeypatch.setattr("partrain.data.arrays.files._BLOCK_BYTES", 1 << 16)
    packed = np.random.default_rng(0).integers(-30_000, 30_000, (20_000, 100)).astype("i2")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["targets"] = np.arange(len(packed)) % 2
        file.create_dataset("inputs", data=packed, chunks=(500, 100))
        file["inputs"].attrs.update(scale_factor=0.001, add_offset=1e9, _FillValue=np.array([-32_768], "i2"))
    section = SECTION.model_copy(update={"standardise": True, "validation": 5_000})
    load(section, tmp_path, training=training_of(section, Partition(), 0))  # imports and caches are no part of the peak
    tracemalloc.start()
    data = load(section, tmp_path, training=training_of(section, Partition(), 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * data.inputs.nbytes
    trained = split(data, section, "shuffled", 0)[0]
    numbers = packed * 0.001 + 1e9
    wanted = (numbers - numbers[trained].mean(axis=0)) / numbers[trained].std(axis=0)
    assert np.allclose(data.inputs, wanted, atol=1e-5)


def test_octave_has_a_group_for_each_array(tmp_path: Path) -> None:
    write(tmp_path, octave)
    assert np.array_equal(load(SECTION.model_copy(update={"inputs": "inputs/value"}), tmp_path).inputs, X)


def test_labels_of_matlab_are_a_column(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        for name, array, kind in ("X", X, "single"), ("y", Y[:, None].astype("u1"), "logical"):
            file[name] = array.T
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    draft = job_for(tmp_path / "a.mat", Asked(), tmp_path)
    assert "Predict the class `y` from 4 numbers of a.mat: 20 items" in draft.text
    data = load(section_of({"kind": "hdf5", "path": "a.mat", "inputs": "X", "targets": "y"}), tmp_path)
    assert (data.task, data.targets.tolist()) == ("classification", Y.tolist())


def filled(file: h5py.File) -> None:
    """Add inputs with a value that netCDF's default fill value marks."""
    file.attrs["_NCProperties"] = "version=2,netcdf=4.9.2"
    file.create_dataset("inputs", data=np.where(X == 6, 9.96921e36, X), dtype="f4", fillvalue=np.float32(9.96921e36))


@pytest.mark.parametrize(("add", "words"), [
    (described(X.astype("i2"), _FillValue=np.array([6], "i2"), scale_factor=0.5), "the dataset's `_FillValue` 6 stands there"),
    (described(X, missing_value=[-9.0, 6.0]), "the dataset's `missing_value` 6 stands there"),
    (filled, "the dataset's `fill value` 9.96921e+36 stands there"),
])  # fmt: skip
def test_a_value_that_is_marked_as_missing_is_refused(tmp_path: Path, add: Callable[[h5py.File], None], words: str) -> None:
    write(tmp_path, add)
    assert load_error(SECTION, tmp_path).startswith(f"a.h5: dataset `inputs`: item 1 has no value, at [2]: {words}")


@pytest.mark.parametrize(("add", "words"), [
    (lambda file: file.create_dataset("inputs", X.shape, "f4", chunks=(5, 4)).__setitem__(slice(10), X[:10]),
     "holds numbers in 4 chunks, of which 2 were never written"),
    (described(np.zeros((4, 20), "u2"), MATLAB_class=np.bytes_("char")), "holds texts of MATLAB"),
    (described(np.zeros(2, "u8"), MATLAB_class=np.bytes_("double"), MATLAB_empty=1), "holds nothing: an empty array of MATLAB"),
])  # fmt: skip
def test_what_is_no_array_of_numbers(tmp_path: Path, add: Callable[[h5py.File], None], words: str) -> None:
    path = write(tmp_path, add)
    assert load_error(SECTION, tmp_path).startswith(f"a.h5: dataset `inputs`: {words}")
    assert [array["name"] for array in describe_file(path)["arrays"]] == ["inputs", "targets"]


def test_arrays_beside_the_used_ones_do_not_hinder(tmp_path: Path) -> None:
    def add(file: h5py.File) -> None:
        file["inputs"] = X
        file.create_dataset("dimension", (20,), "f4")
        file["names"] = ["", *map(str, range(19))]
        file["reference"] = np.array([file["inputs"].ref], h5py.ref_dtype)

    path = write(tmp_path, add)
    assert len(load(SECTION, tmp_path).inputs) == 20
    assert "item 0 has no label" in next(array["fault"] for array in describe_file(path)["arrays"] if array["name"] == "names")


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_booleans_are_two_classes(tmp_path: Path, kind: str) -> None:
    np.savez(
        tmp_path / "a.npz", inputs=X, targets=Y > 0, names=np.array([{}]), when=np.zeros(20, "M8[D]"), both=np.zeros(2, "f4,i4")
    )
    write(tmp_path, described(X), Y > 0)
    path = "a.npz" if kind == "npz" else "a.h5"
    data = load(section_of({"kind": kind, "path": path}), tmp_path)
    assert (data.task, data.targets.tolist()) == ("classification", Y.tolist())
    assert "the targets `targets` are classes" in job_for(tmp_path / path, Asked(), tmp_path).notes[0]
    assert describe_file(tmp_path / path)["arrays"]


def test_boolean_label_maps(tmp_path: Path) -> None:
    masks = np.arange(20 * 16).reshape(20, 4, 4) % 3 == 0
    write(tmp_path, described(np.zeros((20, 1, 4, 4), "f4")), masks)
    data = load(SECTION, tmp_path)
    assert (data.task, data.outputs) == ("segmentation", 2)
    assert np.array_equal(data.targets, masks)


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_init_says_that_targets_are_one_hot(tmp_path: Path, dtype: str) -> None:
    np.savez(tmp_path / "a.npz", inputs=X, targets=np.eye(3)[np.arange(20) % 3].astype(dtype))
    draft = job_for(tmp_path / "a.npz", Asked(), tmp_path)
    assert "Predict the numbers `targets`" in draft.text
    assert "are one-hot, a 1 for the class of each item: save `argmax(axis=1)`" in draft.notes[1]


def test_a_header_that_python_2_wrote(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content.replace(b"(20, 4), }  ", b"(20L, 4L), }"))
    assert describe_file(tmp_path / "x.npy")["arrays"][0]["shape"] == [20, 4]
