"""`docs/reference/job.md` and `workflow.md`: every table and key, from the models that check them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from generate.markdown import cell, code, page, prose, table

from partrain.cli.main import all_commands
from partrain.cli.workflow import commands
from partrain.config.section import Section
from partrain.job.reference import KeyDescription, keys_of, named_tables
from partrain.job.schema import Job, heading, identity, tables_under
from partrain.workflow.section import StepSection, WorkflowSection

KINDS = {"model": "Model", "dataset": "Data set", "optimizer": "Optimizer", "sync": "Rule", "task": "Task"}
"""Tables with alternatives: the word before the name in a heading."""
LEADS = {
    "model": 'The network. `name` selects one of those below; `name = "file.py:Class"` is [your own](../your-own-code.md). Pages: '
    "[networks](../networks.md), [fine-tuning](../fine-tuning.md). In shapes, b is the number of items of a batch, k the number of "
    "answers (classes or numbers), c, h and w are channels, height and width.",
    "dataset": "The items. `name` or `kind` selects one of those below. Pages: [tables](../tables.md), [images](../images.md), "
    "[series](../series.md), [text](../text.md), [arrays](../arrays.md), [inputs](../inputs.md). In shapes, n is the number of items.",
    "partition": "The items of each worker. [Concepts](../concepts.md) shows partitions with overlap.",
    "task": "Loss and metrics. The table may be left out: the data set or the network implies the task. See "
    "[tasks and metrics](../tasks-and-metrics.md).",
    "optimizer": "The optimizer of each worker, with the names and settings of torch.optim, and its learning-rate schedule.",
    "sync": "The rule that mixes the replicas, and the length of a round. See [choosing a rule](../choosing-a-rule.md). In formulas, "
    "N is the number of workers, and x_i are the parameters of worker i. `a <- b` gives a the value b.",
    "workers": "One table for each group of equal workers. See [CPU and GPU in one training](../mixed-devices.md).",
    "transport": "The exchange of messages between workers, the limit for stuck workers, and the simulated clock. See "
    "[several machines](../several-machines.md).",
    "faults": "Reactions to lost workers and to numbers that are not finite. See [lost workers](../faults.md).",
    "stop": "The end of a run. The first condition that holds ends it: a limit, or a target, which is a success. A job needs at least one "
    "limit: `rounds`, `item_iterations`, `seconds` or `patience`.",
    "checkpoint": "The checkpoints of a run. See [checkpoints](../checkpoints.md).",
    "hooks": "Your own code during a run. See [hooks](../hooks.md).",
    "sweep": "Many settings of one job. See [workflows and sweeps](../workflows.md).",
    "engine": "Number type and exactness of the computation.",
}
TASKS = {
    "classification": "One class for each item. Answers (b, classes) are logits, targets are labels. Loss: cross-entropy. "
    "Accuracy: share of right classes.",
    "regression": "Numbers (b, k) for each item. Loss: mean squared error, unless `loss` names another one.",
    "forecast": "The next numbers of a series, as a regression. Answers (b, steps * columns).",
    "language": "The next token after each token. Answers (b, length, vocabulary) are logits. Loss: cross-entropy of each token. "
    "Accuracy: share of right tokens.",
    "autoencoder": "The item itself. Loss: mean squared error between answer and item, unless `loss` names another one.",
    "multi-label": "Several labels for each item, each 0 or 1. Answers (b, labels) are logits. Loss: binary cross-entropy of each label. "
    "Accuracy: share of right labels.",
    "segmentation": "A class for each pixel. Answers (b, classes, h, w) are logits, targets (b, h, w) labels. Loss: cross-entropy of each "
    "pixel. Accuracy: share of right pixels.",
}
"""The built-in tasks, which are one table with many kinds."""


def job() -> str:
    """Return the reference of job files."""
    fields = [name for name, field in Job.model_fields.items() if tables_under(field)]
    top = [key for key in keys_of(Job, "") if key.key not in fields]
    return page(
        "Job reference",
        "This page answers: which keys does a job file have, with type, range, default and meaning. `partrain explain KEY` prints the "
        "same on a terminal. A key without a default may be left out unless it is `required`. Types: text is a string in quotes, `list: text` "
        "a list of strings in brackets, a table is `{key = value}`.",
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
        "This page answers: which keys does a workflow file have, with type, default and meaning. "
        "[Workflows and sweeps](../workflows.md) explains them with examples. "
        "A step may also have the name of a command of partrain as a key, with the options of the command as a table: "
        "[commands](commands.md).",
        "## Top of the file",
        _keys(names),
        "## `[[steps]]`",
        prose(StepSection.__doc__),
        _keys(list(keys_of(StepSection, "[[steps]]"))),
        "## Commands as steps",
        'The key is the name of the command, its value a table: `compare = {paths = ["{a.folder}", "{b.folder}"], output = "table.md"}`. '
        "Input files are relative to the workflow file, output files to the step's folder. Bold keys are required.",
        table(
            ("command", "keys"),
            [
                (
                    code(".".join(spec.words)),
                    ", ".join(
                        f"**`{key.key}`**" if key.required else f"`{key.key}`" for key in spec.parameters if key.key != "json"
                    ),
                )
                for spec in commands(all_commands()).values()
            ],
        ),
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
        described = TASKS.get(each.name, "") if name == "task" else ""
        parts += [
            f"### {title}",
            described or prose(each.section.__doc__),
            _keys(own),
            *_inner(each.section, only=[key.key for key in own]),
        ]
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
    kind = ", ".join(re.sub(r'"[^"]*"', lambda found: code(found[0]), each) for each in key.kind.split(" | "))
    return code(key.key), kind, default, key.text, example


def _anchor(table_name: str, name: str) -> str:
    """Return the anchor of a name's heading, as GitHub and mkdocs make it."""
    kept = "".join(each for each in f"{KINDS[table_name]} {name}".lower() if each.isalnum() or each in " -_")
    return kept.replace(" ", "-")
