"""`partrain export`: other programs get the network's answers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from support.runs import partrain

from partrain.errors import UserCodeFailed
from partrain.inference.deliver import Delivery
from partrain.inference.export import export
from partrain.inference.inputs.read import read
from partrain.inference.network import TrainedNetwork, evaluate_items

Runs = Callable[[str], Path]
Networks = Callable[[str], TrainedNetwork]
FORMATS = ["safetensors", "state-dict", "torch-export", "onnx"]


def items(network: TrainedNetwork, count: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    if network.record.vocabulary:
        return torch.randint(network.record.vocabulary, (count, *network.record.input), generator=draw)
    return torch.randn(count, *network.record.input, generator=draw)


def answers(network: TrainedNetwork, count: int) -> torch.Tensor:
    with torch.no_grad():
        return network.module(items(network, count))


def made(run: Path, format: str, output: Path, *words: object) -> dict:
    said = partrain("export", run, "--format", format, "--output", output, "--json", *words)
    assert (said.code, said.err) == (0, ""), said
    told = dict(json.loads(said.out))
    assert told["bytes"] == output.stat().st_size
    assert told["largest_difference"] <= told["tolerance"]
    return told


@pytest.mark.parametrize("format", FORMATS[:2])
def test_tensors(run_of: Runs, network_of: Networks, tmp_path: Path, format: str) -> None:
    """Formats without code hold the same bits under the same names."""
    told = made(run_of("clouds"), format, tmp_path / "out")
    assert told["largest_difference"] == 0
    tensors = load_file(tmp_path / "out") if format == "safetensors" else torch.load(tmp_path / "out", weights_only=True)
    expected = network_of("clouds").module.state_dict()
    assert list(tensors) == list(expected) or format == "safetensors"
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def facts_of(format: str, path: Path) -> str:
    """Read the metadata without partrain."""
    if format == "safetensors":
        with safe_open(path, "pt") as file:
            return str(file.metadata()["partrain"])
    if format == "onnx":
        import onnxruntime

        return str(onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map["partrain"])
    extra = {"partrain.json": ""}
    torch.export.load(path, extra_files=extra)
    return extra["partrain.json"]


@pytest.mark.parametrize(
    "format", [pytest.param(format, marks=pytest.mark.slow if format in ("onnx", "torch-export") else ()) for format in FORMATS]
)
def test_it_says_what_it_takes_and_answers(run_of: Runs, network_of: Networks, tmp_path: Path, format: str) -> None:
    """The metadata alone suffice to turn a line of the file into an item, and the answer into a class."""
    output = tmp_path / "out.pt2"
    facts = made(run_of("tabular"), format, output)["facts"]
    if format != "state-dict":
        assert json.loads(facts_of(format, output)) == facts
    assert (facts["task"], facts["outputs"], facts["model"]["name"]) == ("classification", 2, "mlp")
    codec = facts["codec"]
    assert codec["classes"] == ["large", "small"]
    row = {"size": 9.5, "colour=blue": 0.0, "colour=green": 1.0, "colour=red": 0.0}
    item = [(value - mean) / std for value, mean, std in zip(row.values(), codec["mean"], codec["std"], strict=True)]
    network = network_of("tabular")
    assert codec["classes"][int(network.module(torch.tensor([item])).argmax())] == "large"


WORDS = {
    "tabular": "inputs: float32 (items, 4): (value - mean) / standard deviation of each feature; --json prints details",
    "prices": "deviation of each feature; its answers are also standardized; --json",
    "sales": "differences at lags 1, 4, then (value - mean) / standard deviation of each column; its answers are also standardized diff",
    "changes": "differences at lags 2, then (value - mean) / standard deviation of each column; --json",
    "titanic": "inputs: float32 (items, ",
    "rose": "inputs: int64 (items, ",
    "clouds": "inputs: float32 (items, 2); --json",
}


@pytest.mark.parametrize("name", WORDS)
def test_people_are_told_too(run_of: Runs, tmp_path: Path, name: str) -> None:
    said = partrain("export", run_of(name), "-f", "state-dict", "-o", tmp_path / "out")
    assert WORDS[name] in said.out


@pytest.mark.usefixtures("onnx_registry")
@pytest.mark.parametrize("name", ["clouds", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spots", "rose", "codes"))])
def test_graphs(run_of: Runs, network_of: Networks, tmp_path: Path, name: str) -> None:
    """Formats with a graph run without partrain, for any number of items."""
    import onnxruntime

    made(run_of(name), "torch-export", tmp_path / "out.pt2")
    made(run_of(name), "onnx", tmp_path / "out.onnx")
    program = torch.export.load(tmp_path / "out.pt2").module()
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    for count in 1, 3:
        expected = answers(network_of(name), count)
        torch.testing.assert_close(program(items(network_of(name), count)), expected)
        (found,) = session.run(["answers"], {"inputs": items(network_of(name), count).numpy()})
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("stranger")
def test_code_of_the_users(run_of: Runs, tmp_path: Path) -> None:
    for format in FORMATS:
        said = partrain("export", run_of("own"), "-f", format, "-o", tmp_path / "out")
        assert (said.code, said.errors) == (77, ["not-trusted"])
    made(run_of("own"), "state-dict", tmp_path / "out", "--job", run_of("own").parent / "job.toml")


class Noisy(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x) * self.bias


class Moody(torch.nn.Linear):
    """A network that computes something else while it is traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.bias * (2 if torch.compiler.is_compiling() else 1)


