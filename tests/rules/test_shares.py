"""Shares of what is sent are shares of the parameters: the padding between the tensors of a row is not counted."""

from __future__ import annotations

import pytest
import torch
from pydantic import TypeAdapter
from support.lab import Trial
from torch import nn

from partrain.optim import Sgd
from partrain.protocols import Rule
from partrain.rules import AnyRule
from partrain.rules.compression import TopK
from partrain.rules.threshold import Threshold, ThresholdState

SGD = Sgd(lr=0.1, batch_size=4)


def small() -> nn.Sequential:
    """A network of 21 parameters in a row of 64 numbers."""
    return nn.Sequential(nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 3))


@pytest.mark.parametrize("density", [0.04, 0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("table", [
    {"rule": "topk", "compressor": {"kind": "topk"}}, {"rule": "topk", "compressor": {"kind": "topk", "chunk": 4096}},
    {"rule": "choco", "compressor": {"kind": "topk"}}, {"rule": "sparseloco", "values": "fp32"},
])  # fmt: skip
def test_the_entries_sent_are_a_share_of_the_parameters(density: float, table: dict[str, object]) -> None:
    given = table | {"iterations": 1}
    given |= {"density": density} if table["rule"] == "sparseloco" else {"compressor": table["compressor"] | {"density": density}}
    rule: Rule = TypeAdapter(AnyRule).validate_python(given)
    trial = Trial(rule, SGD, network=small)
    assert (trial.layout.params.size, trial.worker().parameters) == (64, 21)
    sent: list[int] = []
    choose = TopK.choose

    def watched(self: TopK, x: torch.Tensor, numbers: int | None = None) -> torch.Tensor:
        index = choose(self, x, numbers)
        sent.append(len(index))
        return index

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopK, "choose", watched)
        trial.run(1)
    assert sent == [max(1, round(density * 21))] * 2


def test_chunks_have_their_part_of_the_share() -> None:
    """A row of 640 numbers, 400 of them parameters: 40 entries in all at a density of 0.1, four of each chunk of 64."""
    x = torch.randn(640)
    index = TopK(kind="topk", density=0.1, chunk=64).choose(x, 400)
    assert torch.bincount(index // 64, minlength=10).tolist() == [4] * 10


def test_a_target_of_the_threshold_is_a_share_of_the_parameters() -> None:
    """Eight of 21 parameters are 0.38 of them, but an eighth of the row."""
    rule = Threshold(rule="threshold", iterations=1, threshold=0.01, target=[0.0, 0.2])
    worker = Trial(rule, SGD, network=small).worker()
    state = ThresholdState(torch.ones(64), 0.01)
    assert rule.adapted(state, 8 / worker.parameters) > 0.01
    assert rule.adapted(state, 8 / len(worker.params)) == 0.01
    seen: list[float] = []
    adapted = Threshold.adapted

    def watched(self: Threshold, state: ThresholdState, share: float) -> float:
        seen.append(share * 21)
        return adapted(self, state, share)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Threshold, "adapted", watched)
        Trial(rule.model_copy(update={"threshold": 0.0}), SGD, network=small).run(1)
    assert seen
    assert all(count == pytest.approx(round(count)) for count in seen)
    assert all(0 < count <= 21 for count in seen)
