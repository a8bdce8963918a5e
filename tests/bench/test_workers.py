"""`partrain bench`: one job with several numbers of workers, or the fixed suite."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import cast

import pytest
from support.runs import SIMULATED, Command, Said, eventually, partrain, sabotage, write_job

from partrain import bench
from partrain.bench import Case, Row, outcomes, workers
from partrain.bench.workers import _job as made


def judge_every(job: Path, count: int, *sets: str) -> int | None:
    return made(job, count, "none", sets, 0).job.stop.judge_every


def test_judged_after_as_many_items_with_any_number_of_workers(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.judge_every=8", "optimizer.batch_size=16")
    assert [judge_every(job, count) for count in (1, 2, 4)] == [8, 4, 2]
    delayed = 'sync={rule="async", iterations=3, visits=4}'
    assert [judge_every(job, count, delayed) for count in (1, 2, 4)] == [8, 4, 2]
    cadence = [judge_every(job, 1, "stop={rounds=1}"), judge_every(job, 1, "stop={rounds=1}", delayed)]
    assert cadence == [round(workers.CADENCE / items) for items in (3 * 16, 3 * 16 * 4)]


@pytest.mark.parametrize(
    "change", ["optimizer.full_batch=true", 'sync={rule="rprop", iterations=1}', 'sync={rule="average", passes=1}']
)
def test_what_goes_by_partition_has_as_many_items_anyway(tmp_path: Path, change: str) -> None:
    job = tmp_path / "job.toml"
    text = write_job(tmp_path, "stop.judge_every=8").read_text()
    if "full_batch" in change:
        text = text.replace("batch_size = 8\n", "")
    if "rprop" in change:
        text = text.replace('[optimizer]\nname = "sgd"\nlr = 0.05\nmomentum = 0.9\nbatch_size = 8\n', "")
    job.write_text(text)
    assert [judge_every(job, count, change) for count in (1, 2, 4)] == [8, 8, 8]


def test_workers_is_threads_and_one_seed_has_no_spread(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop={rounds=1, loss=9}")
    said = partrain("bench", job, "--workers", "1", "--seeds", 1)
    assert said.code == 0, said
    assert "Equal learning rate, 1 seed:" in said.out
    assert "(" not in said.out.splitlines()[3], "one value has no least and most"
    assert "1 worker, equal learning rate, seed 0" in said.err
    assert partrain("bench", job, "--workers", "1", "--threads", "1").code == 2
    assert "--workers" in partrain("bench", job, "--workers", "0").err


def test_warnings_are_shown_once(tmp_path: Path) -> None:
    job = write_job(tmp_path, SIMULATED, 'sync={rule="swap", iterations=3}', "workers=[{count=3}]", "stop.loss=9")
    alone = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    warning = next(line for line in alone.err.splitlines() if "odd number" in line).partition(": ")[2]
    said = partrain("bench", job, "--threads", "1,3", "--seeds", 1)
    assert said.code == 0, said
    assert said.err.count(warning) == 1


@pytest.mark.parametrize("change", ['optimizer={name="rprop", lr=0.01, full_batch=true}', 'sync={rule="rprop", iterations=1}'])
def test_where_there_is_no_learning_rate_none_is_scaled(tmp_path: Path, change: str) -> None:
    said = partrain("bench", write_job(tmp_path, SIMULATED, "stop={rounds=1, loss=9}"), "--seeds", 1, "--set", change)
    assert said.code == 0, said
    assert ("Equal" in said.out, "sqrt" in said.out, said.err.count(" learning rate, seed")) == (True, False, 2)


@pytest.mark.parametrize("words", [["--set", "optimizer.lr=1"], ["--threads", "1,2"], ["job.toml"]])
def test_a_suite_has_its_own_jobs(words: list[str]) -> None:
    said = partrain("bench", "--suite", "seeds", *words)
    assert (said.code, said.out) == (2, "")
    assert "a suite has its own jobs" in said.err


def test_items_belong_to_a_suite(tmp_path: Path) -> None:
    said = partrain("bench", write_job(tmp_path), "--items", 2000)
    assert (said.code, said.out, "only with --suite" in said.err) == (2, "", True)


SLOW = "DONE.unlink(); self.call += 1; time.sleep(0.1)"
"""Done at every iteration of the second worker."""


def interrupted(folder: Path, number: signal.Signals, *words: object) -> Said:
    with Command(("bench", *words), folder) as command:
        eventually(lambda: "seed 0: " in (folder / "0.err").read_text(), "the first run to be over")
        command.interrupt(number)
        said = command.wait()
    assert "Traceback" not in said.err
    return said


@pytest.mark.parametrize(("number", "code", "as_json"), [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, True)])
def test_a_signal_leaves_the_table_of_what_is_finished(tmp_path: Path, number: signal.Signals, code: int, as_json: bool) -> None:
    job = sabotage(tmp_path, SLOW, "stop.rounds=60", "stop.loss=1e-9")
    said = interrupted(tmp_path / "out", number, job, "--threads", "1,2", "--seeds", 2, *["--json"] * as_json)
    assert said.code == code, said
    without = ["2 workers, equal learning rate", "2 workers, scaled learning rate"]
    if as_json:
        result = json.loads(said.out)
        assert [[row["workers"] for row in rows] for rows in result["variants"].values()] == [[1], [1]]
        assert (result["code"], result["finished"], result["planned"], result["without"]) == (code, 1, 6, without)
    else:
        assert said.out.splitlines()[3].split()[0] == "1"
        assert f"interrupted: the table holds 1 of 6 runs, none of {'; '.join(without)}" in said.out.splitlines()


def test_a_signal_leaves_the_suites_table_of_what_is_finished(tmp_path: Path) -> None:
    said = interrupted(tmp_path / "out", signal.SIGINT, "--suite", "seeds", "--items", 1000)
    assert said.code == 130, said
    lines = said.out.splitlines()
    assert lines[5].startswith("1 thread, 0.0001 ")
    assert any(line.startswith("interrupted: the table holds ") for line in lines)


def test_rows_of_which_one_has_a_run_more() -> None:
    """A signal came between the last seed's runs."""

    def row(*seconds: float) -> Row:
        summary = {"status": "reached", "item_iterations": 100, "loss": 1.0, "test": {}, "workers": [{"item_iterations": 100}]}
        return Row([summary | {"seconds": {"train": one}} for one in seconds])

    numbers = workers._numbers(2, row(1.0), row(2.0, 3.0), 1, 2, None)
    assert (numbers["runs"], numbers["speed_up"], numbers["throughput_gain"]) == (1, [2.0], [2.0])


