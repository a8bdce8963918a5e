"""The match of a network's arrays with those of a file: names, shapes, types, patterns, and the messages where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from support.networks import CASES, SECTIONS
from torch import Tensor, nn

from partrain.errors import BadJob
from partrain.models import Interface, build
from partrain.models.start import start_from

State = dict[str, Any]


def section(**keys: Any) -> Any:
    return SECTIONS.validate_python({"name": "mlp", "from": "other.pt", **keys})


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def state(seed: int = 1) -> State:
    return {name: one + 2 for name, one in network(seed).state_dict().items()}


def started(stored: State, module: nn.Module | None = None, **keys: Any) -> tuple[dict[str, Tensor], str]:
    module = module or network()
    note = start_from(module, stored, section(**keys), "FILE")
    return module.state_dict(), note


def refused(stored: State, module: nn.Module | None = None, **keys: Any) -> BadJob:
    """The error, which leaves the network as it was."""
    module = module or network()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    with pytest.raises(BadJob) as caught:
        start_from(module, stored, section(**keys), "FILE")
    assert all(torch.equal(before[name], one) for name, one in module.state_dict().items())
    return caught.value


def test_parameters_and_buffers_become_those_of_the_file() -> None:
    found, note = started(state())
    assert all(torch.equal(found[name], one) for name, one in state().items())
    assert found["1.num_batches_tracked"] == 2
    assert note == "from FILE: 9 of 9 arrays"
    assert list(found) == list(network().state_dict())


@pytest.mark.parametrize("name", CASES)
def test_every_network_starts_from_one_of_its_kind(name: str) -> None:
    torch.manual_seed(1)
    module, other = CASES[name].build(), CASES[name].build().state_dict()
    found, note = started(dict(other), module)
    assert all(torch.equal(found[one], other[one]) for one in other)
    assert note == f"from FILE: {len(other)} of {len(other)} arrays"


def test_excepted_arrays_keep_what_was_drawn() -> None:
    other = nn.Sequential(*network(1)[:2], nn.Linear(4, 7)).state_dict()
    found, note = started(other, **{"except": ["2.*"]})
    assert all(torch.equal(found[name], one) for name, one in other.items() if not name.startswith("2."))
    assert torch.equal(found["2.weight"], network().state_dict()["2.weight"])
    assert note == "from FILE: 7 of 9 arrays; excepted: 2.weight, 2.bias"


def test_old_files_count_no_batches() -> None:
    """The count keeps its start; in a file without the layer's statistics it is missing as they are."""
    old = {name: one for name, one in state().items() if name != "1.num_batches_tracked"}
    found, note = started(old)
    assert found["1.num_batches_tracked"] == 0
    assert note == "from FILE: 8 of 9 arrays"
    assert "3 missing in file" in refused({name: one for name, one in old.items() if not name.startswith("1.r")}).message


def test_published_weights_of_other_classes_and_with_other_parts() -> None:
    """Only the last layer may differ, and only in its number of answers; parts that the network does without are left out."""
    section = SECTIONS.validate_python({"name": "torchvision:vgg11", "pretrained": True})
    module, before = network(), network().state_dict()
    stored = state() | {"2.weight": torch.ones(7, 4), "2.bias": torch.ones(7), "aux.weight": torch.ones(1)}
    note = start_from(module, stored, section, "FILE", outputs=3)
    assert (
        note
        == "from FILE: 7 of 9 arrays; of other classes, starts from random numbers: 2.weight, 2.bias; not in the network: aux.weight"
    )
    assert torch.equal(module.state_dict()["2.weight"], before["2.weight"])
    assert torch.equal(module.state_dict()["0.weight"], stored["0.weight"])
    for wrong in ({"0.weight": torch.ones(5, 2)}, {"2.weight": torch.ones(7, 5)}):
        with pytest.raises(BadJob, match="other shape"):
            start_from(network(), stored | wrong, section, "FILE", outputs=3)


def test_the_file_may_hold_more_under_excepted_names() -> None:
    found, _ = started(state() | {"2.scale": torch.ones(3)}, **{"except": ["2.*"]})
    assert torch.equal(found["2.bias"], network().state_dict()["2.bias"])


