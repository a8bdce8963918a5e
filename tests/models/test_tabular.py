"""The network for tables: codes and numbers, and networks that have no embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.networks import CASES, Case
from torch.nn import functional

from partrain.errors import BadJob
from partrain.models import Interface
from partrain.models.tabular import TabularModule
from partrain.tasks import make

ROWS = Interface((3,), 2, "regression", categories=(0, 40, 0))


def test_codes_are_embedded_and_numbers_are_not() -> None:
    module = CASES["tabular"].build().eval()
    assert isinstance(module, TabularModule)
    assert [tuple(one.weight.shape) for one in module.embeddings] == [(5, 3), (3, 2)]  # type: ignore[union-attr]
    items = torch.tensor([[0.5, 1, -1, 2], [0.5, 4, -1, 2]])
    with torch.no_grad():
        first, second = module(items)
        assert not torch.equal(first, second)
        module.embeddings[0].weight[4] = module.embeddings[0].weight[1]  # type: ignore[index, operator]
        first, second = module(items)
        assert torch.allclose(first, second)


def test_the_widest_embedding() -> None:
    module = Case(ROWS, {"name": "tabular", "embedding": 7, "periodic": 0}).build()
    assert module.embeddings[0].weight.shape == (40, 7)  # type: ignore[union-attr, index]
    assert module.enter.in_features == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_other_networks_refuse_codes(name: str) -> None:
    with pytest.raises(BadJob, match=f"`{name}` has no embeddings for the codes of `.dataset. categories`: list these columns"):
        Case(ROWS, {"name": name}).build()


def test_members_are_trained_by_their_own_losses_and_answer_with_their_mean() -> None:
    """The gradient is that of the mean of the members' losses, not of the loss of their mean."""
    case = CASES["tabular, members"]
    module, items = case.build(dropout=0), case.items(6)
    inputs, labels = items.part(slice(0, 6))
    task = make(None, "classification", Path())
    loss, gradients = task.differentiate(module, list(module.parameters()), inputs, labels, 0)
    answers = module(inputs).reshape(6, 3, 3)
    losses = [functional.cross_entropy(answers[:, member], labels) for member in range(3)]
    assert len({round(member_loss.item(), 4) for member_loss in losses}) == 3
    mean = torch.stack(losses).mean()
    assert torch.allclose(loss, mean)
    for mine, wanted in zip(gradients, torch.autograd.grad(mean, list(module.parameters())), strict=True):
        assert mine is not None
        assert torch.allclose(mine, wanted, atol=1e-7)
    assert torch.allclose(module.eval()(inputs), answers.mean(1), atol=1e-6)


def test_members_share_all_layers_but_the_first_factors_and_the_last_layer() -> None:
    sizes = [
        sum(parameter.numel() for parameter in CASES["tabular, members"].build(members=count).parameters()) for count in (2, 3, 9)
    ]
    width = 3 + 2 + 2 + 2 * 2  # embeddings, numbers, embedded numbers
    assert sizes[1] - sizes[0] == width + 9 * 3
    assert sizes[2] - sizes[1] == 6 * (width + 9 * 3)


def test_frequencies_need_periodic_embeddings() -> None:
    with pytest.raises(ValueError, match="`sigma` has no effect with `periodic` = 0"):
        Case(ROWS, {"name": "tabular", "periodic": 0, "sigma": 0.2}).build()
