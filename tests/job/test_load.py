"""Whatever is wrong with a job file is said at once, in plain words, at its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cores import two_cores

from partrain.config.overrides import UNTIL
from partrain.config.problems import Rejected
from partrain.config.section import OneOf
from partrain.data import AnyDataset
from partrain.errors import BadJob, InputMissing
from partrain.job.load import load, parse, problems
from partrain.job.schema import identity
from partrain.models import AnyModel
from partrain.optim import AnyOptimizer
from partrain.rules import AnyRule
from partrain.training.stop import Stop

JOB = """\
# A trial.
name = "trial"

[model]
name = "mlp"

[dataset]
kind = "synthetic"
function = "blobs"

[optimizer]
name = "sgd"
lr = 0.1

[sync]
rule = "average"
iterations = 10

[[workers]]
count = 2

[stop]
rounds = 3
"""


def rejected(old: str, new: str) -> Rejected:
    """The refusal of the job with a change."""
    assert old in JOB
    with pytest.raises(Rejected) as caught:
        parse(JOB.replace(old, new), Path(), "job.toml")
    return caught.value


def shown(*lines: str) -> str:
    return "\n".join(lines)


def test_a_job_without_problems(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text(JOB)
    loaded = load(tmp_path / "trial.toml", ["optimizer.lr=0.5", "workers.0.count=1"])
    assert (loaded.job.optimizer.lr, loaded.job.workers[0].count) == (0.5, 1)
    assert loaded.text == JOB.replace("lr = 0.1", "lr = 0.5").replace("count = 2", "count = 1")
    assert loaded.folder == tmp_path
    assert loaded.warnings == []
    assert parse(loaded.text, tmp_path).job == loaded.job


@pytest.mark.parametrize(("old", "new", "said"), [
    ("lr = 0.1", "learning_rate = 0.1", "13:1-14 unknown key `learning_rate` in [optimizer]; did you mean `lr`?"),
    ("lr = 0.1", "lerning_rate = 0.1", "13:1-13 unknown key `lerning_rate` in [optimizer]; did you mean `lr`?"),
    ('kind = "synthetic"\nfunction = "blobs"', 'nam = "mnist"', "8:1-4 unknown key `nam` in [dataset]; did you mean `name`?"),
    ('kind = "synthetic"\nfunction = "blobs"', 'kind = "mnist"', "8:1-5 unknown key `kind` in [dataset]; did you mean `name`?"),
    ('kind = "synthetic"\nfunction = "blobs"', "",
     '7:1-10 missing key `kind` or `name` in [dataset]; one of kind = "csv", kind = "parquet", kind = "table", kind = "series", kind = "documents", kind = "images", kind = "text", name = "mnist", kind = "idx", kind = "npz", kind = "npy", kind = "hdf5", kind = "mapped", kind = "huggingface", kind = "synthetic", or your own as "package.module:Class" or "file.py:Class"'),
    ("lr = 0.1", "lr = 0.1\nmomentun = 0.9",
     "14:1-9 unknown key `momentun` in [optimizer]; did you mean `momentum`? (default 0.0)"),
    ("lr = 0.1", "lr = 0.1\nl_r = 2", "14:1-4 unknown key `l_r` in [optimizer]; did you mean `lr`? it is there already"),
    ("# A trial.", "threads = 4", "1:1-8 unknown key `threads` at the top of the file; `threads` belongs to [[workers]]"),
    ("lr = 0.1", "lr = 0.1\nbetas = [0.9]",
     '14:1-6 unknown key `betas` in [optimizer]; `betas` belongs to [optimizer] with name = "adam", "adamw", "nadam", "radam" or "adamax"'),
    ("rounds = 3", "rounds = 3\nlearning_rate = 2",
     "24:1-14 unknown key `learning_rate` in [stop]; did you mean `lr` in [optimizer]?"),
    ("rounds = 3", "rounds = 3\niterations = 2",
     "24:1-11 unknown key `iterations` in [stop]; did you mean `item_iterations` or `rounds`?"),
    ("rounds = 3", "rounds = 3\nseed = 2",
     "24:1-5 unknown key `seed` in [stop]; `seed` belongs to the top of the file, before the first table"),
    ("[stop]", "[trian]\n[stop]",
     "22:2-7 unknown table [trian]; legal: name, seed, model, dataset, partition, task, optimizer, sync, workers, transport, engine, faults, stop, checkpoint, hooks, sweep"),
    ('rule = "average"', 'rule = "averge"', '16:8-16 unknown rule "averge"; did you mean "average"?'),
    ('rule = "average"', 'rule = "fedavg"', '16:8-16 unknown rule "fedavg"; did you mean "average"?'),
    ('name = "mlp"', 'name = "quark"',
     '5:8-15 unknown model "quark"; one of "linear", "mlp", "tabular", "autoencoder", "lenet", "cnn", "resnet", "rnn", "lstm", "gru", "bag", "transformer", "torchvision:NAME", "timm:NAME", or your own as "package.module:Class" or "file.py:Class"'),
    ('name = "mlp"', 'name = "net.py:"',
     '5:8-17 `name`: expected "package.module:Class" or "file.py:Class", got the string "net.py:"'),
    ('name = "sgd"\n', "",
     '11:1-12 missing key `name` in [optimizer]; one of "sgd", "adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "adagrad", "rprop", "lbfgs", "muon"'),
    ("lr = 0.1", "", "11:1-12 missing key `lr` in [optimizer]"),
    ("[stop]\nrounds = 3\n", "", "1:1-1 missing table [stop]; add [stop] and below it rounds = 100"),
    ('name = "trial"', "", '1:1-1 missing key `name` at the top of the file; add name = "trial"'),
    ("[[workers]]", "[workers]",
     "19:1-10 expected a list of tables [[workers]], got a table; write [[workers]] and below it count = 2"),
    ("[stop]", "[[stop]]", "22:1-9 expected one table [stop], got a list; write [stop] once"),
    ('[model]\nname = "mlp"\n', 'model = "mlp"\n',
     '4:9-14 expected a table [model], got the string "mlp"; write [model] and below it name = "mlp"'),
    ("count = 2", 'count = "3"', '20:9-12 `count`: expected an integer, got the string "3"; write 3 without quotes'),
    ("count = 2", "count = true", "20:9-13 `count`: expected an integer, got true; write a number, such as 1"),
    ("count = 2", "count = 2.0", "20:9-12 `count`: expected an integer, got 2.0; write 2"),
    ("rounds = 3", "rounds = 1e3", "23:10-13 `rounds`: expected an integer, got 1000.0; write 1000"),
    ("rounds = 3", "rounds = 0.0", "23:10-13 `rounds`: expected an integer, got 0.0"),
    ("rounds = 3", 'rounds = 3\n[checkpoint]\ncommit = "each"',
     '25:10-16 `commit`: expected "coalesce" or "every", got the string "each"'),
    ("[stop]", '[transport]\nkind = "distributed"\n[stop]',
     '23:8-21 `kind`: expected "shared" or "simulated", got the string "distributed"; leave it out, and start the job under torchrun on each machine'),
    ('name = "mlp"', 'name = "mlp"\nhidden = 64', "6:10-12 `hidden`: expected a list, got 64; write [64]"),
    ("[stop]", "[engine]\nexact = 1\n[stop]", "23:9-10 `exact`: expected true or false, got 1; write true"),
    ('kind = "synthetic"\nfunction = "blobs"', 'kind = "npz"\npath = "x.npz"\nstandardise = "yes"',
     '10:15-20 `standardise`: expected true or false or "channel", got the string "yes"'),
    ('kind = "synthetic"\nfunction = "blobs"', 'kind = "npz"\npath = "x.npz"\ntokens = [1]',
     "10:10-13 `tokens`: expected true or false or a list of texts, got a list"),
    ("count = 2", "count = 0", "20:9-10 `count`: expected 1 to 16,384, got 0"),
    ("count = 2", "count = 1000000000", "20:9-19 `count`: expected 1 to 16,384, got 1000000000"),
    ("lr = 0.1", "lr = nan", "13:6-9 `lr`: expected a finite number, got nan"),
    ("lr = 0.1", "lr = 0", "13:6-7 `lr`: expected more than 0, got 0"),
    ("lr = 0.1", "lr = 2026-11-21", "13:6-16 `lr`: expected a number, got the date 2026-11-21"),
    ("lr = 0.1", "lr = {}", "13:6-8 `lr`: expected a number, got a table"),
    ("lr = 0.1", 'lr = 0.1\nschedule = "cosnie"',
     '14:12-20 `schedule`: expected "constant", "step", "linear", "cosine", "polynomial", "exponential" or "one-cycle", got the string "cosnie"; did you mean "cosine"?'),
    ("count = 2", 'device = "GPU 0"',
     '20:10-17 `device`: expected "cpu", a kind of accelerator as "cuda", or one device as "cuda:0", got the string "GPU 0"'),
    ('name = "trial"', 'name = "a\\u001bb"',
     '2:8-18 `name`: expected letters, digits, `.`, `_` and `-`, at most 100, got the string "a\\x1bb"'),
    ('name = "mlp"', 'name = "mlp"\nhidden = [\n  64,\n  0,\n]', "8:3-4 `hidden[1]`: expected at least 1, got 0"),
    ("[stop]", '[partition]\norder = "given"\nredraw = "round"\n[stop]',
     '24:1-7 redraw = "round" shuffles the items again each round, which contradicts order = "given"'),
])  # fmt: skip
def test_what_is_said(old: str, new: str, said: str) -> None:
    """Line, columns, message; suggestion."""
    (problem,) = rejected(old, new).problems
    assert (
        f"{problem.line}:{problem.column}-{problem.end_column} {problem.message}; {problem.suggestion}".removesuffix("; ") == said
    )


def test_problems_are_shown_in_the_order_of_their_lines() -> None:
    workers = "[transport]\nkind = 3\n[[worker]]\ncounts = 2\n[[worker]]\nthreads = -1\n"
    assert rejected("[[workers]]\ncount = 2\n", workers).detail == shown(
        'job.toml:20:8: `kind`: expected "shared" or "simulated", got 3',
        "   |",
        "20 | kind = 3",
        "   |        ^",
        "",
        "job.toml:21:3: unknown table [[worker]]",
        "   |",
        "21 | [[worker]]",
        "   |   ^^^^^^ did you mean [[workers]]?",
        "",
        "job.toml:22:1: unknown key `counts` in [[workers]]",
        "   |",
        "22 | counts = 2",
        "   | ^^^^^^ did you mean `count`? (default 1)",
        "",
        "job.toml:24:11: `threads`: expected 1 to 1,024, got -1",
        "   |",
        "24 | threads = -1",
        "   |           ^^",
    )


def test_a_slip_in_a_table_hides_nothing_below_it() -> None:
    changed = rejected('[optimizer]\nname = "sgd"\nlr = 0.1', '[optimiser]\nname = "sdg"\nlr = "fast"\nbatch = 0')
    assert [problem.summary for problem in changed.problems] == [
        "job.toml:11:2: unknown table [optimiser]",
        'job.toml:12:8: unknown optimizer "sdg"',
        'job.toml:13:6: `lr`: expected a number, got the string "fast"',
        "job.toml:14:1: unknown key `batch` in [optimizer]",
        "job.toml:14:9: `batch_size`: expected at least 1, got 0",
    ]


@two_cores
def test_no_error_is_printed_twice(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('name = "x"\n[modle]\n')
    with pytest.raises(Rejected) as caught:
        load(tmp_path / "job.toml")
    assert caught.value.render().count("missing table [dataset]") == 1


def test_the_one_line_names_the_first_error_and_counts_the_others(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("lr = 0.1", "lr = -1\nmomentun = 2").replace("rounds = 3", "rounds = true"))
    with pytest.raises(Rejected) as caught:
        load(path, ["seed=-1"])
    assert (
        caught.value.message
        == "--set seed=-1: `seed`: expected at least 0 and less than 9,223,372,036,854,775,808, got -1, and 4 more problems"
    )
    assert caught.value.render().startswith("partrain: error[bad-job]: --set seed=-1: ")
    found = problems(path, ["seed=-1"])
    assert [(problem.line, problem.column) for problem in found] == [(0, 12), (13, 6), (14, 1), (14, 12), (24, 10)]
    assert [problem.line for problem in problems(path)] == [13, 14, 14, 24]
    assert found[2].as_dict() == {
        "place": str(path),
        "line": 14,
        "column": 1,
        "end_column": 9,
        "message": "unknown key `momentun` in [optimizer]",
        "suggestion": "did you mean `momentum`? (default 0.0)",
        "severity": "error",
    }


def test_a_single_problem_is_said_once() -> None:
    assert rejected("lr = 0.1", "lr = 0").render() == shown(
        "partrain: error[bad-job]: job.toml:13:6: `lr`: expected more than 0, got 0", "   |", "13 | lr = 0", "   |      ^"
    )


def test_only_stop_conditions_are_moved_by_until() -> None:
    assert parse(JOB, Path(), overrides=["rounds=500", "seconds=9.5"], flag=UNTIL).job.stop == Stop(rounds=500, seconds=9.5)
    with pytest.raises(Rejected) as caught:
        parse(JOB, Path(), overrides=["rounds=0", "optimizer.lr=1", "seed=1"], flag=UNTIL)
    assert [problem.summary for problem in caught.value.problems] == [
        "--until optimizer.lr=1: unknown table [stop.optimizer]",
        "--until seed=1: unknown key `seed` in [stop]",
        "--until rounds=0: `rounds`: expected 1 to 1,000,000,000,000, got 0",
    ]


def test_problems_says_the_same_of_text_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("a = [\n")
    assert [problem.message for problem in problems(path)] == ["invalid TOML: invalid value"]
    with pytest.raises(InputMissing):
        problems(tmp_path / "none.toml")


_values = st.sampled_from(
    [
        "1",
        '"x"',
        "true",
        "nan",
        "[]",
        "[1]",
        "[[]]",
        "{}",
        "[{}]",
        "2026-11-21",
        "07:00:00",
        "{name = {}}",
        '{rule = "bsp"}',
        '{kind = "idx"}',
    ]
)
_LINES = [line for line in JOB.splitlines() if "=" in line]
_TABLES = ["model", "dataset", "optimizer", "sync", "workers", "stop", "transport", "task"]


def leads_to_nothing_but_problems(text: str) -> None:
    try:
        parse(text, Path())
    except BadJob as failure:
        said = failure.detail
        internal = ("pydantic", "Input should", "_which", "tag", "discriminator", "valid dictionary")
        assert not any(word in said for word in internal), said


@given(st.sampled_from(_LINES), _values, st.sampled_from(["", "name", "kind", "rule", "user", "mlp", "count", "stop"]))
def test_no_value_leads_to_anything_but_problems(line: str, value: str, key: str) -> None:
    leads_to_nothing_but_problems(JOB.replace(line, f"{key or line.split(' =')[0]} = {value}", 1))


@given(st.lists(st.sampled_from(_TABLES), unique=True), _values)
def test_no_table_leads_to_anything_but_problems(tables: list[str], value: str) -> None:
    kept = [part for part in JOB.split("\n[") if not any(part.lstrip("[").startswith(table) for table in tables)]
    leads_to_nothing_but_problems("\n".join([*(f"{table} = {value}" for table in tables), "\n[".join(kept)]))


@two_cores
def test_validating_imports_no_heavy_library(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(JOB.replace('kind = "synthetic"\nfunction = "blobs"', 'name = "mnist"'))
    bad.write_text(JOB.replace("lr", "lerning_rate"))
    program = (
        "import sys; from partrain.job.load import problems\n"
        "print([len(problems(path)) for path in sys.argv[1:]], sorted({'torch', 'numpy', 'h5py', 'tomlkit', 'typer', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program, good, bad], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1] []\n"


@pytest.mark.parametrize("tables", [AnyRule, AnyDataset, AnyModel, AnyOptimizer])
def test_tables_stand_under_the_names_they_go_by(tables: Any) -> None:
    """Where they are listed and what they say of themselves are two places; the user's own say nothing."""
    (one_of,) = (part for part in get_args(tables) if isinstance(part, OneOf))
    for name in one_of.targets:
        assert identity(one_of.table(name))[1] == (() if name == "user" else (name,))