@pytest.mark.parametrize(("written", "rename"), [
    ("net.{}", {"net": ""}), ("net.{}", {"net.": ""}), ("a.b.{}", {"a": "c", "a.b": ""}),
])  # fmt: skip
def test_the_longest_prefix_is_renamed_once(written: str, rename: dict[str, str]) -> None:
    found, _ = started({written.format(name): one for name, one in state().items()}, rename=rename)
    assert all(torch.equal(found[name], one) for name, one in state().items())


def test_renamed_layers_and_added_prefixes() -> None:
    swapped = {name.replace("0.", "x.", 1).replace("2.", "0.", 1).replace("x.", "2.", 1): one for name, one in state().items()}
    found, _ = started(swapped, rename={"0": "2", "2": "0"})
    assert all(torch.equal(found[name], one) for name, one in state().items())
    wrapped = nn.ModuleDict({"net": network()})
    found, _ = started(state(), wrapped, rename={"": "net"})
    assert all(torch.equal(found[f"net.{name}"], one) for name, one in state().items())


def test_whole_parts_of_names_only() -> None:
    error = refused({f"00.{name}": one for name, one in state().items()}, rename={"0": ""})
    assert error.message == "[model] rename: no name in FILE begins with `0`; did you mean `00`?"


def test_a_prefix_that_no_name_has() -> None:
    error = refused({f"module.{name}": one for name, one in state().items()}, rename={"modul": ""})
    assert error.message == "[model] rename: no name in FILE begins with `modul`; did you mean `module`?"


def test_two_names_may_not_become_one() -> None:
    error = refused(state() | {"a.0.weight": torch.ones(4, 2)}, rename={"a": ""})
    assert error.message == "[model] rename: `0.weight` and `a.0.weight` of FILE would both be called `0.weight`"


def test_strict_refuses_with_a_table() -> None:
    stored = state() | {"0.bias": torch.zeros(5), "head.weight": torch.zeros(1)}
    del stored["2.bias"]
    error = refused(stored, **{"except": ["1.*"]})
    assert error.message.startswith("[model] from: FILE is not of this network: 2 of 9 arrays match, ")
    assert "1 missing in file, 1 other shape, 1 left over in the file" in error.message
    assert error.message.endswith(
        'did you mean except = ["2.*", "0.*"] for arrays that start from random numbers, or strict = false to take those that match?'
    )
    rows = [line.split(maxsplit=1) for line in error.detail.splitlines()[2:]]
    states = {name: rest.split(")")[-1].lstrip("- ") if ")" in rest else rest for name, rest in rows}
    assert states["0.weight"] == "matched"
    assert states["0.bias"] == "other shape"
    assert states["1.running_mean"] == "excepted"
    assert states["2.bias"] == "missing in file"
    assert states["head.weight"] == "left over in the file"
    assert "(4)                (5)" in error.detail
    assert error.code == 78


def test_a_refusal_proposes_no_prefix_whose_arrays_have_other_shapes() -> None:
    """The bias of another head fits by its shape, its weight does not: renaming would meet the next refusal."""
    stored = {"head.weight": torch.zeros(3, 9), "head.bias": torch.zeros(state()["2.bias"].shape)}
    assert "rename" not in refused(stored).message


def test_a_refusal_proposes_the_prefix_to_rename() -> None:
    error = refused({f"module.{name}": one for name, one in state().items()})
    assert 'did you mean rename = {"module" = ""}' in error.message


def test_without_strict_what_matches_is_taken() -> None:
    stored = state() | {"0.bias": torch.zeros(5), "head.weight": torch.zeros(1)}
    del stored["2.bias"]
    found, note = started(stored, strict=False)
    assert note == "from FILE: 7 of 9 arrays; missing: 2.bias; other shape: 0.bias; left over in the file: head.weight"
    assert torch.equal(found["0.weight"], stored["0.weight"])
    assert torch.equal(found["0.bias"], network().state_dict()["0.bias"])


def test_a_file_of_which_nothing_matches_is_refused_in_any_case() -> None:
    assert "0 of 9 arrays match" in refused({"x": torch.zeros(1)}, strict=False).message
    assert "all are excepted" in refused(state(), **{"except": ["*"]}).message


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floats_are_converted(dtype: torch.dtype) -> None:
    stored = {name: one.to(dtype) if one.is_floating_point() else one for name, one in state().items()}
    found, _ = started(stored)
    assert found["0.weight"].dtype == torch.float32
    assert torch.equal(found["0.weight"], stored["0.weight"].float())


