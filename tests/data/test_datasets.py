"""The `[dataset]` table, the embedded digits, generated items, and one buffer for everything."""

import hashlib
import math
import mmap
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from support.generated import HERE, generate

from partrain.data import AnyDataset, Dataset, DatasetInfo, DatasetSpec, load, read_spec
from partrain.data.arrays import idx
from partrain.data.arrays.sections import Idx, Mnist
from partrain.data.generated.section import Synthetic
from partrain.errors import InputMissing

DIGITS = Path(__file__).parents[2] / "datasets" / "mnist"
MNIST = Mnist(name="mnist")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load(MNIST, HERE)


def test_the_embedded_digits_are_all_there(digits: Dataset) -> None:
    assert (digits.inputs.shape, digits.inputs.dtype) == ((60_000, 1, 28, 28), np.uint8)
    assert (digits.targets.shape, digits.targets.dtype) == ((60_000,), np.int64)
    assert digits.test_inputs is not None
    assert digits.test_targets is not None
    assert (digits.test_inputs.shape, digits.test_targets.shape) == ((10_000, 1, 28, 28), (10_000,))
    assert (digits.task, digits.outputs, digits.scale) == ("classification", 10, 1 / 255)
    assert digits.targets[:4].tolist() == [5, 0, 4, 1]
    assert digits.test_targets[:4].tolist() == [7, 2, 1, 0]
    assert np.bincount(digits.targets).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_the_embedded_digits_have_the_published_digests(digits: Dataset) -> None:
    published = dict(
        reversed(line.split()) for line in (DIGITS / "README.md").read_text().splitlines() if line.startswith("    ")
    )
    header = {len(digits.inputs): "train", len(digits.test_inputs if digits.test_inputs is not None else []): "t10k"}
    for images, labels in ((digits.inputs, digits.targets), (digits.test_inputs, digits.test_targets)):
        assert images is not None
        assert labels is not None
        n = len(images).to_bytes(4, "big")
        pixels = b"\0\0\x08\x03" + n + b"\0\0\0\x1c" * 2 + images.tobytes()
        classes = b"\0\0\x08\x01" + n + labels.astype("u1").tobytes()
        assert hashlib.sha256(pixels).hexdigest() == published[f"{header[len(images)]}-images-idx3-ubyte"]
        assert hashlib.sha256(classes).hexdigest() == published[f"{header[len(images)]}-labels-idx1-ubyte"]


def test_facts_of_the_embedded_digits() -> None:
    assert read_spec(MNIST, HERE) == DatasetSpec(60_000, 10_000, (1, 28, 28), "classification", 10)
    assert read_spec(MNIST, HERE).items == 60_000