def test_the_verdict_names_the_runs_without_a_time() -> None:
    def said(one: int, two: int, has_target: bool = True) -> str:
        rows = [
            {"workers": count, "reached": reached, "runs": 7, "throughput_gain": [1.8], "speed_up": None, "loss": [0.2, 0.31]}
            for count, reached in ((1, one), (2, two))
        ]
        result = {"has_target": has_target, "shared": None, "variants": {"equal": [*rows, rows[1]]}}
        return workers._verdict(result)[-1].rpartition(", but ")[2]

    assert said(1, 7) == "1 worker reached the target in 1 of 7 runs: there are no times to compare."
    assert said(1, 6) == "2 workers reached the target in 6 of 7 runs: there are no times to compare."
    assert said(0, 0, has_target=False).endswith("its runs share no judged result: whether more workers paid is not known.")


@pytest.mark.parametrize(("load", "busy"), [(0.3, False), (2.6, True)])
def test_a_busy_machine_is_named_before_it_is_measured(load: float, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("partrain.bench.usable_cores", lambda: 2)
    assert bench.busy().startswith("this machine is busy (load 2.6 on 4 cores): ") == busy
    assert bool(bench.busy()) == busy


def test_without_a_target_the_result_that_all_runs_reached_tells_which_was_faster(tmp_path: Path) -> None:
    job = write_job(tmp_path, SIMULATED, "stop={rounds=8, judge_every=2}")
    said = partrain("bench", job, "--workers", "1,2", "--seeds", 1, "--set", "workers=[{rate=1000}]", "--json")
    assert said.code == 0, said
    assert "partrain: 3 runs: 3 jobs with 1 seed; their networks are not kept\n" in said.err
    result = json.loads(said.out)
    alone, both = result["variants"]["equal"]
    assert result["shared"].startswith("accuracy 0.")
    assert (alone["reached"], both["reached"]) == (1, 1)
    assert both["speed_up"] == [alone["seconds"][0] / both["seconds"][0]]
    text = workers.render(result)
    assert f"seconds to {result['shared']}" in text[1]
    assert f"{result['shared']} comes {both['speed_up'][0]:.2f} times as soon: " in " ".join(text)
    assert text[-1] == f"The job has no target: {result['shared']} is the result that all of these runs reached."


def test_the_same_seed_twice_is_one_seed() -> None:
    def stop(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError, match="2 runs: 1 job with 1 seed;"):
        next(outcomes([cast(Case, None)], [0, 0], stop))


def test_the_verdict_has_the_range_of_the_pairs() -> None:
    def said(*gains: float, seconds: float = 1.0) -> list[str]:
        rows = [
            {
                "workers": count,
                "reached": 3,
                "runs": 3,
                "throughput_gain": list(gains),
                "speed_up": list(gains),
                "seconds": [seconds] * len(gains),
                "loss": [0.2],
                "limits": [""],
            }
            for count in (1, 2)
        ]
        return workers._verdict({"has_target": True, "shared": None, "variants": {"equal": rows}})

    assert said(1.5, 1.6, 1.7) == [
        "2 workers at equal learning rate: 1.60 (median of 3 pairs, 1.50 to 1.70) times the items per second, the target "
        "1.60 (median of 3 pairs, 1.50 to 1.70) times as soon: sooner in each of 3 pairs."
    ]
    assert said(0.9, 1.13)[0].endswith(
        "1.01 (median of 2 pairs, 0.90 to 1.13) times as soon: too unlike to tell whether they pay (1 of 2 pairs sooner)."
    )
    assert said(1.1)[0].endswith("1.10 times as soon: too close to tell whether they pay.")
    assert said(0.7)[0].endswith("0.70 times as soon: they did not pay.")
    assert said(2.0, seconds=0.1)[0].endswith("2.00 times as soon: too short to tell whether they pay.")
    assert said(1.2, 1.2, 1.2, 1.2)[0].endswith("sooner in each of 4 pairs."), "more pairs tell smaller differences"
    assert "so this machine was busy: repeat the bench" in said(0.58, 0.97, 2.07)[-1]


@pytest.mark.slow
def test_a_run_that_diverges_is_in_the_table_and_ends_no_other(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "self[0].weight.data.fill_(float('nan')); DONE.unlink()", "stop.loss=1e-9", call=5)
    said = partrain("bench", job, "--threads", "1,2", "--seeds", 2, "--json")
    assert (said.code, "Traceback" in said.err) == (76, False), said
    result = json.loads(said.out)
    assert (result["finished"], result["planned"]) == (6, 6)
    assert [[row["runs"] for row in rows] for rows in result["variants"].values()] == [[2, 2], [2, 2]]
    assert sorted(result["diverged"]) == ["2 workers, equal learning rate", "2 workers, scaled learning rate"]
    assert all("worker 1, round 2: non-finite numbers" in why for why in result["diverged"].values())
    lines = workers.render(result)
    assert any(line.startswith("diverged: 2 workers, equal learning rate: worker 1, round 2") for line in lines)
    assert lines[3].split()[:1] == ["1"]