def test_integers_are_taken_exactly_or_not_at_all() -> None:
    module = network()
    module.register_buffer("small", torch.zeros(2, dtype=torch.uint8))
    stored = state() | {"small": torch.tensor([255, 0])}
    assert started(stored, module)[0]["small"].tolist() == [255, 0]
    with pytest.raises(BadJob, match=r"`small` holds integers that torch\.uint8 cannot"):
        start_from(module, stored | {"small": torch.tensor([256, 0])}, section(), "FILE")
    error = refused(state() | {"1.num_batches_tracked": torch.tensor(2.0)})
    assert "1 other type" in error.message
    error = refused(state() | {"0.weight": state()["0.weight"].to(torch.complex64)})
    assert "1 other type" in error.message


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300])
def test_parameters_must_be_finite(number: float) -> None:
    with pytest.raises(BadJob, match=r"parameter `2\.bias` holds numbers that are not finite in torch\.float32"):
        start_from(network(), state() | {"2.bias": torch.full((3,), number, dtype=torch.float64)}, section(), "FILE")


def test_one_name_of_a_tied_parameter_is_enough() -> None:
    keys = {"name": "transformer", "width": 4, "heads": 2, "layers": 1, "tied": True}
    interface = Interface((7,), 11, "language", 11)
    tied, other = (build(SECTIONS.validate_python(keys), Path(), interface) for _ in range(2))
    twins = [name for name in tied.state_dict() if name.endswith(("answer.weight", "tokens.weight", "embedding.weight"))]
    assert len(twins) == 2, list(tied.state_dict())
    stored = dict(other.state_dict())
    del stored[twins[0]]
    found, note = started(stored, tied)
    assert torch.equal(found[twins[0]], stored[twins[1]])
    assert "missing" not in note
    fresh = build(SECTIONS.validate_python(keys), Path(), interface)
    before = fresh.state_dict()[twins[0]].clone()
    found, _ = started(stored, fresh, **{"except": [twins[1]]})
    assert torch.equal(found[twins[0]], before)


def test_patterns_without_an_array() -> None:
    assert (
        'except: no parameter or buffer is called "head.*"; there are 0.weight'
        in refused(state(), **{"except": ["head.*"]}).message
    )


def test_files_that_hold_more_than_a_state_dict() -> None:
    error = refused({"epoch": 3, "model": state()})
    assert "holds no state dict, but tables such as `model`" in error.message
    assert "`epoch` is no tensor" in refused(state() | {"epoch": 3}).message


@pytest.mark.parametrize("key", [{"strict": False}, {"rename": {"a": "b"}}, {"except": ["a"]}])
def test_keys_without_a_file(key: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="has no effect without `from`"):
        SECTIONS.validate_python({"name": "mlp", **key})


def test_the_keys_are_no_arguments_of_user_code() -> None:
    keys = {"from": "a.pt", "strict": False, "rename": {"a": "b"}, "except": ["c"], "freeze": ["d"]}
    for name in "file.py:Net", "torchvision:vgg11":
        one = SECTIONS.validate_python({"name": name, "width": 3, **keys})
        assert dict(one.arguments) == {"width": 3}
        assert (one.start_file, one.strict, one.rename, one.start_exceptions) == ("a.pt", False, {"a": "b"}, ["c"])


def test_rows_of_words_are_matched_by_word() -> None:
    """A language network has rows of words in its embedding and in its answers; new words keep their drawn rows."""

    def of_words(count: int) -> nn.Sequential:
        return nn.Sequential(nn.Embedding(count, 4), nn.Linear(4, 4), nn.Linear(4, count))

    before, now = ["<unknown>", "a", "b", "c"], ["<unknown>", "c", "new", "a", "b"]
    other, module = of_words(4), of_words(5)
    drawn = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    note = start_from(module, dict(other.state_dict()), section(), "FILE", 5, (before, now))
    assert note == "from FILE: 5 of 5 arrays; it knows 4 of 5 words, the others start from random numbers"
    for name in ("0.weight", "2.weight", "2.bias"):
        ours, theirs = module.state_dict()[name], other.state_dict()[name]
        assert torch.equal(ours[[0, 1, 3, 4]], theirs[[0, 3, 1, 2]])
        assert torch.equal(ours[2], drawn[name][2])
    assert torch.equal(module.state_dict()["1.weight"], other.state_dict()["1.weight"])
    assert start_from(of_words(4), dict(other.state_dict()), section(), "FILE", 4, (before, before)) == "from FILE: 5 of 5 arrays"
