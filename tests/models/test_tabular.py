"""The network for tables: codes and numbers, and networks that have no embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.networks import CASES, Case
from support.runs import partrain, summary, write_job
from torch.nn import functional

from partrain.errors import BadJob
from partrain.models import Interface
from partrain.models.tabular import TabularModule, start_from_items
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


def straight(module: torch.nn.Module) -> np.ndarray[Any, Any]:
    """The weights (k, numbers) of the linear path."""
    assert isinstance(module, TabularModule)
    assert module.straight is not None
    return module.straight.weight.detach().double().numpy()


def test_the_linear_path_starts_as_a_ridge_regression_on_the_numbers() -> None:
    draw = np.random.default_rng(0)
    inputs = np.column_stack([draw.normal(size=500), draw.integers(0, 40, 500), draw.normal(size=500)]).astype(np.float32)
    targets = (inputs[:, [0, 2]] @ [[2.0, -1.0], [0.5, 3.0]] + 0.01 * draw.normal(size=(500, 2))).astype(np.float32)
    module = Case(ROWS, {"name": "tabular", "linear": True}).build()
    assert not straight(module).any()
    start_from_items(module, inputs, targets)
    np.testing.assert_allclose(straight(module), [[2.0, 0.5], [-1.0, 3.0]], atol=0.01)


def test_it_starts_at_zero_where_that_errs_less_on_the_last_items() -> None:
    draw = np.random.default_rng(1)
    inputs, noise = draw.normal(size=(40, 3)).astype(np.float32), draw.normal(size=(40, 2)).astype(np.float32)
    inputs[:, 1] = 3
    noise[32:] = -10 * inputs[32:, [0, 2]]  # the newest items follow another line than the older ones
    noise[:32] = 10 * inputs[:32, [0, 2]]
    module = Case(ROWS, {"name": "tabular", "linear": True}).build()
    start_from_items(module, inputs, noise)
    assert not straight(module).any()


def test_classes_leave_it_at_zero() -> None:
    module = Case(ROWS, {"name": "tabular", "linear": True}).build()
    start_from_items(module, np.ones((9, 3), np.float32), np.zeros(9, np.int64))
    assert not straight(module).any()


def test_answers_that_are_logarithms_start_at_zero(tmp_path: Path) -> None:
    """A regression on the counts themselves, as logarithms, would answer e to the power of hundreds."""
    (tmp_path / "counts.csv").write_text("t,y\n" + "\n".join(f"{at},{20 + 2 * at}" for at in range(300)) + "\n")
    data = 'dataset={kind="csv", path="counts.csv", target="y", target_kind="number", time="t", test_share=0.2, validation=30}'
    network = 'model={name="tabular", width=8, hidden=8, periodic=0, linear=true}'
    sets = (
        data,
        network,
        'optimizer={name="adamw", lr=0.003, batch_size=16}',
        "stop={rounds=1}",
        'task={loss="poisson", metrics=["mae"]}',
    )
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path, *sets), "--out", run, "-q").code == 0
    assert summary(run)["test"]["mae"] < 1000


def test_newer_rows_beyond_the_older_ones_follow_the_trend(tmp_path: Path) -> None:
    """Rows in the order of time, whose targets rise with it: before, the newest ones had an R2 far below 0."""
    draw = np.random.default_rng(2)
    moments = np.arange(600) / 600
    values = 8 * moments + np.sin(40 * moments) + 0.1 * draw.normal(size=600)
    rows = [f"{at:.5f},{np.sin(40 * at):.5f},{value:.5f}" for at, value in zip(moments, values, strict=True)]
    (tmp_path / "trend.csv").write_text("t,wave,y\n" + "\n".join(rows) + "\n")
    data = 'dataset={kind="csv", path="trend.csv", target="y", time="t", standardise_target=true, test_share=0.2, validation=90}'
    network = 'model={name="tabular", width=16, hidden=16, periodic=0, linear=true}'
    job = write_job(
        tmp_path, data, network, 'optimizer={name="adamw", lr=0.003, batch_size=16}', "stop={rounds=4}", 'task.metrics=["r2"]'
    )
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    assert summary(tmp_path / "run")["test"]["r2"] > 0.5
