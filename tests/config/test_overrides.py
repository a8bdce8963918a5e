"""Values of overrides as text."""

from __future__ import annotations

import tomllib

import pytest

from partrain.config.overrides import as_argument, as_change, assigned, toml_value
from partrain.config.toml_positions import TomlRefused


def test_a_value_as_one_line_of_toml() -> None:
    value = {"workers": [{"count": 1}, {"device": "cpu"}], "a.b": [[1, 2], []], "text": 'a "b"', "empty": {}}
    line = toml_value(value)
    assert "\n" not in line
    assert tomllib.loads(f"x = {line}")["x"] == value


def test_an_argument_is_a_change_and_the_reverse() -> None:
    arguments = ["stop.rounds=3", "~stop.judge_every", 'model.name="x"', "workers.0.count=2"]
    changes = dict(map(as_change, arguments))
    assert changes == {"stop.rounds": 3, "~stop.judge_every": True, "model.name": "x", "workers.0.count": 2}
    assert [as_argument(*change) for change in changes.items()] == arguments
    assert as_change("name=a b") == ("name", "a b"), "a text without quotes"
    data = {"stop": {"rounds": 9, "judge_every": 1}, "workers": [{"count": 1}], "model": {}}
    assert assigned(data, changes) == {"stop": {"rounds": 3}, "workers": [{"count": 2}], "model": {"name": "x"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"~stop.round": True}, "no key `stop.round` to remove"),
        ({"~stop.rounds": 3}, "to remove a key, write"),
    ],
)
def test_a_removal_that_does_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(TomlRefused, match=message):
        assigned({"stop": {"rounds": 9}}, change)
