"""Groups of rows: no group is in two parts, and parts are about as large as asked for. Held-out rows of a file of their own."""

import random
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from partrain.data import groups_by_part, load, read_spec
from partrain.data.folds import Fold
from partrain.data.groups import draw_groups
from partrain.data.partition import Partition, assign, chosen_of, hold_out, split, training_of
from partrain.data.tables.load import row_numbers
from partrain.data.tables.schema import open_table
from partrain.data.tables.sections import Csv
from partrain.errors import InputMissing
from partrain.templates.assemble import Asked
from partrain.templates.from_data import job_for

PERSONS = "person,a,ill\n" + "".join(f"p{row % 30},{row},{['no', 'yes'][row % 30 % 3 == 0]}\n" for row in range(300))


def persons(folder: Path, text: str = PERSONS, **more: Any) -> Csv:
    (folder / "t.csv").write_text(text)
    return Csv.model_validate({"kind": "csv", "path": "t.csv", "target": "ill", "group": "person", **more})


def fault(section: Csv, folder: Path) -> str:
    with pytest.raises(InputMissing) as caught:
        load(section, folder, training=training_of(section, Partition(), 0))
    return caught.value.message.replace(f"{folder}/", "")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=4, max_size=40).filter(lambda groups: len(set(groups)) > 1),
    st.integers(0, 2**40),
    st.data(),
)
def test_no_group_is_in_two_parts(groups: list[int], seed: int, data: st.DataObject) -> None:
    codes, n = np.array(groups), len(groups)
    drawn = data.draw(st.none() | st.lists(st.integers(0, 2), min_size=n, max_size=n))
    labels = None if drawn is None else np.array(drawn)
    chosen = data.draw(st.integers(1, n - 1))
    training, held_out = hold_out(n, chosen, "shuffled", seed, None, labels, None, codes)
    assert sorted([*training, *held_out]) == list(range(n))
    assert len(training)
    assert len(held_out)
    assert not {*codes[training]} & {*codes[held_out]}
    if labels is None:  # another group more or less would not be nearer
        sizes = Counter(groups)
        apart = len(held_out) - chosen
        assert (
            all(abs(apart + sizes[code]) >= abs(apart) for code in {*codes[training]})
            or apart >= 0
            or len(set(codes[training])) == 1
        )
        assert abs(apart) <= max(sizes.values())
    folds = data.draw(st.integers(2, len(set(groups))))
    parts = [draw_groups(Fold(number, folds), codes, seed, labels) for number in range(1, folds + 1)]
    assert sorted(np.concatenate(parts)) == list(range(n))
    assert sum(len({*codes[part]}) for part in parts) == len(set(groups))
    assert all(map(len, parts)) or labels is not None


@pytest.mark.parametrize(
    "keys", [{"validation": 50}, {"validation": 47, "stratify": True}, {"fold": "2/5"}, {"fold": "1/3", "stratify": True}]
)
def test_rows_of_a_person_are_in_one_part(tmp_path: Path, keys: dict[str, Any]) -> None:
    section = persons(tmp_path, test_share=0.2, **keys)
    data, known = load(section, tmp_path, training=training_of(section, Partition(), 7)), read_spec(section, tmp_path)
    assert known
    assert (known.items, known.test_items, known.shape) == (240, 60, (1,))
    assert data.test_targets is not None
    training, held_out = split(data, section, "shuffled", 7)
    rows = row_numbers(section, tmp_path)
    names = {part: [int(row) % 30 for row in np.subtract(lines, 2)] for part, lines in rows.items()}
    parts = [{*names["test_"]}, {names[""][item] for item in training}, {names[""][item] for item in held_out}]
    assert [len(part) for part in parts] == [6, 24 - len(held_out) // 10, len(held_out) // 10]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 30
    assert len(held_out) == (80 if keys.get("fold") == "1/3" else 50)
    if "stratify" in keys:
        assert abs(data.targets[held_out].mean() - 1 / 3) < 0.14
        assert data.test_targets.mean() == pytest.approx(1 / 3)
    cut = assign(Partition(), data.items, chosen_of(data, section), [None, None], 7)
    assert np.array_equal(cut.held_out, held_out)
    assert np.array_equal(np.concatenate(cut.partitions), training)
    again = load(section, tmp_path, training=training_of(section, Partition(), 8))
    assert again.test_targets is not None
    assert np.array_equal(again.test_targets, data.test_targets)
    assert {*split(again, section, "shuffled", 8)[1]} != {*held_out}


def test_whole_numbers_in_two_spellings_are_one_group(tmp_path: Path) -> None:
    section = persons(
        tmp_path, "person,a,ill\n" + "".join(f"{' ' * (row % 2)}{row % 3},{row},x{row % 2}\n" for row in range(30)), fold="1/3"
    )
    held_out = load(section, tmp_path, training=training_of(section, Partition(), 0)).held_out
    assert held_out is not None
    assert {*np.diff(held_out)} == {3}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("p3,3,", ",3,", "t.csv:5: column `person`: no value; fill it in, or delete the row"),
        ("person", "who", "t.csv:1: no column `person`"),
    ],
)
def test_faults_of_groups_have_their_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    section = persons(tmp_path, PERSONS.replace(old, new, 1), validation=20)
    assert fault(section, tmp_path).startswith(message)


