"""Networks by name: shapes, published sizes, and causality of language models."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from support.networks import BACK, CASES, IMAGES, PICTURES, SERIES, TEXT, WORDS, Case, answers, size
from torch import nn

from partrain import models
from partrain.errors import BadJob
from partrain.models import AnyModel, Interface, build
from partrain.models.sections import Mlp
from partrain.system.memory import MemoryLimits

DIGITS = Interface((1, 28, 28), 10, "classification")
TINY = Interface((3, 32, 32), 10, "classification")
LARGE = Interface((3, 224, 224), 1000, "classification")

ANY = ("linear", "mlp")
FITTING = {
    "classification of numbers": (Interface((5,), 3, "classification"), (*ANY, "tabular")),
    "of a cube": (Interface((2, 3, 2, 2), 3, "classification"), ANY),
    "of images": (IMAGES, (*ANY, "lenet", "cnn", "resnet")),
    "of series": (Interface((6, 2), 3, "classification"), (*ANY, "rnn", "lstm", "gru", "transformer")),
    "of words": (WORDS, ("rnn", "lstm", "gru", "bag", "transformer")),
    "regression of images": (Interface((2, 9, 8), 3, "regression"), (*ANY, "lenet", "cnn", "resnet")),
    "forecast": (SERIES, (*ANY, "rnn", "lstm", "gru", "transformer")),
    "language": (TEXT, ("rnn", "lstm", "gru", "transformer")),
    "autoencoder of numbers": (BACK, (*ANY, "autoencoder")),
    "autoencoder of series": (Interface((6, 2), 3, "autoencoder"), (*ANY, "autoencoder")),
    "autoencoder of images": (PICTURES, (*ANY, "autoencoder")),
    "the user's own task": (Interface((2, 9, 8), 3, "user"), (*ANY, "lenet", "cnn", "resnet")),
}
NAMES = {case.settings["name"] for case in CASES.values()}


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("use", FITTING)
def test_it_accepts_its_tasks_and_refuses_the_rest(use: str, name: str) -> None:
    interface, fitting = FITTING[use]
    case = Case(interface, {"name": name})
    if name in fitting or (name == "autoencoder" and interface.task == "user"):
        inputs = case.items(4).inputs
        expected = interface.item if name == "autoencoder" else interface.answer
        assert case.build()(inputs).shape == (4, *expected)
    else:
        with pytest.raises(BadJob, match=rf"^\[model\] `{name}` "):
            case.build()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_answers_have_their_shape(case: Case) -> None:
    module = case.build()
    count, *shape = answers(case)
    assert module.eval()(case.items(4).inputs).shape == (count, *shape)
    assert module.train()(case.items(4).inputs).shape == (count * case.settings.get("members", 1), *shape)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)])
def test_residual_networks_for_cifar_have_the_published_size(depth: int, parameters: int) -> None:
    """The paper has 0.27, 0.46, 0.66 and 0.85 million parameters."""
    assert size(Case(TINY, {"name": "resnet", "depth": depth}).build()) == parameters


@pytest.mark.parametrize(("depth", "parameters"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)])
def test_residual_networks_for_imagenet_have_the_size_of_torchvisions(depth: int, parameters: int) -> None:
    with torch.device("meta"):
        assert size(Case(LARGE, {"name": "resnet", "depth": depth}).build()) == parameters


def test_lenet_has_the_published_size() -> None:
    assert size(Case(DIGITS, {"name": "lenet"}).build()) == 61_706
    assert Case(TINY, {"name": "lenet"}).build()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_kind_of_norm() -> None:
    """GroupNorm has no buffers, so workers cannot disagree on them."""
    assert not list(Case(TINY, {"name": "resnet", "norm": "group"}).build().buffers())
    assert len(list(Case(TINY, {"name": "resnet"}).build().buffers())) == 3 * 19


def test_a_small_stem_keeps_small_images_larger() -> None:
    with torch.device("meta"):
        shapes = [
            Case(TINY, {"name": "resnet", "depth": 18, "stem": stem}).build()[:-3](torch.empty(2, 3, 32, 32)).shape
            for stem in ("small", "large")
        ]
    assert shapes == [(2, 512, 4, 4), (2, 512, 1, 1)]


@pytest.mark.parametrize(
    "settings", [{"name": name} for name in ("rnn", "lstm", "gru")] + [{"name": "transformer", "width": 8}], ids=str
)
def test_a_language_model_sees_no_later_token(settings: dict[str, object]) -> None:
    module = Case(TEXT, settings).build().eval()
    text = torch.arange(7)[None]
    with torch.no_grad():
        before = module(text)
        for place in range(7):
            changed = text.clone()
            changed[0, place] = 10
            after = module(changed)
            assert torch.equal(after[:, :place], before[:, :place])
            assert not torch.equal(after[:, place], before[:, place])


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_networks_take_shorter_texts(name: str) -> None:
    module = Case(TEXT, {"name": name}).build().eval()
    text = torch.arange(7)[None]
    with torch.no_grad():
        torch.testing.assert_close(module(text[:, :3]), module(text)[:, :3])


def test_both_directions_count() -> None:
    """The network that reads backwards sees the first step last."""
    module = Case(SERIES, {"name": "lstm", "bidirectional": True}).build().eval()
    series = torch.randn(1, 6, 2)
    with torch.no_grad():
        states, _ = module.layers(series)
        joined = torch.cat((states[:, -1, :128], states[:, 0, 128:]), dim=1)
        torch.testing.assert_close(module(series), module.answer(joined))


def test_noise_is_for_training_only() -> None:
    module = Case(BACK, {"name": "autoencoder", "noise": 0.5}).build()
    item = torch.randn(3, 5)
    assert not torch.equal(module(item), module(item))
    module.eval()
    assert torch.equal(module(item), module.decode(module.encode(item)))
    assert module.encode(item).shape == (3, 32)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 3))
@settings(max_examples=25)
def test_convolutions_back_give_images_of_any_size(height: int, width: int, stages: int) -> None:
    case = Case(Interface((2, height, width), 1, "autoencoder"), {"name": "autoencoder", "channels": [3] * stages, "hidden": []})
    assert case.build()(torch.zeros(2, 2, height, width)).shape == (2, 2, height, width)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=50)
def test_pooling_that_leaves_no_image_is_reported(height: int, width: int, stages: int, pool: int) -> None:
    case = Case(
        Interface((1, height, width), 2, "classification"), {"name": "cnn", "channels": [2] * stages, "pool": pool, "dense": []}
    )
    if pool**stages > min(height, width):
        with pytest.raises(BadJob, match="leaves nothing"):
            case.build()
    else:
        assert case.build()(torch.zeros(2, 1, height, width)).shape == (2, 2)


def test_tied_weights_are_counted_once() -> None:
    tied, apart = (Case(TEXT, {"name": "transformer", "width": 8, "tied": tied}).build() for tied in (True, False))
    assert size(apart) - size(tied) == 11 * 8


def test_frozen_parameters() -> None:
    module = CASES["cnn, frozen"].build()
    assert {name for name, one in module.named_parameters() if one.requires_grad} == {"5.weight", "7.weight"}
    tied = CASES["transformer, tied"].build(freeze=["answer.*"])
    assert not tied.embedding.weight.requires_grad


@pytest.mark.parametrize(("patterns", "said"), [
    (["conv1.*"], r'no parameter is called "conv1\.\*"; there are 0\.weight, 0\.bias, 4\.weight, 4\.bias, 6\.weight, 6\.bias'),
    (["*"], "the patterns match all parameters, so none is left to train"),
])  # fmt: skip
def test_patterns_that_cannot_freeze(patterns: list[str], said: str) -> None:
    with pytest.raises(BadJob, match=said):
        Case(IMAGES, {"name": "cnn", "channels": [4], "freeze": patterns}).build()


def test_initial_weights_follow_the_seed() -> None:
    for case in CASES.values():
        drawn: list[nn.Module] = []
        for seed in 1, 1, 2:
            torch.manual_seed(seed)
            drawn.append(case.build())
        first, again, other = (torch.cat([one.detach().flatten() for one in module.parameters()]) for module in drawn)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_initial_ranges_beyond_float32() -> None:
    """Without the check each worker raises torch's `from is out of bounds for float`."""
    with pytest.raises(ValidationError, match="init_range"):
        Mlp(name="mlp", init_range=1e300)