@pytest.mark.parametrize(
    ("table", "word", "meant"),
    [
        ("stop", "max_epochs", "rounds"), ("stop", "steps", "rounds"), ("sync", "max_epochs", "passes"), ("sync", "steps", "iterations"),
        ("optimizer", "batch", "batch_size"), ("optimizer", "bs", "batch_size"), ("stop", "early_stopping", "patience"),
        ("dataset", "val_split", "validation"), ("workers.0", "world_size", "count"),
    ],
)  # fmt: skip
def test_words_of_other_tools_are_understood(table: str, word: str, meant: str) -> None:
    job = Path(__file__).parents[2] / "jobs/mnist.toml"
    found = [problem for problem in problems(job, [f"{table}.{word}=3"]) if f"`{word}`" in problem.message]
    assert [problem.suggestion.partition("?")[0] for problem in found] == [f"did you mean `{meant}`"]


SWEEP = """
[sweep]
trials = 2
"""


@pytest.mark.timeout(30)  # a wrong range was corrected without end
@pytest.mark.parametrize(("line", "message"), [
    ("optimizer.lr = {low = 0.1}", "`optimizer.lr` needs a list of values, or a range as {low = 0.01, high = 1.0, log = true}"),
    ("optimizer.lr = {low = 1.0, high = 0.1}", "`optimizer.lr`: `low` must be below `high`"),
    ('"optimizer.lr" = {low = 0.1, top = 1.0}', "`optimizer.lr` needs a list of values"),
    ("optimizer.lr = 0.1", "`optimizer.lr` needs a list of values"),
    ("[sweep.grid]\noptimizer.lr = [0.1]", "`grid` is no table or key of a job"),
    ("optimizr.lr = [0.1]", "`optimizr` is no table or key of a job"),
])  # fmt: skip
def test_wrong_values_of_a_sweep(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text((Path(__file__).parents[2] / "jobs/sine.toml").read_text() + SWEEP + line + "\n")
    (found,) = [problem for problem in problems(path) if problem.severity == "error"]
    assert found.message.startswith(message)
    assert found.line > 1


def test_keys_of_a_sweep_need_no_quotes(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "jobs/sine.toml").read_text()
    bare = parse(text + "\n[sweep]\noptimizer.lr = [0.1, 0.2]\nzip = {model.hidden = [[4], [8]]}\n", tmp_path, "a").job.sweep
    quoted = parse(
        text + '\n[sweep]\n"optimizer.lr" = [0.1, 0.2]\nzip = {"model.hidden" = [[4], [8]]}\n', tmp_path, "b"
    ).job.sweep
    assert bare == quoted
