"""The reader refuses every damaged file, with 65 and one line; missing files are 66."""

from __future__ import annotations

import errno
import io
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.checkpoint_faults import FaultyOs, fail
from support.checkpoint_samples import JOB, TRAINED, arrays, content, forge, manifest, sealed

from partrain.checkpoint import Content, decode, encode, files, read, reader, verify, write
from partrain.checkpoint.header import SIZE, Header, parse
from partrain.errors import BadCheckpoint, InputMissing


@pytest.fixture
def data() -> bytes:
    return encode(content())


def refused(path: Path, data: bytes, message: str = ".") -> None:
    path.write_bytes(data)
    with pytest.raises(BadCheckpoint, match=message) as caught:
        read(path)
    assert caught.value.render().startswith(f"partrain: error[bad-checkpoint]: {path}: ")
    assert caught.value.render().count("\n") == 0


def test_read_and_verify(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "round-000003.h5"
    write(path, data)
    assert read(path).round == 3
    with pytest.raises(BadCheckpoint, match="the manifest is not that of a training"):
        verify(path)
    write(path, encode(replace(content(), manifest=TRAINED | {"run": "0123abcd", "round": 3})))
    data = path.read_bytes()
    summary = verify(path)
    assert (summary["run"], summary["round"], summary["format"], summary["bytes"]) == ("0123abcd", 3, 1, len(data))
    assert summary["datasets"] == len(arrays())


def test_through_a_link_to_the_folder(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real" / "checkpoint.h5", data)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read(tmp_path / "link" / "checkpoint.h5").round == 3


def test_missing_files_are_66(tmp_path: Path) -> None:
    for path in (tmp_path / "none.h5", tmp_path / "no" / "folder.h5"):
        with pytest.raises(InputMissing, match="No such file") as caught:
            read(path)
        assert caught.value.code == 66


def test_other_things_than_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(BadCheckpoint, match="not a regular file"):
            read(path)


def test_cut_off_or_grown(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.h5"
    for length in {0, 1, 511, 512, 513, *(len(data) * i // 100 for i in range(100)), len(data) - 1}:
        refused(path, data[:length])
    refused(path, data + b"\0", "has grown")
    refused(path, data[:SIZE], "cut off")


def test_every_flipped_bit_of_the_header_is_refused(data: bytes, no_hdf5: None) -> None:
    for bit in range(SIZE * 8):
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadCheckpoint):
            decode(bytes(spoilt))


def test_flipped_bits_anywhere_are_refused(data: bytes, no_hdf5: None) -> None:
    random = np.random.default_rng(0)
    for bit in random.choice((len(data) - SIZE) * 8, 6000, replace=False):
        spoilt = bytearray(data)
        spoilt[SIZE + bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadCheckpoint, match="does not match its SHA-256"):
            decode(bytes(spoilt))


@pytest.fixture
def no_hdf5(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if HDF5 sees the file: header and digest must refuse it."""

    def read_structure(data: bytes) -> None:
        pytest.fail("HDF5 was called")

    monkeypatch.setattr(reader, "read_structure", read_structure)


def test_header_and_image_of_different_files(data: bytes) -> None:
    other = encode(Content(arrays(), JOB, manifest(round=4)))
    with pytest.raises(BadCheckpoint):
        decode(data[:SIZE] + other[SIZE:])
    with pytest.raises(BadCheckpoint, match="different runs or rounds"):
        decode(sealed(data[SIZE:], number=4))
    with pytest.raises(BadCheckpoint, match="different runs or rounds"):
        decode(sealed(data[SIZE:], run="another"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"checkpoint 1\n", b"checkpoint 0\n", "this is format 0"),
        (b"checkpoint 1\n", b"checkpoint 2\n", "this is format 2, this version of partrain reads format 1"),
        (b"checkpoint 1\n", b"checkpoint x\n", "not a partrain checkpoint"),
        (b"partrain", b"otherrun", "not a partrain checkpoint"),
        (b"\nround 3\n", b"\nround 03\n", "header is damaged"),
        (b"\nround 3\n", b"\nround -3\n", "header is damaged"),
        (b"\nrun 0", b"\nrun \xc3", "header is damaged"),
        (b"   \n", b"  x\n", "header is damaged"),
        (b"   \n", b"   \0", "header is damaged"),
    ],
)
def test_other_headers(data: bytes, old: bytes, new: bytes, message: str) -> None:
    header = data[:SIZE].replace(old, new, 1)
    header = header if len(header) == SIZE else header[: SIZE - 2].ljust(SIZE - 1) + b"\n"
    with pytest.raises(BadCheckpoint, match=message):
        decode(header + data[SIZE:])


def test_header_says_what_it_was_told() -> None:
    header = Header.of(b"payload", "run-1", 2**63 - 1)
    assert len(header.render()) == SIZE
    assert parse(header.render()) == header


def test_files_of_others(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["model_weights/dense/kernel:0"] = np.ones((3, 3))
        file.attrs["keras_version"] = "2.0"
    refused(path, buffer.getvalue(), "was not written by partrain")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"a": 1}))
    refused(path, archive.getvalue(), "not a partrain checkpoint")
    refused(path, pickle.dumps({"a": 1}), "not a partrain checkpoint")
    refused(path, b"name = 'job'\n" * 100, "not a partrain checkpoint")
    refused(path, b"", "the file is empty")
    refused(path, bytes(4096), "not a partrain checkpoint")


def test_no_hdf5_behind_a_right_header() -> None:
    for payload in (b"", b"x", bytes(10_000), b"\x89HDF\r\n\x1a\n" + bytes(1000)):
        with pytest.raises(BadCheckpoint, match="HDF5 cannot read its structure"):
            decode(sealed(payload))


def test_image_that_lies_elsewhere() -> None:
    """HDF5 itself would also accept an image at a later offset."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=1024) as file:
        file["x"] = 1
    with pytest.raises(BadCheckpoint, match="not where the header ends"):
        decode(sealed(buffer.getvalue()[SIZE:]))


DATASETS: dict[str, tuple[dict[str, Any], str]] = {
    "missing dataset": ({"listed": lambda d: d.update({"rule/x": d["rule/step"]})}, "'rule/x' is missing"),
    "extra dataset": ({"listed": lambda d: d.pop("rule/step")}, "'rule/step' is not in the manifest"),
    "other dtype": ({"listed": lambda d: d["rule/step"].update(dtype="uint64")}, "which differs from the manifest"),
    "unknown dtype": ({"listed": lambda d: d["rule/step"].update(dtype="O")}, "which differs from the manifest"),
    "dtype of another type": ({"listed": lambda d: d["rule/step"].update(dtype=["int64"])}, "which differs from the manifest"),
    "other shape": ({"listed": lambda d: d["rule/step"].update(shape=[1])}, "which differs from the manifest"),
    "other digest": ({"listed": lambda d: d["rule/step"].update(sha256="0" * 64)}, "do not match their SHA-256"),
    "digest of another type": ({"listed": lambda d: d["rule/step"].update(sha256=None)}, "do not match their SHA-256"),
    "more said than known": ({"listed": lambda d: d["rule/step"].update(offset=0)}, "has other keys"),
    "entry of another type": ({"listed": lambda d: d.update({"rule/step": 3})}, "has other keys"),
    "text where numbers are due": (
        {"more_arrays": {"rule/x": np.array(b"text")}, "listed": lambda d: d["rule/x"].update(dtype="S4")},
        "which differs from the manifest",
    ),
    "truth value of 2": (
        {"more_arrays": {"rule/x": np.full(2, 2, np.uint8)}, "listed": lambda d: d["rule/x"].update(dtype="bool")},
        "booleans other",
    ),
    "job is not listed": ({"listed": lambda d: d.pop("job")}, "lists no datasets"),
    "job not UTF-8": ({"job": b"\xff\xfe"}, "not UTF-8 text"),
    "job with a zero": ({"job": b"a\0b"}, "a zero byte"),
    "round -1": ({"round": -1}, "not a number of rounds"),
    "round as text": ({"round": "3"}, "not a number of rounds"),
    "round true": ({"round": True}, "not a number of rounds"),
    "other round": ({"round": 4}, "different runs or rounds"),
    "no run": ({"run": None}, "not a run id"),
    "round before its history": ({"round": 2}, "does not increase"),
    "history not rising": ({"more_arrays": {"history/round": np.array([1, 3, 3])}}, "does not increase"),
    "history ragged": ({"more_arrays": {"history/x": np.ones(4)}}, "differ in length"),
    "duplicate key": ({"text": lambda t: t.replace('"round":3', '"round":3,"round":3')}, "canonical"),
    "spaces": ({"text": lambda t: t.replace(":", ": ")}, "canonical"),
    "trailing line": ({"text": lambda t: t + "\n"}, "canonical"),
    "unsorted": ({"text": lambda t: "{" + '"zz":1,' + t[1:]}, "canonical"),
    "infinite number": ({"text": lambda t: t.replace("3840", "1e400")}, "cannot be parsed"),
    "NaN": ({"text": lambda t: t.replace("3840", "NaN")}, "cannot be parsed"),
    "huge integer": ({"text": lambda t: t.replace("3840", "9" * 5000)}, "cannot be parsed"),
    "65-bit integer": ({"text": lambda t: t.replace("3840", "9" * 21)}, "cannot be parsed"),
    "deep": ({"text": lambda t: t.replace("3840", "[" * 100_000 + "]" * 100_000)}, "cannot be parsed"),
    "33 levels": ({"text": lambda t: t.replace("3840", "[" * 32 + "]" * 32)}, "nested more than 32 levels"),
    "not JSON": ({"text": lambda t: t[1:]}, "cannot be parsed"),
    "a list": ({"text": lambda t: "[1,2]"}, "canonical"),
    "not ASCII": ({"text": lambda t: t.replace("0123abcd", "ü")}, "cannot be parsed|unicode"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_manifest_that_does_not_fit(name: str) -> None:
    how, message = DATASETS[name]
    data = sealed(forge(**how)[SIZE:], number=2 if how.get("round") == 2 else 3)
    with pytest.raises(BadCheckpoint, match=message) as caught:
        decode(data)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("path", ["model/0.bias", "workers/1/optimizer/momentum"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(path: str, value: float) -> None:
    spoilt = arrays()
    spoilt[path][1] = value
    data = encode(Content(spoilt, JOB, manifest()))
    with pytest.raises(BadCheckpoint, match="NaN or infinite"):
        decode(data)
    assert not np.isfinite(decode(data, allow_nonfinite=True).arrays[path][1])


def test_nan_is_no_fault_in_a_history(data: bytes) -> None:
    assert np.isnan(decode(data).arrays["history/judged_loss"][0])


def test_a_file_replaced_meanwhile_changes_nothing(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(data)
    replaced = []
    read_structure = reader.read_structure

    def replace_and_read(seen: bytes) -> Any:
        path.write_bytes(os.urandom(len(data)))
        replaced.append(True)
        return read_structure(seen)

    monkeypatch.setattr(reader, "read_structure", replace_and_read)
    assert read(path).round == 3
    assert replaced


def test_limit(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(data)
    assert read(path, max_bytes=len(data)).round == 3
    with pytest.raises(BadCheckpoint, match="more than the limit"):
        read(path, max_bytes=len(data) - 1)


def test_a_header_that_promises_too_much_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    refused(path, Header(2**62, "0" * 64, "x", 1).render() + b"x", "cut off or has grown")


def test_errors_while_reading_are_66(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(data)
    for call in (1, 2):
        faulty = FaultyOs(call, fail(errno.EIO))
        monkeypatch.setattr(files, "os", faulty)
        with pytest.raises(InputMissing, match="Input/output error"):
            read(path)
        assert faulty.fired


MEMORY = """
import resource, sys
from pathlib import Path
import partrain.checkpoint.reader
from partrain.checkpoint import read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_below_two_copies(tmp_path: Path) -> None:
    path = tmp_path / "big.h5"
    write(path, encode(Content({"model/x": np.ones(1 << 24, np.float32)}, JOB, manifest())))
    done = subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 2 * path.stat().st_size + (64 << 20)


def test_nothing_is_imported_or_started_by_a_file(tmp_path: Path, data: bytes) -> None:
    """Audit events of reading: no process, no pickle, no code, no new import."""
    script = """
import sys, pathlib
import partrain.checkpoint.reader
from partrain.checkpoint import decode
data = pathlib.Path(sys.argv[1]).read_bytes()
decode(data)
seen = []
sys.addaudithook(lambda event, args: seen.append(event))
decode(data)
code = {"import", "exec", "compile", "pickle.find_class"}
doings = {"subprocess.Popen", "os.fork", "os.exec", "open", "socket.connect"}
print(sorted(set(seen) & (code | doings)))
"""
    path = tmp_path / "x.h5"
    path.write_bytes(data)
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
