"""Caps of `round_seconds` and `balance`: by hand, from seconds, and from the record."""

from partrain.training.round_caps import Balance, TimeLimit, parts_by


def test_the_iterations_that_fit() -> None:
    """0.04 s hold 40 iterations of 1 ms, 10 of 4 ms, and none of 50 ms: one is the least, 30 the most that worker 3 may run."""
    caps = TimeLimit([40, 40, 40, 30], seconds=0.04)
    assert caps.decide(2, [], [(40, 0.04), (40, 0.16), (40, 2.0), (30, 0.003)]) == [40, 10, 1, 30]
    assert caps.decide(3, [40, 10, 1, 30], [(40, 0.08), (10, 0.01), (1, 0.004), (30, 0.06)]) == [20, 40, 10, 20]


def test_a_worker_that_did_not_train_keeps_its_cap() -> None:
    caps = TimeLimit([40, 40], seconds=0.04)
    assert caps.decide(2, [], [(40, 0.04), (0, 0.0)]) == [40, 40]
    assert caps.decide(3, [40, 7], [(40, 0.04), (0, 0.0)]) == [40, 7]
    assert caps.decide(3, [40, 7], [(40, 0.04), (3, 0.0)]) == [40, 7], "its clock has not moved"


def test_visits_share_the_seconds() -> None:
    assert TimeLimit([20, 20], visits=2, seconds=0.02).decide(2, [], [(40, 0.04), (12, 0.048)]) == [10, 2]


def test_recorded_rounds_are_repeated() -> None:
    caps = TimeLimit([40, 40], recorded=[[40, 9], [38, 11]], first=4, seconds=0.04)
    measured = [(40, 0.04), (40, 0.16)]
    assert [caps.decide(round, [], measured) for round in (3, 4, 5, 6)] == [[40, 10], [40, 9], [38, 11], [40, 10]]


def test_planned_items_of_a_capped_round() -> None:
    assert TimeLimit([40, 20], seconds=0.04).items([320, 160], [40, 5]) == [320, 40]


def test_balance_settles_with_costs_that_do_not_grow_with_the_iterations() -> None:
    """Worker 1 takes 10 ms a round and 4 ms an iteration, worker 0 only 1 ms an iteration."""
    caps, rule = [], Balance([40, 40])
    for number in range(1, 30):
        now = caps or [40, 40]
        caps = rule.decide(number + 1, caps, [(now[0], now[0] * 0.001), (now[1], 0.01 + now[1] * 0.004)])
        if number == 4:
            assert caps == [64, 15]
    assert caps == [66, 14]
    assert Balance([40, 40]).decide(31, [66, 14], [(66, 1.0), (14, 9.0)]) == [66, 14], "fixed for the rest of the run"


def test_equal_workers_keep_their_iterations() -> None:
    rule = Balance([40, 40])
    assert all(rule.decide(number, [], [(40, 1.0), (40, 1.04)]) == [] for number in range(2, 30))
    assert Balance([40, 40], recorded=[[40, 40], [64, 16]], first=4).decide(5, [], [(40, 1.0), (40, 1.0)]) == [64, 16]


def test_parts_in_proportion_to_iterations() -> None:
    assert parts_by([64, 16], 100, [8, 8]) == [80, 20]
    assert parts_by([64, 16], 100, [8, 9], overlap=0.2) == [100, 25]
    assert parts_by([199, 1], 10, [8, 8]) == [10, 2]


def test_no_pass_ends_with_a_batch_of_one_item() -> None:
    assert parts_by([64, 16], 205, [8, 8]) == [164, 42], "41 items are five batches of 8 and a single item"
