"""Tables as functions: completion, help, and the messages of a job file."""

from __future__ import annotations

import inspect

import pytest

import partrain
from partrain import sections
from partrain.job.schema import given_in


def test_each_kind_of_table_has_functions() -> None:
    assert {"Mlp", "Adam", "Average", "Csv", "Stop", "Partition", "WorkerGroup", "Engine", "Transport"} <= set(dir(sections))
    assert "torch" not in str(sections.Adam)


def test_a_function_makes_its_table() -> None:
    assert given_in(sections.Adam(lr=0.01)) == {"name": "adam", "lr": 0.01}
    assert given_in(sections.Average(passes=1)) == {"rule": "average", "passes": 1}
    assert given_in(sections.WorkerGroup(count=2)) == {"count": 2}


def test_signature_and_help_name_the_keys() -> None:
    found = inspect.signature(sections.Adam).parameters
    assert "name" not in found
    assert found["batch_size"].default == 64
    assert "batch_size: " in (inspect.getdoc(sections.Adam) or "")


@pytest.mark.parametrize(("name", "keys", "message"), [
    ("Adam", {"lr": 0.1, "bach_size": 3}, "did you mean `batch_size`?"),
    ("Stop", {"round": 3}, "did you mean `rounds`?"),
    ("Mlp", {"hidden": "3"}, "expected a list"),
])  # fmt: skip
def test_mistakes_are_failures(name: str, keys: dict[str, object], message: str) -> None:
    with pytest.raises(partrain.Failure) as caught:
        getattr(sections, name)(**keys)
    assert message in str(caught.value)


def test_a_job_of_sections_is_that_of_its_tables() -> None:
    job = partrain.Job(name="x", model=sections.Mlp(hidden=[4]), dataset=sections.Mnist(validation=10), sync=sections.Average(passes=1),
                       optimizer=sections.Adam(lr=0.1), workers=[sections.WorkerGroup(count=2)], stop=sections.Stop(rounds=2))  # fmt: skip
    assert job.model.hidden == [4]
