"""Lost workers start again from the newest copy of the state, and the run ends with the numbers of a run that lost none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.aftermath import Aftermath
from support.rule_forms import FORMS, VARIANTS
from support.runs import events, newest, partrain, sabotage
from support.stalls import count_stopped_only

from partrain import checkpoint
from partrain.launch import snapshot_slots

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
NO_COPIES = "import partrain.launch.worker.coordinator_hooks as r; r.COPY_EVERY_S = r.LONG_S = 1e9"
"""Code of a worker's first iteration: no copy of the state is made for the sake of lost workers. Patch FIRST_S, too."""
LAYERS = "nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3)"
OFTEN = {"average", "diloco", "gossip"}
"""Forms that the gate tries."""


def job_of(folder: Path, deed: str, *sets: str, call: int, layers: str = LAYERS, forward: str = "", when: str = "") -> Path:
    """A job with BatchNorm and dropout whose worker 1 does `deed` at a call. `forward`: code of each call. `when`: another moment."""
    job = sabotage(folder, deed, "stop.rounds=6", *sets, call=call)
    net = folder / "saboteur.py"
    text = net.read_text().replace("nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)", layers)
    text = text.replace("    def forward(self, x):\n", f"    def forward(self, x):\n        {forward or 'pass'}\n")
    if when:
        text = text.replace(
            "        if self.training:\n            self.act()",
            f"        if {when}:\n            self.calls = self.call\n            self.act()",
        )
    net.write_text(text)
    return job


def forms() -> list[Any]:
    """Give each form whose rounds repeat processes or simulation in turn; `make soak` gives it the other."""
    rows = []
    for number, name in enumerate(name for name, rule in VARIANTS.items() if rule.repeatable):
        for turn, kind in enumerate(("shared", "simulated")):
            marks = pytest.mark.soak if turn != number % 2 else () if name in OFTEN else pytest.mark.slow
            rows.append(pytest.param(name, kind, marks=marks))
    return rows


def rule_of(name: str) -> str:
    """The `[sync]` table of a form, for --set."""
    return f"sync={inline({'iterations': 3, **FORMS[name]})}"


def inline(value: Any) -> str:
    """A value as inline TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.representative
@pytest.mark.parametrize(("name", "kind"), forms())
def test_each_rule(tmp_path: Path, name: str, kind: str) -> None:
    job = job_of(tmp_path, KILL, rule_of(name), f"transport.kind='{kind}'", "optimizer.momentum=0.9", call=8)
    if kind == "simulated":  # its one process has the name of worker 0
        job.write_text(job.read_text().replace("worker = 1", "worker = 0"))
    after = Aftermath(job)
    told = after.check_replayed(after.train())
    assert 0 < told["after"] < 6
    assert sum(told["discarded"]) > 0
    assert told["seconds"] > 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "async" else pytest.mark.slow)
        for name, rule in VARIANTS.items()
        if not rule.repeatable
    ],
)
def test_asynchronous_rules_lose_and_repeat_nothing(tmp_path: Path, name: str) -> None:
    """Each round is recorded once, and the items of the records are those of the checkpoint.

    The workers share the visits of a round as they come. Both sleep in each call, so neither takes all of them on a busy machine.
    """
    layers = LAYERS.replace("nn.BatchNorm1d(8), ", "")
    job = job_of(tmp_path, KILL, rule_of(name), "stop.rounds=9", layers=layers, call=5, forward="time.sleep(0.005)")
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (0, []), said
    run = tmp_path / "run"
    assert len(events(run, "replay")) == 1
    rounds = events(run, "round")
    assert [(one["round"], one["rank"]) for one in rounds] == [(number, rank) for number in range(1, 10) for rank in range(2)]
    content = checkpoint.read(run / "checkpoint.h5")
    counted = [int(content.arrays[f"workers/{rank}/counts"][2]) for rank in range(2)]
    assert [sum(one["items"] for one in rounds if one["rank"] == rank) for rank in range(2)] == counted
    assert content.arrays["history/round"].tolist() == list(range(1, 10))
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["item_iterations"], summary["rounds"]) == (sum(counted), 9)
    assert [one["round"] for one in events(run, "judgement")] == list(range(1, 10))


def test_asynchronous_rules_need_not_repeat_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a copy in memory some recorded rounds run again, and have other numbers: no fault of user code."""
    monkeypatch.setattr(snapshot_slots, "FIRST_S", 1e9)
    sets = rule_of("async"), "checkpoint.commit='coalesce'", "checkpoint.every=100", "stop.judge_every=100"
    layers = LAYERS.replace("nn.BatchNorm1d(8), ", "")
    said = partrain("run", job_of(tmp_path, KILL, *sets, layers=layers, call=17), "--out", tmp_path / "run")
    assert said.code == 0, said
    assert "replay: worker 1 (cpu) was killed by SIGKILL" in said.out
    assert "gave other numbers" not in said.err


