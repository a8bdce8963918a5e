"""Every network by name under every synchronous rule: one row, whole checkpoints, the same bits."""

from __future__ import annotations

import pytest
import torch
from support.lab import Snapshot, Trained
from support.networks import CASES, Case, lesson
from support.rule_forms import SYNCHRONOUS, VARIANTS
from torch import nn

from partrain.flat import trainable
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.seeds import derive

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def initial(case: Case) -> nn.Module:
    """Return the initial network of each worker."""
    with torch.random.fork_rng():
        torch.manual_seed(derive(0, "init"))
        return case.build()


def loaded(case: Case, snapshot: Snapshot) -> nn.Module:
    """Load the mixed network from a snapshot, in evaluation mode. Raises for a missing or an extra tensor."""
    module = initial(case)
    stored = {path.removeprefix("model/"): array for path, array in snapshot.arrays.items() if path.startswith("model/")}
    module.load_state_dict({name: torch.from_numpy(array) for name, array in stored.items()})
    return module.eval()


def is_one_row(member: Trained) -> bool:
    """Return whether all trained parameters are still views of the worker's row."""
    views = member.worker.replica.layout.params.views(member.params)
    parameters = [parameter for _, parameter in trainable(member.worker.module)]
    return [one.data_ptr() for one in parameters] == [one.data_ptr() for one in views]


@every_case
def test_it_trains(case: Case) -> None:
    trial = lesson(case, rule=Average(iterations=2))
    members, snapshot = trial.run(rounds=2)
    again, _ = trial.run(rounds=2)
    assert [member.courses for member in members] == [member.courses for member in again], "the same bits"
    trained, items = loaded(case, snapshot), case.items(6).inputs
    for member in members:
        assert is_one_row(member)
        member.worker.module.eval()
        with torch.no_grad():
            assert torch.equal(member.worker.module(items), trained(items)), "the checkpoint holds all of it"
    only_the_rest_is_trained(case, trained)


THIRDS = (), (pytest.mark.slow,), (pytest.mark.slow, pytest.mark.soak)
PAIRS = [
    pytest.param(name, rule, id=f"{name}-{rule}", marks=THIRDS[(number + place) % 3])
    for number, name in enumerate(["mlp, restless", "autoencoder", "cnn", "cnn, frozen", "lstm, text", "transformer, tied"])
    for place, rule in enumerate(sorted(SYNCHRONOUS))
]
"""Each network under a third of the rules, and each rule with two networks, in the gate.

`make test-slow` has the second third, `make soak` the last.
"""


@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_it_trains_under_every_synchronous_rule(name: str, rule: str) -> None:
    case = CASES[name]
    members, snapshot = lesson(case, rule=VARIANTS[rule]).run(rounds=2)
    assert all(map(is_one_row, members))
    only_the_rest_is_trained(case, loaded(case, snapshot))


def only_the_rest_is_trained(case: Case, trained: nn.Module) -> None:
    """Training changes all parameters but the frozen ones."""
    parameters = dict(initial(case).named_parameters())
    moved = {name for name, parameter in parameters.items() if not torch.equal(parameter, trained.get_parameter(name))}
    assert moved
    assert moved <= {name for name, parameter in parameters.items() if parameter.requires_grad}
    assert all(parameter.requires_grad for parameter in parameters.values()) == ("freeze" not in case.settings)


@pytest.mark.parametrize("name", ["mlp, restless", "autoencoder, convolutions", "cnn", "resnet"])
def test_statistics_are_pooled_over_both_workers(name: str) -> None:
    """BatchNorm's running means and variances are pooled, and its counter covers the batches of both workers."""
    case = CASES[name]
    members, _ = lesson(case, rule=Average(iterations=2)).run(rounds=1)
    alone = [lesson(case).worker(rank) for rank in (0, 1)]
    for worker in alone:
        worker.begin(1, 0)
        worker.train(2)
    norms = [[part for part in worker.module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)] for worker in alone]
    pooled = [part for part in members[1].worker.module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    assert pooled
    for norm, one, other in zip(pooled, *norms, strict=True):
        mean = (one.running_mean.double() + other.running_mean.double()) / 2
        spread = (one.running_mean.double() - mean).square()
        variance = (one.running_var.double() + other.running_var.double()) / 2 + spread
        torch.testing.assert_close(norm.running_mean, mean.float())
        torch.testing.assert_close(norm.running_var, variance.float())
        assert norm.num_batches_tracked == 2


@every_case
def test_each_worker_draws_its_own_random_numbers(case: Case) -> None:
    """Two workers on the same batch: their gradients differ only by random numbers within the network."""
    trial = lesson(case, twins=True, partitions=(range(24), range(24)))
    gradients = []
    for rank in 0, 1, 1:
        worker = trial.worker(rank)
        worker.begin(1, 0)
        gradients.append(worker.gradient().clone())
    first, second, again = gradients
    draws = bool(case.settings.get("dropout") or case.settings.get("noise"))
    assert torch.equal(second, again)
    assert torch.equal(first, second) != draws


def test_tied_weights_are_one_tensor_of_the_row() -> None:
    case = CASES["transformer, tied"]
    rules: list[Rule] = [Average(iterations=2), VARIANTS["bsp"]]
    for rule in rules:
        members, snapshot = lesson(case, rule=rule).run(rounds=2)
        for module in (*(member.worker.module for member in members), loaded(case, snapshot)):
            assert module.answer.weight is module.embedding.weight
        assert (snapshot.arrays["model/answer.weight"] == snapshot.arrays["model/embedding.weight"]).all()
        assert [field.name for field in members[0].worker.replica.layout.params.fields].count("answer.weight") == 0


@pytest.mark.parametrize("name", ["lstm, series", "gru, frozen", "cnn", "transformer, tied"])
def test_it_continues_to_the_bit(name: str) -> None:
    trial = lesson(CASES[name])
    whole, _ = trial.run(rounds=3)
    _, halfway = trial.run(rounds=1)
    continued, _ = trial.run(rounds=3, since=halfway)
    assert [member.courses[-1] for member in continued] == [member.courses[-1] for member in whole]
