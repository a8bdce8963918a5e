"""The table of several runs: its order, its marks and its words."""

from __future__ import annotations

from typing import Any

from support.watched import summary_of

from partrain.record.events import JudgementEvent
from partrain.runs.comparing import ComparedRow, ComparedRuns


def row(label: str, status: str, seconds: float, accuracy: float | None, stop: dict[str, Any], **changed: Any) -> ComparedRow:
    metrics = {} if accuracy is None else {"accuracy": accuracy}
    best = {"best": {"round": 1, "loss": 0.5, "metrics": metrics, "by": "accuracy", "lower": False}} if metrics else {}
    content = {**summary_of(), "status": status, "loss": None, "metrics": metrics, "test": {}, **best, **changed}
    return ComparedRow(label, {"stop": stop}, [content | {"seconds": {"train": seconds, "total": seconds}}])


def labels(*rows: ComparedRow) -> list[str]:
    return [each.label for each in ComparedRuns(rows).ranked.rows]


def column(comparison: ComparedRuns, name: str) -> list[str]:
    head, rows = comparison.cells()
    return [cells[head.index(name)].strip() for cells in rows]


def test_those_that_reached_the_same_target_come_first_by_their_seconds() -> None:
    target = {"accuracy": 0.9, "rounds": 9}
    rows = [
        row("missed", "not-reached", 1.0, 0.89, target), row("slow", "reached", 5.0, 0.99, target),
        row("fast", "reached", 2.0, 0.9, target), row("worse", "not-reached", 0.5, 0.4, target),
        row("broken", "diverged", 0.1, 0.95, target),
    ]  # fmt: skip
    assert labels(*rows) == ["fast", "slow", "missed", "worse", "broken"]
    table = ComparedRuns(rows).ranked
    assert column(table, "seconds") == ["2.00*", "5.00", "1.00", "0.500", "0.100"], "only those that reached it are compared"
    assert "best first by seconds to the target (accuracy 0.9), then by judged accuracy" in table.note
    assert column(ComparedRuns(rows[1:3]), "seconds to target") == ["5.00", "2.00*"]


def test_seconds_of_a_run_that_began_in_another_folder_are_not_compared() -> None:
    target = {"accuracy": 0.9, "rounds": 9}
    rows = [row("all", "reached", 5.0, 0.95, target), row("rest", "reached", 1.0, 0.95, target, item_iterations_elsewhere=100)]
    assert labels(*rows) == ["all", "rest"]
    assert column(ComparedRuns(rows), "seconds") == ["5.00", "1.00"], "none is marked"
    assert ComparedRuns(rows).note.endswith("; seconds of rest do not count those in another folder, from which it continues")
    for one in rows:
        one.job = {"stop": {"rounds": 9}}
        one.courses = [[JudgementEvent(t=0.0, round=1, seconds=1.0, loss=0.5, metrics={"accuracy": 0.95}, best=True)]]
    assert not any("seconds to" in head for head in ComparedRuns(rows).cells()[0])


def test_seconds_of_a_simulated_clock_are_named() -> None:
    rows = [row(label, "finished", 5.0, 0.95, {"rounds": 9}) for label in ("real", "fast", "slow")]
    assert "simulated" not in ComparedRuns(rows).note
    for simulated in rows[1:]:
        simulated.job = {**simulated.job, "transport": {"kind": "simulated"}}
    assert ComparedRuns(rows).note.endswith("; seconds of fast, slow are simulated")
    assert ComparedRuns(rows[1:]).note.endswith("; seconds are simulated")


def test_a_run_that_never_measured_the_deciding_number_is_ranked_last() -> None:
    stop = {"rounds": 9, "patience_by": "auroc"}

    def judged(auroc: float) -> dict[str, Any]:
        metrics = {"accuracy": 0.5, "auroc": auroc}
        return {"best": {"round": 1, "loss": 0.5, "metrics": metrics, "by": "auroc", "lower": False}}

    rows = [
        row("undefined", "finished", 1.0, 0.9, stop, best=None, undefined={"auroc": 3}, judgements=3),
        row("a", "finished", 1.0, 0.8, stop, **judged(0.6)), row("b", "finished", 1.0, 0.5, stop, **judged(0.7)),
    ]  # fmt: skip
    assert labels(*rows) == ["b", "a", "undefined"]
    assert "best first by judged auroc" in ComparedRuns(rows).ranked.note


