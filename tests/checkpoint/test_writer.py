"""Content -> bytes -> content, and the same bytes for the same content."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.checkpoint_samples import JOB, arrays, content, manifest

from partrain.checkpoint import Content, decode, encode
from partrain.checkpoint.content import DTYPES

HERE = Path(__file__).parents[1]


def with_arrays(**more: np.ndarray) -> Content:
    return Content({path.replace("__", "/"): array for path, array in more.items()}, JOB, manifest())


def assert_same(found: Content, wanted: Content) -> None:
    assert sorted(found.arrays) == sorted(wanted.arrays)
    for path, array in wanted.arrays.items():
        assert found.arrays[path].dtype == array.dtype.newbyteorder("="), path
        assert found.arrays[path].shape == array.shape, path
        assert found.arrays[path].tobytes() == np.asarray(array, array.dtype.newbyteorder("=")).tobytes(), path
    assert found.job == wanted.job
    assert found.manifest == wanted.manifest


def test_content_comes_back() -> None:
    found = decode(encode(content()))
    assert_same(found, content())
    assert (found.run, found.round) == ("0123abcd", 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_every_kind_of_number_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    sample = with_arrays(model__x=np.asarray(array))
    assert_same(decode(encode(sample)), sample)


@given(
    hnp.arrays(
        st.sampled_from(DTYPES),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
        elements=None,
    )
)
@settings(max_examples=60)
def test_bits_come_back(array: np.ndarray) -> None:
    sample = with_arrays(rule__x=array)
    assert decode(encode(sample)).arrays["rule/x"].tobytes() == array.tobytes()  # NaN payloads and -0.0 too


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 3000)), max_size=12))
@settings(max_examples=40, deadline=None)
def test_arrays_of_any_sizes_come_back(kinds: list[tuple[str, int]]) -> None:
    """The reader checks that datasets lie apart and are aligned."""
    sample = with_arrays(**{f"rule__{number}": np.ones(size, kind) for number, (kind, size) in enumerate(kinds)})
    assert_same(decode(encode(sample)), sample)


def test_arrays_that_lie_otherwise_in_memory() -> None:
    grid = np.arange(12.0).reshape(3, 4)
    sample = with_arrays(
        model__t=grid.T, model__s=grid[:, ::2], model__b=grid.astype(">f8"), model__r=np.broadcast_to(1.0, (2, 2))
    )
    found = decode(encode(sample)).arrays
    assert (found["model/t"] == grid.T).all()
    assert (found["model/s"] == grid[:, ::2]).all()
    assert (found["model/b"] == grid).all()
    assert found["model/b"].dtype.isnative
    assert (found["model/r"] == 1).all()


def test_arrays_can_be_written_to() -> None:
    for array in decode(encode(content())).arrays.values():
        array[...] = 0
        assert array.flags.owndata or array.base.flags.owndata
        assert array.flags.aligned


def test_names_with_dots_and_accents() -> None:
    sample = Content({"model/layers.0.größe": np.ones(2), "model/層": np.ones(1)}, 'name = "é"\n', manifest(note="ü"))
    assert_same(decode(encode(sample)), sample)


@pytest.mark.parametrize("job", ["", "x", JOB * 5000])
def test_any_job_text(job: str) -> None:
    assert decode(encode(Content(arrays(), job, manifest()))).job == job


def test_no_arrays_at_all() -> None:
    assert decode(encode(Content({}, JOB, manifest()))).arrays == {}


def test_many_arrays_in_one_group() -> None:
    sample = Content({f"model/layer{i}.weight": np.full(3, i, np.float32) for i in range(300)}, JOB, manifest())
    assert_same(decode(encode(sample)), sample)


def test_same_content_same_bytes() -> None:
    first = encode(content())
    backwards = Content(dict(reversed(arrays().items())), JOB, dict(reversed(manifest().items())))
    assert encode(backwards) == first
    assert encode(decode(first)) == first
    assert encode(Content(arrays() | {"model/0.bias": np.zeros(3, np.float32)}, JOB, manifest())) != first


def test_same_bytes_in_other_processes_seconds_later() -> None:
    script = """
