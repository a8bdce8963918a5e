"""The verdict in one sentence, and what it may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.histories import judgement, made_run, round_of, start, write_events

from partrain.report.history import RunHistory, compared_runs, read_history
from partrain.report.verdict import compare, verdict
from partrain.runs.ranking import Combination, Ranking


def history(folder: Path, workers: int, pace: float, rounds: int = 4) -> RunHistory:
    return read_history(made_run(folder, workers, rounds, pace), folder.name)


def test_more_workers_paid(tmp_path: Path) -> None:
    two, one = history(tmp_path / "two", 2, 1.0), history(tmp_path / "one", 1, 1.5)
    said = verdict([two, one])
    assert said.startswith("In these two runs more workers were sooner: 2 workers (two) took 4 s to judged accuracy 0.8750")
    assert "one worker (one) 6 s, which is 1.50 times as fast, 75% of the ideal" in said


def test_more_workers_did_not_pay(tmp_path: Path) -> None:
    said = verdict([history(tmp_path / "one", 1, 1.0), history(tmp_path / "two", 2, 2.0)])
    assert said.startswith("More workers did not pay")
    assert "0.50 times as fast, 25% of the ideal; judging and saving took 50% of the time: do it less often" in said


def test_small_differences_and_short_runs_tell_nothing(tmp_path: Path) -> None:
    runs = [history(tmp_path / "one", 1, 1.0), history(tmp_path / "two", 2, 0.9)]
    assert verdict(runs).startswith("It is unknown whether more workers paid: 2 workers (two) took 3.6 s")
    assert verdict(runs).endswith(
        "1.11 times as fast, 56% of the ideal; one pair of runs does not show so small a difference: partrain bench."
    )
    runs = [history(tmp_path / "short", 1, 0.05), history(tmp_path / "shorter", 2, 0.02)]
    assert verdict(runs).endswith("less than 0.25 s tell nothing: ask for a better result.")


def test_runs_that_learn_different_things_are_not_compared(tmp_path: Path) -> None:
    two, one = history(tmp_path / "two", 2, 1.0), history(tmp_path / "one", 1, 1.5)
    two.job["optimizer"] = {"lr": 0.2}
    two.job["workers"], two.job["stop"] = [{"count": 2}], {"judge_every": 1}
    assert (
        verdict([two, one])
        == "It is unknown whether more workers paid: two and one, the run of one worker, differ in `optimizer.lr`."
    )
    del two.job["optimizer"]
    assert verdict([two, one]).startswith("In these two runs more workers were sooner")


def test_the_level_is_one_that_both_reached(tmp_path: Path) -> None:
    two, one = history(tmp_path / "two", 2, 1.0, rounds=2), history(tmp_path / "one", 1, 1.5, rounds=5)
    found = compare(two, one)
    assert found
    assert (found.seconds, found.alone) == (2.0, 3.0)


def test_seconds_of_a_run_that_began_in_another_folder_are_not_compared(tmp_path: Path) -> None:
    two, one = history(tmp_path / "two", 2, 1.0), history(tmp_path / "one", 1, 1.5)
    two.state.workers[1].elsewhere = 100
    assert compare(two, one) is None
    assert verdict([two, one]).endswith(": two continues a run of another folder, whose seconds are not in its record.")


def test_a_single_judgement_tells_nothing(tmp_path: Path) -> None:
    runs = [history(tmp_path / "two", 2, 1.0, rounds=1), history(tmp_path / "one", 1, 1.0, rounds=1)]
    assert verdict(runs).startswith("It is unknown whether more workers paid")
    assert "judge_every" in verdict(runs)


def test_without_a_run_of_one_worker_it_claims_nothing(tmp_path: Path) -> None:
    two, three = history(tmp_path / "two", 2, 1.0), history(tmp_path / "three", 3, 1.0)
    for runs in ([two], [two, three]):
        assert "paid" not in verdict(runs)
        assert "did not pay" not in verdict(runs)
    assert verdict([two, three]).startswith(
        "Of 2 runs, one each, two is best: its network has accuracy 0.8750, loss 0.2500 (judged)"
    )


@pytest.mark.parametrize(("seconds", "limit"), [
    ({"compute": 0.9, "wait": 0.05, "mix": 0.05}, "computing was the limit"),
    ({"compute": 0.5, "wait": 0.1, "mix": 0.4}, "workers mixed 40% of their time: mix less often"),
    ({"compute": 0.3, "wait": 0.1, "mix": 0.6}, "workers mixed 60% of their time: mix less often"),
    ({"compute": 0.6, "wait": 0.3, "mix": 0.1}, "workers waited 30% of their time: each round waits for its slowest worker"),
])  # fmt: skip
def test_a_single_run_says_what_limited_it(tmp_path: Path, seconds: dict[str, float], limit: str) -> None:
    run = read_history(write_events(tmp_path / "run", start(), round_of(0, 1, **seconds), round_of(1, 1, **seconds)), "run")
    assert limit in verdict([run])


def test_rounds_of_one_iteration_have_an_advice_that_can_be_followed(tmp_path: Path) -> None:
    rounds = [round_of(rank, 1, iterations=1, compute=0.5, wait=0.1, mix=0.4) for rank in range(2)]
    run = read_history(write_events(tmp_path / "run", start(rule="bsp"), *rounds), "run")
    assert "mixed 40% of their time: each round is one iteration: raise [sync] iterations or passes" in verdict([run])


def test_the_worker_that_others_wait_for_is_named(tmp_path: Path) -> None:
    slow = {"compute": 0.95, "wait": 0.0, "mix": 0.05}
    run = read_history(write_events(tmp_path / "run", start(), round_of(0, 1), round_of(1, 1, **slow)), "run")
    assert "waited 15% of their time, most for worker 1, which computes longest" in verdict([run])


def test_no_worker_is_named_that_others_wait_for_by_turns(tmp_path: Path) -> None:
    """Worker 0 computes longer in total, by a sixth of the waiting."""
    first = [round_of(0, 1, compute=0.95, wait=0.0, mix=0.05), round_of(1, 1, compute=0.25, wait=0.7, mix=0.05)]
    second = [round_of(0, 2, compute=0.45, wait=0.5, mix=0.05), round_of(1, 2, compute=0.95, wait=0.0, mix=0.05)]
    run = read_history(write_events(tmp_path / "run", start(), *first, *second), "run")
    assert "slowest worker, which is not always the same; mix less often" in verdict([run])


def test_a_run_without_rounds(tmp_path: Path) -> None:
    assert "without a finished round" in verdict([read_history(write_events(tmp_path / "run", start()), "run")])


def test_the_verdict_tells_the_seconds_of_the_table(tmp_path: Path) -> None:
    courses = {"two": [(1.0, 0.9), (3.0, 0.3)], "one": [(1.0, 0.9), (2.0, 0.4)]}
    runs = []
    for workers, (label, course) in zip((2, 1), courses.items(), strict=True):
        judged = [judgement(at, seconds, loss) for at, (seconds, loss) in enumerate(course, 1)]
        runs.append(read_history(write_events(tmp_path / label, start(workers), round_of(0, 1), *judged), label))
    heads, cells = compared_runs(runs).cells()
    told = {row[0]: row[heads.index("seconds to accuracy 0.8000")].rstrip("*") for row in cells}
    found = compare(*runs)
    assert found
    assert (found.goal, found.seconds, found.alone) == ("judged accuracy 0.8000, which both reached", 3.0, 2.0)
    assert {label: float(seconds) for label, seconds in told.items()} == {"two": 3.0, "one": 2.0}


def test_a_sweep_names_its_best_combination() -> None:
    rows = [Combination({"optimizer.lr": lr}, [lr, lr], ["1", "2"]) for lr in (0.3, 0.2, 0.1)]
    sweep = Ranking(Path("sweep"), "metrics.accuracy", largest=True, rows=rows)
    said = verdict([], [sweep])
    assert said.startswith("Best of 3 combinations: optimizer.lr = 0.3, with metrics.accuracy 0.3000, the median of 2 runs")
    assert "mattered" not in said, "one setting explains all"
    for row, seconds in zip(rows, (1, 1, 2), strict=True):
        row.settings["stop.seconds"] = seconds
    assert "optimizer.lr mattered most (100% of the variance)" in verdict([], [sweep])