@pytest.mark.slow
def test_copies_in_memory_between_files(tmp_path: Path) -> None:
    """No file is written before the end: the copies are made for the sake of lost workers."""
    sets = "checkpoint.commit='coalesce'", "checkpoint.every=1000", "stop.rounds=12", "stop.judge_every=100"
    after = Aftermath(job_of(tmp_path, KILL, *sets, call=31, forward="time.sleep(0.03)"))
    told = after.check_replayed(after.train())
    assert 1 <= told["after"] <= 10
    assert [one["round"] for one in events(after.run, "commit")] == [12]


def test_before_the_first_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds run again, from the start of the run."""
    monkeypatch.setattr(snapshot_slots, "FIRST_S", 1e9)
    sets = "checkpoint.commit='coalesce'", "checkpoint.every=1000", "stop.judge_every=100"
    after = Aftermath(job_of(tmp_path, KILL, *sets, call=14, forward=NO_COPIES))
    told = after.check_replayed(after.train(), after=0)
    assert sum(told["discarded"]) >= 2 * 4 * 3 * 8


def test_no_copies_if_a_loss_is_to_end_the_run(tmp_path: Path) -> None:
    sets = "checkpoint.commit='coalesce'", "checkpoint.every=1000", "faults.on_loss='stop'", "stop.judge_every=100"
    said = partrain("run", job_of(tmp_path, KILL, *sets, call=17, forward="time.sleep(0.03)"), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "no checkpoint was committed yet" in said.err


def test_a_worker_is_lost_in_the_test(tmp_path: Path) -> None:
    """The training is over: nothing of it runs again."""
    after = Aftermath(job_of(tmp_path, KILL, call=1, when="not self.training and len(x) == 20"))
    told = after.check_replayed(after.train())
    assert (told["after"], told["discarded"]) == (6, [0, 0])
    whole = json.loads((tmp_path / "whole/summary.json").read_text())
    summary = json.loads((after.run / "summary.json").read_text())
    assert (summary["test"], summary["reason"]) == (whole["test"], whole["reason"])


@pytest.mark.parametrize(("worker", "count"), [(0, 1), (1, 3)])
def test_a_worker_is_lost_while_it_starts_again(tmp_path: Path, worker: int, count: int) -> None:
    """The next attempt goes on from the same copy. No copy is lost with the processes that made it."""
    again = "DONE.with_name('again').write_text('#' * COUNT); ".replace("COUNT", str(count))
    job = job_of(tmp_path, again + KILL, "optimizer.momentum=0.9", call=8)
    net = tmp_path / "saboteur.py"
    start = f"""        again = DONE.with_name("again")
        if multiprocessing.current_process().name == "partrain worker {worker}" and again.exists() and again.read_text():
            again.write_text(again.read_text()[1:])
            {KILL}