def test_without_a_target_the_result_ranks_and_nothing_is_reached() -> None:
    rows = [row("a", "stopped", 1.0, 0.8, {"rounds": 9}), row("b", "finished", 9.0, 0.9, {"rounds": 9}), row("c", "failed", 1.0, None, {})]  # fmt: skip
    assert labels(*rows) == ["b", "a", "c"]
    head, cells = ComparedRuns(rows).cells()
    assert not any("reached" in text for line in (head, *cells) for text in line)
    assert column(ComparedRuns(rows), "judged accuracy") == ["0.8000", "0.9000*", "-"]
    assert column(ComparedRuns(rows), "seconds") == ["1.00", "9.00", "1.00"], "they do not end alike"


def test_results_chosen_by_different_numbers_have_no_order() -> None:
    other = row("b", "finished", 1.0, 0.9, {})
    other.summaries[0] |= {"best": {"round": 1, "loss": 0.1, "metrics": {"f1": 0.3}, "by": "f1", "lower": False}}  # type: ignore[operator]
    rows = [row("a", "finished", 1.0, 0.8, {}), other]
    assert labels(*rows) == ["a", "b"]
    assert column(ComparedRuns(rows), "chosen by") == ["accuracy", "f1"]
    assert "not ranked" in ComparedRuns(rows).note


def test_runs_that_were_never_judged_have_no_order() -> None:
    rows = [row(label, "diverged", 1.0, None, {"rounds": 9}) for label in ("a", "b")]
    assert "; not ranked: no run was judged;" in ComparedRuns(rows).note


def test_several_runs_of_a_row_are_median_least_and_most() -> None:
    first = row("a", "reached", 1.0, 0.8, {"loss": 1})
    for seconds, status in ((3.0, "reached"), (2.0, "not-reached")):
        first.summaries += row("a", status, seconds, 0.7, {}).summaries
    table = ComparedRuns([first, row("b", "reached", 2.5, 0.9, {"loss": 1})])
    assert column(table, "runs") == ["3", "1"]
    assert column(table, "status") == ["2 reached, 1 not-reached", "reached"]
    assert column(table, "seconds") == ["2.00 (1.00-3.00)", "2.50"]
    assert table.note.startswith("medians of 1 to 3 runs each (least-most)")


def judged(*points: tuple[float, float]) -> list[JudgementEvent]:
    return [JudgementEvent(t=0.0, round=1, seconds=seconds, loss=None, metrics={"accuracy": value}, best=True) for seconds, value in points]  # fmt: skip


def test_without_a_target_the_seconds_to_the_result_that_all_reached_tell_which_was_faster() -> None:
    rows = [row("good", "finished", 9.0, 0.9, {}), row("soon", "finished", 9.0, 0.7, {}), row("broken", "diverged", 1.0, 0.2, {})]
    rows[0].courses = [judged((1.0, 0.5), (4.0, 0.8), (9.0, 0.9))]
    rows[1].courses = [judged((1.0, 0.6), (2.0, 0.7), (9.0, 0.65))]
    rows[2].courses = [judged((0.5, 0.2))]
    table = ComparedRuns(rows)
    assert column(table, "seconds to accuracy 0.7000") == ["4.00", "2.00*", "-"]
    assert ComparedRuns(rows[:2]).best().endswith(" soon was the first with accuracy 0.7000, which all reached: after 2.00 s.")
    for other in (row("a", "reached", 1.0, 0.9, {"accuracy": 0.7}), row("b", "finished", 1.0, 0.7, {}, metrics={}, best=None)):
        assert not any("seconds to" in head for head in ComparedRuns([rows[0], other]).cells()[0])
