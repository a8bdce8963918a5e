"""Groups of parameters: each gets torch's steps with its own learning rate and decay; layers are those of the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from optim.test_local import LOOPS, OPTIMIZERS, OWN
from pydantic import TypeAdapter
from support.lab import Trial
from support.networks import CASES
from support.rule_forms import VARIANTS
from support.runs import newest, resume, round_file, train
from torch import nn

from partrain.checkpoint import decode
from partrain.errors import BadJob
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.groups import ParamRate, layers, rates_of
from partrain.optim.local import LocalOptimizer
from partrain.training.replica import Replica, row_layout

SECTIONS: TypeAdapter[Any] = TypeAdapter(AnyOptimizer)


def section(**keys: Any) -> Any:
    return SECTIONS.validate_python({"name": "sgd", "lr": 0.1, **keys})


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 3))


GROUPED = [
    pytest.param(one, make, fused, id=f"{one.name}-{number}")
    for fused, cases in ((True, OPTIMIZERS), (False, LOOPS))
    for number, (one, make) in enumerate(cases)
    if one.name not in ("rprop", "lbfgs")
]


@pytest.mark.parametrize(("one", "make", "fused"), GROUPED)
def test_twenty_steps_are_those_of_torchs_param_groups(
    one: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], fused: bool
) -> None:
    """At a constant rate to the bit; the rates of a schedule may differ in their last bit."""
    groups = [{"match": ["3.*"], "lr": 0.03}, {"match": ["*.bias", "3.weight"], "weight_decay": 0.25}]
    with_groups = SECTIONS.validate_python({**one.model_dump(exclude_unset=True), "name": one.name, "groups": groups})
    for falls in False, True:
        module, other = network(), network()
        row = torch.zeros(row_layout(module, with_groups).numbers)
        ours = Replica(module, row_layout(module, with_groups), row, with_groups).optimizer
        settings = one.model_dump(include=OWN)
        named = dict(other.named_parameters())
        head = {"params": [named["3.weight"], named["3.bias"]], "lr": 0.03}
        biases = {"params": [named[name] for name in ("0.bias", "1.bias", "2.bias")], "weight_decay": 0.25}
        rest = {"params": [named[name] for name in ("0.weight", "1.weight", "2.weight")]}
        how: dict[str, bool] = {"fused": True} if fused else {"foreach": False}
        theirs = make([head, biases, rest], lr=one.lr, **how, **settings)
        peaks = [group["lr"] for group in theirs.param_groups]
        generator = torch.Generator().manual_seed(1)
        for step in range(20):
            share = 1 - step / 20 if falls else 1.0
            gradients = {name: torch.randn(parameter.shape, generator=generator) for name, parameter in named.items()}
            for group, peak in zip(theirs.param_groups, peaks, strict=True):
                group["lr"] = peak * share
            for name, parameter in named.items():
                parameter.grad = gradients[name]
            theirs.step()
            ours.step(list(gradients.values()), one.lr * share)
        for name, parameter in module.named_parameters():
            if falls:
                torch.testing.assert_close(parameter, named[name])
            else:
                assert torch.equal(parameter, named[name]), name


def test_without_groups_all_have_the_rates_of_the_table() -> None:
    assert rates_of(section(), network()) == ()
    layout = row_layout(network(), section())
    optimizer = LocalOptimizer(section(), torch.zeros(layout.params.size), torch.zeros(0, layout.params.size), layout.params)
    assert len(optimizer._groups) == 1


def test_the_first_match_wins_and_the_rest_keeps_the_tables() -> None:
    groups = [{"match": ["0.*"], "lr": 1.0}, {"match": ["*.weight"], "weight_decay": 0.5}]
    found = dict(
        zip(dict(network().named_parameters()), rates_of(section(weight_decay=0.1, groups=groups), network()), strict=True)
    )
    assert found["0.weight"] == found["0.bias"] == ParamRate(1.0, 0.1)
    assert found["1.weight"] == found["3.weight"] == ParamRate(0.1, 0.5)
    assert found["2.bias"] == ParamRate(0.1, 0.1)


def test_both_names_of_a_tied_parameter_count() -> None:
    module = CASES["transformer, tied"].build()
    rates = dict(
        zip(dict(module.named_parameters()), rates_of(section(groups=[{"match": ["answer.*"], "lr": 3.0}]), module), strict=True)
    )
    assert [name for name, rate in rates.items() if rate.lr == 3.0] == ["embedding.weight"]


def test_layer_decay() -> None:
    """Three layers, the norm with the first; the last one's rate is that of the table, or of its group."""
    found = rates_of(section(layer_decay=0.5), network())
    assert [rate.lr for rate in found] == [0.025] * 4 + [0.05] * 2 + [0.1] * 2
    found = rates_of(section(layer_decay=0.5, groups=[{"match": ["[03].weight"], "lr": 8.0}]), network())
    assert [rate.lr for rate in found] == [2.0, *[0.025] * 3, *[0.05] * 2, 8.0, 0.1]
    module = network()
    module[0].requires_grad_(False)
    assert [rate.lr for rate in rates_of(section(layer_decay=0.5), module)] == [0.025] * 2 + [0.05] * 2 + [0.1] * 2


