"""One worker: what lies in its row, in which order it sees its items, what it counts, what it draws."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.lab import OneWeight, Trial, blobs, line, mlp, restless, take
from torch import Tensor, nn
from torch.nn import functional

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.rules.average import Average
from partrain.rules.bsp import Bsp
from partrain.tasks.task import Classification
from partrain.training.batches import Batches, Samples
from partrain.training.evaluate import Evaluator
from partrain.training.gradient import backward_of
from partrain.training.replica import row_layout
from partrain.training.section import Engine
from partrain.training.snapshot import restore, save, slot_map
from partrain.training.worker import LocalWorker

Network = Callable[[], nn.Module]
SGD = Sgd(lr=0.1, momentum=0.9, batch_size=4)

BFLOAT16 = Engine(precision="bfloat16")


def trained(trial: Trial, rounds: int = 1, rank: int = 0) -> LocalWorker:
    """A lone worker after some rounds of nothing but training."""
    worker = trial.worker(rank)
    for number in range(1, rounds + 1):
        worker.begin(number, 0)
        worker.train()
        worker.close_round()
    return worker


# What lies in the row


def in_row(worker: LocalWorker, tensor: Tensor) -> bool:
    """Whether the tensor's numbers are numbers of the worker's row."""
    row = worker.params.untyped_storage()
    return row.data_ptr() <= tensor.data_ptr() < row.data_ptr() + row.nbytes()


def test_parameters_and_statistics_are_views_of_the_row_after_training() -> None:
    worker = trained(Trial(network=restless, optimizer=SGD), rounds=2)
    tensors = [*worker.module.parameters(), worker.module[1].running_mean, worker.module[1].running_var]
    assert all(in_row(worker, tensor) for tensor in tensors)


def test_parameters_and_statistics_are_views_of_the_row_after_a_restore() -> None:
    trial = Trial(network=restless, optimizer=SGD)
    worker = trained(trial)
    slots = slot_map(worker.module, worker.replica.layout, trial.rule, 2)
    arrays = slots.view(memoryview(bytearray(slots.size)))
    save(worker, arrays)
    fresh = trial.worker()
    restore(fresh, arrays)
    assert all(in_row(fresh, tensor) for tensor in fresh.module.state_dict().values() if tensor.is_floating_point())
    assert torch.equal(fresh.params, worker.params)


def test_gradients_of_any_layout_train_as_torch_does() -> None:
    class Transposed(nn.Module):
        """The gradient of an einsum's weight comes out transposed, that of a mean expanded."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.shift = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(4, 2))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bi,oi->bo", x, self.weight) + self.shift.mean()

    trial = Trial(network=Transposed, optimizer=SGD)
    worker, reference = trained(trial), trial.worker()
    optimizer = torch.optim.SGD(reference.module.parameters(), lr=0.1, momentum=0.9, fused=True)
    reference.begin(1, 0)
    for inputs, targets in take(reference._feed, 3):
        optimizer.zero_grad()
        functional.cross_entropy(reference.module(inputs), targets).backward()
        optimizer.step()
    assert torch.equal(worker.params, reference.params)


def test_tied_parameters_stay_tied() -> None:
    def tied() -> nn.Module:
        network = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
        network[2].weight = network[0].weight
        return network

    worker = trained(Trial(network=tied))
    assert worker.module[2].weight is worker.module[0].weight
    assert in_row(worker, worker.module[0].weight)


def test_frozen_parameters_keep_their_numbers_and_their_place() -> None:
    def half_frozen() -> nn.Module:
        network = mlp()
        network[0].requires_grad_(False)
        return network

    trial = Trial(network=half_frozen)
    worker = trained(trial)
    assert torch.equal(worker.module[0].weight, trial.worker().module[0].weight)
    assert not in_row(worker, worker.module[0].weight)


class Idle(nn.Module):
    """Has a parameter that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.used = nn.Parameter(torch.ones(3)), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def test_a_parameter_without_a_gradient_stays_as_it_is() -> None:
    worker = trained(Trial(network=Idle, optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=0.1, batch_size=4)))
    assert worker.module.unused.tolist() == [1, 1, 1]


def test_a_parameter_without_a_gradient_has_the_gradient_zero() -> None:
    worker = Trial(network=Idle).worker()
    worker.begin(1, 0)
    worker.grads.fill_(9)
    assert worker.replica.layout.params.views(worker.gradient())[0].tolist() == [0, 0, 0]


class Remembering(nn.Module):
    """Keeps a running mean the way users write it: by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, 3))
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * x.mean(0)
        return (x - self.seen) @ self.weight