@pytest.mark.parametrize(("module", "what"), [(Noisy(2, 2), "differently each time"), (Moody(2, 2), "gives other answers")])
def test_what_answers_otherwise_is_refused(run_of: Runs, network_of: Networks, module: torch.nn.Module, what: str) -> None:
    with pytest.raises(UserCodeFailed, match=what):
        export(replace(network_of("own"), module=module), "torch-export")


class Least(torch.nn.Linear):
    """A network whose answer to an item depends on the others of the batch, and which fails without items."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.abs().amin(0)) * self.bias


def test_a_network_that_mixes_items_is_exported_for_at_least_one(network_of: Networks) -> None:
    verified = export(replace(network_of("own"), module=Least(2, 2)), "torch-export")[1]
    assert (verified["items"], verified["fewest_items"]) == (10, 1)
    assert "at least one item" in Delivery("torch-export", Path("out"), b"", verified, {}, "").compared


NO_ITEMS = """import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(taken,) = session.get_inputs()
print(session.run(None, {taken.name: numpy.zeros((0, *taken.shape[1:]), numpy.float32)})[0].shape)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
@pytest.mark.parametrize("name", ["spots", "both"])
def test_an_empty_batch_has_empty_answers(network_of: Networks, tmp_path: Path, name: str) -> None:
    """Recurrent layers end the process with SIGABRT otherwise, members of a tabular network with SIGFPE."""
    data, verified = export(network_of(name), "onnx")
    (tmp_path / "out.onnx").write_bytes(data)
    child = subprocess.run([sys.executable, "-c", NO_ITEMS, tmp_path / "out.onnx"], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout, verified["fewest_items"]) == (0, "(0, 2)\n", 0), child.stderr


def test_nothing_is_written_over(run_of: Runs, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("mine")
    for path in output, tmp_path, tmp_path / "nowhere" / "out", Path("/proc/out"):
        said = partrain("export", run_of("clouds"), "-f", "safetensors", "-o", path)
        assert (said.code, said.errors) == (73, ["cannot-create"]), said
    assert output.read_text() == "mine"
    made(run_of("clouds"), "safetensors", output, "--force")
    assert load_file(output)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert partrain("export", run_of("clouds"), "-f", "pickle", "-o", tmp_path / "new").code == 2
    assert partrain("export", tmp_path / "no.h5", "-f", "onnx", "-o", tmp_path / "new").code == 66


def test_no_pickle_is_needed(run_of: Runs, tmp_path: Path) -> None:
    """A loader that runs no code reads a state dict."""
    made(run_of("clouds"), "state-dict", tmp_path / "out.pt")
    assert torch.load(io.BytesIO((tmp_path / "out.pt").read_bytes()), weights_only=True)


@pytest.mark.parametrize("format", ["safetensors", "state-dict"])
def test_the_same_network_gives_the_same_bytes(network_of: Networks, format: str) -> None:
    """safetensors writes metadata in another order each time."""
    assert len({export(network_of("clouds"), format)[0] for _ in range(12)}) == 1


def test_the_network_of_one_group(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    """It answers the rows of its group better than the network of all groups, and other groups have other networks."""
    run, network = run_of("clinics"), network_of("clinics")
    head, *rows = (run.parent / "clinics.csv").read_text().splitlines()
    losses = {}
    for group in "clinic 3", "clinic 7":
        own = [row for row in rows if row.startswith(f"{group},") and row.split(",")[2]]
        told = made(run, "safetensors", tmp_path / group, "--group", group, "--fine-tune", 20)
        assert (told["group"], told["fine_tuned_items"]) == (group, len(own))
        (tmp_path / "own.csv").write_text("\n".join([head, *own]))
        sample = read(network, tmp_path / "own.csv", labeled=True)
        items = network.items(sample.inputs, sample.targets, 1.0)
        tuned = replace(network, module=deepcopy(network.module))
        tuned.module.load_state_dict(load_file(tmp_path / group))
        losses[group] = [evaluate_items(one, items)["loss"] for one in (network, tuned)]
        assert losses[group][1] < losses[group][0], losses
    one, other = (load_file(tmp_path / group) for group in losses)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--group", "clinic 3"], 2, "give --group NAME and --fine-tune PASSES together"),
        (["--group", "clinic 3", "--fine-tune", 2, "--card"], 2, "the card describes the network of all groups"),
        (["--group", "clinik 3", "--fine-tune", 2], 66, "--group: `clinik 3` is none of its 12 groups; did you mean `clinic 3`?"),
    ],
)
def test_a_group_that_cannot_be(run_of: Runs, tmp_path: Path, words: list, code: int, text: str) -> None:
    said = partrain("export", run_of("clinics"), "-f", "safetensors", "-o", tmp_path / "x", *words)
    assert (said.code, text in " ".join(said.err.replace("│", " ").split())) == (code, True), said
