"""`partrain explain`, `ls` and `schema`: the possible content of a job file, from the tables themselves, offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from partrain.cli.completion import complete_word
from partrain.cli.options import Debug, Json
from partrain.cli.shared import examples
from partrain.errors import Failure
from partrain.number_format import plural
from partrain.system.cores import usable_cores

if TYPE_CHECKING:
    from partrain.job.reference import KeyDescription, NamedTable

app = typer.Typer()

TABLES = {"models": "model", "rules": "sync", "datasets": "dataset", "optimizers": "optimizer"}
"""Kinds that `partrain ls` lists, and the tables that hold them."""
ANSWERS = {
    0: "done", 1: "a target was not reached, or an assertion does not hold", 2: "usage: the command line is wrong",
    70: "internal: a defect of partrain; please report it", 130: "stopped by Ctrl-C (SIGINT)", 143: "stopped by SIGTERM",
}  # fmt: skip
"""Exit codes that are not failures of a run."""
ONWARD = "`partrain resume RUN`"
CURES = {
    1: "train longer: `partrain resume RUN --until rounds=N`",
    2: "read the line; `--help`",
    65: "take another one of the run",
    66: "correct the path; install the extra that the message names",
    69: f"read the reason, then {ONWARD}",
    70: "report it with the traceback",
    71: "your lines are in the traceback",
    73: "choose another `--out` or `--output`",
    74: f"free some space, then {ONWARD}",
    75: f"raise `[transport] stall_seconds` if your iterations take that long, then {ONWARD}",
    76: "lower `lr`, or set `clip_norm`",
    77: "look at them; `--trust-code`, or `--job FILE`",
    78: "correct the job",
    130: ONWARD,
    143: ONWARD,
}
"""Advice for each exit code; docs/exit-codes.md has the same texts."""
WORDS = {
    "item": "a sample: one row, image, window or text of the data set",
    "iteration": "a step: one update of a worker's network on one batch",
    "pass": "an epoch of one worker: each item of its partition once",
    "item-iteration": "a sample seen: a batch of 64 items is 64 item-iterations",
    "round": "local iterations of all workers, and the mixing after them",
    "partition": "the training items of one worker; neighbours may overlap",
    "replica": "a worker's own copy of the network, which it trains",
    "rule": "the algorithm that mixes the replicas: parameter averaging and others",
    "judge": "evaluate the mixed network on held-out items (`validation`), as a validation loop does",
    "answer": "a prediction: the output of the trained network for an item",
}
"""partrain's terms, and terms that PyTorch users know."""


class UnknownWord(Failure):
    """A word that `explain` does not know."""

    code, name = 2, "usage"


@app.command(
    epilog=examples("partrain explain optimizer.lr", "partrain explain average", "partrain explain 78", "partrain explain words")
)
def explain(
    word: Annotated[
        str,
        typer.Argument(
            metavar="KEY|NAME|CODE",
            help="A key, a name or an exit code: optimizer.lr, average, cnn, 78; `words` lists the terms.",
            autocompletion=complete_word,
        ),
    ],
    *,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Explain a key of a job, a rule, a network, a data set, an optimizer, or an exit code."""
    terms = _words(word)
    explanations = _codes(word) or [*terms, *(_keys(word) if terms and word != "words" else ())] or _tables(word) or _keys(word)
    if not explanations:
        raise UnknownWord(f"`{word}` is no key, name or exit code{_near(word)}")
    print(json.dumps([content for _, content in explanations]) if as_json else "\n\n".join(text for text, _ in explanations))


@app.command("ls", epilog=examples("partrain ls rules", "partrain ls models --json"))
def list_names(
    kind: Annotated[
        Literal["models", "rules", "datasets", "optimizers", "devices", "jobs"], typer.Argument(help="The kind of names.")
    ],
    *,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List names for a job: networks, rules, data sets, optimizers, devices; or the jobs of this folder."""
    from partrain.display.text_table import aligned

    rows = _devices() if kind == "devices" else _jobs() if kind == "jobs" else _named(TABLES[kind])
    if as_json:
        print(json.dumps([{"name": name, "text": text} for name, text in rows]))
    else:
        print("\n".join(aligned(rows)))


@app.command(epilog=examples("partrain schema > job.schema.json"))
def schema(
    *,
    workflow: Annotated[bool, typer.Option("--workflow", help="Print the schema of workflow files instead.")] = False,
    debug: Debug = False,
) -> None:
    """Print the JSON Schema of job files, by which editors complete and check them."""
    from partrain.job.reference import json_schema
    from partrain.workflow.section import WorkflowSection

    print(json.dumps(json_schema(WorkflowSection) if workflow else json_schema(), indent=1))


Explanations = list[tuple[str, dict[str, Any]]]
"""Texts, and the same content as data."""


def _codes(word: str) -> Explanations:
    """Explain an exit code, or the name of a failure."""
    from partrain import errors

    kinds = [
        error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, Failure) and error is not Failure
    ]
    rows = [(kind.code, kind.name, (kind.__doc__ or "").partition("\n")[0]) for kind in kinds if hasattr(kind, "code")]
    rows += [(code, "", text) for code, text in ANSWERS.items()]
    chosen = [row for row in rows if word in (str(row[0]), row[1])]
    return [
        (
            f"exit code {code}{f', error[{name}]' if name else ''}: {text}"
            + (f"\n  what to do: {CURES[code]}" if code in CURES else ""),
            {"code": code, "name": name, "text": text, "cure": CURES.get(code)},
        )
        for code, name, text in chosen
    ]