def test_a_buffer_that_the_network_replaces_comes_back_into_the_row() -> None:
    worker = trained(Trial(network=Remembering, rule=Average(iterations=1)))
    first = worker.samples.batch(torch.from_numpy(worker.batches._permuted(0)[:4]))[0]
    assert in_row(worker, worker.module.seen)
    torch.testing.assert_close(worker.module.seen, 0.1 * first.mean(0))


def test_a_buffer_of_two_modules_stays_one_buffer() -> None:
    def sharing() -> nn.Module:
        network = nn.Sequential(nn.BatchNorm1d(5), nn.BatchNorm1d(5))
        network[1]._buffers["running_mean"] = network[0].running_mean
        return network

    worker = Trial(network=sharing).worker()
    assert worker.module[0].running_mean is worker.module[1].running_mean
    assert in_row(worker, worker.module[1].running_mean)


def test_a_network_without_parameters_is_refused() -> None:
    with pytest.raises(TypeError, match="no parameters to train"):
        row_layout(nn.Flatten(), SGD)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_network_of_a_type_that_cannot_be_trained_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"`weight` is .*float32 or float64"):
        row_layout(nn.Linear(2, 2).to(dtype), SGD)


# Items


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_are_scaled_to_the_type_of_the_network(dtype: torch.dtype) -> None:
    items = Samples(torch.tensor([[0, 51, 255]], dtype=torch.uint8), torch.tensor([0]), 1 / 255, dtype)
    inputs, _ = items.batch(torch.tensor([0]))
    assert inputs.dtype == dtype
    assert inputs.flatten().tolist() == pytest.approx([0, 0.2, 1])


def test_a_network_that_changes_what_it_is_given_changes_no_item() -> None:
    class InPlace(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input.mul_(2.0))

    items = Samples(torch.ones(6, 2), torch.zeros(6, dtype=torch.int64), 1.0)
    Evaluator(InPlace(2, 3), Classification()).evaluate(items, range(6))
    assert items.inputs.equal(torch.ones(6, 2))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_for_convolutions_have_their_channels_innermost(channels: int) -> None:
    images = torch.arange(2 * channels * 6).view(2, channels, 2, 3).to(torch.uint8)
    plain, last = (Samples(images, torch.zeros(2), 0.5, channels_last=innermost) for innermost in (False, True))
    index = torch.tensor([1, 0])
    (one, _), (other, _) = plain.batch(index), last.batch(index)
    assert one.equal(other)
    assert (one.stride(), other.stride()) == ((channels * 6, 6, 3, 1), (channels * 6, 1, 3 * channels, channels))
    assert nn.Conv2d(channels, 4, 1)(torch.split(other, 1)[1]).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "items", [blobs(dtype=torch.float64), replace(line([1.0, 2.0] * 9, [3.0, 1.0] * 9), dtype=torch.float64)]
)
def test_networks_of_double_precision_train(items: Samples) -> None:
    outputs = 3 if items.targets.dtype == torch.int64 else 1
    trial = Trial(network=lambda: nn.Linear(items.inputs.shape[1], outputs).double(), items=items, partitions=[range(16)])
    worker = trained(trial)
    assert worker.params.dtype == torch.float64
    assert not torch.equal(worker.params, trial.worker().params)


def test_answers_of_the_wrong_shape_are_an_error_rather_than_a_broadcast() -> None:
    class Flat(OneWeight):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).squeeze(1)

    trial = Trial(network=Flat, items=line([1.0] * 8, [2.0] * 8), partitions=[range(8)])
    with pytest.raises(ValueError, match=r"answers \(4,\).* targets \(4, 1\)"):
        trained(trial)


# The order in which a worker sees its items


def rounds_of(batches: Batches, rounds: int) -> list[list[list[int]]]:
    """The items of each round's mini-batches, all of which are trained on."""
    seen = []
    for number in range(1, rounds + 1):
        batches.begin(number)
        sizes = list(islice((size for block in batches.blocks(10) for size in block), batches.iterations))
        seen.append([batches.draw(size).tolist() for size in sizes])
        batches.position += sum(sizes)
    return seen


def batches(items: int = 10, batch: int = 4, cap: int = 3, passes: bool = False, seed: int = 0, rank: int = 0) -> Batches:
    return Batches(
        np.arange(100, 100 + items), batch, cap, passes=cap // -(-items // batch) if passes else None, seed=seed, rank=rank
    )


