"""Gradient averaging: one big batch."""

from dataclasses import replace

import pytest
import torch
from support.lab import OneWeight, Trial, line, same
from torch import Tensor, nn
from torch.nn import functional

from partrain.comm.simulated import Pace
from partrain.optim import Sgd
from partrain.rules.bsp import Bsp
from partrain.training.worker import LocalWorker

MOMENTUM = Sgd(lr=0.1, momentum=0.9, batch_size=4)


def test_two_workers_are_one_with_a_batch_of_both() -> None:
    """Batches of 2 and of 2 items: the mean gradient of both, to the bit, is the mean of the four."""
    items = line([1.0, 2.0, 1.0, 0.5], [0.0, 8.0, 2.0, 1.0])
    rule, optimizer = Bsp(rule="bsp", iterations=1), Sgd(lr=0.125, batch_size=2)
    both, _ = Trial(rule, optimizer, OneWeight, items, [range(2), range(2, 4)]).run(3)
    alone, _ = Trial(rule, optimizer.model_copy(update={"batch_size": 4}), OneWeight, items, [range(4)]).run(3)
    assert both[0].courses == alone[0].courses


def test_gradients_are_weighted_by_their_items() -> None:
    """Under passes the last batch is short; here worker 1 has one item (x = 1, y = 0), worker 0 three (x = 1, y = 4).

    The mean gradient over the four items is 2 w - 6; from w = 16 with the rate 1/2: 16 - 13 = 3, the mean of the targets.
    """
    rule = Bsp(rule="bsp", passes=1)
    items = line([1.0] * 4, [4.0, 4.0, 4.0, 0.0])
    workers, _ = Trial(rule, Sgd(lr=0.5, batch_size=3), OneWeight, items, [range(3), range(3, 4)]).run(1)
    assert workers[0].courses == [[3.0] + [0.0] * 15]


def test_devices_that_round_unlike_end_a_round_with_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = LocalWorker.apply

    def rounding(worker: LocalWorker, gradient: Tensor) -> None:
        apply(worker, gradient)
        worker.params.add_(1e-3 * worker.rank)

    monkeypatch.setattr(LocalWorker, "apply", rounding)
    first, second = Trial(Bsp(rule="bsp", iterations=2), MOMENTUM).run(1)[0]
    assert first.worker.params.equal(second.worker.params)


@pytest.mark.parametrize("iterations", [1, 3])
def test_workers_that_compute_alike_meet_once_an_iteration_and_give_the_same_bits(iterations: int) -> None:
    """Each meeting costs a second. Otherwise a round has one more for parameters, one for momentum and one for numbers."""
    trial = Trial(Bsp(rule="bsp", iterations=iterations), MOMENTUM, paces=[Pace(delay_s=1.0)] * 2)
    apart, expected = trial.run(4)
    together, snapshot = replace(trial, uniform=True).run(4)
    assert same(snapshot, expected)
    assert together[0].progress == apart[0].progress
    saved = 3 if iterations == 1 else 2  # the only mean takes the numbers along
    assert together[0].records[-1]["seconds"] == pytest.approx(apart[0].records[-1]["seconds"] - 4 * saved)


def test_a_worker_without_items_takes_the_steps_of_the_others() -> None:
    """The schedule of the learning rate ends within the rounds of one active worker."""
    rule = Bsp(rule="bsp", iterations=3, ramp_workers=6)
    first, second = Trial(rule, MOMENTUM.model_copy(update={"schedule": "linear"}), horizon=50, uniform=True).run(2)[0]
    assert second.records[-1]["items"] == 0
    assert first.worker.params.equal(second.worker.params)


class Partly(OneWeight):
    """Uses its second weight only for items of two or more."""

    def __init__(self) -> None:
        super().__init__()
        self.rarely = nn.Parameter(torch.tensor([4.0]))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (self.rarely * x if x.max() >= 2 else 0)


def rarely_used(inputs: list[float]) -> float:
    """The second weight after one iteration with weight decay 1/2 and the rate 1/4 on items whose targets are 0."""
    partitions = [range(rank, rank + 1) for rank in range(len(inputs))]
    optimizer = Sgd(lr=0.25, weight_decay=0.5, batch_size=1)
    workers, _ = Trial(Bsp(rule="bsp", iterations=1), optimizer, Partly, line(inputs, [0.0] * len(inputs)), partitions).run(1)
    return workers[0].worker.module.rarely.item()


def test_a_weight_that_nobody_uses_stays_as_it_is() -> None:
    assert rarely_used([1.0, 1.0]) == 4.0
    assert rarely_used([1.0]) == 4.0


def test_a_weight_that_one_worker_uses_has_its_share_of_the_gradient() -> None:
    """x = 2: the answer is 2 (16 + 4) = 40, the gradient 2 * 2 * 40 = 160, the mean of two workers 80: 4 - (80 + 4 / 2) / 4."""
    assert rarely_used([1.0, 2.0]) == rarely_used([2.0, 1.0]) == -16.5


def test_momentum_is_that_of_the_mean_gradient() -> None:
    rule, optimizer = Bsp(rule="bsp", iterations=4), Sgd(lr=0.01, momentum=0.9, batch_size=1)
    items = line([1.0, 2.0], [0.0, 8.0])
    workers, _ = Trial(rule, optimizer, OneWeight, items, [range(1), range(1, 2)]).run(2)
    w = torch.tensor([16.0], requires_grad=True)
    reference = torch.optim.SGD([w], lr=0.01, momentum=0.9)
    for _ in range(8):
        reference.zero_grad()
        functional.mse_loss(items.inputs * w, items.targets).backward()
        reference.step()
    torch.testing.assert_close(workers[1].params[0], w[0].detach())
