"""What reaches the run folder: events that can be read back whatever happened, and the state they add up to."""

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partrain.checkpoint import Content
from partrain.errors import InputMissing, InputOutputFailed
from partrain.launch.folder.run_folder import relink
from partrain.record.event_log import EventLog, read_events, truncate_after, write_summary
from partrain.record.events import (
    CommitEvent,
    EndEvent,
    FaultEvent,
    JudgementEvent,
    RoundEvent,
    SlowEvent,
    StartEvent,
    StoppingEvent,
    UnknownEvent,
    decode,
    encode,
)
from partrain.record.round_record import NAN, RoundRecord
from partrain.record.run_folder import RunFolder
from partrain.record.run_state import RunState
from partrain.record.summary import summary
from partrain.record.worker_state import CELLS, WINDOW_S, Curve

T = 1795255200.0


def start(t=T, workers=2, resumed_from=None, **stop):
    described = [
        {
            "rank": r,
            "device": "cpu",
            "threads": 1,
            "pid": 100 + r,
            "partition": 500,
            "iterations": 10,
            "passes": None,
            "batch_size": 64,
        }
        for r in range(workers)
    ]
    return StartEvent(
        t=t, version="0.1.0", name="mnist", run_id="abc", rule="average", resumed_from=resumed_from, parameters=101770, held_out=5000,
        judge_every=1, cores=2, workers=described, stop=stop or {"rounds": 400},
    )  # fmt: skip


def round_(number, rank=0, t=T, **values):
    numbers = {
        "round": number, "iterations": 10, "items": 640, "loss": 1.0 / number, "lr": 0.1, "compute": 0.7, "wait": 0.2, "mix": 0.1,
        "distance": NAN, "bytes": 0, "staleness": NAN, "seconds": t - T - 2,
    } | values  # fmt: skip
    return RoundEvent(t=t, rank=rank, record=RoundRecord(**numbers))


def judgement(number, t=T, seconds=0.0, best=True, **values):
    metrics = values.pop("metrics", {"accuracy": 1 - 0.5 / number})
    return JudgementEvent(
        t=t, round=number, item_iterations=1280 * number, seconds=seconds, loss=0.5 / number, metrics=metrics, best=best, **values
    )


def commit(number, t=T):
    name = f"checkpoints/round-{number:06d}.h5"
    return CommitEvent(t=t, round=number, file=name, bytes=1_200_000, seconds=0.012, digest="d" * 64)


def run(rounds, workers=2, began=T + 2, first=1) -> Iterator[RoundEvent | JudgementEvent]:
    """Rounds of one second each, judged at their end."""
    for number in range(first, first + rounds):
        t = began + number - first + 1
        yield from (round_(number, rank, t, seconds=float(number)) for rank in range(workers))
        yield judgement(number, t, float(number))


def fed(*events):
    state = RunState()
    for event in events:
        state.apply(event)
    return state


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def written(path, *events):
    with EventLog(path) as log:
        for event in events:
            log.add(event)
    return path


@pytest.mark.parametrize("event", [
    start(),
    round_(3),
    round_(3, distance=0.25, loss=NAN),
    judgement(2),
    commit(7),
    FaultEvent(t=T, what='lost "é"', rank=1),
    FaultEvent(t=T, what="a file's name that is no UTF-8: \udce9", rank=None),
])  # fmt: skip
def test_a_line_reads_back_as_the_event(event):
    line = encode(event)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert decode(line) == event


LINES = [
    (
        start(),
        "version name run_id rule resumed_from parameters held_out judge_every cores workers stop lower_is_better start_file code accepted privacy clients",
    ),
    (round_(3), "rank round iterations items loss lr compute wait mix distance bytes staleness seconds"),
    (judgement(2), "round item_iterations seconds loss metrics best regular"),
    (commit(7), "round file bytes seconds digest"),
    (FaultEvent(t=T, what="lost", rank=1), "what rank"),
    (StoppingEvent(t=T, signal="SIGINT", what="stopping after this round"), "signal what"),
    (
        EndEvent(t=T, status="finished", reason="rounds", round=4),
        "status reason round seconds test tested_round trivial comparisons",
    ),
]


