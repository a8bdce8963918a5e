"""A run's job, changed to train also on the held-out items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from partrain.checkpoint import Content
from partrain.data.base import HasValidationPath
from partrain.errors import BadJob
from partrain.job.load import LoadedJob
from partrain.job.sweep import HELD_OUT


def on_all_items(loaded: LoadedJob, best: Content, path: Path) -> LoadedJob:
    """Return the job that trains from the start on all items except the test's, for as many rounds as a run's best network had.

    The held-out items chose the number of rounds, so the job may now train on them. A schedule ends with the last round.

    Args:
        loaded: The job of the run.
        best: The checkpoint of its best judged round.
        path: The checkpoint's file, for messages.

    Raises:
        BadJob: The run holds no items out.
    """
    if isinstance(section := loaded.job.dataset, HasValidationPath) and section.validation_path:
        raise BadJob(f"{path}: its held-out items have their own file: put them into the file of `path`, and train again")
    if not loaded.job.dataset.held_out:
        raise BadJob(f"{path}: its run held no items out, so it has trained on all: there is nothing to train again on")

    if loaded.job.sync.noise_multiplier:
        raise BadJob(
            f"{path}: a second run with the same seed has the same noise, and the difference of both networks has none: "
            "train anew with another `seed`"
        )

    def edit(tables: dict[str, Any]) -> None:
        tables["dataset"] = {key: value for key, value in tables["dataset"].items() if f"dataset.{key}" not in HELD_OUT}
        tables["stop"] = {"rounds": best.round}
        tables.get("hooks", {}).pop("after_judgement", None)  # no round is judged

    return loaded.edited(f"{path}:/job", edit)
