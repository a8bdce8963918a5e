"""Objects of a script, trained; and what can be done with the result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs import partrain as command_line
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

import partrain
from partrain.errors import BadJob, InputMissing

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
NAMES = np.array(["none", "one", "both"])[Y]
FAST: dict[str, Any] = {"stop": {"rounds": 4}}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def digest(run: partrain.Trained) -> bytes:
    return run.checkpoint.read_bytes()


@pytest.mark.slow
def test_a_module_is_trained_evaluated_resumed_and_loaded(tmp_path: Path) -> None:
    """Same objects and seed: same bits, also across a resume; the caller's module stays as it is."""
    module, before = net(), net().state_dict()
    whole = partrain.train(
        model=module, dataset=(X, NAMES, X[:50], NAMES[:50]), workers=2, stop={"rounds": 8}, out=tmp_path / "whole"
    )
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert not torch.equal(whole.module[0].weight, module[0].weight)
    first = partrain.train(model=net(), dataset=(X, NAMES, X[:50], NAMES[:50]), workers=2, **FAST, out=tmp_path / "parts")
    rest = first.resume(stop={"rounds": 8})
    assert rest.summary["rounds"] == 8
    with torch.no_grad():  # the run that went on has replaced the checkpoint
        assert np.allclose(first.predict_proba(X), first.module(torch.from_numpy(X).float()).softmax(1), atol=1e-6)
    assert not np.allclose(first.predict_proba(X), rest.predict_proba(X))
    assert all(torch.equal(*pair) for pair in zip(whole.module.parameters(), rest.module.parameters(), strict=True))

    own = whole.evaluate()
    assert own.pop("constant")["accuracy"] == 0.56  # which class is the commonest in training, other items do not tell
    assert own == whole.evaluate(X[:50], NAMES[:50])
    assert set(whole.predict(X)) <= {"none", "one", "both"}
    assert whole.classes == ["both", "none", "one"]
    assert np.allclose(whole.predict_proba(X[:7]).sum(1), 1)
    assert np.array_equal(np.array(whole.classes)[whole.predict_proba(X).argmax(1)], whole.predict(X))
    assert whole.evaluate(X, NAMES)["accuracy"] == pytest.approx((whole.predict(X) == NAMES).mean())
    with pytest.raises(partrain.Failure, match="also give y"):
        whole.evaluate(X)
    with pytest.raises(partrain.Failure, match=r"X: holds items of shape \(3,\), the network takes \(4,\)"):
        whole.predict(X[:, :3])
    with pytest.raises(partrain.Failure, match="by='x' is no axis"):
        whole.plot(by="x")
    np.save(tmp_path / "x.npy", X)
    assert np.array_equal(whole.predict(tmp_path / "x.npy"), whole.predict(X))
    assert "<svg" in whole.plot()._repr_svg_()
    assert whole.export(tmp_path / "net.safetensors").exists()

    loaded = partrain.load(tmp_path / "whole", model=net)
    assert np.array_equal(loaded.predict(X), whole.predict(X))
    with pytest.raises(partrain.Failure, match=r"partrain.load\(RUN, model=...\)"):
        partrain.load(tmp_path / "whole")
    with pytest.raises(partrain.Failure, match=r"none in the checkpoint, shape \(3, 4\) in the job's model"):
        partrain.load(tmp_path / "whole", model=nn.Linear(4, 3))
    other = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3))
    with pytest.raises(partrain.Failure, match="gives other answers than the one that was trained"):
        partrain.load(tmp_path / "whole", model=other)
    other[1], other[2] = nn.ReLU(), nn.Dropout(0.5)
    with pytest.raises(partrain.Failure, match="structure or code differs"):
        partrain.load(tmp_path / "whole", model=other, dataset=(X, NAMES, X[:50], NAMES[:50])).resume(stop={"rounds": 9})
    with pytest.raises(partrain.Failure, match="not the one the checkpoint was trained on"):
        partrain.load(tmp_path / "whole", model=net(), dataset=(X + 1, NAMES, X[:50], NAMES[:50])).resume(stop={"rounds": 9})
    for command in ("evaluate", "resume", "export -f onnx -o x.onnx", "predict --input x.npz"):
        name, *options = command.split()
        done = command_line(name, tmp_path / "whole", *options)
        assert (done.code, done.err.count("\n")) == (78, 1), done.err
        assert "is an object of the Python script that trained" in done.err


