"""`[faults] round_seconds` and `[partition] balance`: caps by the simulated clock, worked out by hand, and by real clocks, recorded and repeated."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.aftermath import Aftermath
from support.machines import MANY, Site
from support.runs import events, newest, partrain, resume, round_file, sabotage, summary, train, write_job

from partrain import checkpoint
from partrain.training.round_caps import Balance

SIMULATED = (
    'transport={kind="simulated", speed=[1.0, 0.25]}',
    "sync.iterations=40",
    "faults.round_seconds=0.04",
    "stop.rounds=6",
    "optimizer.momentum=0.0",
)
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
SLOWED = (
    'time.sleep(0.001 * (2 + time.time_ns() % 5) if multiprocessing.current_process().name == "partrain worker 1" else 0.001)'
)
"""Between 2 and 6 ms by chance: on an idle machine the caps of all rounds would be the same."""
TICKS = 'NOW[0] += 0.001 * (2 + self.calls // 4 % 5 if multiprocessing.current_process().name == "partrain worker 1" else 2)'
CLOCK = """
NOW = [0.0]
if multiprocessing.current_process().name.startswith("partrain worker"):
    from partrain.comm.shared import SharedTransport
    SharedTransport.clock = lambda self: NOW[0]
"""
"""A clock of each worker's own, on which nothing but iterations takes time: 2 ms, those of the second worker 2 to 6 ms, and others
when it starts again."""
REAL = "sync.iterations=12", "faults.round_seconds=0.02", "stop.rounds=14"


def iterations(run: Path) -> list[list[int]]:
    """Local iterations of the workers, by round."""
    told = events(run, "round")
    return [[one["iterations"] for one in told if one["round"] == number] for number in sorted({one["round"] for one in told})]


def caps(run: Path) -> list[list[int]]:
    told = events(run, "round")
    return [[one["cap"] for one in told if one["round"] == number] for number in sorted({one["round"] for one in told})]


def columns(run: Path) -> list[list[int]]:
    """The caps in the history of the newest checkpoint."""
    arrays = checkpoint.read(run / "checkpoint.h5").arrays
    return np.stack([arrays["history/cap_0"], arrays["history/cap_1"]], axis=1).astype(int).tolist()


def slowed(folder: Path, deed: str, *sets: str, call: int, by: str = SLOWED, clock: str = "") -> Path:
    """A job with real workers, of which the second is slowed by user code. By real clocks, which also tell how busy the machine is."""
    job = sabotage(folder, deed, *REAL, *sets, call=call)
    net = folder / "saboteur.py"
    net.write_text(net.read_text().replace("    def forward(self, x):\n", f"    def forward(self, x):\n        {by}\n") + clock)
    return job


def same_state(ours: Path, theirs: Path) -> bool:
    """Return whether networks, moments, counts and losses are the same bits. The caps of the next round are measured in each run."""
    mine, other = (checkpoint.read(run / "checkpoint.h5").arrays for run in (ours, theirs))
    assert sorted(mine) == sorted(other)
    return all(np.array_equal(mine[path], other[path], equal_nan=True) for path in mine)


def test_a_slower_simulated_worker_gets_fewer_iterations(tmp_path: Path) -> None:
    """An iteration takes 1 ms and 4 ms: in 0.04 s there are 40 and 10. Round 1, where nothing is measured yet, lasts 0.16 s."""
    horizon = "optimizer.schedule='linear'", "optimizer.horizon=4000"
    run = train(tmp_path, *SIMULATED, *horizon)
    assert iterations(run) == caps(run) == columns(run) == [[40, 40]] + [[40, 10]] * 5
    told = events(run, "round")
    assert [one["seconds"] for one in told if one["rank"] == 0] == pytest.approx([0.16, 0.2, 0.24, 0.28, 0.32, 0.36])
    assert sum(one["wait"] for one in told if one["round"] > 1) == pytest.approx(0.0)
    assert summary(run)["item_iterations"] == 8 * (80 + 5 * 50) == sum(one["items"] for one in told)
    # The rate falls from 0.05 at 0 to 0 at 4,000 item-iterations; the last iteration of a round counts at its middle.
    trained = [39.5 / 40 * 640] * 2 + [640 + 39.5 / 40 * 400, 640 + 9.5 / 10 * 400]
    assert [one["lr"] for one in told[:4]] == pytest.approx([0.05 * (1 - items / 4000) for items in trained])
    progress = checkpoint.read(run / "checkpoint.h5").manifest["progress"]
    assert progress["caps"] == [40, 10]
    assert "caps" not in checkpoint.read(train(tmp_path / "uncapped") / "checkpoint.h5").manifest["progress"]
    assert "cap" not in events(tmp_path / "uncapped/run", "round")[0]


def test_visits_of_an_asynchronous_rule(tmp_path: Path) -> None:
    """Two visits share 0.02 s: 10 iterations of 1 ms each, or 2 of 4 ms."""
    run = train(tmp_path, *SIMULATED, 'sync={rule="async", iterations=20, visits=2}', "faults.round_seconds=0.02")
    assert caps(run) == [[20, 20]] + [[10, 2]] * 5
    assert all(one["iterations"] % one["cap"] == 0 for one in events(run, "round"))


def test_a_resumed_simulated_run_is_a_run_of_one_piece(tmp_path: Path) -> None:
    """In a folder of its own there is no record: the caps are those of the checkpoint, and those that follow."""
    whole = train(tmp_path, *SIMULATED)
    resume(round_file(whole, 1), "--out", tmp_path / "resumed")
    assert newest(tmp_path / "resumed") == newest(whole)
    assert caps(tmp_path / "resumed") == caps(whole)[1:]


def test_the_process_of_simulated_workers_is_lost(tmp_path: Path) -> None:
    job = sabotage(tmp_path, KILL, *SIMULATED, worker=0, call=160)
    after = Aftermath(job)
    after.check_replayed(after.train())
    assert caps(after.run) == [[40, 40]] + [[40, 10]] * 5


def test_other_workers_measure_anew(tmp_path: Path) -> None:
    run = train(tmp_path, *SIMULATED, 'transport={kind="simulated"}', "faults.round_seconds=0.02")
    resume(run / "checkpoint.h5", "--set", "workers.0.count=3", "--until", "rounds=8", "--out", tmp_path / "other")
    assert caps(tmp_path / "other") == [[40, 40, 40], [20, 20, 20]]
    history = checkpoint.read(tmp_path / "other/checkpoint.h5").arrays
    assert history["history/cap_1"].tolist() == [40, 20, 20, 20, 20, 20, 40, 20]
    assert np.isnan(history["history/cap_2"][:6]).all()


def test_a_replay_repeats_the_record(tmp_path: Path) -> None:
    """The workers that start again measure other seconds. partrain compares each round that runs again, and warns of other numbers."""
    few = "checkpoint.commit='coalesce'", "checkpoint.every=1000", "stop.judge_every=100"
    job = slowed(tmp_path, KILL, *few, call=12 + 9, by=TICKS, clock=CLOCK)
    run = tmp_path / "run"
    said = partrain("run", job, "--out", run)
    assert said.code == 0, said
    (replay,) = events(run, "replay")
    again = [caps_ for number, caps_ in enumerate(caps(run), 1) if number > replay["after"]]
    assert "gave other numbers" not in said.err
    assert len(caps(run)) == 14
    assert iterations(run) == caps(run) == columns(run)
    fast, slow = map(sum, zip(*caps(run)[1:], strict=True))
    assert slow < fast, caps(run)
    assert {cap for each in caps(run) for cap in each} <= set(range(1, 13))
    assert len({tuple(each) for each in again}) > 1, "every cap is the same: the record decides nothing"


def test_a_resume_repeats_the_record(tmp_path: Path) -> None:
    """From a checkpoint before a loss, with the events of the run beside it, it ends in the bits of the run that replayed."""
    job = slowed(tmp_path, KILL, call=12 + 10)
    run, copy = tmp_path / "run", tmp_path / "copy"
    assert partrain("run", job, "--out", run, "-q").code == 0
    assert len(events(run, "replay")) == 1
    shutil.copytree(run, copy)
    resume(round_file(copy, 2), "--trust-code")
    assert caps(copy) == caps(run)
    assert same_state(copy, run)
    assert events(copy, "start")[-1]["resumed_from"] == 2


def test_a_run_that_is_slow_is_told_what_to_do(tmp_path: Path) -> None:
    """The simulated clock passes 2.5 s in 16 rounds of 0.16 s."""
    said = partrain(
        "run", write_job(tmp_path, *SIMULATED, "faults={}", "stop.rounds=30", "stop.judge_every=100"), "--out", tmp_path / "run"
    )
    assert said.code == 0, said
    (event,) = events(tmp_path / "run", "slow")
    assert (event["rank"], event["factor"], event["since"], event["recovered"]) == (1, 4.0, 1, False)
    assert said.out.count("slow: worker 1 takes 4.0 times as long per item as the others, since round 1\n") == 1
    end = 'the others waited 75% of their time: give it fewer `iterations` in [[workers]], or set balance = "rate" in [partition]'
    assert f"limit: worker 1 takes 4.0 times as long per item as the others since round 1; {end}\n" in said.out
    assert summary(tmp_path / "run")["workers"][1]["slow"] == {"factor": 4.0, "since": 1}
    assert partrain("report", tmp_path / "run", "-o", tmp_path / "report.html").code == 0
    assert "takes 4.0 times as long per item" in (tmp_path / "report.html").read_text()


def test_damaged_caps(tmp_path: Path) -> None:
    """A file whose digests are repaired: the field is named, and nothing trains."""
    run = train(tmp_path, *SIMULATED)
    for wrong in [40], [40, 0], [40, -1], [40, 10, 10]:
        content = checkpoint.read(run / "checkpoint.h5")
        content.manifest["progress"]["caps"] = wrong
        path = tmp_path / f"{json.dumps(wrong)}.h5"
        checkpoint.write(path, checkpoint.encode(content))
        said = partrain("resume", path, "--until", "rounds=9", "--out", tmp_path / "out")
        assert (said.code, "`progress.caps`" in said.err) == (65, True), said


@pytest.mark.slow
def test_two_machines_decide_alike(tmp_path: Path) -> None:
    """Four workers, two on each machine. A resume gives the record to the machine that has no run folder, too."""
    sets = "sync.iterations=12", "faults.round_seconds=0.004", "stop.rounds=5", "workers.0.count=2"
    job, run, site = write_job(tmp_path / "job", *sets, text=MANY), tmp_path / "run", Site(tmp_path)
    for said in site.run(("run", job, "--out", run, "--quiet")):
        assert said.code == 0, said
    first = caps(run)
    assert [len(each) for each in first] == [4] * 5
    assert iterations(run) == first
    whole = checkpoint.read(run / "checkpoint.h5").arrays
    for said in site.run(("resume", round_file(run, 2), "--quiet"), ("resume", round_file(run, 2), "--quiet")):
        assert said.code == 0, said
    assert caps(run) == first
    again = checkpoint.read(run / "checkpoint.h5").arrays
    assert all(np.array_equal(again[path], whole[path], equal_nan=True) for path in whole)


# Balance

BALANCED = (*SIMULATED[:2], "partition.balance='rate'", "stop.rounds=8", "optimizer.momentum=0.0")


def test_iterations_in_proportion_to_speed(tmp_path: Path) -> None:
    """An iteration takes 1 ms and 4 ms. Rounds 2 to 4 are measured: of 80 iterations, 64 and 16 take 0.064 s each."""
    run = train(tmp_path, *BALANCED)
    assert iterations(run) == caps(run) == columns(run) == [[40, 40]] * 4 + [[64, 16]] * 4
    told = events(run, "round")
    assert sum(one["wait"] for one in told if one["round"] > 4) == pytest.approx(0.0)
    assert sum(one["wait"] for one in told if one["round"] == 4 and one["rank"] == 0) == pytest.approx(0.12)
    (balance,) = events(run, "balance")
    assert (balance["round"], balance["iterations"]) == (5, [64, 16])
    assert checkpoint.read(run / "checkpoint.h5").manifest["progress"]["caps"] == [64, 16]
    assert summary(run)["item_iterations"] == 8 * 8 * 80


def test_whole_passes_over_parts_in_proportion_to_speed(tmp_path: Path) -> None:
    """The fast worker's partition grows from a half of the items to four fifths: a pass of both takes as long."""
    run = train(tmp_path, *BALANCED, 'sync={rule="average", passes=1}')
    items = [[one["items"] for one in events(run, "round") if one["round"] == number] for number in (1, 8)]
    assert items[0][0] == items[0][1]
    assert items[1][0] == pytest.approx(0.8 * sum(items[0]), abs=8)
    assert sum(items[1]) - sum(items[0]) in (0, 1), "sizes are rounded up: no item is left out"


