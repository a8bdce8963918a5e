"""The network of simulated workers: transfers worked out by hand, and the rounds of a job on it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from support.runs import events, partrain, summary, train, write_job

from partrain.comm.network import SimulatedNetwork


def test_bytes_by_bandwidth_after_a_round_trip() -> None:
    assert SimulatedNetwork(bandwidth=1e6).transfer(500_000) == pytest.approx(0.5)
    assert SimulatedNetwork(bandwidth=1e6, latency=0.05).transfer(500_000) == pytest.approx(0.6)


def test_each_lost_packet_costs_a_round_trip() -> None:
    """10,000 packets, of which 100 are lost."""
    network = SimulatedNetwork(bandwidth=1e7, latency=0.01, loss=0.01, packet=1000)
    assert network.transfer(10_000_000) == pytest.approx(0.02 + 100 * 0.02 + 1.0)


def test_a_meeting_goes_round_and_all_share_an_uplink() -> None:
    assert SimulatedNetwork(bandwidth=1e6).meeting(4, 100_000) == pytest.approx(0.3)
    assert SimulatedNetwork(bandwidth=1e6, uplink=1e6).meeting(4, 100_000) == pytest.approx(1.2)


def test_a_server_receives_from_all_at_once_and_answers_all_at_once() -> None:
    """100 workers of 1 MB/s: the server's 50 MB/s are 0.5 MB/s for each, there and back; its 1 GB/s are more than they can use."""
    assert SimulatedNetwork(bandwidth=1e6, server=5e7).meeting(100, 100_000) == pytest.approx(0.4)
    assert SimulatedNetwork(bandwidth=1e6, server=1e9).meeting(100, 100_000) == pytest.approx(0.2)
    assert SimulatedNetwork(bandwidth=1e6, server=5e7, latency=0.1).meeting(100, 100_000) == pytest.approx(0.8)


NETWORK = 'transport={kind="simulated", network={bandwidth=1e6, latency=0.01}}'


def seconds(run: Path) -> list[float]:
    return [event["seconds"] for event in events(run, "round") if event["rank"] == 0]


def test_a_round_takes_its_iterations_and_its_meetings(tmp_path: Path) -> None:
    """3 iterations of 1 ms; the mean of 99 parameters and as many moments: about 1 kB; then small numbers travel, after 0.02 s each time."""
    plain = train(tmp_path / "plain", 'transport.kind="simulated"', "stop.judge_every=4")
    slow = train(tmp_path / "slow", NETWORK, "stop.judge_every=4")
    assert seconds(plain)[1] - seconds(plain)[0] == pytest.approx(0.003)
    round_s = seconds(slow)[1] - seconds(slow)[0]
    assert round_s == pytest.approx(0.003 + 2 * 0.02 + 0.001, abs=0.001), "the mean, and the records of the round"
    assert summary(plain)["metrics"] == summary(slow)["metrics"], "the network changes times only"


def test_only_the_workers_that_train_in_a_round_meet_over_the_network(tmp_path: Path) -> None:
    """Ten workers of which two are drawn meet as two do; the slow link of one that sits out delays no round."""
    slow = NETWORK.replace("network", f"delay={[0.0] * 9 + [0.5]}, network")
    job = "workers.0.count=10", "stop.judge_every=4", "stop.rounds=4"
    drawn = train(tmp_path / "drawn", slow, *job, "sync.clients=2")
    trained = [
        [event["rank"] for event in events(drawn, "round") if event["round"] == number and event["items"]]
        for number in (1, 2, 3, 4)
    ]
    spans = [0.0, *seconds(drawn)]
    meetings = [after - before for before, after in pairwise(spans)]
    assert [len(ranks) for ranks in trained] == [2] * 4
    for ranks, meeting in zip(trained, meetings, strict=True):
        assert (meeting > 0.5) == (9 in ranks), "its delay counts in its rounds"
    assert min(meetings[1:]) < 0.003 + 2 * 9 * 0.02, "far less than all ten would need"


def test_messages_to_the_center_share_its_link(tmp_path: Path) -> None:
    """At 1 kB/s the half kilobyte that each visit pulls and pushes keeps the link busy."""
    sets = 'sync={rule="async", iterations=3}', "stop.judge_every=4", "stop.rounds=2"
    one = train(tmp_path / "one", *sets, 'transport={kind="simulated", network={bandwidth=1e3}}')
    many = train(tmp_path / "many", *sets, 'transport={kind="simulated", network={bandwidth=1e3}}', "workers.0.count=4")
    visits = [sum(event["iterations"] for event in events(run, "round")) for run in (one, many)]
    assert seconds(many)[-1] / seconds(one)[-1] == pytest.approx(visits[1] / visits[0], rel=0.3)


def test_only_simulated_workers_have_a_network(tmp_path: Path) -> None:
    said = partrain("validate", write_job(tmp_path, "transport.network={bandwidth=1e6}"))
    assert said.code == 78
    assert "`network` works in simulation only" in said.out
