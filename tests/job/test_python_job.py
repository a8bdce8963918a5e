"""Jobs made in Python: their problems are those of a job file, named by keys, and all are Failures."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from support.runs import JOB

import partrain
from partrain.config.problems import Rejected
from partrain.job.schema import Job

TABLES = tomllib.loads(JOB)


class Net:
    """A class that no job can hold."""


@pytest.mark.parametrize(("change", "found"), [
    ({"optimizer": {"lrr": 1}, "sync": {"rule": "avg"}}, [
        ('Job: sync.rule: unknown rule "avg"', 'did you mean "average"?'), ("Job: optimizer: missing key `name` in [optimizer]", 'one of "sgd"'),
    ]),
    ({"stop": {"round": 1}}, [("Job: stop.round: unknown key `round` in [stop]", "did you mean `rounds`?")]),
    ({"model": {"name": Net}}, [("Job: model.name: a job holds texts, numbers, lists and tables, not the class `Net`", '"file.py:Net"')]),
    ({"model": Net(), "stop": {"round": 1}}, [
        ("Job: stop.round: unknown key `round`", "did you mean `rounds`?"), ("Job: model: a job holds", '"file.py:Net"'),
    ]),
    ({"workers": [{"count": Net()}]}, [("Job: workers.0.count: a job holds", "write a text, a number, a list or a table")]),
])  # fmt: skip
def test_all_problems_are_named_by_their_keys(change: dict[str, Any], found: list[tuple[str, str]]) -> None:
    with pytest.raises(partrain.Failure) as caught:
        partrain.Job(**TABLES | change)
    assert isinstance(caught.value, Rejected)
    told = [(problem.summary, problem.suggestion) for problem in caught.value.problems]
    assert len(told) == len(found), told
    for (message, suggestion), (what, advice) in zip(sorted(told), sorted(found), strict=True):
        assert (what in message, advice in suggestion) == (True, True), (message, suggestion)


def test_a_job_is_that_of_its_file() -> None:
    made = partrain.Job(**TABLES)
    assert isinstance(made, Job)
    assert made.model_dump() == Job.model_validate(TABLES).model_dump()


def test_completion_finds_the_public_names() -> None:
    assert dir(partrain) == sorted(partrain.__all__)
    assert {name for name in dir(partrain) if getattr(partrain, name) is None} == set()
