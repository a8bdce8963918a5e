"""IDX files: every type, plain and gzipped, and messages for damaged files."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partrain.data import Dataset, load, read_spec
from partrain.data.arrays.idx import TYPES, read_header, read_into
from partrain.data.arrays.sections import Idx
from partrain.errors import InputMissing

CODES = {np.dtype(name): code for code, name in TYPES.items()}


def write(path: Path, numbers: Any, dtype: str, packed: bool = False) -> Path:
    array = np.asarray(numbers, dtype)
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[np.dtype(dtype)], array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def read(folder: Path, **more: str) -> Dataset:
    return load(Idx(kind="idx", inputs="x", targets="y", **more), folder)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", TYPES.values())
def test_every_type_arrives_as_numbers(tmp_path: Path, dtype: str, packed: bool) -> None:
    numbers = np.arange(24).reshape(4, 6) - (0 if dtype == "u1" else 7)
    write(tmp_path / "x", numbers, dtype, packed)
    write(tmp_path / "y", [0, 1, 2, 1], "u1", packed)
    data = read(tmp_path)
    assert np.array_equal(data.inputs, numbers)
    assert (data.inputs.dtype, data.scale) == ((np.uint8, 1 / 255) if dtype == "u1" else (np.float32, 1.0))
    assert (data.targets.tolist(), data.targets.dtype) == ([0, 1, 2, 1], np.int64)
    assert (data.task, data.outputs, data.test_inputs) == ("classification", 3, None)


@pytest.mark.parametrize("dtype", TYPES.values())
def test_large_files_are_read_in_blocks(tmp_path: Path, dtype: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 100, 100_003)
    path = write(tmp_path / "x", numbers, dtype, packed=True)
    target = np.empty(100_003, "f4")
    read_into(path, read_header(path), target)
    assert np.array_equal(target, numbers)


@pytest.mark.parametrize(
    ("axes", "shape"),
    [((5,), (1,)), ((5, 3), (3,)), ((5, 4, 3), (1, 4, 3)), ((5, 2, 4, 3), (2, 4, 3)), ((5, 2, 2, 2, 2), (2, 2, 2, 2))],
)
def test_shapes_of_items(tmp_path: Path, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    write(tmp_path / "x", np.zeros(axes), "u1")
    write(tmp_path / "y", np.arange(5) % 2, "u1")
    assert read_spec(Idx(kind="idx", inputs="x", targets="y"), tmp_path).shape == shape
    assert read(tmp_path).inputs.shape == (5, *shape)


@pytest.mark.parametrize(("axes", "outputs"), [((5,), 1), ((5, 3), 3)])
def test_other_numbers_are_regression_targets(tmp_path: Path, axes: tuple[int, ...], outputs: int) -> None:
    write(tmp_path / "x", np.zeros((5, 2)), ">f4")
    write(tmp_path / "y", np.full(axes, 0.5), ">f8")
    data = read(tmp_path)
    assert (data.task, data.outputs, data.targets.shape, data.targets.dtype) == ("regression", outputs, (5, outputs), np.float32)
    known = read_spec(Idx(kind="idx", inputs="x", targets="y"), tmp_path)
    assert (known.task, known.outputs, known.items) == ("regression", outputs, 5)


def test_test_items_count_for_classes(tmp_path: Path) -> None:
    for name, labels in (("", [0, 1]), ("test_", [3])):
        write(tmp_path / f"{name}x", np.zeros((len(labels), 2)), "u1")
        write(tmp_path / f"{name}y", labels, ">i4")
    data = read(tmp_path, test_inputs="test_x", test_targets="test_y")
    assert data.outputs == 4
    assert data.test_targets is not None
    assert data.test_targets.tolist() == [3]
    assert read_spec(Idx(kind="idx", inputs="x", targets="y"), tmp_path).items == 2


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    whole = write(tmp_path / "x", np.arange(200).reshape(2, 100), "u1").read_bytes()
    (tmp_path / "x").write_bytes(b"".join(map(gzip.compress, (whole[:50], b"", whole[50:]))))
    write(tmp_path / "y", [0, 1], "u1")
    assert np.array_equal(read(tmp_path).inputs, np.arange(200).reshape(2, 100))


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    write(tmp_path / "y", [0, 1], "u1")
    prints = []
    for first in (1, 1, 2):
        write(tmp_path / "x", [[first, 0], [0, 0]], "u1")
        prints.append(read(tmp_path).fingerprint)
    assert prints[0] == prints[1] != prints[2]


def good(folder: Path) -> None:
    write(folder / "x", np.arange(6).reshape(3, 2), "u1")
    write(folder / "y", [0, 1, 2], "u1")


def damage(folder: Path, name: str, change: Any, packed: bool = False) -> None:
    content = (folder / name).read_bytes()
    changed = change(content)
    (folder / name).write_bytes(gzip.compress(changed) if packed else changed)


@pytest.mark.parametrize(("name", "change", "packed", "words"), [
    ("x", lambda b: b[:-1], False, r"x: expected 18 bytes for shape \(3, 2\), but the file has 17"),
    ("x", lambda b: b + b"!", False, r"x: expected 18 bytes for shape \(3, 2\), but the file has 19"),
    ("x", lambda b: b[:-1], True, r"x: is cut short: expected 18 bytes of content, found 17"),
    ("x", lambda b: b + b"!", True, r"x: has trailing bytes: expected 18 bytes of content, found 19"),
    ("x", lambda b: gzip.compress(b)[:-9], False, r"x: damaged gzip data: it ends within the compressed data"),
    ("x", lambda b: gzip.compress(b)[:-8] + b"\0" * 8, False, r"x: damaged gzip data: .*incorrect data check"),
    ("x", lambda b: gzip.compress(b) + b"junk", False, r"x: damaged gzip data: .*incorrect header check"),
    ("x", lambda b: b"\x1f\x8bnonsense", False, r"x: damaged gzip data"),
    ("x", lambda b: b"", False, r"x: not an IDX file: it begins with nothing"),
    ("x", lambda b: b"PNG!" + b, False, r"x: not an IDX file: it begins with 50 4e 47 21"),
    ("x", lambda b: b"\0\0\x0a\x02" + b[4:], False, r"x: not an IDX file"),
    ("x", lambda b: b[:9], False, r"x: is cut short within its header: expected 12 bytes, found 9"),
    ("x", lambda b: b[:4] + b"\xff" * 8, True, r"x: expected \d+ bytes for shape .*, but the file has \d+ gzipped"),
    ("x", lambda b: b"\0\0\x08\x02" + b"\0" * 8, False, r"x: holds no numbers"),
    ("y", lambda b: b"\0\0\x08\x01\0\0\0\x02ab", False, r"y: holds 2 targets for 3 inputs"),
    ("y", lambda b: b"\0\0\x09\x01\0\0\0\x03\0\xff\0", False, r"y: item 1 has the label -1"),
])  # fmt: skip
def test_damage_is_named(tmp_path: Path, name: str, change: Any, packed: bool, words: str) -> None:
    good(tmp_path)
    damage(tmp_path, name, change, packed)
    with pytest.raises(InputMissing, match=words) as caught:
        read(tmp_path)
    assert caught.value.message.startswith(str(tmp_path / name))
    assert "\n" not in caught.value.message


def test_a_number_too_large_for_single_precision_is_named(tmp_path: Path) -> None:
    good(tmp_path)
    write(tmp_path / "x", [[1e300, 0]] * 3, ">f8")
    with pytest.raises(InputMissing, match="x: holds a number that float32 cannot"):
        read(tmp_path)


def test_test_items_must_be_like_the_others(tmp_path: Path) -> None:
    good(tmp_path)
    write(tmp_path / "tx", np.zeros((2, 3)), "u1")
    write(tmp_path / "ty", [0, 1], "u1")
    with pytest.raises(InputMissing, match=r"tx: its items are uint8 \(3,\), those for training uint8 \(2,\)"):
        read(tmp_path, test_inputs="tx", test_targets="ty")
    write(tmp_path / "tx", np.zeros((2, 2)), "u1")
    write(tmp_path / "ty", [0, 1], ">f4")
    with pytest.raises(InputMissing, match=r"ty: its items are float32 \(1,\), those for training int64 \(\)"):
        read(tmp_path, test_inputs="tx", test_targets="ty")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    section = Idx(kind="idx", inputs="x", targets="y")
    with pytest.raises(InputMissing, match="x: No such file or directory"):
        read_spec(section, tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(InputMissing, match="x: Is a directory"):
        read_spec(section, tmp_path)