@pytest.mark.parametrize(("table", "wanted"), [
    ({"name": "mlp", "hidden": [2_000_000, 2_000_000]}, "14,901.2 GiB"),
    ({"name": "mlp", "hidden": [10, 10**19]}, "8,589,934,592.0 GiB"),
    ({"name": "mlp", "hidden": [10**30]}, "8,589,934,592.0 GiB"),
    ({"name": "gru", "hidden": 1 << 21}, "49,152.0 GiB"),
    ({"name": "torchvision:resnet50", "width_per_group": 10**9}, "238.4 GiB"),
])  # fmt: skip
def test_a_network_larger_than_the_memory(table: dict[str, Any], wanted: str) -> None:
    form = {"gru": (5, 3), "torchvision:resnet50": (3, 64, 64)}.get(table["name"], (4,))
    with pytest.raises(BadJob) as caught:
        Case(Interface(form, 2, "classification"), table).build()
    message = caught.value.message
    assert message.startswith(f"[model] `{table['name']}` is too large: its parameters need at least {wanted} of memory, and ")


def test_the_size_of_parameters_is_checked_before_they_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "memory_limits", lambda: MemoryLimits(4 * 90, 4 * 90, 4 * 90))
    case = Case(Interface((4,), 2, "classification"), {"name": "mlp", "hidden": [10, 10]})  # layers of 50, 110 and 22 numbers
    filled: list[int] = []
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda layer: filled.append(layer.in_features))
    with pytest.raises(BadJob, match=r"`mlp` is too large"):
        case.build()
    assert filled == [4]
    monkeypatch.setattr(models, "memory_limits", lambda: MemoryLimits(4 * 182, 4 * 182, 4 * 182))
    case.build()


