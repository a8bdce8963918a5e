"""`docs/reference/job.md` and `workflow.md`: every table and key, from the models that check them."""

from __future__ import annotations

from collections.abc import Sequence

from generate.markdown import cell, code, page, prose, table

from partrain.config.section import Section
from partrain.job.reference import KeyDescription, keys_of, named_tables
from partrain.job.schema import Job, heading, identity, tables_under
from partrain.workflow.section import StepSection, WorkflowSection

KINDS = {"model": "Model", "dataset": "Data set", "optimizer": "Optimizer", "sync": "Rule", "task": "Task"}
"""Tables with alternatives: the word before the name in a heading."""
LEADS = {
    "model": 'The network. `name` selects one of those below; `name = "file.py:Class"` is [your own](../your-own-code.md).',
    "dataset": "The items. `name` or `kind` selects one of those below. Pages: [tables](../tables.md), [images](../images.md), "
    "[series](../series.md), [text](../text.md), [inputs](../inputs.md).",
    "partition": "The items of each worker. [Concepts](../concepts.md) shows partitions with overlap.",
    "task": "Loss and metrics. Data set or model imply the kind. See [tasks and metrics](../tasks-and-metrics.md).",
    "optimizer": "The local optimizer of each worker, with torch's settings.",
    "sync": "The rule that mixes the replicas. See [choosing a rule](../choosing-a-rule.md).",
    "workers": "One table for each group of like workers. See [mixed devices](../mixed-devices.md).",
    "transport": "The way of the messages between workers. See [several machines](../several-machines.md).",
    "faults": "Reactions to lost workers. See [lost workers](../faults.md).",
    "stop": "The end of a run: limits and targets.",
    "checkpoint": "The checkpoints of a run. See [checkpoints](../checkpoints.md).",
    "hooks": "Your own code during a run. See [hooks](../hooks.md).",
    "sweep": "Many settings of one job. See [workflows and sweeps](../workflows.md).",
    "engine": "The computation.",
}


def job() -> str:
    """Return the reference of job files."""
    fields = [name for name, field in Job.model_fields.items() if tables_under(field)]
    top = [key for key in keys_of(Job, "") if key.key not in fields]
    return page(
        "Job reference",
        "This page answers: which keys does a job file have, with type, range, default and meaning. `partrain explain KEY` prints the "
        "same on a terminal. A key without a default may be left out unless it is `required`.",
        _contents(fields),
        "## Top of the file",
        _keys(top),
        *(part for name in fields for part in _table(name)),
    )


def workflow() -> str:
    """Return the reference of workflow files."""
    names = [key for key in keys_of(WorkflowSection, "") if key.key != "steps"]
    return page(
        "Workflow reference",
        "This page answers: which keys does a workflow file have. [Workflows and sweeps](../workflows.md) explains them with examples. "
        "A step may also have the name of a command of partrain as a key, with the options of the command as a table: "
        "[commands](commands.md).",
        "## Top of the file",
        _keys(names),
        "## `[[steps]]`",
        prose(StepSection.__doc__),
        _keys(list(keys_of(StepSection, "[[steps]]"))),
    )


def _contents(fields: Sequence[str]) -> str:
    rows = []
    for name in fields:
        links = ", ".join(f"[`{each.name}`](#{_anchor(name, each.name)})" for each in named_tables(name) if each.name)
        rows.append((f"[`{heading((name,))}`](#{name})", links))
    return table(("table", "names"), rows)


def _table(name: str) -> list[str]:
    """Return the part of one table of a job."""
    parts = [f"## `{heading((name,))}`", LEADS.get(name, "")]
    options = tables_under(Job.model_fields[name])
    if len(options) == 1:
        described = prose(options[0].__doc__)
        keys = list(keys_of(options[0], heading((name,))))
        own = "" if described.startswith("The `[") else described
        return [*parts, own, _keys(keys), *_inner(options[0], only=[key.key for key in keys])]
    common = _common(name)
    shared = {_identity(key) for key in common}
    if common:
        of_all = [key.key for key in common]
        parts += [f"Keys of every {KINDS[name].lower()}:", _keys(common), *_inner(named_tables(name)[0].section, only=of_all)]
    for each in named_tables(name):
        title = f"{KINDS[name]} `{each.name}`" if each.name else f"{KINDS[name]} of your own"
        own = [key for key in keys_of(each.section, heading((name,))) if _identity(key) not in shared]
        own = [key for key in own if key.key != identity(each.section)[0]]
        parts += [f"### {title}", prose(each.section.__doc__), _keys(own), *_inner(each.section, only=[key.key for key in own])]
    return parts


def _identity(key: KeyDescription) -> tuple[str, ...]:
    return key.key, key.kind, key.default, key.text


def _common(name: str) -> list[KeyDescription]:
    """Return the keys that all alternatives of a table have alike."""
    tables = [list(keys_of(each.section, heading((name,)))) for each in named_tables(name) if each.name]
    everywhere = set.intersection(*({_identity(key) for key in keys} for keys in tables))
    return [key for key in tables[0] if _identity(key) in everywhere]


def _inner(section: type[Section], only: Sequence[str]) -> list[str]:
    """Return the tables below some keys of a table, as `[[optimizer.groups]]`."""
    parts = []
    for name, field in section.model_fields.items():
        key = field.alias or name
        for inner in tables_under(field) if key in only else ():
            naming, names = identity(inner)
            which = f" with `{naming}` = {' or '.join(code(each) for each in names)}" if names else ""
            keys = [each for each in keys_of(inner, "") if each.key != naming]
            parts += [f"Keys of the table `{key}`{which}{'' if keys else ': none.'}" + ":" * bool(keys), _keys(keys)]
    return parts


def _keys(keys: Sequence[KeyDescription]) -> str:
    return table(("key", "type and range", "default", "meaning", "example"), [_row(key) for key in keys])


def _row(key: KeyDescription) -> tuple[str, ...]:
    default = key.default if key.default in ("", "required") else code(key.default)
    example = "" if key.example in ("", key.default) else code(cell(key.example))
    kind = ", ".join(code(each) if each.startswith('"') else each for each in key.kind.split(" | "))
    return code(key.key), kind, default, key.text, example


def _anchor(table_name: str, name: str) -> str:
    """Return the anchor of a name's heading, as GitHub and mkdocs make it."""
    kept = "".join(each for each in f"{KINDS[table_name]} {name}".lower() if each.isalnum() or each in " -_")
    return kept.replace(" ", "-")
