"""What becomes of buffers and of the optimizer's state when replicas are mixed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.lab import Trained, Trial, blobs, restless, simulate
from torch import Tensor, nn

from partrain.comm.group import ArenaGroup
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import Adam
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.training.buffers import pool, recalibrate, shared_buffers
from partrain.training.loop import Signal, WorkerRun
from partrain.training.replica import row_layout
from partrain.training.stop import Progress
from partrain.training.worker import LocalWorker

SGD = Sgd(lr=0.1, momentum=0.9, batch_size=4)
ADAM = Adam(name="adam", lr=0.01, batch_size=4)


def together(trial: Trial, program: Callable[[LocalWorker, ArenaGroup], Any]) -> list[Any]:
    """What each of the trial's workers, fresh, makes of a program."""
    layout = row_layout(trial.network(), trial.optimizer)
    return simulate(
        len(trial.partitions),
        lambda group, row: program(trial.worker(group.rank, row), group),
        layout.numbers,
        layout.scratch,
        layout.params.dtype,
    )


def states(workers: Sequence[Trained]) -> list[dict[str, Tensor]]:
    return [worker.worker.module.state_dict() for worker in workers]


# Pooling


def pooled(samples: Sequence[Tensor], weights: Sequence[float], momentum: float | None = 1.0) -> list[dict[str, Tensor]]:
    """The statistics of BatchNorm layers that each saw some items, pooled."""

    def program(worker: LocalWorker, group: ArenaGroup) -> dict[str, Tensor]:
        worker.module[0](samples[group.rank])
        pool(worker.module, group, weights[group.rank])
        return worker.module[0].state_dict()

    count = samples[0].shape[1]
    trial = Trial(network=lambda: nn.Sequential(nn.BatchNorm1d(count, momentum=momentum)), partitions=[range(9)] * len(samples))
    return together(trial, program)


def test_pooled_statistics_are_those_of_the_pooled_items() -> None:
    """m = sum w_i m_i and v = sum w_i (v_i + (m_i - m)^2), where v_i are the unbiased variances that BatchNorm keeps."""
    samples = [torch.randn(30, 4) + 5, 3 * torch.randn(10, 4)]
    expected_mean = torch.cat(samples).mean(0)
    spread = [0.75 * (samples[0].mean(0) - expected_mean) ** 2, 0.25 * (samples[1].mean(0) - expected_mean) ** 2]
    expected_var = 0.75 * samples[0].var(0) + 0.25 * samples[1].var(0) + sum(spread)
    for state in pooled(samples, [30.0, 10.0]):
        torch.testing.assert_close(state["running_mean"], expected_mean)
        torch.testing.assert_close(state["running_var"], expected_var)
    torch.testing.assert_close(expected_var, torch.cat(samples).var(0), rtol=0.1, atol=0.1)


def test_a_small_variance_survives_a_large_mean() -> None:
    samples = [1e6 + torch.tensor([[0.0], [0.25]])] * 2
    assert pooled(samples, [1.0, 1.0])[0]["running_var"].item() == samples[0].var(0).item()


def test_a_variance_is_never_negative() -> None:
    states = pooled([torch.full((4, 8), 1e9) * torch.arange(1, 9)] * 3, [0.1, 0.7, 0.3])
    assert all(state["running_var"].ge(0).all() for state in states)


def test_all_workers_get_the_same_bits() -> None:
    one, *others = pooled([torch.randn(5, 4) for _ in range(3)], [3.0, 1.0, 2.0])
    assert all(torch.equal(other[name], one[name]) for other in others for name in one)


