"""A run from job to summary: its numbers repeat, everything it says adds up, and its folder holds what was promised."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.runs import (
    JOB,
    SIMULATED,
    Command,
    events,
    newest,
    partrain,
    resume,
    round_file,
    sabotage,
    summary,
    train,
    write_job,
)

from partrain import checkpoint
from partrain.checkpoint import decode
from partrain.launch import run as launch
from partrain.launch.coordinator import Coordinator
from partrain.system.environment import process_start

RESTLESS = ("model.batch_norm=true", "model.dropout=0.2")


# The same numbers


@pytest.mark.representative
@pytest.mark.parametrize(
    "sets",
    [
        ["workers.0.count=1"],
        ["workers.0.count=3", "partition.overlap=0.2", *RESTLESS],
        ["sync.rule='bsp'", "workers.0.count=3", *RESTLESS],
        ["sync={rule='average', passes=1, optimizer_state='local', buffers='local'}", *RESTLESS],
        ["sync.optimizer_state='reset'", "sync.buffers='recalibrate'", *RESTLESS],
        ['optimizer={name="adamw", lr=0.01, batch_size=8, schedule="cosine", warmup=0.3}', "partition.redraw='round'"],
        ["workers=[{threads=1},{threads=2}]", "model.hidden=[64]", "optimizer.batch_size=32", *RESTLESS],
    ],
    ids=["one worker", "average of three", "bsp", "local state", "reset and recalibrated", "adamw redrawn", "unlike threads"],
)
def test_simulated_workers_are_processes_to_the_bit(tmp_path: Path, sets: list[str]) -> None:
    """Also that a job repeats: the two runs share nothing but the job."""
    processes = checkpoint.read(train(tmp_path / "shared", *sets) / "checkpoint.h5")
    simulated = checkpoint.read(train(tmp_path / "simulated", *sets, 'transport.kind="simulated"') / "checkpoint.h5")
    assert processes.arrays.keys() == simulated.arrays.keys()
    for path, array in processes.arrays.items():
        assert array.tobytes() == simulated.arrays[path].tobytes(), path
    assert processes.manifest["progress"] == simulated.manifest["progress"]


@pytest.mark.representative
@pytest.mark.parametrize("kind", ["shared", "simulated"])
def test_the_same_job_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    job, files = write_job(tmp_path, *RESTLESS, f'transport.kind="{kind}"'), []
    for number in range(2):
        assert partrain("run", job, "--out", tmp_path / f"{number}", "-q").code == 0
        files.append(newest(tmp_path / f"{number}"))
    assert files[0] == files[1]


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    one, other = (checkpoint.read(train(tmp_path / f"{seed}", SIMULATED, f"seed={seed}") / "checkpoint.h5") for seed in (0, 1))
    assert all((one.arrays[path] != other.arrays[path]).any() for path in one.arrays if path.startswith("model/"))


def test_how_seldom_files_are_written_changes_nothing(tmp_path: Path) -> None:
    """A snapshot, timed by the writer's leisure, only looks."""
    every = checkpoint.read(train(tmp_path / "every", *RESTLESS, "sync.buffers='recalibrate'") / "checkpoint.h5")
    some = checkpoint.read(train(tmp_path / "some", *RESTLESS, "sync.buffers='recalibrate'", "checkpoint={}") / "checkpoint.h5")
    assert all(array.tobytes() == some.arrays[path].tobytes() for path, array in every.arrays.items())


# The folder


def test_the_folder(tmp_path: Path) -> None:
    run = train(tmp_path)
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    rounds = {f"checkpoints/round-{number:06d}.h5" for number in range(1, 5)}
    assert files == {"job.toml", "events.jsonl", "summary.json", "checkpoint.h5", "best.h5"} | rounds
    assert newest(run) == round_file(run, 4).read_bytes()
    assert (run / "job.toml").read_text() == (tmp_path / "job.toml").read_text() == JOB
    assert checkpoint.read(run / "checkpoint.h5").job == JOB


