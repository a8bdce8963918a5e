"""Networks of several inputs, or of sequences of unequal length, trained and asked from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import partrain
from partrain.api.objects import given
from partrain.config.python_objects import standing_for_tables
from partrain.data import load
from partrain.data.python.section import PythonArrays

RNG = np.random.default_rng(0)
A = RNG.normal(size=(60, 4)).astype("float32")
B = RNG.normal(size=(60, 2))
Y = np.array(["no", "yes"])[(A[:, 0] > 0).astype(int)]
SEQUENCES = [RNG.integers(0, 9, size=3 + number % 5) for number in range(60)]
FAST: dict[str, Any] = {"stop": {"rounds": 2}}


class Two(nn.Module):
    """A network of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layer(torch.cat([a, b], 1))
        return answer


class Items(Dataset[Any]):
    """Items whose input is a dict, or a tuple."""

    def __init__(self, named: bool) -> None:
        self.named = named

    def __len__(self) -> int:
        return len(A)

    def __getitem__(self, number: int) -> Any:
        pair = A[number], B[number].astype("float32")
        return (dict(zip("ab", pair, strict=True)) if self.named else pair), int(Y[number] == "yes")


def load_given(dataset: Any, tmp_path: Path) -> Any:
    made = given(dataset=dataset)
    with standing_for_tables(made.objects):
        return load(PythonArrays.model_validate(made.tables["dataset"]), tmp_path)


@pytest.mark.parametrize("inputs", [{"a": A, "b": torch.from_numpy(B)}, (A, B), [A, B]], ids=["a dict", "a tuple", "a list"])
def test_several_arrays_are_several_inputs(inputs: Any, tmp_path: Path) -> None:
    named = isinstance(inputs, dict)
    for dataset in (inputs, Y), {"inputs": inputs, "targets": Y}, (inputs, Y, inputs, Y):
        found = load_given(dataset, tmp_path)
        assert [(part.name, part.shape) for part in found.parts] == [("a" * named, (4,)), ("b" * named, (2,))]
        assert (found.items, found.outputs, found.codec["classes"]) == (60, 2, ["no", "yes"])
        assert np.array_equal(found.inputs.view("<f4")[:, :4], A)


def test_sequences_of_unequal_length_are_padded(tmp_path: Path) -> None:
    found = load_given((SEQUENCES, Y, [one.tolist() for one in SEQUENCES[:8]], Y[:8]), tmp_path)
    assert [(part.name, part.shape, part.vocabulary) for part in found.parts] == [("", (7,), 9), ("lengths", (), None)]
    series = [np.zeros((2, 3)), np.ones((4, 3))] * 5
    assert load_given((series, Y[:10]), tmp_path).parts[0].shape == (4, 3)
    numbered = load_given(({"words": np.arange(60).reshape(30, 2), "x": A[:30]}, Y[:30]), tmp_path)
    assert numbered.parts[0].vocabulary is None
    chosen = {"inputs": {"words": np.arange(60).reshape(30, 2), "x": A[:30]}, "targets": Y[:30], "tokens": ["words"]}
    assert load_given(chosen, tmp_path).parts[0].vocabulary == 60


@pytest.mark.parametrize(("dataset", "message"), [
    (({"a": A, "b": B[:9]}, Y), "`inputs.b`: holds 9 items"),
    (({"a": A, "b b": B}, Y), "`b b` is no name of an argument"),
    ({"inputs": {"a": A}, "targets": Y, "standardise": True}, "`standardise` is for one input of one shape"),
    ({"inputs": {"a": A, "b": B.astype(int)}, "targets": Y, "tokens": True}, "of several inputs, name those that are tokens"),
    (([np.zeros((2, 3)), np.zeros((4, 2))], Y[:2]), "`inputs`: item 1 is no sequence as the others are"),
    (({"a": A, "b": B}, Y[:50]), "holds 50 targets for 60 inputs"),
])  # fmt: skip
def test_inputs_that_do_not_go_together_are_named(dataset: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(partrain.Failure) as caught:
        load_given(dataset, tmp_path)
    assert message in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["a dict", "a tuple"])
def test_a_network_of_two_inputs_answers_what_it_was_trained_on(named: bool, tmp_path: Path) -> None:
    data: Any = Items(named)
    trained = partrain.train(model=Two, dataset={"data": data, "validation": 20}, **FAST, out=tmp_path / "run")
    with torch.no_grad():
        expected = trained.module((torch.from_numpy(A), torch.from_numpy(B).float())).argmax(1).tolist()
    for inputs in {"a": A, "b": B}, (A, B), data:
        if named or not isinstance(inputs, dict):
            assert trained.predict(inputs).tolist() == expected
    assert trained.evaluate(data) == trained.evaluate((A, B), (Y == "yes").astype(int))
    assert trained.predict_proba((A, B)).shape == (60, 2)
    with pytest.raises(partrain.Failure, match=r"X: the network takes several inputs: give a dict of "):
        trained.predict(A)
    names = ["a", "b"] if named else ["input_0", "input_1"]
    arrays: dict[str, Any] = dict(zip(names, (A, B), strict=True))
    np.savez(tmp_path / "new.npz", **arrays)
    assert trained.predict(tmp_path / "new.npz").tolist() == expected
    with pytest.raises(partrain.Failure, match=f"X: no input `{names[1]}`; the network takes {', '.join(names)}"):
        trained.predict({names[0]: A})
    with pytest.raises(partrain.Failure, match=r"X: `.*` is float32 \(2,\), the network takes float32 \(4,\)"):
        trained.predict((B, A))
    with pytest.raises(partrain.Failure) as caught:
        trained.resume(stop={"rouns": 9})
    assert str(caught.value) == "Job: stop.rouns: unknown key `rouns` in [stop]; did you mean `rounds`?"
    assert trained.resume(stop={"rounds": np.int64(3)}).summary["rounds"] == 3


@pytest.mark.slow
def test_arrays_by_name_are_trained_and_predicted(tmp_path: Path) -> None:
    trained = partrain.train(model=Two, dataset=({"a": A, "b": B}, Y), **FAST, out=tmp_path / "run")
    assert set(trained.predict({"b": B, "a": A})) <= {"no", "yes"}
    assert trained.evaluate({"a": A, "b": B}, Y)["accuracy"] == (trained.predict({"a": A, "b": B}) == Y).mean()


@pytest.mark.slow
def test_sequences_of_unequal_length_are_trained_and_predicted(tmp_path: Path) -> None:
    trained = partrain.train(model={"name": "gru", "hidden": 8}, dataset=(SEQUENCES, Y), **FAST, out=tmp_path / "run")
    whole = trained.predict_proba(SEQUENCES)
    assert np.allclose(trained.predict_proba([SEQUENCES[4].tolist()])[0], whole[4], atol=1e-6)
    assert np.allclose(trained.predict_proba(np.array([SEQUENCES[0]]))[0], whole[0], atol=1e-6)
    assert trained.evaluate(SEQUENCES, Y)["items"] == 60
    with pytest.raises(partrain.Failure, match="X: an item has 12 elements, and the network was built for at most 7"):
        trained.predict([list(range(8)) + [1] * 4])
