"""Unusable files and settings: one line and exit code 66 or 78. Each was once a defect, a hang, or passed."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from pydantic import ValidationError
from support.runs import partrain

from partrain.data import load
from partrain.data.arrays.sections import Hdf5, Idx, Npy, Npz
from partrain.data.tables.sections import Csv
from partrain.data.tables.series import Series
from partrain.errors import InputMissing

ROWS = "".join(f"{i / 8},{i % 5},{'ab'[i % 2]}\n" for i in range(20))
NUMBERS = np.arange(60, dtype=np.float32).reshape(20, 3)
LABELS = np.arange(20) % 2


def csv(folder: Path, text: str, **keys: Any) -> Any:
    (folder / "t.csv").write_text(text)
    return load(Csv.model_validate({"kind": "csv", "path": "t.csv", "target": "y"} | keys), folder)


def header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


@pytest.mark.parametrize("encoding", ["hex", "rot13", "undefined"])
def test_an_encoding_that_is_not_one_of_text(encoding: str) -> None:
    with pytest.raises(ValidationError, match=f"there is no `{encoding}`"):
        Csv(kind="csv", path="t.csv", target=["y"], encoding=encoding)


def test_text_without_the_mark_that_its_encoding_wants(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match=r"t\.csv:1: not utf-16 text"):
        csv(tmp_path, "a,b,y\n" + ROWS, encoding="utf-16")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_separator_is_seen(tmp_path: Path, mark: str) -> None:
    with pytest.raises(InputMissing, match=r"t\.csv:1: no column `y`.*set `separator`"):
        csv(tmp_path, ("a,b,y\n" + ROWS).replace(",", mark))


@pytest.mark.parametrize("key", ["target", "inputs", "one_hot", "drop"])
def test_a_column_is_named_once(key: str) -> None:
    with pytest.raises(ValidationError, match="names the column `a` twice"):
        Csv.model_validate({"kind": "csv", "path": "t.csv", "target": ["y"], key: ["a", "a"]})


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_name_that_is_none(path: str) -> None:
    for make in (lambda: Csv(kind="csv", path=path, target=["y"]), lambda: Npy(kind="npy", inputs="x", targets=path)):
        with pytest.raises(ValidationError, match="expected the name of a file"):
            make()


def test_numbers_too_large_for_a_deviation(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="column `b`: its numbers are too large"):
        csv(tmp_path, "a,b,y\n" + ROWS + "1,1e300,a\n")


@pytest.mark.parametrize("digits", ["1" + "0" * 20, "9" * 5000])
def test_a_whole_number_too_large_for_a_class(tmp_path: Path, digits: str) -> None:
    with pytest.raises(InputMissing, match=r"t\.csv:3: column `y`: a class of more than 18 digits"):
        csv(tmp_path, f"a,y\n1,0\n2,{digits}\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    (tmp_path / "u.csv").write_text(f"a,y\n1,{digits}\n")
    with pytest.raises(InputMissing, match=r"u\.csv:2: column `y`: the class"):
        csv(tmp_path, "a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)), test_path="u.csv")


@pytest.mark.parametrize(("scale", "standardise", "said"), [(1e200, True, "too large"), (1e39, False, "float32 cannot")])
def test_a_series_of_too_large_numbers(tmp_path: Path, scale: float, standardise: bool, said: str) -> None:
    (tmp_path / "t.csv").write_text("y\n" + "".join(f"{i % 7 * scale!r}\n" for i in range(40)))
    section = Series(kind="series", path="t.csv", target=["y"], window=3, standardise=standardise)
    with pytest.raises(InputMissing, match=f"column `y`: .*{said}"):
        load(section, tmp_path)


def test_a_series_that_varies_by_rounding_alone_is_constant(tmp_path: Path) -> None:
    """The mean of many 0.1 is not quite 0.1: divided by what is left, the last moments would be 10^15."""
    (tmp_path / "t.csv").write_text("y,c\n" + "".join(f"{i % 7},{0.1 if i < 100 else 0.2}\n" for i in range(120)))
    section = Series(kind="series", path="t.csv", target=["y"], columns=["y", "c"], window=3, test_items=20)
    data = load(section, tmp_path)
    assert data.test_inputs is not None
    assert abs(data.inputs[..., 1]).max() < 1e-6
    assert np.allclose(data.test_inputs[-1, :, 1], 0.1)


@pytest.mark.parametrize(
    "shape", ["(20, -3)", "(20, 3.0)", "(20, 2)", "(20, 100000000000)", f"(20,{'1,' * 70} 3)", "'20'", "(20, True)"]
)
@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_headers_that_claim_what_is_not_there(tmp_path: Path, shape: str, packed: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", packed) as file:
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"
        file.writestr("inputs.npy", header(text, NUMBERS.tobytes()))
        np.save(targets := io.BytesIO(), LABELS)
        file.writestr("targets.npy", targets.getvalue())
    with pytest.raises(InputMissing, match=r"array `inputs`: (its header is damaged|expected [0-9]+ bytes)"):
        load(Npz(kind="npz", path="a.npz"), tmp_path)


def test_whole_numbers_that_64_bits_with_a_sign_do_not_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=NUMBERS, targets=LABELS.astype(np.uint64) << np.uint64(63))
    with pytest.raises(InputMissing, match="array `targets`: holds a whole number of more than 63 bits"):
        load(Npz(kind="npz", path="a.npz"), tmp_path)


def test_numbers_that_float32_does_not_hold_are_called_so(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    np.savez(tmp_path / "a.npz", inputs=NUMBERS, targets=NUMBERS.astype(float) * 1e200)
    with pytest.raises(InputMissing, match=r"array `targets`: item .* holds a number that float32 cannot"):
        load(Npz(kind="npz", path="a.npz"), tmp_path)
    assert not recwarn.list


@pytest.mark.parametrize("lost", ["file", "dataset", "numbers"])
def test_hdf5_whose_numbers_are_elsewhere_or_nowhere(tmp_path: Path, lost: str) -> None:
    """HDF5 silently returns zeros in their place."""
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["x"] = NUMBERS
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["targets"] = LABELS
        if lost == "numbers":
            file.create_dataset("inputs", (20, 3), "f4")
        else:
            whole = h5py.VirtualLayout((20, 3), "f4")
            whole[:] = h5py.VirtualSource("part.h5", "x", (20, 3))
            file.create_virtual_dataset("inputs", whole)
    section = Hdf5(kind="hdf5", path="a.h5")
    if lost != "numbers":
        assert (load(section, tmp_path).inputs == NUMBERS).all()
    if lost == "file":
        (tmp_path / "part.h5").unlink()
    if lost == "dataset":
        with h5py.File(tmp_path / "part.h5", "w") as file:
            file["z"] = NUMBERS
    said = {"file": "part.h5, which cannot be read", "dataset": "no dataset `x`", "numbers": "nothing was ever written"}[lost]
    with pytest.raises(InputMissing, match=f"dataset `inputs`: .*{said}"):
        load(section, tmp_path)


@pytest.mark.parametrize(("labels", "said"), [(np.zeros(4), "nothing to tell apart"), (np.arange(4) << 20, "renumber them")])
def test_idx_labels_that_cannot_be_meant(tmp_path: Path, labels: Any, said: str) -> None:
    (tmp_path / "x").write_bytes(struct.pack(">4B2I", 0, 0, 8, 2, 4, 3) + bytes(12))
    (tmp_path / "y").write_bytes(struct.pack(">4BI", 0, 0, 0x0C, 1, 4) + labels.astype(">i4").tobytes())
    with pytest.raises(InputMissing, match=f"y: .*{said}"):
        load(Idx(kind="idx", inputs="x", targets="y"), tmp_path)


def test_idx_of_more_axes_than_numpy_takes(tmp_path: Path) -> None:
    (tmp_path / "many-idx255-ubyte").write_bytes(bytes([0, 0, 8, 255]) + struct.pack(">I", 1) * 255 + b"\1")
    said = partrain("data", "inspect", tmp_path / "many-idx255-ubyte")
    assert (said.code, said.errors) == (66, ["no-input"]), said


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("t.csv", "t.npz", "t.npy", "t.h5", "t.idx"):
        os.mkfifo(tmp_path / name)
        said = partrain("data", "inspect", tmp_path / name)
        assert (said.code, said.errors) == (66, ["no-input"]), said
    with pytest.raises(InputMissing, match=r"t\.csv: is a pipe or a device"):
        load(Csv(kind="csv", path="t.csv", target=["y"]), tmp_path)


@pytest.mark.parametrize("way", ["external", "absolute", "above", "symlink", "nested", "linked", "itself"])
def test_hdf5_that_names_files_of_the_host(tmp_path: Path, way: str) -> None:
    """HDF5 would read any file: a stranger's data set must not put it into what is trained and written."""
    folder = tmp_path / "given"
    folder.mkdir()
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = NUMBERS
    raw = [(str(secret), 0, NUMBERS.nbytes)]

    def virtual(file: h5py.File, name: str, source: str, dataset: str = "x") -> None:
        whole = h5py.VirtualLayout((20, 3), "f4")
        whole[:] = h5py.VirtualSource(source, dataset, (20, 3))
        file.create_virtual_dataset(name, whole)

    with h5py.File(folder / "a.h5", "w") as file:
        file["targets"] = LABELS
        if way == "external":
            file.create_dataset("inputs", (20, 3), "f4", external=raw)
        elif way == "itself":
            file.create_dataset("x", (20, 3), "f4", external=raw)
            virtual(file, "inputs", ".")
        else:
            source = {"absolute": str(secret), "above": "../secret.h5"}.get(way, "part.h5")
            virtual(file, "inputs", source, "g/x" if way == "linked" else "x")
    if way == "symlink":
        (folder / "part.h5").symlink_to(secret)
    if way in ("nested", "linked"):
        with h5py.File(folder / "part.h5", "w") as file:
            if way == "nested":
                virtual(file, "x", str(secret))
            else:
                file["g"] = h5py.ExternalLink(str(secret), "/")
    with pytest.raises(InputMissing, match=r"dataset `inputs`: holds the (bytes|numbers) of .* is not (read|followed)"):
        load(Hdf5(kind="hdf5", path="a.h5"), folder)


LOCKER = """
import sys, time, h5py
with h5py.File(sys.argv[1], "r+"):
    print("open", flush=True)
    time.sleep(100)
"""


def test_a_file_that_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["inputs"], file["targets"] = np.ones((20, 3), "f4"), np.zeros(20, "i8")
    with subprocess.Popen([sys.executable, "-c", LOCKER, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(InputMissing, match="another process has it open and locked"):
            load(Hdf5(kind="hdf5", path="a.h5"), tmp_path)
        other.kill()