def test_too_few_groups(tmp_path: Path) -> None:
    assert fault(persons(tmp_path, fold="1/40"), tmp_path) == "`group`: 40 folds are more than the 30 groups"
    one = PERSONS.replace("p", "q").replace("qerson", "person").split("\n")
    text = "\n".join([one[0], *(f"q,{line.partition(',')[2]}" for line in one[1:-1])])
    message = "`group`: some groups are held out and others trained on, and there is only 1 group"
    assert fault(persons(tmp_path, text, validation=3), tmp_path) == message


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"time": "a"}, "`time` tests on the newest rows, and `group` on whole groups: keep one"),
        ({"test_share": 0.1, "test_from": "end"}, "`test_from` tests on the newest rows, and `group` on whole groups"),
        ({"inputs": ["person"]}, "`group`: `person` has another role"),
        ({"drop": ["person"]}, "`group`: `person` has another role"),
        ({"validation_path": "v.csv", "validation": 3}, "`validation_path` and `validation` both choose the held-out items"),
        ({"validation_path": "v.csv", "fold": "1/2"}, "`validation_path` and `fold` both choose the held-out items"),
    ],
)
def test_keys_that_contradict_groups(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        persons(tmp_path, **keys)


def test_held_out_rows_of_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("ill,a\nyes,1000\nno,2000\n")
    section = persons(tmp_path, group=None, drop=["person"], validation_path="v.csv", test_share=0.2, sample_weight=None)
    data, known = load(section, tmp_path, training=training_of(section, Partition(), 0)), read_spec(section, tmp_path)
    assert known == data.spec.__class__(**{**vars(data.spec), "remarks": known.remarks if known else ()})
    training, held_out = split(data, section, "shuffled", 0)
    assert (data.items, len(training), sorted(held_out)) == (242, 240, [240, 241])
    assert data.targets[240:].tolist() == [1, 0]
    inputs = data.inputs[training]
    assert (float(inputs.mean()), float(inputs.std())) == pytest.approx((0, 1), abs=1e-6)
    lines = row_numbers(section, tmp_path)[""][240:]
    table = open_table(section, tmp_path / "v.csv")
    assert [table.locate(line).rpartition(":")[2] for line in lines.tolist()] == ["2", "3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,who\n1,2\n", "v.csv:1: no column `ill`, which t.csv has"),
        ("a,ill\n1,maybe\n", "v.csv:2: column `ill`: the class `maybe` is not in t.csv"),
        ("a,ill\n", "v.csv: holds no rows"),
    ],
)
def test_faults_of_a_file_of_held_out_rows(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "v.csv").write_text(text)
    assert fault(persons(tmp_path, group=None, drop=["person"], validation_path="v.csv"), tmp_path) == message


def test_groups_of_files_of_their_own_are_numbered_with_those_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("ill,person,a\nyes,v1,1\nno,v2,2\nno, v1 ,3\n")
    (tmp_path / "s.csv").write_text("person,a,ill\ns1,1,no\ns1,2,yes\n")
    section = persons(tmp_path, validation_path="v.csv", test_path="s.csv")
    data = load(section, tmp_path, training=training_of(section, Partition(), 0))
    assert data.group is not None
    assert data.test_group is not None
    assert len({*data.group[:300]}) == 30
    assert data.group[300:].tolist() == [31, 32, 31]
    assert not {*data.test_group} & {*data.group}
    training, held_out = split(data, section, "shuffled", 0)
    assert not {*data.group[training]} & {*data.group[held_out]}
    names = groups_by_part(section, tmp_path, data)
    assert names == {"": [*(f"p{row % 30}" for row in range(300)), "v1", "v2", "v1"], "test_": ["s1", "s1"]}


@pytest.mark.parametrize(
    ("keys", "text", "message"),
    [
        (
            {"validation_path": "v.csv"},
            "person,a,ill\nv1,2,no\n p3 ,1,yes\np4,1,no\np3,1,no\n",
            "v.csv:3: column `person`: the group `p3` is also in t.csv (3 rows of 2 groups); move its rows into one of the files, or",
        ),
        ({"test_path": "v.csv"}, "person,a,ill\np3,1,yes\n", "v.csv:2: column `person`: the group `p3` is also in t.csv (1 row"),
        ({"validation_path": "v.csv"}, "a,ill\n1,yes\n", "v.csv:1: no column `person`, which t.csv has"),
        ({"test_path": "v.csv"}, "person,a,ill\nv1,2,no\n,1,yes\n", "v.csv:3: column `person`: no value; fill it in, or"),
        (
            {"test_path": "v.csv", "validation_path": "w.csv"},
            "person,a,ill\nv1,2,no\n",
            "w.csv:2: column `person`: the group `v1` is also in v.csv (1 row of 1 group)",
        ),
    ],
)
def test_no_group_is_in_two_files(tmp_path: Path, keys: dict[str, Any], text: str, message: str) -> None:
    (tmp_path / "v.csv").write_text(text)
    (tmp_path / "w.csv").write_text(text)
    section = persons(tmp_path, **keys)
    assert fault(section, tmp_path).startswith(message)
    with pytest.raises(InputMissing):
        read_spec(section, tmp_path)


