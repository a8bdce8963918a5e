"""Exported graphs tell nothing of the machine, and other programs can work on them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import SIMULATED, partrain, train

from partrain.inference.export import Format, export, onnx_session
from partrain.inference.network import TrainedNetwork
from partrain.inference.preprocessed_export import export_preprocessed
from partrain.inference.preprocessing import Preprocessing

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))
"""


@pytest.mark.parametrize(("form", "whole"), [
    ("torch-export", []), ("torch-export", ["--with-preprocessing"]), ("onnx", ["--with-preprocessing"])
], ids=["torch-export", "whole-torch-export", "whole-onnx"])  # fmt: skip
def test_two_checkouts_write_the_same_bytes_without_paths(tmp_path: Path, form: Format, whole: list[str]) -> None:
    pytest.importorskip("onnx" if form == "onnx" else "torch")
    written = []
    for folder in (tmp_path / "a-checkout", tmp_path / "another" / "deeper"):
        folder.mkdir(parents=True)
        (folder / "net.py").write_text(NET)
        run = train(folder, 'model={name="net.py:Net"}', "stop.rounds=1", SIMULATED)
        said = partrain("export", run, "-f", form, "-o", folder / "graph", *whole)
        assert said.code == 0, said
        written.append((folder / "graph").read_bytes())
    assert written[0] == written[1]
    parts = [written[0]]
    if form == "torch-export":
        with zipfile.ZipFile(BytesIO(written[0])) as archive:
            parts = [archive.read(name) for name in archive.namelist()]
    for traitor in (b"checkout", str(tmp_path).encode(), b"site-packages", b"self.last(torch.relu", b"in forward", b"line "):
        assert not any(traitor in part for part in parts), traitor


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["plain", "whole"])
def test_onnxruntime_quantises_a_graph(network_of: Callable[[str], TrainedNetwork], tmp_path: Path, whole: bool) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    network = network_of("tabular")
    data, _ = export_preprocessed(Preprocessing.of(network), "onnx") if whole else export(network, "onnx")
    (tmp_path / "graph.onnx").write_bytes(data)
    quantization.quantize_dynamic(tmp_path / "graph.onnx", tmp_path / "small.onnx")
    before, after = (onnx_session((tmp_path / f"{name}.onnx").read_bytes()) for name in ("graph", "small"))
    draw = np.random.default_rng(0)

    def drawn(kind: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if kind == "tensor(string)":
            return np.full(shape, "a", object)
        return draw.normal(size=shape).astype({"tensor(float)": np.float32, "tensor(double)": np.float64}[kind])

    feed = {one.name: drawn(one.type, (20, *one.shape[1:])) for one in before.get_inputs()}
    for wanted, had in zip(before.run(None, feed), after.run(None, feed), strict=True):
        if wanted.dtype.kind == "f":
            assert np.median(np.abs(had - wanted)) <= 0.05 * max(1.0, np.abs(wanted).max())
