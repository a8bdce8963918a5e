"""The reader refuses every damaged file, with 65 and one line; missing files are 66."""

from __future__ import annotations

import errno
import io
import json
import math
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
    assert (summary["run"], summary["round"], summary["format"], summary["bytes"]) == ("0123abcd", 3, 2, len(data))
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
    for length in range(len(data)):
        with pytest.raises(BadCheckpoint):
            decode(data[:length])
    for length in (0, 1, 511, 512, 513, len(data) // 2, len(data) - 1):
        refused(path, data[:length])
    refused(path, data + b"\0", "has grown")
    refused(path, data[:SIZE], "cut off")


@pytest.mark.representative
def test_every_flipped_bit_is_refused(data: bytes) -> None:
    for bit in range(len(data) * 8):
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadCheckpoint, match="." if bit < SIZE * 8 else "does not match its SHA-256"):
            decode(bytes(spoilt))


def places(data: bytes) -> dict[str, tuple[int, int]]:
    """First and last byte of each dataset that the manifest lists."""
    start, length = parse(data[:SIZE]).manifest
    found = {}
    for path, entry in json.loads(data[start : start + length])["datasets"].items():
        width = int(entry["dtype"][1:]) if path == "job" else np.dtype(entry["dtype"]).itemsize
        found[path] = (entry["offset"], entry["offset"] + math.prod(entry["shape"]) * width)
    return found


def test_every_flipped_byte_of_a_dataset_is_named(data: bytes) -> None:
    """The digest of the whole file is right, those of the arrays are not."""
    place = parse(data[:SIZE]).manifest
    for path, (start, end) in places(data).items():
        for byte in range(start, end):
            spoilt = bytearray(data)
            spoilt[byte] ^= 1
            with pytest.raises(BadCheckpoint, match=f"the numbers of '{path}' do not match their SHA-256"):
                decode(sealed(bytes(spoilt[SIZE:]), place))


def test_bytes_of_hdf5_have_no_effect(data: bytes) -> None:
    """All bytes between the datasets are damaged, and all digests right: the reader looks at none of them."""
    place = parse(data[:SIZE]).manifest
    spoilt = bytearray(os.urandom(len(data)))
    for start, end in [(place[0], sum(place)), *places(data).values()]:
        spoilt[start:end] = data[start:end]
    found, wanted = decode(sealed(bytes(spoilt[SIZE:]), place)), decode(data)
    assert (found.job, found.manifest, found.arrays.keys()) == (wanted.job, wanted.manifest, wanted.arrays.keys())
    assert all(found.arrays[path].tobytes() == array.tobytes() for path, array in wanted.arrays.items())


def test_hdf5_and_reader_give_the_same_arrays(data: bytes) -> None:
    arrays_read = decode(data).arrays
    stored = {}
    with h5py.File(io.BytesIO(data)) as file:
        file.visititems(lambda path, item: stored.update({path: item[()]}) if isinstance(item, h5py.Dataset) else None)
    assert stored.keys() - {"job", "manifest"} == arrays_read.keys()
    for path, array in arrays_read.items():
        assert (stored[path].dtype, stored[path].shape) == (array.dtype, array.shape)
        assert stored[path].tobytes() == array.tobytes(), path


def test_header_and_image_of_different_files(data: bytes) -> None:
    other = encode(Content(arrays(), JOB, manifest(round=4)))
    with pytest.raises(BadCheckpoint):
        decode(data[:SIZE] + other[SIZE:])
    with pytest.raises(BadCheckpoint, match="different runs or rounds"):
        decode(sealed(data[SIZE:], parse(data[:SIZE]).manifest, number=4))
    with pytest.raises(BadCheckpoint, match="different runs or rounds"):
        decode(sealed(data[SIZE:], parse(data[:SIZE]).manifest, run="another"))


@pytest.mark.parametrize(("old", "new", "message"), [
    (b"checkpoint 2\n", b"checkpoint 1\n", "format 1, and .* reads format 2; use the version that wrote it, or train again$"),
    (b"checkpoint 2\n", b"checkpoint 3\n", "this is format 3, and this version of partrain reads format 2"),
    (b"checkpoint 2\n", b"checkpoint x\n", "not a partrain checkpoint"),
    (b"partrain", b"otherrun", "not a partrain checkpoint"),
    (b"\nround 3\n", b"\nround 03\n", "header is damaged"),
    (b"\nround 3\n", b"\nround -3\n", "header is damaged"),
    (b"\nrun 0", b"\nrun \xc3", "header is damaged"),
    (b"   \n", b"  x\n", "header is damaged"),
    (b"   \n", b"   \0", "header is damaged"),
])  # fmt: skip
def test_other_headers(data: bytes, old: bytes, new: bytes, message: str) -> None:
    header = data[:SIZE].replace(old, new, 1)
    header = header if len(header) == SIZE else header[: SIZE - 2].ljust(SIZE - 1) + b"\n"
    with pytest.raises(BadCheckpoint, match=message):
        decode(header + data[SIZE:])


def test_header_says_what_it_was_told() -> None:
    header = Header.of(b"payload", (512, 7), "run-1", 2**63 - 1)
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


@pytest.mark.parametrize("place", [(0, 0), (0, 100), (511, 60), (512, 0), (10**18, 100), (4096, 100)])
def test_a_header_that_points_to_no_manifest(place: tuple[int, int], data: bytes) -> None:
    for payload in (data[SIZE:], b"", b"x", bytes(10_000)):
        with pytest.raises(BadCheckpoint, match="the manifest cannot be parsed"):
            decode(sealed(payload, place))