def _words(word: str) -> Explanations:
    """Explain partrain's terms."""
    from partrain.display.text_table import aligned

    if word == "words":
        return [("\n".join(aligned(list(WORDS.items()))), dict(WORDS))]
    singular = word if word in WORDS else word.removesuffix("s")
    return [(f"{singular}: {WORDS[singular]}", {"word": singular, "text": WORDS[singular]})] if singular in WORDS else []


def _tables(word: str) -> Explanations:
    """Explain a rule, a network, a data set or an optimizer: its description and its keys."""
    from partrain.job.reference import keys_of, named_tables

    tables = [table for key in TABLES.values() for table in named_tables(key) if table.name == word]
    explanations: Explanations = []
    for named in tables:
        keys = list(keys_of(named.section, f"[{named.table}]"))
        lines = [f"[{named.table}] {word}", "", named.text, ""]
        lines += [f"  {key.key:<18} {_kind(key)}{_below(key.text)}" for key in keys]
        explanations.append(
            (
                "\n".join(lines).rstrip(),
                {"table": named.table, "name": word, "text": named.text, "keys": [key._asdict() for key in keys]},
            )
        )
    return explanations


def _keys(word: str) -> Explanations:
    """Explain a key, with its table or alone; a table by all its keys."""
    from partrain.job.reference import all_keys

    name = word.strip("[]")
    table, _, key = name.rpartition(".")
    keys = all_keys()
    of_table = [entry for entry in keys if entry.table.strip("[]") == name and not table]
    chosen = of_table or [
        entry for entry in keys if entry.key == key and (not table or entry.table.strip("[]") == table.partition(".")[0])
    ]
    return [(_key_text(entry), entry._asdict()) for entry in chosen]


def _key_text(key: KeyDescription) -> str:
    of = f"  ({', '.join(key.choices)})" if key.choices else ""
    example = f"\n  example: {key.key} = {key.example}" if key.example else ""
    return f"{key.table} {key.key}: {_kind(key)}{of}".strip() + _below(key.text, "  ") + example


def _kind(key: KeyDescription) -> str:
    default = f"default {key.default}" if key.default not in ("", "required") else key.default
    return f"{key.kind}, {default}" if default else key.kind


def _below(text: str, indent: str = " " * 21) -> str:
    return "".join(f"\n{indent}{line}" for line in text.splitlines())


def _near(word: str) -> str:
    from partrain.config.problems import did_you_mean
    from partrain.job.reference import all_keys, named_tables

    names = {table.name for key in TABLES.values() for table in named_tables(key)} | {entry.key for entry in all_keys()}
    near = did_you_mean(word.rpartition(".")[2], sorted(names - {""}))
    return f"; did you mean `{near}`?" if near else "; `partrain ls rules` and the like list names"


def _named(key: str) -> list[tuple[str, str]]:
    from partrain.job.reference import named_tables

    own = {"model": "file.py:Class", "dataset": "file.py:Class"}.get(key, "")

    def name(named: NamedTable) -> str:
        return named.name or own or "your own"

    return [(name(table), table.text.partition("\n")[0]) for table in named_tables(key)]


def _devices() -> list[tuple[str, str]]:
    """List this machine's devices."""
    from partrain.system.accelerator import found

    cores = usable_cores()
    return [("cpu", f"{cores} {plural('core', cores)}"), *((str(device.device), device.name) for device in found())]


def _jobs() -> list[tuple[str, str]]:
    """List the TOML files of this folder and of `jobs/`, each with its first comment."""
    files = [*Path().glob("*.toml"), *Path("jobs").rglob("*.toml")]
    firsts = [(file, _first_line(file.read_text(errors="replace"))) for file in sorted(files)]
    return [(str(file), first.lstrip("# ")) for file, first in firsts if first.startswith("#")]


def _first_line(text: str) -> str:
    """Return the first line intended for people."""
    lines = text.splitlines()
    return next((line for line in lines if not line.startswith("#:schema")), "")
