"""Arrays in .npy, .npz and HDF5 files: mapping, conversion, and messages for faults; the memory-mapped form."""

import errno
import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.array_files import KINDS, is_mapped, load_error, section_of, write_dataset

from partrain.cli import data as data_commands
from partrain.data import Dataset, base, load, read_spec
from partrain.data.arrays import files, mapped
from partrain.data.arrays.sections import Mnist
from partrain.data.inspect import describe_dataset, describe_file
from partrain.errors import CannotCreate, InputMissing
from partrain.system.memory import MemoryLimits

X = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
Y = np.arange(12) % 4


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_numbers(tmp_path: Path, kind: str) -> None:
    section = write_dataset(tmp_path, kind, inputs=X, targets=Y, test_inputs=X[:2], test_targets=Y[:2].astype(np.uint8))
    data, known = load(section, tmp_path), read_spec(section, tmp_path)
    assert known is not None
    assert (known.items, known.test_items, known.shape, known.task) == (12, 2, (3,), "classification")
    assert np.array_equal(data.inputs, X)
    assert np.array_equal(data.targets, Y)
    assert (data.outputs, data.scale, data.targets.dtype) == (4, 1.0, np.int64)
    assert data.test_inputs is not None
    assert data.test_targets is not None
    assert np.array_equal(data.test_inputs, X[:2])
    assert data.test_targets.tolist() == [0, 1]
    assert is_mapped(data.inputs)
    assert is_mapped(data.targets) == (kind != "npz")  # in an archive they begin wherever what is before them ends
    assert not is_mapped(data.test_targets)
    again = pickle.loads(pickle.dumps(data.info))
    assert again == data.info


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_scaled_and_grey_images_get_their_channel(tmp_path: Path, kind: str) -> None:
    pixels = np.arange(12 * 4 * 5, dtype=np.uint8).reshape(12, 4, 5)
    data = load(write_dataset(tmp_path, kind, inputs=pixels, targets=Y), tmp_path)
    assert (data.inputs.shape, data.inputs.dtype, data.scale) == ((12, 1, 4, 5), np.uint8, 1 / 255)
    assert np.array_equal(data.inputs[:, 0], pixels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f2", ">f4", "f8", "i2", "?", "u2"])
def test_other_numbers_become_floating_point(tmp_path: Path, kind: str, dtype: str) -> None:
    numbers = (X * 4).astype(dtype)
    data = load(write_dataset(tmp_path, kind, {"standardise_target": False}, inputs=numbers, targets=X[:, 0]), tmp_path)
    assert data.inputs.dtype == (np.float64 if dtype == "f8" and kind != "npz" else np.float32)
    assert np.array_equal(data.inputs, numbers.astype(data.inputs.dtype))
    assert (data.task, data.outputs) == ("regression", 1)
    assert np.array_equal(data.targets[:, 0], X[:, 0])


def test_packed_arrays_and_other_orders_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/x", data=X, chunks=(5, 2), compression="gzip")
        file["g/y"] = Y
    table = {"kind": "hdf5", "path": "a.h5", "inputs": "g/x", "targets": "g/y"}
    data = load(section_of(table), tmp_path)
    assert np.array_equal(data.inputs, X)
    assert not is_mapped(data.inputs)
    np.savez_compressed(tmp_path / "a.npz", inputs=np.asfortranarray(X), targets=Y)
    assert np.array_equal(load(section_of({"kind": "npz", "path": "a.npz"}), tmp_path).inputs, X)
    section = write_dataset(tmp_path, "npy", inputs=np.asfortranarray(X), targets=Y)
    assert np.array_equal(load(section, tmp_path).inputs, X)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens(tmp_path: Path, kind: str) -> None:
    tokens = np.arange(24, dtype=np.int32).reshape(4, 6) % 7
    section = write_dataset(tmp_path, kind, inputs=tokens, targets=np.roll(tokens, -1)).model_copy(update={"tokens": True})
    data = load(section, tmp_path)
    assert (data.task, data.vocabulary, data.outputs, data.inputs.dtype) == ("language", 7, 7, np.int64)
    assert np.array_equal(data.inputs, tokens)


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    first = load(write_dataset(tmp_path, "npy", inputs=X, targets=Y), tmp_path).fingerprint
    assert load(write_dataset(tmp_path, "npy", inputs=X.copy(), targets=Y), tmp_path).fingerprint == first
    assert load(write_dataset(tmp_path, "npy", inputs=X + 1, targets=Y), tmp_path).fingerprint != first
    assert load(write_dataset(tmp_path, "npy", inputs=X, targets=Y[::-1]), tmp_path).fingerprint != first


def test_a_mapped_file_is_private_and_must_not_change(tmp_path: Path) -> None:
    data = load(write_dataset(tmp_path, "npy", inputs=X, targets=Y), tmp_path)
    data.inputs[0] = 9
    assert np.array_equal(np.load(tmp_path / "inputs.npy"), X)
    np.save(tmp_path / "inputs.npy", X[:5])
    with pytest.raises(InputMissing, match=r"inputs\.npy: was changed while it was in use"):
        data.info.open(memoryview(bytearray(64)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("arrays", "words"), [
    ({"inputs": X, "targets": Y[:5]}, "holds 5 targets for 12 inputs"),
    ({"inputs": X, "targets": Y - 1}, "item 0 has the label -1; labels are 0 or more"),
    ({"inputs": X, "targets": np.where(X[:, 0] == X[7, 0], np.nan, X[:, 0])}, "item 7 holds a number that is not finite"),
    ({"inputs": np.where(X[7, 2] == X, np.nan, X).reshape(12, 1, 3).astype(">f4"), "targets": Y}, "not finite, at [0, 2]"),
    ({"inputs": np.where(X[3, 1] == X, np.inf, X).astype(">f4"), "targets": Y}, "item 3 holds a number that is not finite"),
    ({"inputs": X, "targets": np.stack([Y, Y])}, "holds 2 targets for 12 inputs"),
    ({"inputs": X, "targets": X.reshape(12, 3, 1)}, "expected labels (n,) or numbers (n, k)"),
    ({"inputs": X[:0], "targets": Y[:0]}, "holds no numbers"),
    ({"inputs": X, "targets": Y, "test_inputs": X[:, :2], "test_targets": Y}, "its items are float32 (2,), those for training"),
])  # fmt: skip
def test_what_does_not_go_together(tmp_path: Path, kind: str, arrays: dict[str, Any], words: str) -> None:
    assert words in load_error(write_dataset(tmp_path, kind, **arrays), tmp_path)


def archived(folder: Path, shift: int, packed: int = zipfile.ZIP_STORED, **arrays: Any) -> Any:
    """Load a .npz whose numbers begin `shift` bytes behind multiples of 64."""
    with zipfile.ZipFile(folder / "a.npz", "w", packed) as file:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = packed
            before = file.start_dir + 30 + len(info.filename) + 4  # the header of numpy itself is a multiple of 64
            filling = (shift - before) % 64
            info.extra = struct.pack("<HH", 0xCAFE, filling) + bytes(filling)
            file.writestr(info, content.getvalue())
    return section_of({"kind": "npz", "path": "a.npz"})


@pytest.mark.parametrize(
    ("dtype", "shift", "there"),
    [("f4", 0, True), ("f4", 4, True), ("f4", 2, False), ("f8", 8, True), ("f8", 4, False), ("u1", 1, True), (">f4", 0, False)],
)
def test_arrays_in_an_archive_are_mapped_where_they_are_aligned(tmp_path: Path, dtype: str, shift: int, there: bool) -> None:
    numbers = np.abs(X * 9).astype(dtype)
    data = load(archived(tmp_path, shift, inputs=numbers, targets=Y), tmp_path)
    assert is_mapped(data.inputs) == there
    assert data.inputs.flags.aligned
    assert np.array_equal(data.inputs, numbers.astype(data.inputs.dtype))
    assert np.array_equal(data.targets, Y)


def test_numbers_that_are_none_are_found_in_an_archive_that_is_mapped(tmp_path: Path) -> None:
    spoilt = np.where(X[3, 1] == X, np.inf, X).astype("f4")
    assert "item 3 holds a number that is not finite" in load_error(archived(tmp_path, 0, inputs=spoilt, targets=Y), tmp_path)


@pytest.mark.parametrize(("packed", "inputs"), [(zipfile.ZIP_DEFLATED, X), (zipfile.ZIP_STORED, np.asfortranarray(X))])
def test_packed_archives_and_arrays_by_columns_are_read(tmp_path: Path, packed: int, inputs: np.ndarray) -> None:
    data = load(archived(tmp_path, 0, packed, inputs=inputs, targets=Y), tmp_path)
    assert not is_mapped(data.inputs)
    assert np.array_equal(data.inputs, X)
    assert np.array_equal(data.targets, Y)


@pytest.mark.parametrize("shift", [0, 1])
def test_damage_within_an_archive(tmp_path: Path, shift: int) -> None:
    """Arrays can be mapped or read."""
    section = archived(tmp_path, shift, inputs=X, targets=Y)
    content = (tmp_path / "a.npz").read_bytes()
    at = content.index(X.tobytes()) + 17
    (tmp_path / "a.npz").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    words = load_error(section, tmp_path)
    assert words.startswith("a.npz")
    assert "damaged" in words
    assert "CRC-32" in words


def test_sizes_within_an_archive_that_lie(tmp_path: Path) -> None:
    section = archived(tmp_path, 0, inputs=X, targets=np.arange(99, dtype=np.uint8) % 4)
    content = (tmp_path / "a.npz").read_bytes().replace(b"(12, 3)", b"(99, 3)")
    (tmp_path / "a.npz").write_bytes(content.replace(struct.pack("<I", 128 + X.nbytes), struct.pack("<I", 128 + 99 * 3 * 4)))
    assert load_error(section, tmp_path).startswith("a.npz")


@pytest.mark.parametrize("shape", ["(14, 3)", "(10, 3)"])
def test_headers_within_an_archive_that_lie(tmp_path: Path, shape: str) -> None:
    section = archived(tmp_path, 0, inputs=X, targets=np.arange(int(shape[1:3])) % 4)
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content.replace(b"(12, 3)", shape.encode()))
    assert load_error(section, tmp_path).startswith("a.npz")


def test_arrays_that_are_not_there(tmp_path: Path) -> None:
    section = write_dataset(tmp_path, "npz", inputs=X, target=Y)
    assert load_error(section, tmp_path) == "a.npz: no array `targets`, which `targets` asks for: did you mean `target`?"
    section = write_dataset(tmp_path, "hdf5", images=X, y=Y)
    assert load_error(section, tmp_path) == "a.h5: no array `inputs`, which `inputs` asks for: there are images, y"
    section = write_dataset(tmp_path, "npz", inputs=X, targets=Y, test_inputs=X)
    assert "no array `test_targets`" in load_error(section, tmp_path)
    (tmp_path / "a.npz").unlink()
    assert load_error(section, tmp_path) == "a.npz: No such file or directory"


HOLDS = {
    "complex": (np.ones(12, "c8"), "complex64"),
    "text": ([b"a", b"b"], "text"),
    "words": (["a", "b"], "text"),
    "records": (np.zeros(12, [("x", "f4"), ("y", "i4")]), "records"),
    "one": (3.5, "a single number"),
    "none": (h5py.Empty("f4"), "nothing"),
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_is_no_array_of_numbers_is_called_so(tmp_path: Path, name: str) -> None:
    section = write_dataset(tmp_path, "hdf5", targets=Y, x=X, **{f"g/{one}": content for one, (content, _) in HOLDS.items()})
    section = section.model_copy(update={"inputs": f"g/{name}"})
    assert load_error(section, tmp_path) == f"a.h5: dataset `g/{name}`: holds {HOLDS[name][1]}; arrays of numbers can be used"
    assert load_error(section.model_copy(update={"inputs": "z"}), tmp_path).endswith("asks for: there are targets, x")
    listed = {one["name"]: (one["dtype"], one["shape"]) for one in describe_file(tmp_path / "a.h5")["arrays"]}
    assert listed["x"] == ("float32", [12, 3])
    assert listed["g/complex"] == ("complex64", [12])


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_objects_are_refused(tmp_path: Path, kind: str) -> None:
    section = write_dataset(tmp_path, kind, inputs=np.array([{}, 1], object), targets=np.arange(2))
    assert "holds objects, which are code to run; arrays of numbers can be used" in load_error(section, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [5, 60, -30])
def test_truncated_files(tmp_path: Path, kind: str, cut: int) -> None:
    section = write_dataset(tmp_path, kind, inputs=X, targets=Y)
    path = next(tmp_path.glob("inputs.npy" if kind == "npy" else "a.*"))
    path.write_bytes(path.read_bytes()[:cut])
    assert load_error(section, tmp_path).startswith(path.name)


def test_headers_that_lie(tmp_path: Path) -> None:
    section = write_dataset(tmp_path, "npy", inputs=X, targets=Y)
    path = tmp_path / "inputs.npy"
    path.write_bytes(path.read_bytes().replace(b"(12, 3)", b"(14, 3)"))
    assert load_error(section, tmp_path) == "inputs.npy: expected 296 bytes for shape (14, 3), found 272"
    path.write_bytes(path.read_bytes().replace(b"(14, 3)", b"(exit())"[:7]))
    assert load_error(section, tmp_path) == "inputs.npy: its header is damaged"


# The memory-mapped form


def converted(dataset: Any, folder: Path, to: Path) -> Dataset:
    buffers: list[memoryview] = []

    def allocate(size: int) -> memoryview:
        buffers.append(memoryview(bytearray(size)))
        return buffers[0]

    data = load(dataset, folder, allocate)
    mapped.write(to, data.info, buffers[0])
    return data


def opened(path: Path, **more: Any) -> Dataset:
    return load(mapped.Mapped(kind="mapped", path=str(path), **more), path.parent)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mapped_form_is_the_same_data_set(tmp_path: Path, kind: str) -> None:
    section = write_dataset(tmp_path, kind, inputs=X, targets=Y, test_inputs=X[:2], test_targets=Y[:2])
    data, again = converted(section, tmp_path, tmp_path / "x.items"), opened(tmp_path / "x.items", verify=True)
    for name in ("inputs", "targets", "test_inputs", "test_targets"):
        assert np.array_equal(getattr(data, name), getattr(again, name))
        assert is_mapped(getattr(again, name))
        assert getattr(again, name).ctypes.data % 64 == 0
    assert (again.task, again.outputs, again.scale, again.codec) == (data.task, data.outputs, data.scale, data.codec)
    assert read_spec(mapped.Mapped(kind="mapped", path="x.items"), tmp_path) is not None


def test_the_digits_in_mapped_form(tmp_path: Path) -> None:
    data = converted(Mnist(name="mnist"), tmp_path, tmp_path / "x.items")
    again = opened(tmp_path / "x.items")
    assert np.array_equal(data.inputs, again.inputs)
    assert again.scale == 1 / 255
    assert again.fingerprint == opened(tmp_path / "x.items").fingerprint


def test_windows_over_a_series_stay_windows(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("v\n" + "".join(f"{number % 7}.5\n" for number in range(60)))
    table = {"kind": "series", "path": "s.csv", "target": ["v"], "window": 8, "validation": 5}
    section = section_of(table)
    data, again = converted(section, tmp_path, tmp_path / "x.items"), opened(tmp_path / "x.items")
    assert np.array_equal(data.inputs, again.inputs)
    assert (again.gap, again.inputs.strides) == (data.gap, data.inputs.strides)
    assert (tmp_path / "x.items").stat().st_size < 4096 + 2 * 60 * 8


@pytest.fixture
def items(tmp_path: Path) -> Path:
    converted(write_dataset(tmp_path, "npz", inputs=X, targets=Y), tmp_path, tmp_path / "x.items")
    return tmp_path / "x.items"


@pytest.mark.parametrize(
    ("at", "message"),
    [(3, "not written by `partrain data convert`"), (20, "its header is damaged"), (70, "its header is damaged")],
)
def test_damaged_headers(items: Path, at: int, message: str) -> None:
    content = bytearray(items.read_bytes())
    content[at] ^= 1
    items.write_bytes(content)
    with pytest.raises(InputMissing, match=message):
        opened(items)


def test_damaged_items_are_found_by_who_looks(items: Path) -> None:
    content = bytearray(items.read_bytes())
    content[4100] ^= 1
    items.write_bytes(content)
    opened(items)
    with pytest.raises(InputMissing, match=r"x\.items: damaged: the SHA-256 of its items is \w{64}, not what its header says"):
        opened(items, verify=True)


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"\0"])
def test_a_wrong_length(items: Path, change: Any) -> None:
    items.write_bytes(change(items.read_bytes()))
    with pytest.raises(InputMissing, match="it is cut short, or was added to"):
        opened(items)


def test_its_header_is_what_is_documented(items: Path) -> None:
    content = items.read_bytes()
    (length,) = struct.unpack_from("<Q", content, 8)
    header = json.loads(content[48 : 48 + length])
    inputs = next(slot for slot in header["card"]["slots"] if slot["name"] == "inputs")
    start = 4096 + inputs["offset"]
    assert content[start : start + X.nbytes] == X.tobytes()
    assert len(content) == 4096 + header["bytes"]


def test_what_cannot_be_written(items: Path) -> None:
    with pytest.raises(CannotCreate, match="No such file or directory"):
        mapped.write(items.parent / "nowhere" / "x.items", opened(items).info, memoryview(b""))
    with pytest.raises(InputMissing, match="No such file"):
        opened(items.parent / "nothing.items")


# More than fits into memory


def peak_of(work: Callable[[], object]) -> int:
    """Return the most bytes that were allocated at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def endless(folder: Path) -> Any:
    """Virtual arrays of 800 GB fit into a file of a few kB."""
    with h5py.File(folder / "a.h5", "w") as file:
        for name, axes, dtype in (("inputs", (4,), "f4"), ("targets", (), "i8")):
            file[f"part/{name}"] = np.ones((1, *axes), dtype)
            whole = h5py.VirtualLayout((1 << 35, *axes), dtype)
            whole[:1] = h5py.VirtualSource(".", f"part/{name}", (1, *axes))
            file.create_virtual_dataset(name, whole)
    return section_of({"kind": "hdf5", "path": "a.h5"})


def test_a_set_larger_than_the_memory_is_refused_with_what_to_do(tmp_path: Path) -> None:
    words = load_error(endless(tmp_path), tmp_path)
    assert words.startswith("[dataset]: its numbers need 768.0 GiB of memory, and ")
    assert "GiB are free; `partrain data convert` writes a file that kind" in words


def test_so_it_is_where_a_file_is_looked_at(tmp_path: Path) -> None:
    endless(tmp_path)
    with pytest.raises(InputMissing, match=r"dataset `inputs`: its numbers need 512.0 GiB of memory, and .* are free"):
        describe_file(tmp_path / "a.h5")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_packed_array_is_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    monkeypatch.setattr(files, "_BLOCK_BYTES", 1 << 16)
    numbers = np.arange(1 << 20, dtype=np.float64).reshape(1 << 14, 1 << 6)
    np.savez_compressed(tmp_path / "a.npz", numbers=np.asarray(numbers, order=order))
    read, target = files.npz(tmp_path / "a.npz")["numbers"].read, np.empty(numbers.shape, np.float32)
    assert peak_of(lambda: read(target)) < numbers.nbytes / 4
    assert np.array_equal(target, numbers)


def test_what_is_converted_need_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", inputs=X, targets=Y)
    monkeypatch.setattr(base, "memory_limits", lambda: MemoryLimits(0, 0, 0))
    data_commands.convert(tmp_path / "a.npz", tmp_path / "a.items")
    again = opened(tmp_path / "a.items", verify=True)
    assert np.array_equal(again.inputs, X)
    assert np.array_equal(again.targets, Y)
    assert {one.name for one in tmp_path.iterdir()} == {"a.npz", "a.items"}


def test_a_full_disk_ends_the_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    np.savez_compressed(tmp_path / "a.npz", inputs=X, targets=Y)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CannotCreate, match=r"a\.items: No space left on device"):
        data_commands.convert(tmp_path / "a.npz", tmp_path / "a.items")
    assert [one.name for one in tmp_path.iterdir()] == ["a.npz"]


# Memory: a small archive may hold many zeros


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_packed_array_is_described_without_a_second_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(files, "_BLOCK_BYTES", 1 << 20)
    numbers = np.zeros((1 << 6, 1 << 20), dtype)
    np.savez_compressed(tmp_path / "a.npz", numbers=numbers)
    told: list[dict[str, Any]] = []
    assert peak_of(lambda: told.append(describe_file(tmp_path / "a.npz"))) < 1.1 * numbers.nbytes + (16 << 20)
    assert told[0]["arrays"][0] | {"name": ""} == {"name": "", "dtype": dtype, "shape": [64, 1 << 20], "mapped": False, "min": 0, "max": 0}  # fmt: skip


def test_a_description_counts_numbers_that_are_not_finite_over_all_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_BLOCK", 4)
    numbers = np.arange(20, dtype=np.float64).reshape(10, 2)
    numbers[3, 1], numbers[4], numbers[9, 0] = np.nan, np.inf, -np.inf
    np.savez_compressed(tmp_path / "a.npz", numbers=numbers)
    (told,) = describe_file(tmp_path / "a.npz")["arrays"]
    assert (told["not finite"], told["first"], told["min"], told["max"]) == (4, 3, 0.0, 19.0)


def test_items_of_many_bytes_are_described_in_small_blocks(tmp_path: Path) -> None:
    data = load(write_dataset(tmp_path, "npy", inputs=np.zeros((8, 1 << 21), np.uint8), targets=Y[:8]), tmp_path)
    assert peak_of(lambda: describe_dataset(data, np.arange(8), np.arange(0))) < 4 * data.inputs.nbytes


def test_what_exceeds_free_memory_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the second copies: numbers in double precision, labels to select classes, words, offsets and steps of sequences."""
    count = 1 << 16
    zeros, words = np.zeros((count, 3)), np.array(["a", "b"] * (count // 2))
    arrays = {"inputs": zeros, "targets": zeros[:, 0], "labels": np.arange(count) % 2, "words": words}
    np.savez_compressed(tmp_path / "a.npz", allow_pickle=False, offsets=np.arange(count + 1), one=np.arange(1), **arrays)
    selected, offsets = {"targets": "labels", "classes": [0, 1]}, {"targets": "labels", "offsets": "offsets"}
    for limit, read, cases in (
        # The buffer itself may be a file.
        (600_000, partial(load, in_memory=False), [({"standardise": True}, "inputs"), (selected, "inputs"), (offsets, "inputs")]),
        (1000, read_spec, [(selected, "labels"), ({"targets": "words", "classes": ["a", "b"]}, "words"), (offsets, "offsets")]),
    ):
        monkeypatch.setattr(base, "memory_limits", lambda limit=limit: MemoryLimits(0, 0, limit))
        for more, name in cases:
            with pytest.raises(InputMissing, match=rf"a\.npz: array `{name}`: its numbers need 0\.0 GiB of memory"):
                read(section_of({"kind": "npz", "path": "a.npz", **more}), tmp_path)  # type: ignore[operator]
    np.savez_compressed(tmp_path / "words.npz", words=words)
    with pytest.raises(InputMissing, match=r"words\.npz: array `words`: its numbers need"):
        describe_file(tmp_path / "words.npz")


def test_a_header_of_an_array_is_short(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + b" " * (1 << 26) + b"\n"
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + bytes(4)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs.npy", content)
    assert (tmp_path / "a.npz").stat().st_size < 1 << 18

    def described() -> None:
        with pytest.raises(InputMissing, match=r"array `inputs`: its header is damaged"):
            files.npz(tmp_path / "a.npz")

    assert peak_of(described) < 1 << 22