import hashlib
from support.checkpoint_samples import content
from partrain.checkpoint import encode
print(hashlib.sha256(encode(content())).hexdigest())
"""
    mine = hashlib.sha256(encode(content())).hexdigest()
    for seed in ("1", "2"):
        time.sleep(1.1)  # HDF5 keeps times in seconds
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, cwd=HERE, env={"PYTHONPATH": f"{HERE.parent}:{HERE}", "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert done.stdout.strip() == mine, done.stderr


def test_a_viewer_opens_on_the_loss_curve() -> None:
    with h5py.File(io.BytesIO(encode(content()))) as file:
        assert file.userblock_size == 512
        assert file.attrs["NX_class"] == b"NXroot"
        history = file[file.attrs["default"].decode()]
        assert history.attrs["NX_class"] == b"NXdata"
        assert file["history"][history.attrs["signal"].decode()][:].tolist() == [2.0, 1.0, 0.5]
        assert history.attrs["axes"].tolist() == [b"round"]
        assert history.attrs["auxiliary_signals"].tolist() == [b"judged_loss"]
        assert file["job"].asstr()[()] == JOB
        listed = json.loads(file["manifest"].asstr()[()])
        assert listed["round"] == 3
        bias = file["model/0.bias"][:]
        assert listed["datasets"]["model/0.bias"] == {
            "dtype": "float32",
            "shape": [3],
            "offset": file["model/0.bias"].id.get_offset(),
            "sha256": hashlib.sha256(bias.tobytes()).hexdigest(),
        }
        assert set(listed["datasets"]) == {*arrays(), "job"}


def test_without_a_curve_there_are_no_attributes() -> None:
    with h5py.File(io.BytesIO(encode(with_arrays(model__x=np.ones(2))))) as file:
        assert not file.attrs
    sample = with_arrays(history__loss=np.ones(2))
    assert_same(decode(encode(sample)), sample)


@pytest.mark.parametrize(("path", "array", "message"), [
    ("model/x", np.ones(2, complex), "complex128"),
    ("model/x", np.array(["text"]), "<U4"),
    ("model/x", np.array([None]), "object"),
    ("model//x", np.ones(2), "not a path"),
    ("/model/x", np.ones(2), "not a path"),
    ("model/../x", np.ones(2), "not a path"),
    ("model/a\0b", np.ones(2), "not a path"),
    ("model/" + "x" * 1025, np.ones(2), "1024 bytes"),
    ("a/b/c/d/e/f/g/h/i", np.ones(2), "8 levels"),
    ("job", np.ones(2), "reserved"),
    ("manifest", np.ones(2), "reserved"),
    ("job/x", np.ones(2), "both a dataset and a group"),
    ("model/\ud800", np.ones(2), "not a path"),
    ("model/x", np.ones((1,) * 9), "more than 8 axes"),
    ("rule/step/x", np.ones(2), "both a dataset and a group"),
    ("history/extra", np.ones(2), "differ in length"),
    ("history/extra", np.ones(()), "differ in length"),
    ("history/round", np.array([1, 1, 2]), "does not increase"),
    ("history/round", np.array([1, 2, 4]), "does not increase"),
    ("history/round", np.array([1.0, 2.0, 3.0]), "not a list of integers"),
])  # fmt: skip
def test_what_reading_would_refuse_is_not_written(path: str, array: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(Content(arrays() | {path: array}, JOB, manifest()))


@pytest.mark.parametrize("more", [
    {"round": -1}, {"round": True}, {"round": 1.0}, {"run": ""}, {"run": "a b"}, {"run": "x" * 129}, {"loss": float("nan")},
    {"big": 10**30}, {"datasets": {}},
])  # fmt: skip
def test_a_manifest_that_reading_would_refuse_is_not_written(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(Content(arrays(), JOB, manifest(**more)))


def test_a_job_with_a_zero_byte_is_not_written() -> None:
    with pytest.raises(ValueError, match="NUL"):
        encode(Content(arrays(), "a\0b", manifest()))


def test_importing_the_package_is_cheap() -> None:
    script = "import sys, partrain.checkpoint; print([m for m in ('numpy', 'h5py', 'torch', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
