"""`--metrics-port`: Prometheus text of a run that is under way, read by prometheus_client's own parser."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest
from support.runs import Command, events, eventually, train, write_job

pytestmark = pytest.mark.slow

LONG = ("stop={rounds=1000000, judge_every=5}", "checkpoint.commit='coalesce'", "checkpoint.keep=2")


def address(command: Command) -> str:
    """The address that the command printed."""
    (path,) = command.folder.glob("*.err")
    head = "partrain: metrics at "
    lines = eventually(lambda: [line for line in path.read_text().splitlines() if line.startswith(head)], "the address")
    return str(lines[0].removeprefix(head))


def samples(url: str) -> dict[tuple[str, ...], float]:
    """The samples by name and values of labels, in the order of the labels' names."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(url, timeout=100) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        text = reply.read().decode()
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_metrics_of_a_run_under_way(tmp_path: Path) -> None:
    job, run = write_job(tmp_path, *LONG), tmp_path / "run"
    with Command(("run", job, "--out", run, "-q", "--metrics-port", "0"), tmp_path / "shell") as command:
        url = address(command)
        eventually(lambda: samples(url).get(("partrain_judged_round",), 0) > 5, "a judgement")
        eventually(lambda: samples(url).get(("partrain_commits_total",), 0) > 0, "a commit")
        found, later = samples(url), {}
        eventually(lambda: later.update(samples(url)) or later["partrain_round",] > found["partrain_round",], "another round")
        command.interrupt()
        assert command.wait().code == 130
    for activity in "computing", "waiting", "mixing":
        assert found["partrain_worker_seconds_total", activity, "cpu", "1"] >= 0
    assert 0 < found["partrain_item_iterations_total", "cpu", "0"] < later["partrain_item_iterations_total", "cpu", "0"]
    assert found["partrain_learning_rate",] == 0.05
    assert 0 <= found["partrain_judged_metric", "accuracy"] <= 1
    assert found["partrain_faults_total",] == 0
    assert found["partrain_train_loss",] > 0
    (info,) = [labels for labels in found if labels[0] == "partrain_run_info"]
    assert set(info) >= {"clouds", "average", "2 cpu"}
    port = int(url.split(":")[2].split("/")[0])
    with socket.create_server(("127.0.0.1", port)):  # the port is free again
        pass


def test_a_resumed_run_counts_from_the_beginning(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.rounds=2")
    before = sum(event["items"] for event in events(run, "round"))
    words = ("resume", run, "--until", "rounds=1000000", "-q", "--metrics-port", "0")
    with Command(words, tmp_path / "shell") as command:
        url = address(command)
        found = eventually(lambda: (one := samples(url)).get(("partrain_round",), 0) > 2 and one, "a round")
        command.interrupt()
        assert command.wait().code == 130
    assert sum(value for labels, value in found.items() if labels[0] == "partrain_item_iterations_total") > before
