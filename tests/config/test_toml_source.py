"""Places in TOML text agree with what tomllib reads; no text, file or override leads to anything but a plain problem."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from partrain.config.overrides import UNTIL, override
from partrain.config.problems import Finding, KeyPath, Rejected, UnfitOverrides
from partrain.config.toml_source import TomlSource
from partrain.errors import InputMissing

# Documents: statements whose keys collide often enough, in every notation that TOML has

_names = st.sampled_from(["a", "b", "c-1", "_", "7", '"a"', "'b'", '"x y"', "'#='", '"\\u00e9\\""', '""', '"]"'])
_space = st.sampled_from(["", " ", "\t", "  "])
_blank = st.sampled_from(["", " ", "\n", "\r\n", ' # ] } "\n', "\n\n\t"])
_keys = st.lists(st.tuples(_names, _space), min_size=1, max_size=3).map(
    lambda parts: ".".join(s + n + s for n, s in parts).strip()
)
_numbers = ["0", "-1_000", "0xfF", "1e3", "3.5", "inf", "-nan", "true", "false"]
_dates = ["1979-05-27", "1979-05-27 07:32:00", "07:32:00.5", "1979-05-27T00:32:00-07:00"]
_strings = ['"s"', "'s'", '"a \\" # b"', '""', "''", '"é\\u00e9"']
_long_strings = ['"""x\n"y""z"""', '"""q\\"\n""""', "'''a'b''\n'''", '"""\n[a]\nb = 1\n"""', "'''\\'''"]
_scalars = st.sampled_from([*_numbers, *_dates, *_strings, *_long_strings])


def _array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.tuples(_blank, values, _blank).map("".join), max_size=3).map(",".join)
    return st.tuples(items, _blank, st.booleans()).map(lambda x: f"[{x[0]}{',' if x[2] and x[0].strip() else ''}{x[1]}]")


def _inline(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(_space, _keys, _space, st.just("="), _space, values, _space).map("".join)
    return st.lists(pair, max_size=3).map(lambda pairs: "{" + ",".join(pairs) + "}")


_values = st.recursive(_scalars, lambda values: _array(values) | _inline(values), max_leaves=6)
_pairs = st.tuples(_space, _keys, _space, st.just("="), _space, _values, _space).map("".join)
_headers = st.tuples(st.sampled_from([("[", "]"), ("[[", "]]")]), _space, _keys).map(
    lambda x: f"{x[0][0]}{x[1]}{x[2]}{x[1]}{x[0][1]}"
)
_ends = st.sampled_from(["\n", "\r\n", " # c = 1\n", "\n\n"])
documents = st.lists(st.tuples(_pairs | _headers | _pairs, _ends).map("".join), max_size=7).map("".join)


def legal(text: str) -> dict[str, Any]:
    """What tomllib reads; most documents that it refuses have a key twice."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
        raise


def walk(value: Any, path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    """Every path in parsed TOML."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value)] * bool(path) + [pair for part, child in children for pair in walk(child, (*path, part))]


def same(a: Any, b: Any) -> bool:
    """Equality that tells 1 from true and 1.0, and under which nan is itself."""
    return sorted((repr(path), repr(value)) for path, value in leaves(a)) == sorted(
        (repr(path), repr(value)) for path, value in leaves(b)
    )


def parsed(text: str, *overrides: str) -> TomlSource | Rejected:
    try:
        return override(TomlSource.parse(text, "job.toml"), overrides)
    except Rejected as rejected:
        return rejected


def leaves(value: Any) -> list[tuple[KeyPath, Any]]:
    return [(path, child if not isinstance(child, dict | list) else len(child)) for path, child in walk([value])]


@given(documents)
def test_every_path_has_a_place_that_reads_back(text: str) -> None:
    data = legal(text)
    source = TomlSource.parse(text, "job.toml")
    assert {path for path, _ in walk(data)} == set(source.positions)
    for path, value in walk(data):
        mark = source.positions[path]
        if isinstance(path[-1], str):
            assert tomllib.loads(f"{text[slice(*mark.key)]} = 0") == {path[-1]: 0}
        if mark.key == mark.value or mark.key[1] <= mark.value[0]:  # neither a header nor the beginning of a dotted key
            assert same(tomllib.loads(f"value = {text[slice(*mark.value)]}")["value"], value)


@given(
    documents,
    st.integers(0, 200),
    st.sampled_from(["", "[", "]", '"', "'", "\\", "=", ".", "{", "\x1b", "\0", "\r", ",", "\ufeff", "é"]),
)
def test_damaged_text_is_rejected_with_a_place_or_read_as_tomllib_reads_it(text: str, position: int, damage: str) -> None:
    text = text[:position] + damage + text[position + 1 :]
    source = parsed(text)
    if isinstance(source, TomlSource):
        assert repr(source.data) == repr(tomllib.loads(text))
        return
    (problem,) = source.problems
    assert 1 <= problem.line <= text.count("\n") + 1
    assert 1 <= problem.column < problem.end_column
    assert all(line.isprintable() for line in source.detail.splitlines())


_overrides = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c-1", "0", "1", '"x y"', "new"]), min_size=1, max_size=3).map(".".join),
    st.sampled_from(["1", "fast", "[1, 2]", "{b = 1}", "true", '"q"', "", "a = b", "1 # c", "{a.b = [{c = 2}]}"]),
).map("=".join)


@given(documents, st.lists(_overrides, min_size=1, max_size=3))
@example('a={a="""x\n"y""z"""}\n', ["b=1"])  # Python 3.11.2 lost the place of `a`
def test_the_text_with_overrides_says_what_the_data_say(text: str, overrides: list[str]) -> None:
    legal(text)
    source = parsed(text, *overrides)
    if isinstance(source, Rejected):
        assert all(problem.line == 0 for problem in source.problems)
        return
    assert same(tomllib.loads(source.text), source.data)
    assert {path for path, _ in walk(source.data)} <= set(source.positions)


