"""The advice about a slow worker, by the settings of the job."""

import json

import pytest
from support.runs import JOB, partrain

from partrain.cli import shared
from partrain.cli.endings import remedy_of
from partrain.config.overrides import override
from partrain.config.problems import Problem, Rejected
from partrain.config.toml_source import TomlSource
from partrain.job.load import parse


@pytest.mark.parametrize(("sets", "advice"), [
    ((), 'give it fewer `iterations` in [[workers]], or set balance = "rate" in [partition]'),
    (('sync={rule="average", passes=1}',), "give it a smaller `partition_size`"),
    (("workers.0.passes=1",), "give it a smaller `partition_size`"),
    (('sync={rule="average", passes=1}', "workers.0.iterations=3"), "give it fewer `iterations`"),
    (("sync.schedule='overhead'",), "give it fewer `iterations` in [[workers]]"),
    (('sync={rule="async", iterations=3}',), "give it fewer `iterations` in [[workers]], or set [faults] round_seconds"),
    (("workers.0.partition_size=20", "workers.0.count=3"), "give it fewer `iterations` in [[workers]], or set [faults] round_seconds"),
    (('sync={rule="bsp", iterations=3}',), "leave it out"),
    (("faults.round_seconds=0.5",), "set [faults] round_seconds above the seconds of one of its iterations"),
])  # fmt: skip
def test_advice(tmp_path, sets: tuple[str, ...], advice: str) -> None:
    text = override(TomlSource.parse(JOB, "job"), sets).text
    assert remedy_of(parse(text, tmp_path, "job").job).startswith(advice)


def test_balanced_workers_need_no_advice(tmp_path) -> None:
    text = override(TomlSource.parse(JOB, "job"), ("partition.balance='rate'",)).text
    assert remedy_of(parse(text, tmp_path, "job").job) == ""


def test_torchrun_gets_the_reason_of_a_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    said = partrain("resume", tmp_path / "none")
    reason = json.loads((tmp_path / "error.json").read_text())["message"]
    assert (said.code, reason["message"]) == (66, said.err.strip())
    assert reason["extraInfo"]["py_callstack"] == reason["message"]


def test_sentences_break_between_words_and_commands_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared, "terminal_width", lambda stream: 20)
    shared.print_wrapped("more than twenty columns of words", "  .venv/bin/partrain evaluate runs/a-long-name")
    assert capsys.readouterr().out == "more than twenty\n  columns of words\n  .venv/bin/partrain evaluate runs/a-long-name\n"


def test_errors_break_between_words_and_excerpts_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared, "terminal_width", lambda stream: 24)
    problem = Problem("a.toml", 3, 1, 5, "seeds is not a key here", "did you mean seed?", excerpt=("", "seed", "s = 1"))
    shared.print_failure(Rejected([problem]))
    assert capsys.readouterr().err.splitlines() == [
        "partrain:", "  error[bad-job]:", "  a.toml:3:1: seeds is", "  not a key here",
        "   |", " 3 | seeds = 1", "   | ^^^^", "   | did you mean seed?",
    ]  # fmt: skip