def test_under_iterations_every_batch_is_full_and_runs_on_into_the_next_pass() -> None:
    seen = rounds_of(batches(items=10, batch=4, cap=3), 5)
    assert [[len(batch) for batch in one] for one in seen] == [[4, 4, 4]] * 5
    assert seen[0][2][2:] + seen[1][0] + seen[1][1] != sorted(seen[0][2][2:] + seen[1][0] + seen[1][1])


def test_under_passes_the_last_batch_of_a_pass_is_short() -> None:
    seen = rounds_of(batches(items=10, batch=4, cap=6, passes=True), 2)
    assert [[len(batch) for batch in one] for one in seen] == [[4, 4, 2, 4, 4, 2]] * 2


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_every_pass_sees_each_item_exactly_once(items: int, batch: int, cap: int, rounds: int, passes: bool) -> None:
    cap = cap * -(-items // batch) if passes else cap
    flat = [item for one in rounds_of(batches(items, batch, cap, passes), rounds) for part in one for item in part]
    for start in range(0, len(flat), items):
        part = flat[start : start + items]
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(100, 100 + items))


def test_each_pass_and_each_worker_and_each_seed_has_an_order_of_its_own() -> None:
    def order(seed: int, rank: int, number: int) -> list[int]:
        one = batches(items=50, batch=50, cap=1, seed=seed, rank=rank)
        return rounds_of(one, number)[number - 1][0]

    orders = [order(0, 0, 1), order(0, 0, 2), order(0, 1, 1), order(1, 0, 1)]
    assert len({tuple(one) for one in orders}) == 4
    assert order(0, 0, 2) == orders[1]


def test_the_cursor_alone_says_where_to_go_on() -> None:
    whole = rounds_of(batches(items=7, batch=3, cap=2), 5)
    later = batches(items=7, batch=3, cap=2)
    later.position = 3 * 6
    assert rounds_of(later, 2) == whole[3:]


def test_what_was_drawn_but_not_trained_on_is_drawn_again() -> None:
    one = batches(items=10, batch=4, cap=3)
    one.begin(1)
    ahead = one.draw(8).tolist()
    one.position += 4
    one.begin(2)
    assert one.draw(4).tolist() == ahead[4:]


def test_a_whole_pass_begins_at_the_beginning_even_if_the_last_was_cut_short() -> None:
    one = batches(items=10, batch=4, cap=3, passes=True)
    one.position = 4
    one.begin(2)
    assert sorted(one.draw(10).tolist()) == list(range(100, 110))
    assert one.position == 10


def test_redrawn_partitions_are_new_each_round_and_in_an_order_of_their_own() -> None:
    def drawn(number: int) -> np.ndarray:
        return np.arange(100 * number, 100 * number + 6)

    one = Batches(drawn(0), 3, 2, seed=0, rank=0, redraw=drawn)
    first, second = ([item for batch in one for item in batch] for one in rounds_of(one, 2))
    assert (sorted(first), sorted(second)) == (list(range(100, 106)), list(range(200, 206)))
    assert [item - 100 for item in first] != [item - 200 for item in second]


# What it counts


@pytest.mark.parametrize(("rule", "items"), [(Average(iterations=5), 20), (Average(passes=2), 44)])
def test_items_are_counted_where_the_backward_pass_happens(rule: Average, items: int) -> None:
    worker = trained(Trial(rule=rule), rounds=3)
    assert (worker.items, worker.tally.total_items) == (items, 3 * items)


def test_counts_begin_anew_each_round_and_totals_go_on() -> None:
    worker = trained(Trial(), rounds=2)
    worker.begin(3, 0)
    assert (worker.items, worker.done, worker.tally.total_iterations, worker.tally.total_items) == (0, 0, 6, 24)


def test_loss_is_the_mean_over_items_before_each_step() -> None:
    worker = trained(Trial(network=OneWeight, items=line([1.0] * 3, [0.0] * 3), partitions=[range(3)], rule=Average(passes=1),
                           optimizer=Sgd(lr=0.25, batch_size=2)))  # fmt: skip
    # w = 16 for two items, then 8 for one: (2 * 16^2 + 8^2) / 3
    assert worker.loss() == pytest.approx(192)


def test_every_iteration_is_a_sign_of_life() -> None:
    beats: list[int] = []
    worker = Trial().worker()
    worker.callbacks.on_iterations = beats.append
    worker.begin(1, 0)
    worker.train()
    assert sum(beats) == 3