@pytest.mark.slow
def test_a_built_in_network_trained_on_objects_predicts_files(tmp_path: Path) -> None:
    """Its data are not needed for that."""
    trained = partrain.train(model={"name": "mlp", "hidden": [8]}, dataset=(X, Y), **FAST, out=tmp_path / "run")
    np.save(tmp_path / "new.npy", X[:5].astype(np.float32))
    done = command_line("predict", tmp_path / "run", "--input", tmp_path / "new.npy", "--json")
    assert json.loads(done.out)["label"] == trained.predict(X[:5]).tolist()
    assert partrain.load(tmp_path / "run").predict(X[:5]).tolist() == trained.predict(X[:5]).tolist()


@pytest.mark.slow
def test_a_class_is_drawn_by_the_seed(tmp_path: Path) -> None:
    runs = [
        partrain.train(model=lambda: nn.Linear(4, 3), dataset=(X, Y), workers=2, seed=seed, **FAST, out=tmp_path / str(number))
        for number, seed in enumerate((0, 0, 1))
    ]
    assert digest(runs[0]) == digest(runs[1]) != digest(runs[2])


@pytest.mark.slow
def test_workers_give_the_same_bits_on_every_transport(tmp_path: Path) -> None:
    one, other = (
        partrain.train(model=net(), dataset=(X, Y), workers=2, **FAST, transport=transport, out=tmp_path / f"{number}")
        for number, transport in enumerate((None, {"kind": "simulated"}))
    )
    assert all(torch.equal(*pair) for pair in zip(one.module.parameters(), other.module.parameters(), strict=True))


@pytest.mark.slow
def test_a_dataset_of_torch_is_read_once(tmp_path: Path) -> None:
    data = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y))
    trained = partrain.train(model=net(), dataset={"data": data, "validation": 40}, **FAST, out=tmp_path / "run")
    assert trained.evaluate()["items"] == 40
    assert trained.evaluate(data) == trained.evaluate(X.astype(np.float32), Y)