@pytest.mark.parametrize(("event", "keys"), LINES)
def test_the_keys_of_a_line(event, keys):
    """They are a file format: scripts read them."""
    line = json.loads(encode(event))
    assert list(line) == ["event", "t", *keys.split()]
    assert (line["event"], line["t"]) == (event.kind, event.t)


def test_fields_of_a_newer_version_are_ignored():
    for event, _ in LINES:
        assert decode(json.dumps({**json.loads(encode(event)), "new": [1]}).encode()) == event


@pytest.mark.parametrize("line", [b"[]", b"5", b"{", b"{}", b'{"event":5,"t":1}', b'{"event":"new"}', b'{"event":"fault","t":1}'])
def test_lines_that_are_not_events(path, line):
    path.write_bytes(line + b"\n")
    with pytest.raises(InputMissing, match=r"events\.jsonl:1: not an event; restore the file"):
        list(read_events(path))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_become_null(bad, tmp_path):
    line = json.loads(encode(round_(1, loss=bad, distance=bad)))
    assert (line["loss"], line["distance"]) == (None, None)
    assert json.loads(encode(judgement(1, metrics={"accuracy": bad})))["metrics"] == {"accuracy": None}
    write_summary(tmp_path / "summary.json", {"loss": bad, "workers": [{"seconds": {"wait": bad}}]})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"loss": None, "workers": [{"seconds": {"wait": None}}]}


def test_events_are_written_together_on_flush(path, monkeypatch):
    log, writes, write = EventLog(path), [], os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: writes.append(len(data)) or write(descriptor, data))
    log.add(round_(1, 0))
    log.add(round_(1, 1))
    assert list(read_events(path)) == []
    log.flush()
    assert len(writes) == 1
    assert list(read_events(path)) == [round_(1, 0), round_(1, 1)]
    log.flush()
    assert len(writes) == 1
    log.close()


def test_a_log_continues(path):
    written(path, start(), round_(1))
    written(path, round_(2))
    assert [event.kind for event in read_events(path)] == ["start", "round", "round"]