@pytest.mark.parametrize(("table", "shape"), [
    ({"name": "mlp", "batch_norm": True}, (3,)),
    ({"name": "mlp", "batch_norm": True, "hidden": []}, (3,)),
    ({"name": "mlp"}, (3,)),
    ({"name": "linear"}, (3,)),
    ({"name": "autoencoder", "batch_norm": True}, (3,)),
    ({"name": "autoencoder", "batch_norm": True, "hidden": []}, (3,)),
    ({"name": "autoencoder", "batch_norm": True, "hidden": [], "channels": [2]}, (1, 8, 8)),
    *(({"name": "cnn", "channels": [2, 2, 2], "batch_norm": True}, (1, side, side)) for side in (8, 12)),
    ({"name": "cnn", "channels": [2, 2]}, (1, 4, 4)),
    *(({"name": "resnet", "depth": 20}, (1, side, side)) for side in (4, 5, 8)),
    *(({"name": "resnet", "depth": 18}, (1, side, side)) for side in (32, 33)),
    *(({"name": "resnet", "depth": 18, "stem": "small"}, (1, 4, side)) for side in (8, 9)),
    ({"name": "resnet", "norm": "group"}, (1, 4, 4)),
])  # fmt: skip
def test_the_fewest_items_are_those_that_torch_takes(table: dict[str, Any], shape: tuple[int, ...], tmp_path: Path) -> None:
    section = TypeAdapter[Any](AnyModel).validate_python(table)
    task = "autoencoder" if table["name"] == "autoencoder" else "classification"
    module = build(section, tmp_path, Interface(shape, 2, task)).train()
    with pytest.raises(ValueError, match="more than 1 value") if section.least_batch(shape) == 2 else nullcontext():
        module(torch.zeros(1, *shape))
    module(torch.zeros(2, *shape))