@pytest.fixture
def copied_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed layout: no repository around the package, the files in the current folder."""
    folder = tmp_path / "datasets" / "mnist"
    shutil.copytree(DIGITS, folder)
    monkeypatch.setattr(idx, "__file__", str(tmp_path / "site" / "partrain" / "data" / "arrays" / "idx.py"))
    monkeypatch.chdir(tmp_path)
    return folder


def test_an_installed_package_finds_the_digits_in_the_current_folder(copied_digits: Path) -> None:
    assert all(array.path.absolute().parent == copied_digits for array in idx.embedded(MNIST.name).values())
    assert read_spec(MNIST, HERE).items == 60_000


def test_a_wrong_digest_is_named(copied_digits: Path) -> None:
    shutil.copy(copied_digits / "t10k-labels-idx1-ubyte.gz", copied_digits / "spare")
    damaged = bytearray((copied_digits / "spare").read_bytes())
    damaged[9] ^= 1  # the operating system field: inflates to the same, and is not the same file
    (copied_digits / "t10k-labels-idx1-ubyte.gz").write_bytes(damaged)
    with pytest.raises(InputMissing, match=r"t10k-labels-idx1-ubyte\.gz: damaged: its SHA-256 is \w{64}, expected b91679a0"):
        load(MNIST, HERE)


def test_a_missing_folder_is_told_in_one_line(copied_digits: Path) -> None:
    shutil.rmtree(copied_digits)
    with pytest.raises(InputMissing, match="copy datasets/mnist of a checkout into this folder"):
        read_spec(MNIST, HERE)


def test_a_missing_file_of_the_embedded_set_is_named(copied_digits: Path) -> None:
    (copied_digits / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(InputMissing, match=r"train-images-idx3-ubyte\.gz: No such file or directory"):
        read_spec(MNIST, HERE)


@pytest.mark.parametrize("section", [MNIST, Synthetic(kind="synthetic", function="blobs", test_items=9)], ids=["mnist", "blobs"])
def test_everything_lies_in_the_one_buffer_asked_for(section: Mnist | Synthetic, digits: Dataset) -> None:
    asked = []

    def allocate(size: int) -> memoryview:
        asked.append(mmap.mmap(-1, size))
        return memoryview(asked[0])

    data = load(section, HERE, allocate)
    assert len(asked) == 1
    again = pickle.loads(pickle.dumps(data.info)).open(memoryview(asked[0]))
    for name in ("inputs", "targets", "test_inputs", "test_targets"):
        array, other = getattr(data, name), getattr(again, name)
        assert array.flags.c_contiguous
        assert array.ctypes.data % 64 == 0
        assert np.shares_memory(array, np.frombuffer(asked[0], "u1"))
        assert np.array_equal(array, other)
    assert type(again.info) is DatasetInfo
    assert again.info == data.info
    assert section is not MNIST or data.fingerprint == digits.fingerprint


def test_the_older_trainers_function_is_theirs() -> None:
    data = generate("seeds")
    assert data.inputs.shape == data.targets.shape == (5000, 1)
    for i in (0, 1, 1234, 4999):
        x = 0.048 * i
        assert data.inputs[i, 0] == np.float32((x + 120) / 240)
        expected = math.sin(math.radians(x / 3)) + 0.5 * math.cos(math.radians(x / 2))
        assert data.targets[i, 0] == pytest.approx(expected, abs=1e-7)
    assert data.targets.mean() == pytest.approx(0.7986, abs=1e-4)
    assert data.targets.var() == pytest.approx(0.01048, abs=1e-5)
    assert (data.task, data.outputs, data.scale) == ("regression", 1, 1.0)


@pytest.mark.parametrize(("start", "size", "variance"), [
    (0, 3200, 0.01427), (1800, 3200, 0.00210), (0, 2000, 0.01135), (1000, 2000, 0.00246), (2000, 2000, 0.00019),
    (3000, 2000, 0.00239),
])  # fmt: skip
def test_the_older_trainers_slices_have_the_variances_that_misled_them(start: int, size: int, variance: float) -> None:
    assert generate("seeds").targets[start : start + size].var() == pytest.approx(variance, abs=1e-5)


def test_sine() -> None:
    exact = generate("sine", noise=0.0)
    assert np.allclose(exact.targets, np.sin(exact.inputs), atol=1e-6)
    assert abs(exact.inputs).max() <= np.float32(math.pi)
    assert (generate("sine").targets - np.sin(generate("sine").inputs)).std() == pytest.approx(0.1, rel=0.05)


def test_blobs_lie_around_their_centers() -> None:
    data = generate("blobs", features=5, classes=4, items=4000, test_items=400)
    assert (data.inputs.shape, data.outputs, set(data.targets.tolist())) == ((4000, 5), 4, {0, 1, 2, 3})
    assert data.test_inputs is not None
    for label in range(4):
        own = data.inputs[data.targets == label]
        assert np.allclose(own.std(axis=0), 0.1, rtol=0.1)
        assert np.allclose(own.mean(axis=0), data.test_inputs[data.test_targets == label].mean(axis=0), atol=0.05)


def test_xor() -> None:
    data = generate("xor")
    bits = data.inputs > 0.5
    assert np.array_equal(bits[:, 0] ^ bits[:, 1], data.targets)
    assert data.outputs == 2


@pytest.mark.parametrize("function", ["sine", "seeds", "blobs", "xor"])
def test_generated_items_repeat_and_test_items_are_fresh(function: str) -> None:
    data, again, other = (
        generate(function, test_items=50),
        generate(function, test_items=50),
        generate(function, items=4999, test_items=50),
    )
    assert data.fingerprint == again.fingerprint != other.fingerprint
    assert np.array_equal(data.inputs, again.inputs)
    assert data.test_inputs is not None
    assert not np.isin(data.test_inputs, data.inputs).all(axis=1).any()
    if function != "seeds":
        assert np.array_equal(data.inputs[:4999], other.inputs)
        assert np.array_equal(data.targets[:4999], other.targets)
    known = read_spec(Synthetic.model_validate({"kind": "synthetic", "function": function, "test_items": 50}), HERE)
    assert (known.items, known.test_items, known.shape) == (5000, 50, data.inputs.shape[1:])
    assert (known.task, known.outputs) == (data.task, data.outputs)


@pytest.mark.parametrize(("table", "words"), [
    ({"kind": "synthetic", "function": "sine", "classes": 4}, "classes would have no effect"),
    ({"kind": "synthetic", "function": "seeds", "noise": 0.5}, "noise would have no effect"),
    ({"kind": "idx", "inputs": "x", "targets": "y", "test_inputs": "z"}, "go together"),
    ({"name": "mnist", "validation": -1}, "greater than or equal to 0"),
    ({"name": "mnist", "path": "x"}, "Extra inputs"),
    ({"name": "cifar"}, "cifar"),
    ({"validation": 3}, "discriminator"),
    ("mnist", "discriminator"),
])  # fmt: skip
def test_tables_that_contradict_themselves(table: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TypeAdapter(AnyDataset).validate_python(table)


def test_tables_become_sections() -> None:
    read = TypeAdapter[object](AnyDataset).validate_python
    assert read({"name": "mnist", "validation": 5000}) == Mnist(name="mnist", validation=5000)
    assert read({"kind": "idx", "inputs": "x", "targets": "y"}) == Idx(kind="idx", inputs="x", targets="y")
    assert read(MNIST) == MNIST


def test_headers_and_windows_need_neither_numpy_nor_torch() -> None:
    program = """if True:
        import sys
        from pathlib import Path
        from partrain.data import read_spec
        from partrain.data.arrays.sections import Mnist
        from partrain.data.generated.section import Synthetic
        from partrain.data.partition import windows
        windows(read_spec(Mnist(name="mnist"), Path()).items, [None, None], 0.1)
        read_spec(Synthetic(kind="synthetic", function="sine"), Path())
        print({"numpy", "torch"} & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
