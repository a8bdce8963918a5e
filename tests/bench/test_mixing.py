"""`partrain bench --suite mixing`: meetings by rule and size, beside a copy of the vector."""

import pytest

from partrain.bench import mixing


@pytest.mark.representative
def test_each_rule_and_size_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "HIDDEN", {2: 12, 3: 12})
    monkeypatch.setattr(mixing, "RULES", ("average", "gossip"))
    notes: list[str] = []
    result = mixing.bench(1, notes.append)
    assert [(row["rule"], row["parameters"]) for row in result["meetings"]] == [
        (rule, parameters) for parameters in (2 * 795 + 10, 3 * 795 + 10) for rule in ("average", "gossip")
    ]
    assert all(len(row[name]) == 1 and row[name][0] >= 0 for row in result["meetings"] for name in ("waiting", "mixing"))
    assert result["code"] == 0
    assert sum("seed 0" in note for note in notes) == 4
    title, _, head, _, *rows = mixing.render(result)
    assert title == "Microseconds of a meeting of two workers, medians over rounds, 1 seed."
    assert head.split()[-3:] == ["meeting", "/", "copy"]
    assert [row.split()[:2] for row in rows] == [
        ["average", "1,600"],
        ["gossip", "1,600"],
        ["average", "2,395"],
        ["gossip", "2,395"],
    ]
