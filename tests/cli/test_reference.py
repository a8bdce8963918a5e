"""`explain`, `ls` and `schema` tell what the tables of a job are; nothing is written twice."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
from pydantic import TypeAdapter
from support.runs import JOB, partrain

from partrain.cli.reference import CURES
from partrain.job.reference import all_keys, json_schema, keys_of, named_tables
from partrain.job.schema import Job, heading, tables_under

ROOT = Path(__file__).parents[2]
JOBS = sorted(path for path in (ROOT / "jobs").rglob("*.toml") if path.parent.name != "workflows")
NAMED = [each for key in ("model", "sync", "dataset", "optimizer") for each in named_tables(key)]


def told(*words: object) -> str:
    said = partrain(*words)
    assert (said.code, said.err) == (0, ""), said
    return said.out


@pytest.mark.parametrize("table", [each for each in NAMED if each.name], ids=lambda each: f"{each.table}-{each.name}")
def test_each_name_is_explained_with_all_of_its_keys(table: Any) -> None:
    (found,) = [each for each in json.loads(told("explain", table.name, "--json")) if each["table"] == table.table]
    assert found["text"] == table.text != ""
    assert [key["key"] for key in found["keys"]] == [field.alias or name for name, field in table.section.model_fields.items()]


@pytest.mark.parametrize(("word", "lines"), [
    ("optimizer.lr", ["[optimizer] lr: number > 0, required  (sgd, adam, ", "Peak learning rate."]),
    ("stop.rounds", ["[stop] rounds: whole number ≥ 1", "  Limit: number of rounds, each of local training and mixing."]),
    ("overlap", ["[partition] overlap: number ≥ 0, < 1, default 0.0", "0: disjoint"]),
    ("seed", ["seed: whole number ≥ 0, < 9,223,372,036,854,775,808, default 0"]),
    ("[checkpoint]", ["[checkpoint] commit: ", "[checkpoint] keep: "]),
    ("78", ["exit code 78, error[bad-job]: "]),
    ("workers-lost", ["exit code 69, error[workers-lost]: "]),
    ("130", ["exit code 130: stopped by Ctrl-C"]),
    ("69", ["\n  what to do: read the reason, then `partrain resume RUN`"]),
    ("words", ["item-iteration  a sample seen", "round  "]),
    ("pass", ["an epoch of one worker"]),
    ("iterations", ["iteration: a step", "[sync] iterations: ", "[[workers]] iterations: "]),
])  # fmt: skip
def test_explanations(word: str, lines: list[str]) -> None:
    text = told("explain", word)
    assert [line for line in lines if line not in text] == [], text


def test_the_page_of_exit_codes_has_the_same_cures() -> None:
    rows = [
        line.split(" | ") for line in (ROOT / "docs/exit-codes.md").read_text().splitlines() if line[:3].strip("| ").isdigit()
    ]
    assert {int(row[0].strip("| ")): row[-1].removesuffix(" |") for row in rows if int(row[0].strip("| "))} == CURES
    for code in CURES:
        assert json.loads(told("explain", code, "--json"))[0]["cure"] == CURES[code]


def test_every_key_has_an_example_that_it_takes() -> None:
    without = []
    for name, field in Job.model_fields.items():
        for section in tables_under(field) or [Job]:
            table = heading((name,)) if tables_under(field) else ""
            for key in keys_of(section, table):
                if (table, key.key) in {("", each) for each in Job.model_fields if tables_under(Job.model_fields[each])}:
                    continue
                if not key.example:
                    without.append(f"{table} {key.key}")
                    continue
                (each,) = (one for other, one in section.model_fields.items() if (one.alias or other) == key.key)
                annotation: Any = Annotated[each.annotation, *each.metadata] if each.metadata else each.annotation
                TypeAdapter(annotation).validate_python(tomllib.loads(f"x = {key.example}")["x"])
    assert without == []
    assert "\n  example: lr = 0.1" in told("explain", "optimizer.lr")


def test_an_unknown_word_is_refused_with_a_suggestion() -> None:
    said = partrain("explain", "lrr")
    assert (said.code, said.err) == (2, "partrain: error[usage]: `lrr` is no key, name or exit code; did you mean `lr`?\n")
    assert "partrain ls rules" in partrain("explain", "qwertyuiop").err


def test_every_key_has_its_text() -> None:
    """Keys that name their table or speak for themselves have none; new keys do not join them without a reason."""
    without = {(each.table, each.key) for each in all_keys() if not each.text and each.key not in ("name", "kind", "rule")}
    assert len(without) <= 45, sorted(without)


def test_names_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, key in {"models": "model", "rules": "sync", "datasets": "dataset", "optimizers": "optimizer"}.items():
        names = [each["name"] for each in json.loads(told("ls", kind, "--json"))]
        assert set(names) >= {each.name for each in NAMED if each.table == key and each.name}
    assert "average " in told("ls", "rules")
    assert told("ls", "devices").startswith("cpu")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text("# The first line.\n" + JOB)
    assert told("ls", "jobs").split("  ")[0] == "a.toml"


def test_an_unknown_kind_of_names_gets_the_list() -> None:
    assert "Error: Invalid value for 'kind': 'runs' is not one of 'models', 'rules'," in partrain("ls", "runs").err


@cache
def validator() -> Any:
    return jsonschema.Draft202012Validator(json_schema())


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_schema_accepts_every_job(path: Path) -> None:
    assert [error.message[:200] for error in validator().iter_errors(tomllib.loads(path.read_text()))] == []


@pytest.mark.parametrize("change", [
    {"stop": {"round": 4}}, {"sync": {"rule": "avrage"}}, {"sync": {"rule": "average", "iterations": 0}}, {"workers": {"count": 2}},
    {"optimizer": {"name": "sgd"}}, {"model": {"name": "mlp", "hidden": "16"}}, {"seed": -1}, {"colour": 1},
])  # fmt: skip
def test_the_schema_refuses_what_validate_refuses(change: dict[str, Any]) -> None:
    job = tomllib.loads(JOB)
    assert list(validator().iter_errors(job)) == []
    assert list(validator().iter_errors(job | change)) != []


@pytest.mark.representative
def test_the_schemas_that_ship_are_those_that_are_printed() -> None:
    """`make schema` writes them."""
    for name, words in ("job", ()), ("workflow", ("--workflow",)):
        assert (ROOT / f"partrain/templates/{name}.schema.json").read_text() == told("schema", *words)


@pytest.mark.representative
def test_the_schema_is_printed() -> None:
    assert json.loads(told("schema")) == json.loads(json.dumps(json_schema()))
    workflow = jsonschema.Draft202012Validator(json.loads(told("schema", "--workflow")))
    for path in (ROOT / "jobs/workflows").glob("*.toml"):
        assert [error.message[:200] for error in workflow.iter_errors(tomllib.loads(path.read_text()))] == []
    jsonschema.Draft202012Validator.check_schema(json_schema())
    optimizer = next(each for each in tables_under(Job.model_fields["optimizer"]))
    lr = next(key for key in keys_of(optimizer, "[optimizer]") if key.key == "lr")
    assert lr.text in json.dumps(json_schema(), ensure_ascii=False)