def test_a_killed_writer_loses_only_what_was_not_flushed(path):
    script = """
import os, sys
from pathlib import Path
from partrain.record.event_log import EventLog
from partrain.record.events import FaultEvent
log = EventLog(Path(sys.argv[1]))
for number in range(100):
    log.add(FaultEvent(t=0.0, what=str(number), rank=None))
log.flush()
log.add(FaultEvent(t=0.0, what="never", rank=None))
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == -9
    assert [event.what for event in read_events(path)] == [str(number) for number in range(100)]


def test_a_write_cut_short_is_completed_by_the_next_flush(path, monkeypatch):
    log, write = EventLog(path), os.write
    log.add(round_(1))

    def full(descriptor, data):
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:-50])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(InputOutputFailed, match=r"events\.jsonl: cannot be written: No space left on device"):
            log.flush()
    assert list(read_events(path)) == []
    log.add(round_(2))
    log.close()
    assert list(read_events(path)) == [round_(1), round_(2)]


def test_a_place_that_may_not_be_written_to_is_left_for_another(path, tmp_path, monkeypatch):
    path.write_bytes(encode(start()))

    def refused(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for call in ("open", "unlink"):
        monkeypatch.setattr(os, call, refused)
    with pytest.raises(InputOutputFailed, match=r"s\.json: cannot be written: Read-only file system; give --out a folder"):
        write_summary(tmp_path / "s.json", {})
    monkeypatch.undo()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "round-000003.h5").touch()
    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(InputOutputFailed, match=r"cannot be written: Read-only file system; give --out a folder"):
        relink(Content({}, "", {"round": 3}), tmp_path, None)
    monkeypatch.undo()
    monkeypatch.setattr(os, "rename", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(InputOutputFailed, match="make room"):
        relink(Content({}, "", {"round": 3}), tmp_path, None)


def test_a_judgement_of_an_earlier_round_is_called_so():
    early = fed(start(rounds=3), round_(1, 0), round_(1, 1), judgement(1), round_(2, 0), round_(2, 1))
    assert summary(early)["judged_round"] == 1
    assert "judged_round" not in summary(fed(start(rounds=3), round_(1, 0), round_(1, 1), judgement(1)))


def test_an_unwritable_place_is_told(tmp_path):
    with pytest.raises(InputOutputFailed, match="cannot be written: No such file"):
        EventLog(tmp_path / "nowhere" / "events.jsonl")


def test_only_a_partial_last_line_is_passed_over(path):
    written(path, start(), round_(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert list(read_events(path)) == [start()]
    path.write_bytes(whole[:-20] + b"\n" + whole)
    with pytest.raises(InputMissing, match=r"events\.jsonl:2: not an event"):
        list(read_events(path))
    with pytest.raises(InputMissing, match="cannot be read"):
        list(read_events(path.parent / "none.jsonl"))


def test_cut_keeps_what_belongs_to_the_rounds_before(path):
    early = FaultEvent(t=T, what="early", rank=None)
    late = FaultEvent(t=T, what="late", rank=None)
    end = EndEvent(t=T + 9, status="stopped", reason="asked", round=4, seconds={})
    written(
        path,
        start(),
        *run(2),
        early,
        round_(3, 0),
        commit(2),
        late,
        round_(3, 1),
        judgement(3),
        end,
        start(resumed_from=4),
        round_(5),
    )
    truncate_after(path, 2)
    assert list(read_events(path)) == [start(), *run(2), early, commit(2)]
    assert [each.name for each in path.parent.iterdir()] == ["events.jsonl"]


def test_cut_of_a_damaged_file_changes_nothing(path):
    written(path, start(), round_(1))
    path.write_bytes(path.read_bytes() + b"\0\0\n")
    before = path.read_bytes()
    with pytest.raises(InputMissing, match=r"jsonl:3: not an event"):
        truncate_after(path, 5)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["events.jsonl"]


def test_cut_returns_the_run_as_it_stood(path):
    written(path, start(), *run(5))
    path.write_bytes(path.read_bytes()[:-7])
    state = truncate_after(path, 3)
    assert (state.round, state.item_iterations, state.clock.train) == (3, 3840, 3.0)
    assert state.clock.startup == 2.0
    assert state.clock.total == 5.0
    worker = state.workers[1]
    assert (worker.numbers["iterations"], worker.items) == (30, 1920)
    assert worker.spent == pytest.approx((2.1, 0.6, 0.3))
    assert state.best is not None
    assert state.best.round == 3


def test_cut_between_judgements_takes_the_time_from_the_rounds(path):
    rounds = [round_(number, rank, T + 2 + number, seconds=30.0 * number) for number in range(1, 6) for rank in range(2)]
    written(path, start(), *rounds[:4], judgement(2, T + 4, 60.25), *rounds[4:])
    assert truncate_after(path, 1).clock.train == 30.0
    written(path, *rounds[2:4], judgement(2, T + 4, 60.25), *rounds[4:])
    assert truncate_after(path, 4).clock.train == 120.0


def test_a_file_whose_rounds_have_no_seconds(path):
    """As early versions wrote them."""
    lines = [json.loads(encode(event)) for event in (start(), *run(3))]
    for line in lines:
        if line["event"] == "round":
            del line["seconds"], line["bytes"], line["staleness"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert truncate_after(path, 2).clock.train == 2.0


def test_cut_of_a_folder_without_events_begins_one(path):
    assert truncate_after(path, 0).round == 0
    assert path.read_bytes() == b""


def test_totals_continue_over_sessions():
    state = fed(start(), *run(3))
    first_total = state.clock.total
    for event in (start(T + 1000, resumed_from=3), *run(2, began=T + 1001, first=4)):
        state.apply(event)
    assert (state.round, state.item_iterations) == (5, 6400)
    assert state.clock.train == 5.0
    assert state.clock.startup == 3.0
    assert state.clock.total == first_total + 3
    assert state.workers[0].numbers["iterations"] == 50


def test_a_run_that_began_elsewhere_brings_its_items_along():
    began = start(resumed_from=10)
    for described in began.workers:
        described["before"] = {"iterations": 100, "item_iterations": 6400}
    state = fed(began, *run(1, first=11))
    assert state.item_iterations == 12800 + 1280
    assert state.workers[0].numbers["iterations"] == 110


def test_summary_has_the_keys_scripts_read(tmp_path):
    seconds = {"startup": 2.5, "train": 4.0, "total": 8.0}
    state = fed(
        start(),
        *run(4),
        EndEvent(t=T + 8, status="finished", reason="rounds", round=4, seconds=seconds, test={"loss": 0.11, "accuracy": 0.97}),
    )
    write_summary(tmp_path / "summary.json", summary(state))
    content = json.loads((tmp_path / "summary.json").read_text())
    workers = [
        {
            "rank": rank, "device": "cpu", "iterations": 40, "item_iterations": 2560, "items_per_second": 640.0,
            "seconds": {"compute": 2.8, "wait": 0.8, "sync": 0.4},
        }
        for rank in range(2)
    ]  # fmt: skip
    assert content == {
        "status": "finished", "reason": "rounds", "rounds": 4, "loss": 0.125, "metrics": {"accuracy": 0.875},
        "best": {"round": 4, "loss": 0.125, "metrics": {"accuracy": 0.875}, "by": "accuracy", "lower": False},
        "test": {"loss": 0.11, "accuracy": 0.97}, "seconds": seconds, "item_iterations": 5120, "cores": 2, "threads": 2, "workers": workers,
    }  # fmt: skip


def test_summary_of_a_run_that_was_killed_says_so():
    content = summary(fed(start(rounds=3), round_(1)))
    assert (content["status"], content["reason"], content["loss"], content["metrics"]) == ("failed", "killed", None, {})


def test_rates_cover_a_few_seconds_and_memory_is_bounded():
    state = fed(start())
    for number in range(1, 20001):
        items = 640 if number <= 10000 else 64
        for rank in range(2):
            state.apply(round_(number, rank, T + number * 0.003, items=items, compute=0.002, wait=0.0005, mix=0.0005))
    assert state.rate() == pytest.approx(2 * 64 / 0.003, rel=0.01)
    recent = state.workers[0].recent()
    assert recent is not None
    assert recent.seconds == pytest.approx(WINDOW_S, abs=0.6)
    assert len(state.workers[0].marks) <= 12
    assert len(state.workers[0].curve.means) < 2 * CELLS


def test_rates_go_by_the_workers_clocks():
    """Simulated ones may be far from ours: what is seen meanwhile is what the summary says."""
    state = fed(start(seconds=1000.0))
    for number in range(1, 21):
        for rank in range(2):
            state.apply(round_(number, rank, T + 2 + 0.01 * number, seconds=10.0 * number, compute=7.0, wait=2.0, mix=1.0))
    assert state.workers[1].rate() == pytest.approx(64.0)
    assert state.rate() == pytest.approx(128.0)
    assert [worker["items_per_second"] for worker in summary(state)["workers"]] == [64.0, 64.0]
    assert [(each.name, each.now(state.standing())) for each in state.conditions()] == [("seconds", 200.0)]
    assert state.eta(T + 2.2) == pytest.approx(0.8), "for whoever waits"


def test_a_worker_is_slow_from_its_report_until_it_recovers_or_another_session_begins():
    state = fed(start(), round_(1), round_(1, 1), SlowEvent(t=T, round=9, rank=1, factor=1.6, since=5))
    assert state.slowdowns() == {1: 1.6}
    assert [worker.get("slow") for worker in summary(state)["workers"]] == [None, {"factor": 1.6, "since": 5}]
    state.apply(SlowEvent(t=T, round=12, rank=1, factor=1.1, since=5, recovered=True))
    assert state.slowdowns() == {}
    assert all("slow" not in worker for worker in summary(state)["workers"])
    state.apply(SlowEvent(t=T, round=20, rank=1, factor=3.0, since=18))
    state.apply(start(resumed_from=20))
    assert state.slowdowns() == {}, "the new session measures anew"
    state.apply(SlowEvent(t=T, round=20, rank=7, factor=3.0, since=18))  # of a damaged file
    assert set(state.workers) == {0, 1}


def test_the_speed_of_a_worker_whose_process_gave_others_turns():
    state = fed(start(), round_(1, 0, T + 4, compute=0.3, wait=0.1, mix=0.1, seconds=2.0))
    assert state.workers[0].rate() == 320.0


def test_states():
    state = fed(start())
    assert [state.activity(worker) for worker in state.workers.values()] == ["starting", "starting"]
    state.apply(round_(1, 0, T + 1, compute=0.9, wait=0.1, seconds=1.0))
    state.apply(round_(1, 1, T + 1, compute=0.1, wait=0.9, seconds=1.0))
    assert [state.activity(worker) for worker in state.workers.values()] == ["computing", "waiting"]
    state.apply(FaultEvent(t=T + 2, what="worker 1 died", rank=1))
    assert [state.activity(worker) for worker in state.workers.values()] == ["computing", "lost"]
    state.apply(round_(2, 0, T + 3))
    assert state.round == 2
    state.apply(EndEvent(t=T + 4, status="failed", reason="worker lost", round=2, seconds={}))
    assert [state.activity(worker) for worker in state.workers.values()] == ["stopped", "lost"]
    state.apply(start(resumed_from=2))
    state.apply(EndEvent(t=T + 9, status="reached", reason="target", round=3, seconds={}))
    assert state.activity(state.workers[0]) == "done"


def test_a_round_counts_once_every_worker_finished_it():
    state = fed(start(workers=3), round_(1, 0), round_(1, 1), round_(2, 0))
    assert state.round == 0
    state.apply(round_(1, 2))
    assert state.round == 1
    state.apply(round_(2, 1))
    state.apply(round_(3, 0))
    state.apply(round_(2, 2))
    assert state.round == 2


def test_eta_takes_the_first_round_until_there_is_another_and_follows_the_limit_that_comes_first():
    state = fed(start(rounds=101, item_iterations=10**9, accuracy=0.99))
    assert state.eta(T + 50) is None
    for rank in range(2):
        state.apply(round_(1, rank, T + 60, seconds=30.0))
    assert state.eta(T + 60) == pytest.approx(3000), "without the 30 seconds of the start"
    for number in range(2, 12):
        for rank in range(2):
            state.apply(round_(number, rank, T + 60 + number - 1))
    assert state.eta(T + 70) == pytest.approx(90)
    assert state.eta(T + 75) == pytest.approx(85)
    assert state.fraction() == pytest.approx(11 / 101)
    assert [each.name for each in state.conditions()] == ["rounds", "item_iterations", "accuracy"]


def test_eta_by_time():
    state = fed(start(seconds=100.0))
    for number in range(1, 11):
        state.apply(round_(number, 0, T + number, seconds=float(number)))
        state.apply(round_(number, 1, T + number, seconds=float(number)))
    assert state.eta(T + 10) == pytest.approx(90)


def test_best_and_patience():
    state = fed(start(patience=5), judgement(1), judgement(2), judgement(3, best=False), judgement(4, best=False))
    assert state.best is not None
    assert state.best.round == 2
    assert [(each.name, each.now(state.standing()), each.goal) for each in state.conditions()] == [("patience", 2, 5)]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 1000, 4096])
def test_a_curve_keeps_its_mean_and_its_direction(size):
    curve = Curve()
    for value in range(size):
        curve.add(float(value))
    means = curve.resampled()
    assert means == sorted(means)
    assert len(means) <= CELLS
    if size >= CELLS:
        assert len(means) == CELLS


def test_unknown_events_are_passed_over():
    assert fed(start(), decode(b'{"event":"new","t":%f}' % (T + 5))).clock.total == 5.0
    assert decode(b'{"event":"new","t":1,"round":3}') == UnknownEvent(1, 3)


def test_a_rising_loss_is_not_past_the_best_while_the_deciding_number_improves():
    losses = [1.0, 0.5, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    judged = [JudgementEvent(t=T, round=number, seconds=1.0, loss=loss, best=True) for number, loss in enumerate(losses, 1)]
    rounds = [event for number in range(1, 11) for event in (round_(number, 0), round_(number, 1))]
    assert "course" not in summary(fed(start(rounds=9), *rounds, *judged))


@pytest.mark.parametrize(
    ("losses", "course"),
    [
        ([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3], "improving"),
        ([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.36], "improving"),
        ([1.0, 0.5, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], "past its best"),
        ([1.0, 0.8, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.27, 0.28], None),
        ([1.0, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], None),
        ([0.7000, 0.6995, 0.6990, 0.7005, 0.7001, 0.7002, 0.7005, 0.7006, 0.7007, 0.7008], None),
        ([1.0, 0.8, 0.6, 0.4, 0.3, 0.2], None),
    ],
)
def test_the_summary_says_how_the_judged_loss_went(losses: list[float], course: str | None) -> None:
    judged = [
        JudgementEvent(t=T, round=number, seconds=1.0, loss=loss, best=loss < min(losses[: number - 1], default=2.0))
        for number, loss in enumerate(losses, 1)
    ]
    rounds = [event for number in range(1, len(losses) + 1) for event in (round_(number, 0), round_(number, 1))]
    assert summary(fed(start(rounds=9), *rounds, *judged)).get("course") == course


def test_the_best_of_a_summary_is_the_one_on_disk() -> None:
    """`best.h5` holds it: a killed run, or one whose disk was full, may have judged a better network."""
    events = [start(), *run(3), commit(1)]
    content = summary(fed(*events))
    assert (content["best"]["round"], content["unsaved_best"]) == (1, 3)
    content = summary(fed(*events, commit(3)))
    assert (content["best"]["round"], "unsaved_best" in content) == (3, False)
    assert summary(fed(*events, commit(2)))["unsaved_best"] == 3


def test_an_equal_number_with_a_lower_loss_is_a_best_and_a_miss() -> None:
    """As in `Progress.judge`, which ends a run by `patience`."""
    state = fed(start(), *(judgement(number, metrics={"accuracy": 1.0}) for number in (1, 2, 3)))
    assert state.best is not None
    assert (state.best.round, state.misses) == (3, 2)


def test_the_newest_best_of_a_killed_run_is_the_one_on_disk(tmp_path: Path) -> None:
    """Lists read it without a summary: as `summary` says."""
    path = tmp_path / "events.jsonl"
    events = [start(), *run(3)]
    assert RunFolder(written(path, *events).parent).newest_best["round"] == 3
    written(path, commit(2))
    assert RunFolder(tmp_path).newest_best["round"] == summary(fed(*events, commit(2)))["best"]["round"] == 2
    written(path, *run(1, first=4))
    assert RunFolder(tmp_path).newest_best["round"] == 2
    written(path, commit(4))
    assert RunFolder(tmp_path).newest_best["round"] == 4
