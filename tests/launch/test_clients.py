"""`[partition] clients`: each round each worker takes the items of one of many clients."""

from __future__ import annotations

import numpy as np
import pytest
from support.runs import events, newest, partrain, resume, round_file, summary, train, write_job

from partrain import checkpoint
from partrain.bench.planned import plan
from partrain.job.load import load

DATA = 'dataset={kind="synthetic", function="blobs", items=400, validation=40}'
SETS = DATA, "optimizer.batch_size=64", "sync={rule='average', passes=1}", "stop={rounds=6}"
IN_TURN = *SETS, 'partition={order="dirichlet", alpha=1.0, clients=60}'


def network(run) -> dict[str, np.ndarray]:
    return {path: array for path, array in checkpoint.read(run / "checkpoint.h5").arrays.items() if path.startswith("model/")}


def test_clients_taken_in_turn_train_as_clients_with_a_worker_each(tmp_path) -> None:
    """A client's items are one batch, so both take the same steps, up to the order of the items in a sum."""
    few = train(tmp_path / "few", *IN_TURN, "workers=[{count=4}]", "transport.kind='simulated'")
    each = SETS[0], SETS[1], "sync={rule='average', passes=1, clients=4}", SETS[3], 'partition={order="dirichlet", alpha=1.0}'
    many = train(tmp_path / "many", *each, "workers=[{count=60}]", "transport.kind='simulated'", "optimizer.batch_size=6")
    assert len(summary(few)["workers"]) == 4
    one, other = network(few), network(many)
    for path, array in one.items():
        np.testing.assert_allclose(array, other[path], rtol=1e-5, atol=1e-6)
    assert summary(few)["item_iterations"] == summary(many)["item_iterations"] == 6 * 4 * 6
    assert summary(few)["clients"].items() >= {"count": 60, "smallest": 6, "largest": 6}.items()


@pytest.mark.representative
@pytest.mark.parametrize("rule", ["average", "fedprox", "fedopt", "bsp"])
def test_processes_replicas_and_simulated_workers_take_the_same_clients_and_so_does_a_resumed_run(tmp_path, rule: str) -> None:
    length = "iterations=2" if rule == "bsp" else "passes=2"
    unequal = f"sync={{rule='{rule}', {length}, client_sampling='items', weights='equal'}}", "partition.size_alpha=1.0"
    sets = *IN_TURN, *unequal, "transport.availability=[0.1]", "optimizer={name='adam', lr=0.01, batch_size=4}"
    simulated = train(tmp_path / "simulated", *sets, "workers=[{count=6}]", "transport.kind='simulated'")
    shared = train(tmp_path / "shared", *sets, "workers=[{count=2, replicas=3}]")
    assert {path: array.tobytes() for path, array in network(simulated).items()} == {
        path: array.tobytes() for path, array in network(shared).items()
    }
    resume(round_file(shared, 3), "--out", tmp_path / "resumed")
    assert newest(tmp_path / "resumed") == newest(shared)
    items = [worker["item_iterations"] for worker in summary(shared)["workers"]]
    assert len(set(items)) > 1, "clients of unequal sizes"


def test_a_plan_a_summary_and_the_last_lines_name_the_clients(tmp_path) -> None:
    job = write_job(tmp_path, *IN_TURN, "workers=[{count=4}]", "transport.kind='simulated'", "partition.size_alpha=1.0")
    planned = plan(load(job))
    clients = planned["clients"]
    assert clients["count"] == 60
    assert 1 <= clients["smallest"] < clients["largest"]
    assert 0.2 < clients["unevenness"] < 0.95
    said = partrain("run", job, "--out", tmp_path / "run")
    assert said.code == 0, said
    assert summary(tmp_path / "run")["clients"] == clients
    line = f"clients: 60 of {clients['smallest']} to {clients['largest']} items, mean label skew {clients['unevenness']:.0%}"
    assert f"{line}; 4 are drawn for each round" in said.out
    assert f"{line}; 4 are drawn for each round" in partrain("plan", job).out


@pytest.mark.slow
def test_the_losses_of_other_clients_are_no_spikes(tmp_path) -> None:
    """A worker has one client of five digits after the other: its loss leaps, and that says nothing."""
    data = 'dataset={name="mnist", validation=2000}', 'model={name="mlp", hidden=[32]}'
    sets = 'partition={order="dirichlet", alpha=0.3, clients=10000}', "workers=[{count=20}]", "transport.kind='simulated'"
    optimizer = 'optimizer={name="sgd", lr=0.1, batch_size=8}'
    run = train(tmp_path, *data, *sets, optimizer, "sync={rule='average', passes=1}", "stop={rounds=300, judge_every=300}")
    losses = [event["loss"] for event in events(run, "round") if event["round"] > 100]
    assert max(losses) > 4 * np.median(losses), "they do leap"
    assert events(run, "spike") == []


def test_groups_are_clients(tmp_path) -> None:
    """As many clients as persons: each round two persons train."""
    persons = [(person, number) for person in range(30) for number in range(4 + person % 5)]
    rows = [f"{person},{number},{'no' if (number + person) % 2 else 'yes'}" for person, number in persons]
    (tmp_path / "persons.csv").write_text("person,x,y\n" + "\n".join(rows) + "\n")
    data = 'dataset={kind="csv", path="persons.csv", target="y", target_kind="class", group="person", validation=30}'
    sets = data, 'partition={order="by-group", clients=20}', "workers=[{count=2}]", "sync={rule='average', passes=1}"
    job = write_job(tmp_path, *sets, "optimizer.batch_size=16", "stop={rounds=9}")
    sizes = set(range(4, 9))
    planned = plan(load(job))["clients"]
    assert {planned["smallest"], planned["largest"]} <= sizes | {two for one in sizes for two in {one + other for other in sizes}}
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    many = partrain("plan", job, "--set", "partition.clients=29")
    assert (many.code, "29 clients are more than the" in many.err) == (78, True), many


def test_noise_hides_one_of_all_clients(tmp_path) -> None:
    sync = "sync={rule='average', passes=1, weights='equal', optimizer_state='reset', noise=1.0}"
    sets = *IN_TURN[:3], IN_TURN[4], sync, "workers=[{count=6}]", "faults.max_update_norm=0.5", "seed=730194857260940385"
    run = train(tmp_path, *sets, "stop={rounds=6}", "transport.kind='simulated'")
    assert summary(run)["privacy"].items() >= {"clients": 6, "workers": 60, "rounds": 6}.items()