# Gradients


def test_gradient_leaves_the_network_alone_and_applying_it_is_a_step_of_training() -> None:
    trial = Trial(optimizer=SGD)
    worker, before = trial.worker(), trial.worker().params
    worker.begin(1, 0)
    gradient = worker.gradient()
    assert torch.equal(worker.params, before)
    worker.apply(gradient)
    torch.testing.assert_close(worker.params, trained(replace(trial, rule=Average(iterations=1))).params)


def test_the_full_gradient_is_the_mean_over_the_partition() -> None:
    trial = Trial()
    worker, reference = trial.worker(), trial.worker()
    worker.begin(1, 0)
    gradient = worker.gradient(full=True).clone()
    items = reference.samples.batch(torch.arange(22))
    functional.cross_entropy(reference.module(items[0]), items[1]).backward()
    for view, parameter in zip(worker.replica.layout.params.views(gradient), reference.module.parameters(), strict=True):
        torch.testing.assert_close(view, parameter.grad)
    assert worker.items == 22
    assert worker.batches.position == 0


def test_a_full_gradient_is_one_iteration() -> None:
    worker = Trial().worker()
    worker.begin(1, 0)
    worker.gradient(full=True)
    assert worker.done == 1


# In parts, within limits, in another precision


def in_one_and_in_parts(parts: int, network: Network = mlp) -> tuple[LocalWorker, LocalWorker]:
    whole = Trial(network=network, optimizer=Sgd(lr=0.1, momentum=0.9, batch_size=7))
    return trained(whole), trained(replace(whole, optimizer=whole.optimizer.model_copy(update={"accumulate": parts})))


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(parts: int) -> None:
    """Parts of 7 items are unequal: each weighs as many as it has."""
    whole, parted = in_one_and_in_parts(parts)
    torch.testing.assert_close(parted.params, whole.params)
    assert parted.loss() == pytest.approx(whole.loss(), rel=1e-6)
    assert not torch.equal(parted.params, Trial().worker().params)


def test_a_batch_in_parts_counts_once() -> None:
    beats: list[int] = []
    worker = Trial(optimizer=Sgd(lr=0.1, batch_size=6, accumulate=3)).worker()
    worker.callbacks.on_iterations = beats.append
    worker.begin(1, 0)
    worker.train()
    assert (worker.items, worker.done, worker.batches.position, sum(beats)) == (18, 3, 18, 3)


def test_a_short_batch_is_worked_off_in_as_many_parts_as_it_has_items() -> None:
    trial = Trial(rule=Average(passes=1), partitions=[range(7)], optimizer=Sgd(lr=0.1, batch_size=6, accumulate=4))
    assert trained(trial).items == 7


def test_statistics_see_the_parts() -> None:
    _, parted = in_one_and_in_parts(3, restless)
    assert int(parted.module[1].num_batches_tracked) == 9


def test_a_parameter_without_a_gradient_stays_as_it_is_in_parts_too() -> None:
    optimizer = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1, batch_size=4, accumulate=2)
    assert trained(Trial(network=Idle, optimizer=optimizer)).module.unused.tolist() == [1, 1, 1]


@pytest.mark.parametrize("network", [mlp, restless], ids=["by hand", "by autograd"])
def test_a_step_is_no_longer_than_the_limit_allows(network: Network) -> None:
    trial = Trial(Average(iterations=1), Sgd(lr=2.0, batch_size=4, clip_norm=0.01), network)
    assert float((trained(trial).params - trial.worker().params).norm()) == pytest.approx(0.02, rel=1e-3)


def test_gradients_are_mixed_before_they_are_limited() -> None:
    """One weight, two workers whose gradients are -2 and 2 + 2: the mean 1 is within the limit, though neither of them is."""
    items = line([1.0] * 8, [17.0] * 4 + [14.0] * 4)
    trial = Trial(
        Bsp(rule="bsp", iterations=1), Sgd(lr=0.5, batch_size=4, clip_value=1.5), OneWeight, items, (range(4), range(4, 8))
    )
    members, _ = trial.run(1)
    assert [one.params[0].item() for one in members] == [15.5, 15.5]


class Seen(nn.Linear):
    """Notes in which type it computes."""

    kinds: set[torch.dtype]

    def __init__(self) -> None:
        super().__init__(5, 3)
        self.kinds = set()

    def forward(self, x: Tensor) -> Tensor:
        answers = super().forward(x)
        self.kinds.add(answers.dtype)
        return answers