class Counting(nn.Module):
    """Has buffers of many kinds."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, 3))
        self.register_buffer("count", torch.zeros(width, dtype=torch.int64))
        self.register_buffer("flag", torch.tensor(False))
        self.register_buffer("level", torch.zeros(2))
        self.register_buffer("fine", torch.zeros(2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def kinds(width: int = 3) -> list[dict[str, Tensor]]:
    """What becomes of each kind of buffer among two workers with the weights 3 and 1."""

    def program(worker: LocalWorker, group: ArenaGroup) -> dict[str, Tensor]:
        module = worker.module
        module.count.copy_(torch.arange(width) * (1 - 2 * group.rank) + 2**40)
        module.flag.fill_(group.rank == 1)
        module.level.fill_(4.0 * group.rank)
        module.fine.fill_(4.0 * group.rank)
        pool(worker.module, group, 3.0 - 2.0 * group.rank)
        return module.state_dict()

    return together(Trial(network=lambda: Counting(width)), program)


def test_integer_buffers_take_the_maximum() -> None:
    for state in kinds():
        assert state["count"].tolist() == [2**40, 2**40 + 1, 2**40 + 2]
        assert state["flag"].item() is True


def test_other_buffers_are_averaged() -> None:
    assert [state["level"].tolist() for state in kinds()] == [[1.0, 1.0]] * 2


def test_buffers_of_another_precision_than_the_network_are_averaged_too() -> None:
    assert [state["fine"].tolist() for state in kinds()] == [[1.0, 1.0]] * 2


def test_integer_buffers_larger_than_the_network_fit() -> None:
    assert all(state["count"][-1] == 2**40 + 4999 for state in kinds(width=5000))


# Policies, through the loop


def normalised(buffers: str, **more: Any) -> Trial:
    rule = Average.model_validate({"iterations": 3, "buffers": buffers})
    return Trial(rule, Sgd(lr=0.1, batch_size=8), restless, held_out=blobs(40), **more)


def test_averaged_statistics_are_the_same_on_all_workers() -> None:
    one, other = states(normalised("average").run(3)[0])
    assert torch.equal(one["1.running_mean"], other["1.running_mean"])
    assert torch.equal(one["1.running_var"], other["1.running_var"])


def test_local_statistics_are_each_workers_own() -> None:
    workers, taken = normalised("local").run(3)
    one, other = states(workers)
    assert not torch.equal(one["1.running_mean"], other["1.running_mean"])
    assert taken.arrays["workers/1/buffers/1.running_mean"].tolist() == other["1.running_mean"].tolist()


def test_a_network_with_local_statistics_is_judged_with_those_of_worker_0() -> None:
    workers, _ = normalised("local").run(1)
    judge = workers[0].worker
    loss, right = judge.evaluate(blobs(40), range(40))
    assert workers[1].progress.loss == pytest.approx(loss / 40)
    assert workers[1].progress.accuracy == right / 40


def test_after_being_shared_buffers_are_each_workers_own_again() -> None:
    trial = normalised("local")

    def program(worker: LocalWorker, group: ArenaGroup) -> tuple[float, float]:
        worker.replica.buffers.fill_(group.rank)
        with shared_buffers(worker, group, trial.rule):
            inside = float(worker.replica.buffers[0])
        return inside, float(worker.replica.buffers[0])

    assert together(trial, program) == [(0.0, 0.0), (0.0, 1.0)]


def statistics(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """What the BatchNorm layer of `restless` sees of some items: their mean, and their variance as BatchNorm keeps it."""
    seen = network[0](inputs).detach()
    return seen.mean(0), seen.var(0)


def recalibrated(trial: Trial) -> list[dict[str, Tensor]]:
    def program(worker: LocalWorker, group: ArenaGroup) -> dict[str, Tensor]:
        worker.params.copy_(trial.worker().params)
        recalibrate(worker, group)
        return {name: tensor.clone() for name, tensor in worker.module.state_dict().items()}

    return together(trial, program)


def exact(network: nn.Module, *parts: Tensor) -> tuple[Tensor, Tensor]:
    """The same of items that came in parts, as they are in float64, rounded once."""
    seen = torch.cat([network[0](inputs).detach() for inputs in parts]).double()
    return seen.mean(0).float(), seen.var(0).float()


@pytest.mark.parametrize("partitions", [[range(48)], [range(24), range(24, 48)], [range(30), range(30, 33), range(33, 48)]])
def test_recalibrated_statistics_are_those_of_all_items_rounded_once(partitions: list[range]) -> None:
    trial = normalised("recalibrate", partitions=partitions)
    mean, var = exact(trial.worker().module, *(trial.items.inputs[list(part)] for part in partitions))
    for state in recalibrated(trial):
        assert torch.equal(state["1.running_mean"], mean)
        assert torch.equal(state["1.running_var"], var)


@pytest.mark.parametrize("count", [513, 1025, 600])
def test_any_number_of_items_can_recalibrate(count: int) -> None:
    """513 = 512 + 1, and BatchNorm can't train on one item; nor may a small last part count as much as the others."""
    trial = normalised("recalibrate", items=blobs(count), partitions=[range(count)])
    parts = [part.clone() for part in trial.items.inputs.tensor_split(-(-count // 512))]
    mean, var = exact(trial.worker().module, *parts)
    (state,) = recalibrated(trial)
    assert torch.equal(state["1.running_mean"], mean)
    assert torch.equal(state["1.running_var"], var)
    assert state["1.num_batches_tracked"] == len(parts)


def test_recalibrating_leaves_what_layers_are_given_alone() -> None:
    """Also where that is in float64 already: the layer behind sees the first one's output, and the inputs stay."""

    def network() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()

    trial = Trial(Average(buffers="recalibrate"), network=network, items=blobs(48, dtype=torch.float64), partitions=[range(48)])
    items = trial.items.inputs.clone()
    (state,) = recalibrated(trial)
    torch.testing.assert_close(state["0.running_mean"], items.mean(0))
    torch.testing.assert_close(state["1.running_var"], trial.network()[0](items).var(0))
    assert torch.equal(trial.items.inputs, items)


class ByName(nn.Module):
    """A network that calls its BatchNorm with the items' name."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, items: Tensor) -> Tensor:
        return self.last(self.norm(input=items))


def test_layers_may_be_called_by_name() -> None:
    trial = Trial(Average(buffers="recalibrate"), network=ByName, items=blobs(48), partitions=[range(48)])
    (state,) = recalibrated(trial)
    torch.testing.assert_close(state["norm.running_mean"], trial.items.inputs.mean(0))


def test_replicas_agree_on_the_number_of_batches() -> None:
    trial = normalised("recalibrate", items=blobs(1000), partitions=[range(900), range(900, 1000)])
    assert [int(state["1.num_batches_tracked"]) for state in recalibrated(trial)] == [2, 2]


def test_statistics_of_images_count_every_place_and_survive_a_large_mean() -> None:
    """The second layer's inputs are what the first makes of a batch; a layer that is not used keeps what it begins with."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.idle, self.out = nn.BatchNorm2d(2), nn.BatchNorm1d(3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            planes = torch.stack([1e4 + 1e-2 * x, x], dim=1).unsqueeze(-1)
            return self.out(self.norm(planes).mean(1)[:, :2].reshape(len(x), -1).repeat(1, 3))

    trial = Trial(Average(buffers="recalibrate"), network=Net, partitions=[range(20), range(20, 48)])
    x = trial.items.inputs
    planes = torch.stack([1e4 + 1e-2 * x, x], dim=1).transpose(0, 1).flatten(1).double()
    for state in recalibrated(trial):
        assert torch.equal(state["norm.running_mean"], planes.mean(1).float())
        assert torch.equal(state["norm.running_var"], planes.var(1).float())
        assert (state["idle.running_mean"].sum(), state["idle.running_var"].sum(), state["idle.num_batches_tracked"]) == (0, 3, 0)


def test_recalibration_sees_the_network_as_it_is_judged_without_dropout() -> None:
    """A BatchNorm layer behind the dropout."""

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))

    trial = Trial(Average(buffers="recalibrate"), network=network, partitions=[range(48)])
    (state,) = recalibrated(trial)
    torch.testing.assert_close(state["2.running_mean"], statistics(trial.worker().module, trial.items.inputs)[0])


def test_layers_without_statistics_are_left_alone() -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3))

    trial = Trial(Average(iterations=2, buffers="recalibrate"), network=network, held_out=blobs(10))
    assert trial.run(1)[0][0].progress.loss is not None


