"""Caps of `round_seconds`: by hand, from seconds, and from the record."""

from partrain.training.round_caps import RoundCaps


def test_the_iterations_that_fit() -> None:
    """0.04 s hold 40 iterations of 1 ms, 10 of 4 ms, and none of 50 ms: one is the least, 30 the most that worker 3 may run."""
    caps = RoundCaps(0.04, [40, 40, 40, 30])
    assert caps.decide(2, [], [(40, 0.04), (40, 0.16), (40, 2.0), (30, 0.003)]) == [40, 10, 1, 30]
    assert caps.decide(3, [40, 10, 1, 30], [(40, 0.08), (10, 0.01), (1, 0.004), (30, 0.06)]) == [20, 40, 10, 20]


def test_a_worker_that_did_not_train_keeps_its_cap() -> None:
    caps = RoundCaps(0.04, [40, 40])
    assert caps.decide(2, [], [(40, 0.04), (0, 0.0)]) == [40, 40]
    assert caps.decide(3, [40, 7], [(40, 0.04), (0, 0.0)]) == [40, 7]
    assert caps.decide(3, [40, 7], [(40, 0.04), (3, 0.0)]) == [40, 7], "its clock has not moved"


def test_visits_share_the_seconds() -> None:
    assert RoundCaps(0.02, [20, 20], visits=2).decide(2, [], [(40, 0.04), (12, 0.048)]) == [10, 2]


def test_recorded_rounds_are_repeated() -> None:
    caps = RoundCaps(0.04, [40, 40], recorded=[[40, 9], [38, 11]], first=4)
    measured = [(40, 0.04), (40, 0.16)]
    assert [caps.decide(round, [], measured) for round in (3, 4, 5, 6)] == [[40, 10], [40, 9], [38, 11], [40, 10]]


def test_planned_items_of_a_capped_round() -> None:
    assert RoundCaps(0.04, [40, 20]).items([320, 160], [40, 5]) == [320, 40]