class Halved(partrain.Task):
    """A task of this module."""

    accuracy = False

    def loss(self, answers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(answers, targets) / 2


@pytest.mark.slow
def test_a_task_may_be_a_class(tmp_path: Path) -> None:
    trained = partrain.train(model=net(), dataset=(X, Y), task=Halved, **FAST, out=tmp_path / "run")
    assert trained.summary["rounds"] == 4


@pytest.mark.slow
def test_a_regression_answers_in_units_with_a_frame(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["price"] = frame.a * 40 + 300
    dataset = {"data": frame, "target": "price", "standardise_target": True, "test_items": 40}
    trained = partrain.train(model="mlp", dataset=dataset, stop={"rounds": 20}, out=tmp_path / "run")
    assert abs(trained.predict(frame) - frame.price).mean() < 20
    assert trained.predict(frame.drop(columns=["price"])).shape == (240,)
    assert trained.evaluate(frame)["r2"] > 0.6
    with pytest.raises(partrain.Failure, match=r"^X: no column `b`, which `inputs` asks for"):
        trained.predict(frame.drop(columns="b"))
    with pytest.raises(partrain.Failure, match=r"^X: row 1: column `b`: no value; fill it in$"):
        trained.predict(frame.assign(b=np.nan))
    assert trained.evaluate(frame.drop(columns=["price"]), frame.price) == trained.evaluate(frame)


@pytest.mark.slow
def test_classes_of_a_script_need_no_guard(tmp_path: Path) -> None:
    """The workers import no script: a class and a lambda of `__main__` travel as they are."""
    (tmp_path / "script.py").write_text("""
import numpy as np, partrain
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.twice = nn.Linear(2, 2), lambda x: 2 * x

    def forward(self, x):
        return self.twice(self.layer(x))

print(partrain.train(model=Net, dataset=(np.random.rand(100, 2), np.arange(100) % 2), workers=2, stop={"rounds": 2}, out="run").summary["status"])
""")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr


class Stream(IterableDataset[Any]):
    """Items one after the other, without a length."""

    def __iter__(self) -> Iterator[Any]:
        return zip(X.astype(np.float32), map(int, Y), strict=True)


@pytest.mark.slow
def test_a_stream_of_items_is_trained_and_asked(tmp_path: Path) -> None:
    trained = partrain.train(model=net(), dataset={"data": Stream(), "validation": 40}, stop={"rounds": 1}, out=tmp_path / "run")
    assert trained.evaluate()["items"] == 40
    assert trained.evaluate(Stream()) == trained.evaluate(X.astype(np.float32), Y)


def gap(judgement: Any) -> Any:
    """A function of this module."""
    return {"gap": 2 * judgement.loss, "stop": judgement.round == 2}


@pytest.mark.slow
def test_a_run_of_objects_is_exported_with_its_preprocessing_a_program_and_a_card(tmp_path: Path) -> None:
    """With a function after each judgement, and classes that are True and False."""
    data = {"inputs": 10 + 3 * X, "targets": Y > 0, "standardise": True, "validation": 40}
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    trained = partrain.train(
        model=module,
        dataset=data,
        hooks=gap,
        faults={"max_replays": 1},
        stop={"rounds": 9, "judge_every": 1},
        out=tmp_path / "run",
    )
    assert trained.summary["rounds"] == 2
    assert trained.summary["metrics"]["gap"] > 0
    assert (trained.classes, trained.predict(10 + 3 * X).dtype) == ([False, True], np.dtype(bool))
    with pytest.raises(partrain.Failure, match=r"the function is an object of the Python script"):
        partrain.load(tmp_path / "run", model=module, dataset=data).resume(stop={"rounds": 12})

    written = trained.export(tmp_path / "net.pt2", with_preprocessing=True, card=True)
    answers = torch.export.load(written).module()(inputs=torch.from_numpy(10 + 3 * X))
    assert np.array_equal(answers["label"].numpy().astype(bool), trained.predict(10 + 3 * X))
    card = (tmp_path / "net.md").read_text()
    assert "| network | `Sequential`, 58 parameters in float32 |" in card
    assert "| source | `arrays in memory` |" in card
    assert "python&gt;" not in card
    assert '`torch.export.load("net.pt2").module()`' in card
    with pytest.raises(partrain.Failure, match=r"net.md exists already; force=True replaces it"):
        trained.export(tmp_path / "net.safetensors", card=True)
    assert not (tmp_path / "net.safetensors").exists()
    with pytest.raises(partrain.Failure, match="holds tensors, no computation"):
        trained.export(tmp_path / "other.safetensors", with_preprocessing=True)
    with pytest.raises(partrain.Failure, match="`input_type` is only for"):
        trained.export(tmp_path / "other.onnx", input_type="uint8")
    with pytest.raises(partrain.Failure, match="torch-export has no tensors of text: leave words out"):
        trained.export(tmp_path / "other.pt2", with_preprocessing=True, words="text")


def test_a_language_network_continues_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a rose is a rose is a rose. " * 20)
    dataset = {"kind": "text", "path": str(tmp_path / "a.txt"), "length": 8, "validation": 4}
    trained = partrain.train(model={"name": "gru", "hidden": 8}, dataset=dataset, stop={"rounds": 1}, out=tmp_path / "run")
    text = trained.generate("a ro", 12, seed=3)
    assert text.startswith("a ro")
    assert len(text) == 16
    said = command_line("predict", tmp_path / "run", "--prompt", "a ro", "--tokens", "12", "--seed", "3")
    assert said.out == f"{text}\n"
    with pytest.raises(InputMissing, match="the training text has no character 'X'"):
        trained.generate("X")
    with pytest.raises(BadJob, match="tokens is 1 or more"):
        trained.generate("a", 0)
