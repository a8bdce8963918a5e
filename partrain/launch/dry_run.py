"""The dry run of a job without a run: `partrain validate --build` reads the data, builds the network, and tries a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from partrain.job.load import LoadedJob, locating
from partrain.launch.context import RunContext, Start
from partrain.launch.coordinator import Coordinator
from partrain.launch.run import prepare


def dry_run(loaded: LoadedJob, warn: Callable[[str], None], note: Callable[[str], None]) -> int | None:
    """Do everything that `partrain run` does before workers start, including the dry run of built-in networks. Write no file.

    Args:
        loaded: The job; its `[sweep]` is ignored.
        warn: Shows a warning.
        note: Shows a line that is not a warning.

    Returns:
        The signal that ended the dry run early; None if it passed.

    Raises:
        Failure: The failure that would end the run.
    """
    loaded = replace(loaded, job=loaded.job.model_copy(update={"sweep": None}))
    context = RunContext(None, None, warn, note=note)
    with context.signals:
        prepared = prepare(loaded, context, None)
        try:
            with locating(loaded):
                Coordinator(prepared, Start(), context).dry_run()
        finally:
            prepared.close()
        return context.signals.first
