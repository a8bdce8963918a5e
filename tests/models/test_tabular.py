"""The network for tables: codes and numbers, and networks that have no embeddings."""

from __future__ import annotations

import pytest
import torch
from support.networks import CASES, Case

from partrain.errors import BadJob
from partrain.models import Interface
from partrain.models.tabular import TabularModule

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


def test_frequencies_need_periodic_embeddings() -> None:
    with pytest.raises(ValueError, match="`sigma` has no effect with `periodic` = 0"):
        Case(ROWS, {"name": "tabular", "periodic": 0, "sigma": 0.2}).build()