def step(**entry: Any) -> dict[str, Any]:
    """Alter what the manifest lists of one dataset, an integer ()."""
    return {"listed": lambda datasets: datasets["rule/step"].update(entry)}


def at_the_end(datasets: dict[str, Any]) -> None:
    """Let a dataset end after the file."""
    datasets["rule/step"].update(offset=10**4, shape=[10**6])


DATASETS: dict[str, tuple[dict[str, Any], str]] = {
    "dataset without numbers": ({"listed": lambda d: d.update({"rule/x": d["rule/step"]})}, "'rule/x' overlaps other data"),
    "dataset of another type": (step(dtype="float32"), "do not match their SHA-256"),
    "unknown dtype": (step(dtype="O"), "has the type 'O'"),
    "dtype of another type": (step(dtype=["int64"]), "has the type \"\\['int64'\\]\""),
    "text where numbers are due": (step(dtype="S8"), "has the type 'S8'"),
    "numbers where a text is due": ({"listed": lambda d: d["job"].update(dtype="uint8")}, "has the type 'uint8'"),
    "several texts": ({"listed": lambda d: d["job"].update(shape=[1])}, "no right shape and offset"),
    "fewer numbers": (step(shape=[0]), "does not begin where a dataset of 0 bytes does"),
    "more numbers": (step(shape=[9]), "overlaps other data"),
    "more numbers than bytes": (step(shape=[2**50]), "lies outside the file|overlaps"),
    "more numbers than addresses": (step(shape=[2**40, 2**40]), "more numbers than a memory can hold"),
    "no numbers of a huge shape": (step(shape=[0, 2**62], offset=0), "more numbers than a memory can hold"),
    "nine axes": (step(shape=[1] * 9), "more than 8 axes"),
    "negative shape": (step(shape=[-1, -1]), "no right shape"),
    "fractional shape": (step(shape=[1.0]), "no right shape"),
    "shape of truth values": (step(shape=[True]), "no right shape"),
    "shape of another type": (step(shape="1"), "no right shape"),
    "negative offset": (step(offset=-8), "no right shape and offset"),
    "offset in the header": (step(offset=0), "overlaps other data"),
    "offset out of the file": (step(offset=2**40), "lies outside the file"),
    "offset in front of the end": ({"listed": at_the_end}, "lies outside the file|overlaps"),
    "offset of 65 bits": (step(offset=2**64), "no right shape and offset"),
    "offset of another type": (step(offset="640"), "no right shape and offset"),
    "offset not on a cache line": (
        {
            "more_arrays": {"rule/x": np.zeros(1032, np.uint8)},
            "listed": lambda d: d["rule/x"].update(shape=[1024], offset=d["rule/x"]["offset"] + 8),
        },
        "does not begin where a dataset of 1024 bytes does",
    ),
    "datasets that overlap": ({"listed": lambda d: d["model/0.bias"].update(offset=d["model/0.weight"]["offset"])}, "overlaps"),
    "other digest": (step(sha256="0" * 64), "do not match their SHA-256"),
    "digest of another type": (step(sha256=None), "do not match their SHA-256"),
    "more told than known": (step(filters=[]), "has other keys"),
    "entry of another type": ({"listed": lambda d: d.update({"rule/step": 3})}, "has other keys"),
    "manifest in its list": ({"listed": lambda d: d.update(manifest=d.pop("rule/step"))}, "'manifest' is a reserved name"),
    "dataset in a dataset": (
        {"listed": lambda d: d.update({"model/0.bias/x": d.pop("rule/step")})},
        "both a dataset and a group",
    ),
    **{
        f"path {path[:12]!r}": ({"listed": lambda d, path=path: d.update({path: d.pop("rule/step")})}, message)
        for path, message in {
            "rule/../x": "not a path of plain names",
            "/rule/x": "not a path of plain names",
            "rule/": "not a path of plain names",
            "rule/a\0b": "not a path of plain names",
            "rule/\ud800": "not a path of plain names",
            "": "not a path of plain names",
            "rule/" + "n" * 1025: "more than 1024 bytes",
            "a/b/c/d/e/f/g/h/i": "more than 8 levels",
        }.items()
    },
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
    data = forge(**how, number=2 if how.get("round") == 2 else 3)
    with pytest.raises(BadCheckpoint, match=message) as caught:
        decode(data)
    assert len(caught.value.message) < 300
    assert caught.value.code == 65
    caught.value.render().encode()


def test_the_forge_is_right() -> None:
    assert decode(forge()).arrays.keys() == arrays().keys()


def test_fuzz_through_the_digests() -> None:
    """Fuzz in a separate process, under limits of memory and time."""
    command = [sys.executable, "-m", "support.checkpoint_fuzz", "0", "400"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    refused, accepted = map(int, done.stdout.split())
    assert refused > 200
    assert accepted < refused


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
    parse_manifest = reader.parse_manifest

    def replace_and_read(seen: bytes) -> Any:
        path.write_bytes(os.urandom(len(data)))
        replaced.append(True)
        return parse_manifest(seen)

    monkeypatch.setattr(reader, "parse_manifest", replace_and_read)
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
    refused(path, Header(2**62, "0" * 64, (512, 7), "x", 1).render() + b"x", "cut off or has grown")


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
print(sorted(set(seen) & (code | doings)), "h5py" in sys.modules)
"""
    path = tmp_path / "x.h5"
    path.write_bytes(data)
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert done.stdout.strip() == "[] False", done.stdout + done.stderr