def test_a_resumed_balanced_run_is_a_run_of_one_piece(tmp_path: Path) -> None:
    whole = train(tmp_path, *BALANCED)
    resume(round_file(whole, 5), "--out", tmp_path / "resumed")
    assert newest(tmp_path / "resumed") == newest(whole)
    assert caps(tmp_path / "resumed") == [[64, 16]] * 3


def test_a_lost_process_changes_no_balance(tmp_path: Path) -> None:
    job = sabotage(tmp_path, KILL, *BALANCED, worker=0, call=40 * 4 + 64 + 10)
    after = Aftermath(job)
    after.check_replayed(after.train())
    assert caps(after.run) == [[40, 40]] * 4 + [[64, 16]] * 4


def test_real_workers_are_balanced(tmp_path: Path) -> None:
    """The second worker is slowed by user code, and either one by other programs; what follows is what was recorded, to the bit."""
    job = slowed(tmp_path, "pass", "sync.iterations=60", "faults={}", "partition.balance='rate'", "stop.rounds=12", call=9)
    run = tmp_path / "run"
    assert partrain("run", job, "--out", run, "-q").code == 0
    told = events(run, "round")
    balance, decided = Balance([60, 60]), [[]]
    for number in range(1, 12):
        seconds = [(one["iterations"], one["compute"]) for one in told if one["round"] == number]
        decided.append(balance.decide(number + 1, decided[-1], seconds))
    assert iterations(run) == [now or [60, 60] for now in decided]
    changed = [now for before, now in itertools.pairwise(iterations(run)) if now != before]
    assert [event["iterations"] for event in events(run, "balance")] == changed
    resume(round_file(run, 11), "--trust-code", "--out", tmp_path / "resumed")
    assert iterations(tmp_path / "resumed")[-1] == iterations(run)[-1]
