"""The networks of torchvision: any of them, by name, with torchvision's tensor names."""

from __future__ import annotations

from importlib import util

import pytest
import torch
from support.networks import Case, lesson, size
from support.rule_forms import VARIANTS
from torch import nn

from partrain.errors import BadJob
from partrain.models import Interface

LARGE = Interface((3, 224, 224), 1000, "classification")
SMALL = Interface((3, 32, 32), 4, "classification")
GREY = Interface((1, 32, 32), 4, "classification")


@pytest.mark.parametrize(("name", "parameters"), [
    ("vgg16", 138_357_544), ("alexnet", 61_100_840), ("googlenet", 6_624_904), ("resnet50", 25_557_032), ("vit_b_16", 86_567_656),
])  # fmt: skip
def test_published_sizes(name: str, parameters: int) -> None:
    with torch.device("meta"):
        module = Case(LARGE, {"name": f"torchvision:{name}"}).build()
        assert size(module) == parameters
        assert module.train()(torch.empty(2, 3, 224, 224)).shape == (2, 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("interface", "rule"), [
    pytest.param(SMALL, "average", id="colour-average"),
    pytest.param(SMALL, "bsp", id="colour-bsp", marks=pytest.mark.soak),
    pytest.param(GREY, "average", id="grey-average", marks=pytest.mark.soak),
    pytest.param(GREY, "bsp", id="grey-bsp"),
])  # fmt: skip
def test_it_trains(interface: Interface, rule: str) -> None:
    case = Case(interface, {"name": "torchvision:shufflenet_v2_x0_5", "freeze": ["conv1.*"]})
    members, snapshot = lesson(case, 12, rule=VARIANTS[rule].model_copy(update={"iterations": 1})).run(rounds=1)
    first, second = (member.worker.module.state_dict() for member in members)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {path for path in snapshot.arrays if path.startswith("model/")} == {f"model/{name}" for name in first}
    bare = util.find_spec("torchvision") and __import__("torchvision").models.shufflenet_v2_x0_5(num_classes=4)
    assert isinstance(bare, nn.Module)
    assert bare.state_dict().keys() == first.keys()


def test_other_keys_are_its_arguments() -> None:
    module = Case(SMALL, {"name": "torchvision:vgg11", "dropout": 0.25}).build()
    assert {part.p for part in module.modules() if isinstance(part, nn.Dropout)} == {0.25}


@pytest.mark.parametrize(("name", "interface", "said"), [
    ("resnet5", SMALL, r"torchvision has no model `resnet5`; did you mean `resnet50`\?"),
    ("q", SMALL, r"torchvision has no model `q`; it has alexnet, .*"),
    ("alexnet", SMALL, r"torchvision's `alexnet` for images of 3 x 32 x 32: .*too small; images of 3 x 64 x 64 would work"),
    ("vit_b_16", SMALL, r"torchvision's `vit_b_16` for images of 3 x 32 x 32: .*; images of 3 x 224 x 224 would work"),
    ("resnet18", Interface((2, 32, 32), 4, "classification"), "networks of torchvision take images of 3 channels, or of 1 .*"),
    ("resnet18", Interface((7,), 4, "classification"), r"`torchvision:resnet18` takes images .*, and the items are 7 numbers"),
])  # fmt: skip
def test_a_mismatch_is_one_line(name: str, interface: Interface, said: str) -> None:
    with pytest.raises(BadJob, match=rf"^\[model\] {said}$"):
        Case(interface, {"name": f"torchvision:{name}"}).build()


def test_an_unknown_argument() -> None:
    with pytest.raises(BadJob, match=r"^\[model\] torchvision's `resnet18` .*unexpected keyword argument 'depth'$"):
        Case(SMALL, {"name": "torchvision:resnet18", "depth": 3}).build()


def test_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partrain.models.image_sections.find_spec", lambda name: None)
    with pytest.raises(BadJob, match=r"^\[model\] torchvision is not installed: pip install 'partrain\[vision\]'$"):
        Case(SMALL, {"name": "torchvision:resnet18"}).build()
