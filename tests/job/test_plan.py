"""What a job comes to: shares, items per round, judging, the horizon."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partrain.job.load import Job
from partrain.job.plan import make_plan
from partrain.job.workers import WorkerGroup, expand


def job(**tables: Any) -> Job:
    """A job whose tables are merged into a plain one."""
    plain: dict[str, Any] = {
        "name": "trial",
        "model": {"name": "mlp"},
        "dataset": {"name": "mnist", "validation": 100},
        "optimizer": {"name": "sgd", "lr": 0.1, "batch_size": 10},
        "sync": {"rule": "average", "iterations": 4},
        "workers": [{"count": 2}],
        "stop": {"rounds": 50},
    }
    merged = {key: plain.get(key, {}) | tables.get(key, {}) for key in (plain | tables) if key not in ("name", "workers")}
    return Job.model_validate({"name": "trial", **merged, "workers": tables.get("workers", plain["workers"])})


def test_under_iterations_a_round_has_full_batches() -> None:
    plan = make_plan(job(), 1100)
    assert [(share.partition, share.iterations, share.items) for share in plan.shares] == [(500, 4, 40)] * 2
    assert (plan.training_items, plan.held_out, plan.items) == (1000, 100, 80)


def test_under_passes_a_round_has_each_item_once_a_pass() -> None:
    plan = make_plan(job(sync={"iterations": None, "passes": 3}), 1105)
    assert [(share.partition, share.iterations, share.items) for share in plan.shares] == [(503, 3 * 51, 3 * 503)] * 2


def test_workers_have_caps_and_partitions_of_their_own() -> None:
    workers = [{"count": 2}, {"partition_size": 600, "iterations": 30}, {"passes": 1}]
    plan = make_plan(job(workers=workers), 1600)
    assert [(share.spec.rank, share.partition, share.iterations, share.items) for share in plan.shares] == [
        (0, 300, 4, 40), (1, 300, 4, 40), (2, 600, 30, 300), (3, 300, 30, 300),
    ]  # fmt: skip


def test_partitions_that_cannot_be_cut_are_an_error() -> None:
    with pytest.raises(ValueError, match="exceeds the 900 training items"):
        make_plan(job(workers=[{"partition_size": 901}]), 1000)


@given(st.integers(0, 10_000), st.integers(1, 64), st.integers(1, 50))
def test_judged_items_stay_within_a_twentieth_of_the_work_between(validation: int, batch: int, iterations: int) -> None:
    tables = {"dataset": {"validation": validation}, "optimizer": {"batch_size": batch}, "sync": {"iterations": iterations}}
    plan = make_plan(job(**tables), validation + 1000)
    assert 20 * validation <= plan.judge_every * plan.items
    assert plan.judge_every == 1 or 20 * validation > (plan.judge_every - 1) * plan.items


def test_how_often_to_judge_may_be_given() -> None:
    assert make_plan(job(stop={"judge_every": 7}), 1100).judge_every == 7


def test_a_full_batch_is_a_whole_partition() -> None:
    plan = make_plan(job(optimizer={"full_batch": True}, sync={"iterations": 3}, workers=[{"partition_size": 300}, {}]), 1100)
    assert [share.items for share in plan.shares] == [3 * share.partition for share in plan.shares]
    assert plan.shares[0].partition == 300


@pytest.mark.parametrize(("optimizer", "stop", "horizon"), [
    ({}, {}, None),
    ({"schedule": "linear"}, {}, 50 * 80),
    ({"warmup": 0.1}, {}, 50 * 80),
    ({"schedule": "cosine"}, {"item_iterations": 3000}, 3000),
    ({"schedule": "cosine"}, {"item_iterations": 5000}, 50 * 80),
    ({"schedule": "cosine", "horizon": 123}, {}, 123),
])  # fmt: skip
def test_the_schedule_ends_where_the_run_does(optimizer: dict[str, Any], stop: dict[str, Any], horizon: int | None) -> None:
    assert make_plan(job(optimizer=optimizer, stop=stop), 1100).horizon == horizon


@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.integers(1, 30), st.integers(0, 30))
def test_the_rounds_in_which_not_all_train_yet_count_for_less(caps: list[int], rounds: int, ramp: int) -> None:
    tables: dict[str, Any] = {"optimizer": {"schedule": "linear"}, "sync": {"ramp_workers": ramp}, "stop": {"rounds": rounds}}
    trial = job(workers=[{"iterations": cap} for cap in caps], **tables)
    active = [trial.sync.active_workers(len(caps), number) for number in range(1, rounds + 1)]
    assert make_plan(trial, 1100).horizon == sum(10 * sum(caps[:count]) for count in active)


def test_a_ramp_without_an_end_is_planned_at_once() -> None:
    endless = job(optimizer={"schedule": "linear"}, sync={"ramp_workers": 10**12}, stop={"rounds": 10**12})
    assert make_plan(endless, 1100).horizon == 10**12 * 40 + 10**12 // 2 * 40


def test_workers_are_ranked_in_the_order_given() -> None:
    specs = expand([WorkerGroup(count=2, threads=3), WorkerGroup(device="cuda:1")], iterations=5, passes=None)
    assert [(spec.rank, spec.device, spec.threads) for spec in specs] == [(0, "cpu", 3), (1, "cpu", 3), (2, "cuda:1", 1)]


def test_a_groups_own_cap_replaces_the_common_one() -> None:
    groups = [WorkerGroup(), WorkerGroup(passes=2), WorkerGroup(iterations=9)]
    assert [(spec.iterations, spec.passes) for spec in expand(groups, 5, None)] == [(5, None), (None, 2), (9, None)]
