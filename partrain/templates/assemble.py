"""The text of a job that `partrain init --from` writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from partrain.config.overrides import toml_value
from partrain.system.cores import usable_cores

if TYPE_CHECKING:
    from partrain.data.tables.files import TableFile

FEW_ITEMS = 400
"""Number of training items below which one worker learns as fast as several."""
BREAKS = r"[\x00-\x08\n-\x1f\x7f]"
"""Characters that a comment must not contain; column names in comments may. Values have none: `toml_value` writes `\\n`."""
SHOWN = 6
"""Number of columns and texts that a note names; it counts the others."""


@dataclass(frozen=True)
class Recipe:
    """Training settings for writing a job."""

    batch: int | None = None
    """Items of a batch, of all workers together; None: 64 per worker, fewer if there are few items."""
    weight_decay: float = 0.01
    passes: int = 100
    """Maximum number of passes over the training items."""
    patience: int = 20
    """Number of judgements, one after each pass, without an improvement."""
    iterations: int | None = None
    """Local iterations between two averages; None: a pass."""


def names_in(words: str, file: TableFile) -> list[str]:
    """Return the columns that an option's value names: one, or several separated by commas."""
    return [words] if words in file.places else [name.strip() for name in words.split(",")]


class Draft(NamedTuple):
    """A job for a data file."""

    text: str
    notes: Sequence[str] = ()
    """Sentences on decisions made by examining the data."""


class Asked(NamedTuple):
    """Settings that the user asks for."""

    targets: tuple[str, ...] = ()
    kind: Literal["table", "series", "text", "images"] | None = None
    time: str | None = None
    """Column of time stamps, or `none`."""
    dialect: Mapping[str, Any] = {}
    """Keys of `Dialect`, except `null_values`."""
    null_values: tuple[str, ...] | None = None
    group: str | None = None
    """Column of units, or `none`."""
    horizon: int | None = None
    """Rows of a series to forecast."""


def listed(texts: Iterable[str]) -> str:
    """Join the first texts by commas, and count the others."""
    every = list(texts)
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN:,} more" if len(every) > SHOWN else "")


def assemble(
    path: Path,
    what: str,
    model: list[str],
    dataset: list[str],
    items: int,
    recipe: Recipe = Recipe(),
    task: Sequence[str] = (),
    decides: str = "loss",
) -> str:
    """Write a job: its tables `model`, `dataset` and `task` as lines, all others chosen for `items` training items.

    `what` describes the job in a sentence. `decides`, a judged number, chooses the best round. It is not an accuracy, even for
    classes: few held-out items make the accuracy move in steps of a percent or more, many rounds have equal values, and an equal
    number is no new best.
    """
    cores = usable_cores()
    workers = max(1, min(cores, items // (FEW_ITEMS // 2)))
    fitting = next(size for size in (64, 32, 16, 8, 4, 1) if size <= max(items // workers // 10, 1))
    batch = fitting if recipe.batch is None else max(min(recipe.batch, items) // workers, 1)
    few = f"{items:,} training items: " + ("too few to share" if workers < cores else f"a part for each of {cores} cores")
    name = (
        "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in path.name.partition(".")[0]).strip("-_")
        or "job"
    )
    if recipe.iterations is None:
        sync = ["passes = 1                   # passes of each worker over its items between two averages"]
        stop = [f"rounds = {recipe.passes}", "judge_every = 1"]
    else:
        rounds = max(1, round(items / (workers * batch * recipe.iterations)))
        sync = [f"iterations = {recipe.iterations}              # batches of each worker between two averages"]
        stop = [
            f"rounds = {recipe.passes * rounds:<20} # {recipe.passes} passes over the items",
            f"judge_every = {rounds:<15} # about once a pass",
        ]
    lines = [
        f"# {what}",
        "#",
        "# Written by `partrain init --from`. `partrain explain KEY` explains a key.",
        f"name = {toml_value(name)}",
        "seed = 0",
        "",
        "[model]",
        *model,
        "",
        "[dataset]",
        *dataset,
        "",
        *(["[task]", *task, ""] if task else []),
        "[optimizer]",
        'name = "adamw"               # a rate that suits most small networks',
        "lr = 0.003",
        f"weight_decay = {recipe.weight_decay}",
        f"batch_size = {batch}              # per worker",
        'schedule = "cosine"          # the rate falls to 0 towards the last round',
        "",
        "[sync]",
        'rule = "average"',
        *sync,
        "",
        "[[workers]]",
        'device = "cpu"',
        f"count = {workers}                    # {few}",
        "",
        "[stop]",
        *stop,
        f"patience = {recipe.patience}                # {'rounds' if recipe.iterations is None else 'judgements'} without a better judged {decides}",
        f"patience_by = {toml_value(decides):<14} # also chooses best.h5; few held-out items tell little by their accuracy",
    ]
    return "\n".join(re.sub(BREAKS, " ", line) for line in lines) + "\n"