"""
    net.write_text(net.read_text().replace("        self.act()\n\n", "        self.act()\n" + start + "\n"))
    after = Aftermath(job)
    told = after.check_replayed(after.train())
    assert told["rank"] == worker
    assert [sum(one["discarded"]) > 0 for one in events(after.run, "replay")] == [True] + [False] * count
    assert {one["after"] for one in events(after.run, "replay")} == {told["after"]}


def test_a_worker_freezes_after_another_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would wake the coordinator: the other one has left."""
    count_stopped_only(monkeypatch)
    deed = "import partrain.launch.worker.process as r; r.Done = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)"
    after = Aftermath(job_of(tmp_path, deed, "transport.stall_seconds=1.0", call=8))
    told = after.check_replayed(after.train())
    assert (told["rank"], told["after"], told["discarded"]) == (1, 6, [0, 0])


def test_a_worker_stalls_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_stopped_only(monkeypatch)
    deed = "os.kill(os.getpid(), signal.SIGSTOP)"
    when = "not self.training and len(x) == 20"
    after = Aftermath(job_of(tmp_path, deed, "transport.stall_seconds=1", call=1, when=when))
    told = after.check_replayed(after.train())
    assert told["what"].startswith(
        "worker 1 made no progress for 1 s in the test; raise [transport] stall_seconds if batches may"
    )
    shown = partrain("runs", "show", after.run).out
    assert "replays          1, 0 item-iterations trained again" in shown


def test_a_target_still_ends_the_run(tmp_path: Path) -> None:
    after = Aftermath(job_of(tmp_path, KILL, "stop.loss=0.7", "stop.rounds=40", call=5))
    after.check_replayed(after.train())
    assert json.loads((after.run / "summary.json").read_text())["status"] == "reached"


@pytest.mark.parametrize("call", [0, 2])
def test_a_resumed_run(tmp_path: Path, call: int) -> None:
    """A loss before the first copy goes back to the checkpoint, also if the worker is lost while it starts (call 0)."""
    job = job_of(tmp_path, KILL, call=call)
    (tmp_path / "done").touch()
    assert partrain("run", job, "--out", tmp_path / "whole", "-q").code == 0
    assert partrain("run", job, "--out", tmp_path / "run", "-q", "--set", "stop.rounds=3").code == 0
    (tmp_path / "done").unlink()
    said = partrain("resume", tmp_path / "run", "--trust-code", "--until", "rounds=6", "-q")
    assert (said.code, said.errors) == (0, []), said
    assert [one["after"] for one in events(tmp_path / "run", "replay")] == ([3] if call else [])
    assert ("before the first round: all workers start again" in said.err) == (call == 0)
    ours, theirs = (checkpoint.read(tmp_path / name / "checkpoint.h5").arrays for name in ("run", "whole"))
    assert all((ours[path] == theirs[path]).all() for path in theirs if path.startswith(("model/", "workers/", "rule/")))