def test_the_job_is_kept_with_its_overrides(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    assert partrain("run", job, "--out", tmp_path / "run", "-q", "--set", "stop.rounds=1", "--set", "optimizer.lr=0.07").code == 0
    assert "lr = 0.07" in (tmp_path / "run/job.toml").read_text()
    again = partrain("run", tmp_path / "run/job.toml", "--out", tmp_path / "again", "-q")
    assert again.code == 0
    ours, theirs = (checkpoint.read(tmp_path / name / "checkpoint.h5") for name in ("run", "again"))
    assert all(array.tobytes() == theirs.arrays[path].tobytes() for path, array in ours.arrays.items())


def test_the_summary(tmp_path: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "--json")
    told = json.loads(said.out)
    assert (told.pop("folder"), told.pop("code")) == (str(tmp_path / "run"), 0)
    assert told == summary(tmp_path / "run")
    assert told.keys() == {
        "status",
        "reason",
        "rounds",
        "loss",
        "metrics",
        "best",
        "test",
        "tested_round",
        "trivial",
        "comparisons",
        "cores",
        "threads",
        "seconds",
        "item_iterations",
        "workers",
    }
    assert (told["status"], told["reason"], told["rounds"]) == ("finished", "rounds", 4)
    assert told["metrics"].keys() == {"accuracy"}
    assert told["test"].keys() == {"loss", "accuracy"}
    assert told["seconds"].keys() == {"startup", "train", "total"}
    assert 0 < told["seconds"]["train"] < told["seconds"]["total"]
    for rank, worker in enumerate(told["workers"]):
        always = {"rank", "device", "iterations", "item_iterations", "items_per_second", "seconds"}
        assert worker.keys() - {"core_wait"} == always  # the machine may have been busy
        assert (worker["rank"], worker["device"], worker["seconds"].keys()) == (rank, "cpu", {"compute", "wait", "sync"})


def test_the_events_and_the_history_tell_one_story(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.judge_every=3", "checkpoint.every=2")
    told, arrays = events(run), checkpoint.read(run / "checkpoint.h5").arrays
    assert [event["event"] for event in told if event["event"] in ("start", "end")] == ["start", "end"]
    assert [(event["round"], event["rank"]) for event in told if event["event"] == "round"] == [
        (r, w) for r in (1, 2, 3, 4) for w in (0, 1)
    ]
    assert [event["round"] for event in told if event["event"] == "judgement"] == [3, 4]
    assert {event["round"] for event in told if event["event"] == "commit"} == {2, 3, 4}, "every second, the best, the last"
    assert not [event for event in told if event["event"] == "fault"]
    (start,) = events(run, "start")
    assert [worker.keys() >= {"rank", "device", "pid", "partition"} for worker in start["workers"]] == [True, True]
    assert arrays["history/round"].tolist() == [1, 2, 3, 4]
    assert arrays["history/item_iterations"].tolist() == [48, 96, 144, 192]
    judged = {event["round"]: event["loss"] for event in told if event["event"] == "judgement"}
    assert {
        n: loss for n, loss in zip((1, 2, 3, 4), arrays["history/judged_loss"].tolist(), strict=True) if loss == loss
    } == judged
    for path in run.glob("checkpoints/*"):
        assert partrain("verify", path).code == 0


# What is counted


@pytest.mark.parametrize(("kind", "sets", "worker_items"), [
    ("shared", [], [4 * 3 * 8] * 2),
    ("simulated", ["sync.rule='bsp'", "workers.0.count=3"], [4 * 3 * 8] * 3),
    ("shared", ["sync={rule='average', passes=2}"], [4 * 2 * 100] * 2),
    ("simulated", ["sync={rule='average', passes=1}", "workers.0.count=3", "partition.overlap=0.1"], [4 * 72] * 3),
    ("simulated", ["workers.0.count=1", "workers.0.iterations=25"], [4 * 25 * 8]),
], ids=["iterations", "bsp", "passes", "overlapping passes", "a group's own"])  # fmt: skip
def test_item_iterations_are_exact(tmp_path: Path, kind: str, sets: list[str], worker_items: list[int]) -> None:
    """Short last batches of a pass count as they are."""
    run = train(tmp_path, *sets, f'transport.kind="{kind}"')
    told = summary(run)
    assert [worker["item_iterations"] for worker in told["workers"]] == worker_items
    assert told["item_iterations"] == sum(worker_items)
    arrays = checkpoint.read(run / "checkpoint.h5").arrays
    assert [int(arrays[f"workers/{rank}/counts"][2]) for rank in range(len(worker_items))] == worker_items
    assert [
        sum(event["items"] for event in events(run, "round") if event["rank"] == rank) for rank in range(len(worker_items))
    ] == worker_items


# How it ends


@pytest.mark.parametrize(("stop", "code", "status", "reason"), [
    ("{rounds=3}", 0, "finished", "rounds"),
    ("{item_iterations=100}", 0, "finished", "item_iterations"),
    ("{seconds=0.001}", 0, "finished", "seconds"),
    ("{rounds=50, accuracy=0.1}", 0, "reached", "target"),
    ("{rounds=50, loss=100.0}", 0, "reached", "target"),
    ("{rounds=3, accuracy=1.0, loss=1e-9}", 1, "not-reached", "rounds"),
    ("{rounds=500, patience=3}", 0, "finished", "patience"),
])  # fmt: skip
def test_endings(tmp_path: Path, stop: str, code: int, status: str, reason: str) -> None:
    told = summary(train(tmp_path, f"stop={stop}", "optimizer.lr=0.02", "dataset.noise=1.5", code=code))
    assert (told["status"], told["reason"]) == (status, reason)


def test_the_last_round_is_judged(tmp_path: Path) -> None:
    """Whatever the cadence: the figures of the summary are those of the network in the checkpoint."""
    run = train(tmp_path, SIMULATED, "stop.judge_every=100", *RESTLESS)
    told = json.loads(partrain("evaluate", run, "--json").out)
    for split, scores in (("validation", summary(run) | summary(run)["metrics"]), ("test", summary(run)["test"])):
        assert told[split]["accuracy"] == scores["accuracy"]
        assert told[split]["loss"] == pytest.approx(scores["loss"], rel=1e-6)


@pytest.mark.parametrize("buffers", ["average", "local", "recalibrate"])
def test_what_was_judged_is_what_is_stored(tmp_path: Path, buffers: str) -> None:
    run = train(tmp_path, f"sync.buffers='{buffers}'", *RESTLESS)
    for number, loss in ((event["round"], event["loss"]) for event in events(run, "judgement")):
        told = json.loads(partrain("evaluate", round_file(run, number), "--json").out)
        assert told["validation"]["loss"] == pytest.approx(loss, rel=1e-6), f"round {number}"


# Which files stay


def rounds(run: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("round-")) for path in (run / "checkpoints").iterdir())


def test_retention(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "stop.rounds=12", "checkpoint.keep=3", "optimizer.lr=0.5")
    best = checkpoint.read(run / "checkpoint.h5").manifest["progress"]["best_round"]
    assert rounds(run) == sorted({10, 11, 12, best})


def test_the_best_stays(tmp_path: Path) -> None:
    """However long ago it was, and whatever is written in between."""
    run = train(
        tmp_path,
        SIMULATED,
        "stop.rounds=30",
        "checkpoint={keep=1}",
        "optimizer.lr=3.0",
        "optimizer.momentum=0.0",
        "model.hidden=[]",
    )
    best = max(events(run, "judgement"), key=lambda event: (event["metrics"]["accuracy"], -event["round"]))["round"]
    assert best < 30
    assert set(rounds(run)) == {best, 30}


@pytest.mark.parametrize("seed", range(3))
def test_the_last_round_is_always_committed(tmp_path: Path, seed: int) -> None:
    run = train(tmp_path, "stop.rounds=40", "checkpoint={}", "stop.judge_every=7", f"seed={seed}")
    assert checkpoint.read(run / "checkpoint.h5").round == 40 == max(rounds(run))
    assert newest(run) == round_file(run, 40).read_bytes()


# The place it runs in


def test_no_descriptors_are_left(tmp_path: Path) -> None:
    """A bench is many runs in one process."""

    def held() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    train(tmp_path / "0", "stop.rounds=1")
    before = held()
    train(tmp_path / "1", "stop.rounds=1")
    assert (
        partrain(
            "run", sabotage(tmp_path / "2", "os._exit(3)", "faults.on_loss='stop'"), "--out", tmp_path / "2" / "run", "-q"
        ).code
        == 69
    )
    assert held() <= before


def test_a_path_with_blanks_and_umlauts(tmp_path: Path) -> None:
    run = train(tmp_path / "ein Schöner Ordner")
    assert partrain("resume", round_file(run, 2)).code == 0


def test_the_outcome_for_other_programs(tmp_path: Path) -> None:
    """`launch.run` is what bench calls."""
    import io

    from partrain.display.display import make_display
    from partrain.job.load import load
    from partrain.launch.context import RunContext
    from partrain.launch.folder.run_folder import new_folder
    from partrain.launch.run import run

    warned: list[Any] = []
    stage = RunContext(new_folder(tmp_path / "run", "x").path, make_display(io.StringIO(), quiet=True), warned.append)
    outcome = run(load(write_job(tmp_path, "stop.rounds=2")), stage)
    assert (outcome.code, outcome.folder, outcome.checkpoint, outcome.failure) == (
        0,
        tmp_path / "run",
        tmp_path / "run/checkpoint.h5",
        None,
    )
    assert outcome.summary["rounds"] == 2
    assert not warned


def test_who_does_not_train_has_no_say_in_the_loss(tmp_path: Path) -> None:
    from partrain import checkpoint

    run = train(tmp_path, "sync.ramp_workers=3")
    losses = checkpoint.read(run / "checkpoint.h5").arrays["history/loss"]
    assert losses[0] == next(event["loss"] for event in events(run, "round") if event["round"] == 1 and event["rank"] == 0)
    assert (losses == losses).all()


@pytest.mark.parametrize("sets", [[], ["sync.ramp_workers=3"], ["sync.ramp_workers=9"]])
def test_a_decay_comes_to_its_end_also_where_workers_come_in_one_after_another(tmp_path: Path, sets: list[str]) -> None:
    run = train(tmp_path, 'optimizer.schedule="linear"', *sets)
    done = summary(run)
    last = [event for event in events(run, "round") if event["round"] == done["rounds"]]
    left = 0.5 / 3 * sum(event["items"] for event in last)  # half of the last of three iterations is still to come
    assert last[0]["lr"] == pytest.approx(0.05 * left / done["item_iterations"])


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("shared", "rule='async'"),
        ("simulated", "rule='hogwild'"),
        ("simulated", "rule='easgd', asynchronous=true"),
        ("shared", "rule='gossip', style='push-sum'"),
    ],
)
def test_visits_come_in_with_the_workers(tmp_path: Path, kind: str, rule: str) -> None:
    """A worker of three in rounds 1 to 3 of a ramp of nine, two in rounds 4 to 6, all from then on; also in a run that goes on."""
    sync = f"sync={{{rule}, iterations=2, visits=3, ramp_workers=9}}"
    workers = ["workers=[{count=3}]", f"transport={{kind='{kind}'}}"]
    run = train(tmp_path, sync, "stop={rounds=4, judge_every=4}", *workers)
    for first, last in (1, 4), (5, 10):
        seen = [event for event in events(run, "round") if event["round"] >= first]
        numbers = range(first, last + 1)
        items = [[one["items"] for one in seen if one["round"] == number] for number in numbers]
        actives = [min(3, -(-number // 3)) for number in numbers]
        assert [sum(of_round) for of_round in items] == [count * 3 * 2 * 8 for count in actives]
        assert all(not any(of_round[count:]) for of_round, count in zip(items, actives, strict=True))
        assert partrain("resume", run, "--until", "rounds=10", "--quiet").code == 0


def test_a_worker_without_a_visit_has_no_loss(tmp_path: Path) -> None:
    sets = ['sync={rule="hogwild", iterations=1, visits=1}', "stop={rounds=3, loss=1e-12}"]
    run = train(tmp_path, *sets, 'transport={kind="simulated", delay=[1.0, 0.0]}', code=1)
    assert any(event["items"] == 0 for event in events(run, "round"))


def test_a_folder_where_nothing_was_trained_may_be_used_again(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "raise OSError", call=0)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 71
    again = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert again.code == 0, again
    assert [event["event"] for event in events(tmp_path / "run")].count("end") == 1
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 73


def damaged(folder: Path) -> tuple[Path, Path]:
    """A job whose data no run can read, and its table. `validate` cannot know."""
    rows = [f"{number % 7},{number % 5},{number % 3}" for number in range(230)]
    table = folder / "table.csv"
    folder.mkdir(exist_ok=True)
    table.write_text("\n".join(["a,b,kind", *rows, "1,1e39,2", ""]))
    return write_job(folder, "dataset={kind='csv', path='table.csv', target='kind', validation=30, standardise=false}"), table


def test_a_run_that_never_began_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, table = damaged(tmp_path / "job")
    monkeypatch.chdir(tmp_path)
    for out in ("run", "new/and/deep"):
        said = partrain("run", job, "--out", out, "-q")
        assert (said.code, said.errors, said.out) == (66, ["no-input"], ""), said
        assert "holds a number that float32 cannot" in said.err
    assert partrain("run", job, "-q").code == 66
    assert [each.name for each in tmp_path.iterdir()] == ["job"]
    table.write_text(table.read_text().replace("1e39", "1"))
    assert partrain("run", job, "--out", "run", "-q").code == 0


def test_what_a_run_that_never_began_leaves(tmp_path: Path) -> None:
    job, _ = damaged(tmp_path / "job")
    (tmp_path / "there").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "step.json").touch()
    for name in ("there", "shared"):
        assert partrain("run", job, "--out", tmp_path / name, "-q").code == 66
    assert list((tmp_path / "there").iterdir()) == [], "a folder that was there stays"
    kept = tmp_path / "shared"
    assert [event["event"] for event in events(kept)] == ["fault", "end"], "files of others stay, and what they may tell of"
    assert summary(kept)["status"] == "failed"


def test_the_end_of_a_run_that_never_began_names_no_folder(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "raise OSError", call=0)
    said = partrain("run", job, "--out", tmp_path / "run")
    assert (said.code, said.out) == (71, ""), said
    told = partrain("run", sabotage(tmp_path / "two", "raise OSError", call=0), "--out", tmp_path / "run", "--json")
    assert json.loads(told.out)["folder"] is None


def test_a_resume_that_never_begins_leaves_no_new_folder(tmp_path: Path) -> None:
    rows = "".join(f"{number % 7},{number % 5},{number % 3}\n" for number in range(230))
    (tmp_path / "table.csv").write_text("a,b,kind\n" + rows)
    run = train(tmp_path, "dataset={kind='csv', path='table.csv', target='kind', validation=30}")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (tmp_path / "table.csv").rename(tmp_path / "moved.csv")
    for words in ([], ["--out", tmp_path / "new"]):
        said = resume(run, "--until", "rounds=6", *words, code=66)
        assert "partrain resume --job FILE" in said.err
    assert not (tmp_path / "new").exists()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_folder_in_which_nothing_was_committed_can_be_used_again(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "raise ValueError", "checkpoint.commit='coalesce'", "stop.judge_every=4", call=4)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 71
    assert [event["event"] for event in events(tmp_path / "run")].count("start") == 1
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 0
    assert [event["event"] for event in events(tmp_path / "run")].count("start") == 1
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 73


def test_what_the_users_code_prints_is_not_in_the_json(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "print('hello')", call=4)
    with Command(("run", job, "--json"), tmp_path / "out") as command:
        said = command.wait()
    assert (said.code, json.loads(said.out)["rounds"], "hello" in said.err) == (0, 4, True), said


def test_no_round_is_told_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor can one be told while the coordinator is at something else."""
    made = launch.start_event

    def late(*words: Any) -> Any:
        time.sleep(0.5)
        known[0]._step()
        return made(*words)

    known: list[Any] = []
    begun = Coordinator._start_workers

    def await_ready(self: Coordinator) -> None:
        known.append(self)
        begun(self)

    monkeypatch.setattr(launch, "start_event", late)
    monkeypatch.setattr(Coordinator, "_start_workers", await_ready)
    run = train(tmp_path)
    assert events(run)[0]["event"] == "start"
    assert 0 < summary(run)["seconds"]["startup"] < time.time() - process_start()


def test_workers_that_are_done_before_anyone_listens_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the coordinator is stopped for a while, or the run is very short."""
    begun = Coordinator._start_workers

    def await_all(self: Coordinator) -> None:
        begun(self)
        while not self._finished_training:  # the test may wait for a file
            self._step()

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "_start_workers", await_all)
        late = train(tmp_path / "late", "checkpoint.commit='coalesce'")
    in_time = train(tmp_path / "in time", "checkpoint.commit='coalesce'")
    assert [event["round"] for event in events(late, "round")] == [1, 1, 2, 2, 3, 3, 4, 4]
    ours, theirs = (decode(newest(run)).arrays for run in (late, in_time))
    assert len(ours["history/round"]) == 4
    assert {path: array.tobytes() for path, array in ours.items()} == {path: array.tobytes() for path, array in theirs.items()}
    for key in ("status", "rounds", "item_iterations", "loss", "metrics", "test"):
        assert summary(late)[key] == summary(in_time)[key]


def test_each_round_waits_for_its_file_also_for_who_fails_next(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "raise ValueError", "checkpoint.commit='every'", worker=1, call=7)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 71
    assert [event["round"] for event in events(tmp_path / "run", "commit")] == [1, 2]


SLOW_COPIES = """

NOW = [time.perf_counter()]


def slow_copies():
    from types import SimpleNamespace

    import partrain.launch.worker.coordinator_hooks as hooks

    save, begin = hooks.save, hooks.CoordinatorHooks.training_started

    def copy(*all):
        NOW[0] += 0.2
        save(*all)

    def begin_once_copies_are_wanted(worker):
        begin(worker)
        while not worker.arena.get("wanted"):
            time.sleep(0.001)

    hooks.time = SimpleNamespace(perf_counter=lambda: NOW[0])
    hooks.save, hooks.CoordinatorHooks.training_started = copy, begin_once_copies_are_wanted
"""
"""A clock on which a copy takes 0.2 s, and an iteration 0.04 s, however busy the machine is."""


def test_copies_for_checkpoints_take_little_of_the_time(tmp_path: Path) -> None:
    """A copy takes as long as two of these rounds, so a hundred times as long must pass before the next one."""
    deed = "slow_copies()"
    job = sabotage(tmp_path, deed, "dataset.validation=0", "stop.rounds=20", "checkpoint={}", worker=0, call=0)
    network = tmp_path / "saboteur.py"
    iterate = "time.sleep(0.04 * self.training)\n        NOW[0] += 0.04 * self.training\n        return super()"
    network.write_text(network.read_text().replace("return super()", iterate) + SLOW_COPIES)
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    written = [event["round"] for event in events(tmp_path / "run", "commit")]
    assert len(written) == 2
    assert written[-1] == 20