def test_a_network_is_judged_alike_however_often() -> None:
    """Recalibrating for a judgement must leave no trace in what comes after."""
    trial = normalised("recalibrate")
    rarely = replace(trial, stop=trial.stop.model_copy(update={"judge_every": 4}))
    often, seldom = (one.run(4)[0][0].progress for one in (trial, rarely))
    assert (often.loss, often.accuracy) == (seldom.loss, seldom.accuracy)


class Centering(nn.Module):
    """Its running mean matters in training: forgetting or changing it changes what is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(5), nn.Linear(5, 3)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = 0.5 * self.seen + 0.5 * x.mean(0)
        return self.out(self.norm(x - self.seen) * (1 + self.seen))


@pytest.mark.parametrize("policy", ["average", "recalibrate", "local"])
def test_judging_and_snapshots_do_not_change_what_is_learnt(policy: str) -> None:
    """They come when a clock says so; the bits must not."""
    trial = Trial(Average.model_validate({"iterations": 3, "buffers": policy}), SGD, Centering)
    quiet, _ = trial.run(4)
    watched, _ = replace(trial, held_out=blobs(20), signals=[Signal.SNAPSHOT_WANTED, Signal(0), Signal.SNAPSHOT_WANTED]).run(4)
    assert torch.equal(quiet[1].params, watched[1].params)


def test_an_averaged_network_is_judged_nearly_as_with_statistics_of_its_own() -> None:
    trial = Trial(Average(iterations=10), Sgd(lr=0.02, batch_size=16), lambda: restless()[:3].append(nn.Linear(8, 3)),
                  blobs(400), [range(200), range(200, 400)], held_out=blobs(400))  # fmt: skip
    pooled, recomputed = (
        replace(trial, rule=trial.rule.model_copy(update={"buffers": policy})).run(8)[0][0].progress.loss
        for policy in ("average", "recalibrate")
    )
    assert pooled == pytest.approx(recomputed, rel=0.05)


# The optimizer's state


def moments(optimizer: AnyOptimizer, policy: str, caps: Sequence[int] = (3, 3)) -> tuple[list[Tensor], list[list[float]]]:
    """Moments and step counts of two workers after one round of unequal data."""
    rule = Average.model_validate({"iterations": 3, "optimizer_state": policy})
    workers, _ = Trial(rule, optimizer, caps=caps).run(1)
    return [one.worker.optimizer.moments for one in workers], [one.worker.optimizer.counts.tolist() for one in workers]


def alone(optimizer: AnyOptimizer, caps: Sequence[int] = (3, 3)) -> list[Tensor]:
    """Moments of the same two workers before any mixing."""
    trial, rows = Trial(Average(iterations=3), optimizer, caps=caps), []
    for rank in (0, 1):
        worker = trial.worker(rank)
        worker.begin(1, 0)
        worker.train()
        rows.append(worker.optimizer.moments)
    return rows


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_averaged_moments_are_weighted_like_the_parameters(optimizer: AnyOptimizer) -> None:
    one, other = alone(optimizer, caps=(1, 3))
    mixed, steps = moments(optimizer, "average", caps=(1, 3))
    torch.testing.assert_close(mixed[0], 0.25 * one + 0.75 * other)
    assert torch.equal(mixed[0], mixed[1])
    if isinstance(optimizer, Adam):  # only its bias correction reads them
        assert [set(counts) for counts in steps] == [{3.0}, {3.0}]


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_local_moments_stay_with_their_worker(optimizer: AnyOptimizer) -> None:
    kept, steps = moments(optimizer, "local", caps=(1, 3))
    assert all(torch.equal(one, other) for one, other in zip(kept, alone(optimizer, caps=(1, 3)), strict=True))
    assert [set(counts) for counts in steps] == ([{1.0}, {3.0}] if isinstance(optimizer, Adam) else [{0.0}, {0.0}])


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_reset_moments_are_zero(optimizer: AnyOptimizer) -> None:
    forgotten, steps = moments(optimizer, "reset")
    assert all(one.eq(0).all() for one in forgotten)
    assert [set(counts) for counts in steps] == [{0.0}, {0.0}]


@pytest.mark.parametrize("policy", ["average", "local", "reset"])
def test_plain_sgd_has_no_state_to_mix(policy: str) -> None:
    rows, _ = moments(Sgd(lr=0.1, batch_size=4), policy)
    assert all(one.numel() == 0 for one in rows)


def test_what_is_shown_is_the_rules_result() -> None:
    """A rule may hand back another network than its workers train."""

    class Doubled(Average):
        def result(self, worker: LocalWorker, group: ArenaGroup, state: Any) -> Tensor:
            return 2 * worker.params

    rule: Rule = Doubled(iterations=1)

    def program(worker: LocalWorker, group: ArenaGroup) -> bool:
        own = worker.params.clone()
        unused: Any = None
        with WorkerRun(worker, group, rule, None, unused, Progress(), None, None, unused).mixed():
            shown = torch.equal(worker.params, 2 * own)
        return shown and torch.equal(worker.params, own)

    assert together(Trial(rule), program) == [True, True]