def test_user_code_that_draws_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rounds cannot run again as they were: the user learns it."""
    monkeypatch.setattr(snapshot_slots, "FIRST_S", 1e9)
    forward = f"{NO_COPIES}; x = x + int.from_bytes(os.urandom(2), 'big') / 65536 * (self.calls > 6)"  # later than the dry run
    job = job_of(
        tmp_path, KILL, "checkpoint.commit='coalesce'", "checkpoint.every=100", "stop.judge_every=100", call=17, forward=forward
    )
    said = partrain("run", job, "--out", tmp_path / "run")
    assert said.code == 0, said
    assert "gave other numbers when it ran again: user code keeps a value that no checkpoint holds, or draws" in said.err
    assert "replay: worker 1 (cpu) was killed by SIGKILL" in said.out
    assert newest(tmp_path / "run")


@pytest.mark.parametrize("deed", [KILL, pytest.param("os.kill(os.getpid(), signal.SIGSTOP)", marks=pytest.mark.slow)])
def test_the_run_goes_on_without_the_lost_worker(tmp_path: Path, deed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a resume with one worker less does, to the bit; and a resume goes on so."""
    count_stopped_only(monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    job = job_of(tmp_path, deed, "faults.on_loss='drop'", "workers.0.count=3", "transport.stall_seconds=2", call=8)
    run, other = tmp_path / "run", tmp_path / "other"
    said = partrain("run", job, "--out", run, "-q")
    assert (said.code, said.errors) == (0, []), said
    assert "the run goes on from round 2 without this worker" in said.err
    assert [one["status"] for one in events(run, "end")] == ["finished"]
    rounds = [(one["round"], one["rank"]) for one in events(run, "round")]
    assert rounds == [(number, rank) for number in range(1, 7) for rank in range(3 if number < 3 else 2)]
    (fault,) = events(run, "fault")
    assert (fault["rank"], fault["what"].partition(": ")[2]) == (1, "the run goes on from round 2 without this worker")
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("finished", 6)
    assert sum(worker["item_iterations"] for worker in summary["workers"]) == summary["item_iterations"]

    half = run / "checkpoints/round-000002.h5"
    words = "--set", "workers.0.count=2", "--trust-code", "-q"
    assert partrain("resume", half, *words, "--out", other).code == 0
    ours, theirs = (checkpoint.read(folder / "checkpoint.h5") for folder in (run, other))
    assert all((ours.arrays[path] == theirs.arrays[path]).all() for path in theirs.arrays)
    assert partrain("resume", run, "--until", "rounds=7", "-q").code == 0, "the run is one's own"
    assert {one["rank"] for one in events(run, "round") if one["round"] == 7} == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("call", [0, 2])
def test_with_nothing_kept_the_others_begin_again(tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is lost as it starts, or before the first copy: the run is that of a job with one worker less."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    job = job_of(tmp_path, KILL, "faults.on_loss='drop'", "workers.0.count=3", call=call)
    run, other = tmp_path / "run", tmp_path / "other"
    said = partrain("run", job, "--out", run, "-q")
    assert (said.code, said.errors) == (0, []), said
    assert "the run begins again without this worker" in said.err
    assert [one["status"] for one in events(run, "end")] == ["finished"]
    assert {(one["round"], one["rank"]) for one in events(run, "round")} == {(n, rank) for n in range(1, 7) for rank in (0, 1)}
    assert partrain("run", job, "--set", "workers.0.count=2", "--out", other, "-q").code == 0
    ours, theirs = (checkpoint.read(folder / "checkpoint.h5") for folder in (run, other))
    assert all((ours.arrays[path] == theirs.arrays[path]).all() for path in theirs.arrays)
    assert partrain("resume", run, "--until", "rounds=7", "-q").code == 0


def test_a_resumed_run_with_nothing_kept_goes_back_to_its_checkpoint(tmp_path: Path) -> None:
    job = job_of(tmp_path, KILL, "faults.on_loss='drop'", "workers.0.count=3", call=2)
    (tmp_path / "done").touch()
    assert partrain("run", job, "--out", tmp_path / "half", "-q", "--set", "stop.rounds=3").code == 0
    (tmp_path / "done").unlink()
    run, words = tmp_path / "run", ("--until", "rounds=6", "-q", "--trust-code")
    said = partrain("resume", tmp_path / "half/checkpoint.h5", *words, "--out", run)
    assert (said.code, said.errors) == (0, []), said
    assert "the run goes on from round 3 without this worker" in said.err
    assert {(one["round"], one["rank"]) for one in events(run, "round")} == {(n, rank) for n in (4, 5, 6) for rank in (0, 1)}


def test_no_worker_is_dropped_if_all_are_lost(tmp_path: Path) -> None:
    """As after the death of the process that starts them: the rounds run again."""
    deed = "os.kill(os.getppid(), signal.SIGKILL)"
    after = Aftermath(job_of(tmp_path, deed, "faults.on_loss='drop'", call=8))
    assert after.check_replayed(after.train())["rank"] is None


def test_the_last_worker_cannot_be_dropped(tmp_path: Path) -> None:
    job = job_of(tmp_path, KILL, "faults.on_loss='drop'", "workers.0.count=1", call=8)
    job.write_text(job.read_text().replace("worker = 1", "worker = 0"))
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "the checkpoint of round 2 is intact" in said.err