# Syntax


@pytest.mark.parametrize(("text", "said"), [
    ("lr = 1\nlr = 2\n", "2:1-3 `lr` is given twice, first in line 1"),
    ("[a]\n[b]\n[a] # again\n", "3:1-4 `[a]` is given twice, first in line 1"),
    ("x = {b=1,b=2}", "1:10-11 `b` is given twice, first in line 1"),
    ("w = []\n[[w]]", "2:1-6 `[[w]]` is given twice, first in line 1"),
    ("name = sgd", '1:8-11 `sgd` is not a value; write "sgd"'),
    ("on = True", "1:6-10 `True` is not a value; write true"),
    ("a = 'x\nb = 2", "1:5-7 a string that is not closed; close it with a quote"),
    ("\ta = [1,\n\t2 3]", "2:4-5 invalid TOML: unclosed array"),
    ("x = 1,5", "1:6-7 invalid TOML: expected newline or end of document after a statement"),
    ("lr: 0.1", "1:3-4 invalid TOML: expected '=' after a key in a key/value pair"),
    ("# \x1b[31m", "1:3-4 invalid TOML: found invalid character '\\x1b'"),
    ("a = 1\nb = \0", "2:5-6 invalid TOML: invalid value"),
    ("a = " + "[" * 5000, "1:37-38 nested more than 32 deep"),
    (".".join("a" * 5000) + " = 1", "1:1-66 a key of more than 32 parts"),
    ("\na = " + "9" * 5000, "2:5-5005 a number of 5,000 characters"),
    ("a = 0x" + "f" * 17, "1:5-24 an integer of more than 64 bits"),
    ("".join(f"k{i} = 1\n" for i in range(200_001)), "200001:1-8 more than 200,000 keys"),
])  # fmt: skip
def test_syntax_problems(text: str, said: str) -> None:
    """Line, columns, message; suggestion."""
    with pytest.raises(Rejected) as caught:
        TomlSource.parse(text, "job.toml")
    (problem,) = caught.value.problems
    place = f"{problem.line}:{problem.column}-{problem.end_column}"
    assert f"{place} {problem.message}; {problem.suggestion}".removesuffix("; ") == said
    assert caught.value.message == problem.summary


@pytest.mark.parametrize(("text", "line", "carets"), [
    ("\ta = [1,\n\t2 3]", " 2 |     2 3]", "   |       ^"), ("# \x1b[31m", " 1 | # \\x1b[31m", "   |   ^^^^"),
])  # fmt: skip
def test_carets_are_below_what_is_shown(text: str, line: str, carets: str) -> None:
    with pytest.raises(Rejected) as caught:
        TomlSource.parse(text, "job.toml")
    assert caught.value.detail.splitlines()[-2:] == [line, carets]


@pytest.mark.parametrize(
    "text", ["{" * 10**6, "a.\n" * 3 * 10**5, "a" * 10**6, '"' * 10**6, "[a]\n" * 2 * 10**5, '"a".' * 2 * 10**5, "x=1," * 10**5]
)
def test_hostile_text_costs_seconds_at_most(text: str) -> None:
    """A parser that goes back and forth would take hours, and a test may take two minutes."""
    with pytest.raises(Rejected) as caught:
        TomlSource.parse(text, "job.toml")
    assert len(caught.value.detail) < 500


# Files