# What `init` decides

Row = Callable[[int, random.Random], tuple[object, ...]]


def decided(folder: Path, names: str, row: Row, group: str | None = None, rows: int = 600) -> tuple[dict[str, Any], list[str]]:
    """Return the table `[dataset]` that `init` writes for rows in a drawn order, and its notes. The last column is the target."""
    draw = random.Random(4)
    lines = [",".join(map(str, row(number, draw))) for number in range(rows)]
    draw.shuffle(lines)
    (folder / "t.csv").write_text("\n".join([names, *lines, ""]))
    text, notes = job_for(folder / "t.csv", Asked((names.split(",")[-1],), group=group), folder)
    return tomllib.loads(text)["dataset"], list(notes)


def of_person(unit: Callable[[int], object], answer: Callable[[int, float], object]) -> Row:
    """Return rows of 40 persons: a name, two numbers about those of the person, and the person's answer."""
    levels = [random.Random(person).gauss(0, 1) for person in range(40)]
    return lambda number, draw: (
        unit(number % 40),
        f"{levels[number % 40] + draw.gauss(0, 0.1):.3f}",
        f"{levels[number % 40] * 3 + draw.gauss(0, 0.3):.3f}",
        answer(number % 40, levels[39 - number % 40] + draw.gauss(0, 0.05)),
    )


ILL = of_person(lambda person: f"p{person:03}", lambda person, _: "yes" if person % 3 else "no")


@pytest.mark.parametrize(
    "row",
    [
        ILL,
        of_person(lambda person: person * 7919 % 41, lambda person, _: "yes" if person % 3 else "no"),
        of_person(lambda person: f"p{person}", lambda _, level: f"{level:.3f}"),
    ],
)
def test_init_finds_units_and_keeps_each_in_one_part(tmp_path: Path, row: Row) -> None:
    table, notes = decided(tmp_path, "who,a,b,y", row)
    assert table["group"] == "who"
    assert "categories" not in table
    what = "column `who` names units of about 15 rows, which are alike: each is in one part, and the column is no input"
    assert f"{what} (`group`); --group none takes it as an input" in notes
    section = Csv.model_validate(table)
    data = load(section, tmp_path, training=training_of(section, Partition(), 0))
    assert (data.items, len(data.targets), data.inputs.shape[1]) == (510, 510, 2)


@pytest.mark.parametrize(
    ("names", "row"),
    [
        ("city,a,b,y", lambda number, draw: (f"c{number % 8}", draw.random(), draw.random(), number % 8 < 4)),
        ("teacher,a,y", lambda number, draw: (number % 40, draw.random(), f"{number % 40 * 17 % 11 + draw.gauss(0, 5):.2f}")),
        ("dose,a,y", lambda number, draw: (number % 40, number % 40 + draw.random(), f"{number % 40 + draw.random():.2f}")),
        ("once,a,y", lambda number, draw: (f"w{number}", draw.random(), f"{draw.random():.2f}")),
    ],
)
def test_init_takes_no_category_and_no_measure_for_units(tmp_path: Path, names: str, row: Row) -> None:
    table, notes = decided(tmp_path, names, row)
    assert "group" not in table
    assert not any("group" in note for note in notes)


def test_a_column_that_tells_the_target_but_nothing_else_is_named_only(tmp_path: Path) -> None:
    table, notes = decided(tmp_path, "town,a,y", lambda number, draw: (f"t{number % 40}", draw.random(), number % 40 % 3))
    assert table["categories"] == ["town"]
    assert (
        "column `town`: its rows have similar targets; if it names units, and you want to predict others: --group town" in notes
    )


def test_the_user_says_what_names_units(tmp_path: Path) -> None:
    table, notes = decided(tmp_path, "who,a,b,y", ILL, group="none")
    assert "group" not in table
    assert table["categories"] == ["who"]
    table, notes = decided(tmp_path, "town,a,y", lambda number, draw: (f"t{number % 4}", draw.random(), number % 3), group="town")
    assert table["group"] == "town"
    assert "`town` names the unit of a row (--group): each is in one part, and the column is no input (`group`)" in notes
    for group, message in (("y", "t.csv:1: --group: column `y` is the target"), ("x", "t.csv:1: no column `x`")):
        with pytest.raises(InputMissing) as caught:
            decided(tmp_path, "town,a,y", lambda number, _: (f"t{number % 4}", 1, number % 3), group=group)
        assert caught.value.message.replace(f"{tmp_path}/", "").startswith(message)
    with pytest.raises(InputMissing, match=r"--group: column `who` has no value"):
        decided(tmp_path, "who,a,b,y", lambda number, draw: ("" if number == 5 else "p", *ILL(number, draw)[1:]), group="who")
