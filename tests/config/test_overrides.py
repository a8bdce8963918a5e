"""Values of overrides as text."""

from __future__ import annotations

import tomllib

from partrain.config.overrides import toml_value


def test_a_value_as_one_line_of_toml() -> None:
    value = {"workers": [{"count": 1}, {"device": "cpu"}], "a.b": [[1, 2], []], "text": 'a "b"', "empty": {}}
    line = toml_value(value)
    assert "\n" not in line
    assert tomllib.loads(f"x = {line}")["x"] == value