def test_read_keeps_the_text_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"# caf\xc3\xa9\r\na = 1\r\n")
    assert TomlSource.read(path).text == "# café\r\na = 1\r\n"


def test_what_is_no_regular_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mnist.toml").touch()
    (tmp_path / "huge.toml").write_bytes(b"#" * (2**24 + 1))
    os.mkfifo(tmp_path / "pipe")
    for name, reason in {
        "minst.toml": f"no such file: {tmp_path}/minst.toml; did you mean {tmp_path}/mnist.toml?",
        "mnist": f"no such file: {tmp_path}/mnist; did you mean {tmp_path}/mnist.toml?",
        "none/job.toml": f"no such file: {tmp_path}/none/job.toml",
        ".": f"{tmp_path}/. is a folder; a job is one TOML file",
        "pipe": f"{tmp_path}/pipe is not a regular file",
        "huge.toml": f"{tmp_path}/huge.toml is larger than 16 MiB, too large for a job file",
        "nul\0": f"cannot read {tmp_path}/nul\\x00: embedded null byte",
        "x" * 300: f"cannot read {tmp_path}/{'x' * 300}: File name too long",
    }.items():
        with pytest.raises(InputMissing) as caught:
            TomlSource.read(f"{tmp_path}/{name}")
        said = caught.value.message.replace("open: embedded null character in path", "embedded null byte")  # since Python 3.13
        assert said == reason
    with pytest.raises(InputMissing, match="/dev/zero is not a regular file"):
        TomlSource.read("/dev/zero")


def test_bytes_that_are_no_utf8_or_begin_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(Rejected) as caught:
        TomlSource.read(path)
    assert caught.value.detail.splitlines() == [
        f"{path}:2:6: byte 0xff is not UTF-8",
        "   |",
        " 2 | b = '\\xff'",
        "   |      ^^^^ save the file as UTF-8",
    ]
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    with pytest.raises(Rejected, match=r":1:1: a byte order mark"):
        TomlSource.read(path)


# Problems

JOB = """\
# trial
seed = 0
optimizer = {lr = 0.1}
[[workers]]
count = 2  # two
[[workers]]
device = "cpu"
"""


def test_a_finding_points_to_key_value_or_the_header_that_lacks_it() -> None:
    source = TomlSource.parse(JOB, "job.toml")
    places = {
        ("seed",): (2, 8, 9),
        ("optimizer", "lr"): (3, 19, 22),
        ("optimizer", "momentum"): (3, 13, 23),
        ("workers", 0, "count"): (5, 9, 10),
        ("workers", 1, "count"): (6, 1, 12),
        ("stop",): (1, 1, 1),
    }
    for path, place in places.items():
        problem = source.problem(Finding(path, "wrong"))
        assert (problem.line, problem.column, problem.end_column) == place
    problem = source.problem(Finding(("workers", 0, "count"), "many", "fewer", at="key", severity="warning"))
    assert problem.render().splitlines() == ["job.toml:5:1: warning: many", "   |", " 5 | count = 2  # two", "   | ^^^^^ fewer"]
    assert problem.as_dict() == {
        "place": "job.toml",
        "line": 5,
        "column": 1,
        "end_column": 6,
        "message": "many",
        "suggestion": "fewer",
        "severity": "warning",
    }


def test_a_problem_of_the_whole_file_shows_no_line() -> None:
    problem = TomlSource.parse("", "job.toml").problem(Finding(("stop",), "missing table [stop]", "add it"))
    assert problem.render() == "job.toml:1:1: missing table [stop]\n   | add it"


def test_what_a_file_says_cannot_drive_the_terminal_nor_flood_it() -> None:
    source = TomlSource.parse(f'a = "\\u001b[2J" # {"x" * 9999}\n', "\x1b.toml")
    shown = source.problem(Finding(("a",), "no \x1b[2J\n")).render()
    assert shown.splitlines()[0] == "\\x1b.toml:1:5: no \\x1b[2J\\n"
    assert all(len(line) < 200 and line.isprintable() for line in shown.splitlines())


# Overrides


def test_overrides_keep_comments_and_say_where_they_are() -> None:
    arguments = ["workers.0.count=4", "optimizer.lr=fast", "partition.overlap=0.5", "seed = 1"]
    source = override(TomlSource.parse(JOB, "job.toml"), arguments)
    assert source.data["workers"][0] == {"count": 4}
    assert source.data["optimizer"] == {"lr": "fast"}
    assert source.text == JOB.replace("count = 2", "count = 4").replace("0.1", '"fast"').replace("seed = 0", "seed = 1") + (
        "\n[partition]\noverlap = 0.5\n"
    )
    problem = source.problem(Finding(("optimizer", "lr"), "expected a number", "try 0.1"))
    assert (problem.place, problem.line) == ("--set optimizer.lr=fast", 0)
    assert problem.render().splitlines() == [
        "--set optimizer.lr=fast: expected a number",
        "   |",
        "   | --set optimizer.lr=fast",
        "   |                    ^^^^ try 0.1",
    ]
    assert source.problem(Finding(("workers", 1), "")).line == 6, "the file's lines are those before the overrides"