@pytest.mark.parametrize(("name", "first", "count"), [
    ("resnet18", "conv1", 10), ("vit_b_16", "class_token", 14), ("vgg11", "features.0", 11),
    ("densenet121", "features.conv0", 63),
])  # fmt: skip
def test_layers_of_known_networks(name: str, first: str, count: int) -> None:
    from partrain.system.torchvision import import_torchvision

    with torch.device("meta"):
        module = import_torchvision("torchvision.models").get_model(name, weights=None)
    found = layers(module)
    assert found[0][0].startswith(first)
    assert len(found) == count
    assert sorted(one for part in found for one in part) == sorted(dict(module.named_parameters()))
    if name == "resnet18":
        assert found[0] == ["conv1.weight", "bn1.weight", "bn1.bias"]
        assert found[-1] == ["fc.weight", "fc.bias"]
        assert any(one.startswith("layer1.1.") for one in found[2])


def test_layers_inside_a_module_are_found() -> None:
    """A class around another, as Hugging Face has it."""
    inner = nn.Module()
    inner.embeddings, inner.stack, inner.pooler = (
        nn.Embedding(3, 2),
        nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]),
        nn.Linear(2, 2),
    )
    outer = nn.Module()
    outer.scale, outer.body, outer.head = nn.Parameter(torch.ones(1, 1)), inner, nn.Linear(2, 1)
    assert [part[0] for part in layers(outer)] == [
        "scale",
        "body.stack.0.weight",
        "body.stack.1.weight",
        "body.pooler.weight",
        "head.weight",
    ]
    assert layers(outer)[0] == ["scale", "body.embeddings.weight"]


@pytest.mark.parametrize(("keys", "said"), [
    ({"groups": [{"match": ["haed.*"], "lr": 1.0}]}, r'no parameter is called "haed\.\*"; there are 0.weight, 0.bias, 1.weight'),
    ({"groups": [{"match": ["3.*", "0.*"], "lr": 1.0}]}, r'all parameters called "0\.\*" are frozen by \[model\] freeze'),
    ({"groups": [{"match": ["*"], "lr": 1.0}, {"match": ["3.*"], "lr": 2.0}]}, r"earlier groups have all these parameters"),
])  # fmt: skip
def test_a_pattern_without_effect_is_refused(keys: dict[str, Any], said: str) -> None:
    module = network()
    module[0].requires_grad_(False)
    with pytest.raises(BadJob, match=r"^\[\[optimizer\.groups\]\] match.*" + said):
        row_layout(module, section(**keys))


GROUPS = 'optimizer={name="adam", lr=0.02, batch_size=8, schedule="cosine", warmup=0.2, layer_decay=0.5, groups=[{match=["3.*"], lr=0.1, weight_decay=0.1}]}'


@pytest.mark.parametrize("rule", ["average", "bsp", "slowmo"])
def test_runs_are_equal_on_all_transports_and_after_an_interruption(tmp_path: Path, rule: str) -> None:
    keys = GROUPS, f'sync={{rule="{rule}", iterations=3}}', 'model={name="mlp", hidden=[16], batch_norm=true}'
    shared, simulated = (train(tmp_path / kind, *keys, f"transport.kind='{kind}'") for kind in ("shared", "simulated"))
    first, second = (decode(newest(run)).arrays for run in (shared, simulated))
    assert all(np.array_equal(array, second[path]) for path, array in first.items())
    resume(round_file(shared, 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(shared)
    plain = train(tmp_path / "plain", *keys, "~optimizer.groups", "~optimizer.layer_decay")
    assert newest(plain) != newest(shared)
    assert decode(newest(plain)).arrays.keys() == first.keys()


def test_slow_momentum_needs_no_rate_of_each_parameter() -> None:
    """Slow steps in units of each parameter's own rate are those in units of the table's."""
    rule = VARIANTS["slowmo"].model_copy(update={"iterations": 2, "momentum": 0.5})
    optimizer = Sgd(lr=0.1, groups=[{"match": ["0.*"], "lr": 0.02}])  # type: ignore[list-item]
    trial = Trial(network=lambda: nn.Sequential(nn.Linear(5, 3)), rule=rule, optimizer=optimizer)
    grouped = trial.run(rounds=4)[0][0].params
    slow = Trial(network=lambda: nn.Sequential(nn.Linear(5, 3)), rule=rule, optimizer=Sgd(lr=0.02)).run(rounds=4)[0][0].params
    torch.testing.assert_close(grouped, slow)
