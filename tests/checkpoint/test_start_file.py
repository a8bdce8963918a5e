"""Files that a network starts from: every kind is read, and no damaged one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from partrain.checkpoint import Content, encode, start_file
from partrain.checkpoint.content import DTYPES
from partrain.errors import InputMissing


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def load(path: Path) -> dict[str, Any]:
    """Check a file and read it, as a run does."""
    start_file.check(path)
    buffers = []

    def allocate(size: int) -> memoryview:
        buffers.append(bytearray(size))
        return memoryview(buffers[-1])

    file = start_file.read(path, allocate)
    assert file.size == len(buffers[0])
    return dict(start_file.tensors(file, memoryview(buffers[0])))


def safetensors(path: Path, tensors: dict[str, Tensor], **metadata: str) -> Path:
    from safetensors.torch import save_file

    save_file(tensors, path, metadata or None)
    return path


def test_safetensors_of_every_type(tmp_path: Path) -> None:
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    whole = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
    tensors = {str(kind): torch.randn(3, 2).to(kind) for kind in kinds}
    tensors |= {str(kind): torch.tensor([1, 0, 1]).to(kind) for kind in whole}
    tensors |= {"scalar": torch.tensor(7), "empty": torch.empty(0, 3)}
    found = load(safetensors(tmp_path / "a.safetensors", tensors, origin="test"))
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], one) and found[name].dtype == one.dtype for name, one in tensors.items())


@pytest.mark.parametrize("name", ["a.pt", "a.pth"])
@pytest.mark.parametrize("zipped", [True, False])
def test_state_dicts(tmp_path: Path, name: str, zipped: bool) -> None:
    torch.save(network().state_dict(), tmp_path / name, _use_new_zipfile_serialization=zipped)
    found = load(tmp_path / name)
    assert all(torch.equal(found[name], one) for name, one in network().state_dict().items())


def refused(path: Path) -> str:
    with pytest.raises(InputMissing) as caught:
        load(path)
    assert str(path.name) in caught.value.message
    return caught.value.message


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    torch.save(network(), tmp_path / "a.pt")
    assert "save tensors only" in refused(tmp_path / "a.pt")
    torch.save([1, 2], tmp_path / "b.pt")
    assert "holds an object of type list" in refused(tmp_path / "b.pt")


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert "a network cannot start from this kind of file" in refused(tmp_path / "a.h5")
    (tmp_path / "a.pt").write_bytes(b"nothing")
    assert "cannot be read as a state dict" in refused(tmp_path / "a.pt")
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.script(nn.Linear(1, 1)), tmp_path / "b.pt")
    assert "TorchScript" in refused(tmp_path / "b.pt")
    with pytest.raises(InputMissing, match="no such file"):
        start_file.locate("nowhere.pt", tmp_path)
    with pytest.raises(InputMissing, match=r"has no checkpoint\.h5"):
        start_file.locate(".", tmp_path)


@pytest.mark.parametrize("cut", [0, 7, 8, 40, -1])
def test_cut_off(tmp_path: Path, cut: int) -> None:
    whole = safetensors(tmp_path / "whole.safetensors", {"a": torch.ones(8)}).read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[:cut])
    refused(tmp_path / "a.safetensors")


@pytest.mark.parametrize("entry", [
    {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]},
    {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}, {"dtype": "F32", "shape": [2], "data_offsets": ["0", "8"]},
    {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}, {"dtype": "X64", "shape": [1], "data_offsets": [0, 8]},
    {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}, {"shape": [2]}, [], None,
])  # fmt: skip
def test_headers_that_lie(tmp_path: Path, entry: Any) -> None:
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    assert "is no whole safetensors file" in refused(tmp_path / "a.safetensors")


@pytest.mark.parametrize("text", [b"[]", b"\xff\xff", b"3"])
def test_a_header_that_is_no_table(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    assert "is no whole safetensors file" in refused(tmp_path / "a.safetensors")


def test_a_file_that_is_damaged_after_its_check(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "a.safetensors", {"a": torch.ones(8)})
    file = start_file.read(path, lambda size: memoryview(bytearray(size)))
    with pytest.raises(InputMissing, match=r"a\.safetensors: is no whole safetensors file"):
        start_file.tensors(file, memoryview(path.read_bytes()[:-4]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_checkpoint_of_every_type(tmp_path: Path, dtype: str) -> None:
    arrays = {"model/b": np.ones((2, 3), dtype), "model/a": np.zeros((), dtype), "model/none": np.ones((0, 2), dtype)}
    (tmp_path / "a.h5").write_bytes(encode(Content(arrays, "", {"run": "x", "round": 1})))
    found = load(tmp_path / "a.h5")
    assert list(found) == ["a", "b", "none"]
    assert all(np.array_equal(tensor.numpy(), arrays[f"model/{name}"]) for name, tensor in found.items())
    assert found["b"].numpy().dtype == dtype