def test_an_override_replaces_the_places_below_it() -> None:
    source = override(TomlSource.parse("[a]\nb = 1\nc = 2\n", "job.toml"), ["a={b = [7, 8]}", "a.b=9"])
    assert source.data == {"a": {"b": 9}}
    assert source.problem(Finding(("a", "b"), "")).place == "--set a.b=9"
    assert source.problem(Finding(("a",), "")).place == "--set a={b = [7, 8]}"
    assert ("a", "c") not in source.positions


def test_all_overrides_that_do_not_fit_are_reported() -> None:
    with pytest.raises(Rejected) as caught:
        override(
            TomlSource.parse(JOB, "job.toml"), ["seed", "=1", "workers.2.count=1", "workers.count=1", "seed.x=1", f"a={'[' * 99}"]
        )
    assert [problem.message for problem in caught.value.problems] == [
        "expected key=value",
        "expected key=value",
        "`workers` has no element `2`: its elements are 0 to 1",
        "`workers` has no element `count`: its elements are 0 to 1, as in `workers.0.count`",
        "`seed` is not a table",
        "nested more than 32 deep",
    ]
    assert caught.value.message.endswith(", and 5 more problems")
    assert isinstance(caught.value, UnfitOverrides)
    assert caught.value.fitting == []
    assert "\n   | --set workers.2.count=1\n   |               ^\n" in caught.value.detail


def test_what_fits_is_told_apart_from_what_does_not() -> None:
    with pytest.raises(UnfitOverrides) as caught:
        override(TomlSource.parse(JOB, "job.toml"), ["workers.0.count=1", "workers.2.count=1", "optimzer.lr=1"])
    assert (len(caught.value.problems), caught.value.fitting) == (1, ["workers.0.count=1", "optimzer.lr=1"])


def test_a_flag_of_one_table_moves_nothing_else() -> None:
    text = "[stop]\nrounds = 3  # three\n[optimizer]\nlr = 0.1\n"
    source = override(TomlSource.parse(text, "job.toml"), ["rounds=500", "optimizer.lr=2", "loss=low"], UNTIL)
    assert source.data == {"stop": {"rounds": 500, "optimizer": {"lr": 2}, "loss": "low"}, "optimizer": {"lr": 0.1}}
    assert source.problem(Finding(("stop", "rounds"), "few")).render().splitlines() == [
        "--until rounds=500: few",
        "   |",
        "   | --until rounds=500",
        "   |                ^^^",
    ]
    assert source.problem(Finding(("stop", "optimizer"), "", at="key")).column == 9
    assert source.problem(Finding(("stop", "loss"), "")).column == 14
    assert source.text.startswith("[stop]\nrounds = 500  # three\n")
    with pytest.raises(Rejected) as caught:
        override(TomlSource.parse(text, "job.toml"), ["rounds.x=1", "rounds"], UNTIL)
    assert [problem.summary for problem in caught.value.problems] == [
        "--until rounds.x=1: `stop.rounds` is not a table",
        "--until rounds: expected key=value",
    ]


def test_an_override_removes_a_key() -> None:
    text = (
        '# kept\n[optimizer]\nname = "sgd"\nmomentum = 0.9  # gone\nlr = 0.1\n\n[[workers]]\ncount = 1\n[[workers]]\ncount = 2\n'
    )
    source = override(TomlSource.parse(text, "job.toml"), ["~optimizer.momentum", "optimizer.name=adam", "~workers.0"])
    assert source.data == {"optimizer": {"name": "adam", "lr": 0.1}, "workers": [{"count": 2}]}
    assert tomllib.loads(source.text) == source.data
    assert source.text.startswith("# kept\n")


@pytest.mark.parametrize(("argument", "message"), [
    ("~optimizer.momentum", "no key `optimizer.momentum` to remove"), ("~optimizer.lr=1", "takes no value"), ("~", "expected ~key"),
    ("~workers.3", "it is empty"),
])  # fmt: skip
def test_what_cannot_be_removed(argument: str, message: str) -> None:
    with pytest.raises(UnfitOverrides) as refused:
        override(TomlSource.parse("workers = []\n[optimizer]\nlr = 0.1\n", "job.toml"), [argument])
    assert message in str(refused.value)