@pytest.mark.parametrize("parts", [1, 2])
def test_networks_compute_in_the_precision_asked_for_and_keep_their_numbers_whole(parts: int) -> None:
    trial = Trial(network=Seen, optimizer=Sgd(lr=0.1, momentum=0.9, batch_size=4, accumulate=parts), engine=BFLOAT16)
    worker, exact = trained(trial), trained(replace(trial, engine=Engine()))
    assert (worker.module.kinds, exact.module.kinds) == ({torch.bfloat16}, {torch.float32})
    assert {worker.params.dtype, worker.grads.dtype, worker.optimizer.moments.dtype} == {torch.float32}
    assert not torch.equal(worker.params, exact.params)
    torch.testing.assert_close(worker.params, exact.params, rtol=0.05, atol=0.01)


def test_networks_are_judged_in_float32_as_they_answer() -> None:
    trial = Trial(network=Seen, engine=BFLOAT16)
    worker, exact = trial.worker(), replace(trial, engine=Engine()).worker()
    assert worker.evaluate(blobs(), range(48)) == exact.evaluate(blobs(), range(48))
    assert worker.module.kinds == {torch.float32}


def test_a_plain_stack_computes_in_the_precision_asked_for() -> None:
    trial = Trial(engine=BFLOAT16)
    assert not torch.equal(trained(trial).params, trained(replace(trial, engine=Engine())).params)


def test_a_task_that_owns_its_backward_pass_does_it_in_the_precision_asked_for() -> None:
    class Own(Classification):
        def differentiate(self, module, parameters, inputs, targets, iteration):  # type: ignore[no-untyped-def]
            kinds.add(module(inputs).dtype)
            return super().differentiate(module, parameters, inputs, targets, iteration)

    kinds: set[torch.dtype] = set()
    differentiate = backward_of(Own(), 1, "bfloat16", torch.device("cpu"))
    module = mlp()
    _, gradients = differentiate(module, list(module.parameters()), *blobs().batch(torch.arange(4)), 0)
    assert kinds == {torch.bfloat16}
    assert {gradient.dtype for gradient in gradients if gradient is not None} == {torch.float32}


def test_a_task_made_of_ours_is_not_taken_for_ours() -> None:
    class Indifferent(Classification):
        def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
            return 0 * super().loss(answers, targets)

    worker = Trial(task=Indifferent()).worker()
    before = worker.params.clone()
    worker.begin(1, 0)
    worker.train()
    assert torch.equal(worker.params, before)


# The learning rate


def rates(trial: Trial, rounds: int = 2) -> list[float]:
    """Learning rate of each iteration of worker 0."""
    worker, seen, items = trial.worker(), [], 0
    for number in range(1, rounds + 1):
        worker.begin(number, items)
        caps = trial.caps or [worker.iterations] * worker.size
        items += trial.optimizer.batch_size * sum(caps[: trial.rule.active_workers(worker.size, number)])
        for _ in range(worker.iterations):
            worker.train(1)
            seen.append(worker.lr)
    return seen


def test_the_learning_rate_of_an_iteration_is_that_of_its_middle() -> None:
    """Two workers, 2 iterations of 5 items: 20 items a round. k + 1/2 of 2 iterations into it: 5, 15, then 25, 35 of 40 items."""
    trial = Trial(rule=Average(iterations=2), optimizer=Sgd(lr=8.0, batch_size=5, schedule="linear"), horizon=40)
    assert rates(trial) == pytest.approx([7, 5, 3, 1])


def test_warm_up_rises_from_zero() -> None:
    trial = Trial(rule=Average(iterations=2), optimizer=Sgd(lr=8.0, batch_size=5, warmup=0.5), horizon=40)
    assert rates(trial) == pytest.approx([2, 6, 8, 8])


def test_the_cosine_falls_to_zero() -> None:
    trial = Trial(rule=Average(iterations=2), optimizer=Sgd(lr=8.0, batch_size=5, schedule="cosine"), horizon=40)
    assert rates(trial) == pytest.approx([4 + 4 * math.cos(math.pi * share) for share in (1 / 8, 3 / 8, 5 / 8, 7 / 8)])


def test_workers_of_unlike_caps_pass_through_the_schedule_alike() -> None:
    trial = Trial(optimizer=Sgd(lr=8.0, batch_size=5, schedule="linear"), caps=[1, 3], horizon=20)
    assert rates(trial, 1) == pytest.approx([4])


def test_while_workers_are_still_to_come_the_schedule_counts_those_there_are() -> None:
    """Round 1 is the first worker's alone, 1 iteration of 5 items; in round 2 there is one of 3 beside it: 2.5, then 15 of 25 items."""
    rule = Average(iterations=1, ramp_workers=2)
    trial = Trial(rule=rule, optimizer=Sgd(lr=10.0, batch_size=5, schedule="linear"), caps=[1, 3], horizon=25)
    assert rates(trial) == pytest.approx([9, 4])


@pytest.mark.parametrize(("how", "scale"), [("none", 1.0), ("linear", 2.0), ("sqrt", math.sqrt(2))])
def test_the_learning_rate_is_scaled_by_the_number_of_workers(how: str, scale: float) -> None:
    rule = Average.model_validate({"iterations": 1, "lr_scale": how})
    assert rates(Trial(rule=rule), 3) == pytest.approx([0.1 * scale] * 3)


def test_the_scaled_learning_rate_is_approached_over_rounds() -> None:
    trial = Trial(rule=Average(iterations=1, lr_scale="linear", warmup_rounds=4), optimizer=Sgd(lr=1.0, batch_size=4))
    assert rates(trial, 6) == pytest.approx([1.25, 1.5, 1.75, 2, 2, 2])


# What it draws


def drawing(seed: int = 0, rank: int = 0) -> LocalWorker:
    return trained(Trial(network=restless, partitions=[range(22)] * 2, twins=True, seed=seed), rank=rank)


def test_dropout_repeats_with_the_seed() -> None:
    assert torch.equal(drawing().params, drawing().params)


def test_workers_drop_out_unlike_units() -> None:
    assert not torch.equal(drawing(rank=0).params, drawing(rank=1).params)


def test_rounds_and_gradients_drop_out_unlike_units() -> None:
    worker = Trial(network=lambda: nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5), nn.Linear(64, 3)), optimizer=Sgd(lr=0.1, batch_size=1),
                   partitions=[range(1)]).worker()  # fmt: skip
    seen = []
    for number in (1, 2):
        worker.begin(number, 0)
        seen += [worker.gradient().clone() for _ in range(2)]
    assert len({one.numpy().tobytes() for one in seen}) == 4


def test_randomness_outside_has_no_say() -> None:
    with torch.random.fork_rng():
        expected = drawing().params
        trial = Trial(network=restless, partitions=[range(22)] * 2, twins=True)
        worker = trial.worker()
        torch.manual_seed(12345)
        worker.begin(1, 0)
        torch.rand(7)
        worker.train()
    assert torch.equal(worker.params, expected)


# Judging


def test_judging_leaves_no_trace() -> None:
    worker = trained(Trial(network=restless))
    before = {name: tensor.clone() for name, tensor in worker.module.state_dict().items()}
    worker.evaluate(worker.samples, range(48))
    assert worker.module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in worker.module.state_dict().items())


def test_judging_in_parts_adds_up() -> None:
    worker = trained(Trial())
    whole = worker.evaluate(worker.samples, range(48))
    parts = [worker.evaluate(worker.samples, part) for part in (range(0), range(17), range(17, 48))]
    assert [sum(column) for column in zip(*parts, strict=True)] == pytest.approx(whole)


def test_judging_sums_losses_and_right_answers() -> None:
    worker = Trial(items=blobs()).worker()
    answers = worker.module(worker.samples.inputs).detach()
    loss = functional.cross_entropy(answers, worker.samples.targets, reduction="sum")
    right = answers.argmax(1).eq(worker.samples.targets).sum()
    assert worker.evaluate(worker.samples, range(48)) == pytest.approx((float(loss), float(right)), rel=1e-5)


def test_for_a_while_the_module_shows_another_network() -> None:
    worker = trained(Trial(optimizer=Adam(name="adam", lr=0.1, batch_size=4)))
    own = worker.params.clone()
    with worker.replica.swapped_params(torch.full_like(own, 3)):
        assert worker.module[0].weight.eq(3).all()
    assert torch.equal(worker.params, own)


def test_judging_shows_signs_of_life() -> None:
    worker, signs = Trial(network=mlp).worker(), []
    worker.callbacks.heartbeat = lambda: signs.append(1)
    many = Samples(torch.zeros(2500, 5), torch.zeros(2500, dtype=torch.int64), 1.0)
    worker.evaluate(many, range(2500))
    assert len(signs) == 3, "one for each 1,024 items"
