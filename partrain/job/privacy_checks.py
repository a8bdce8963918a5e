"""Contradictions of `[sync] noise`: keys through which a client would affect the network beyond what the noise hides."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from partrain.job.contradictions import row

if TYPE_CHECKING:
    from partrain.data.partition import Partition
    from partrain.models import AnyModel
    from partrain.rules import AnyRule

GUESSED = 10**12
"""Seeds below this can be guessed: a computer tries them all in days."""


def _missing(sync: AnyRule, clients: int | None, bound: float | None) -> str:
    """Return the first key that noise requires and the job lacks."""
    wanted = {
        "`max_update_norm` in [faults], the bound of a client's update": bound is not None,
        "`clients`, the number of workers in a round": sync.clients is not None or clients is not None,
        'client_sampling = "uniform"': sync.client_sampling == "uniform",
        'weights = "equal"': sync.weights == "equal",
    }
    return next((key for key, has in wanted.items() if not has), "")


def _moves_items(partition: Partition) -> str:
    if partition.redraw != "never":
        return "redraw"
    return "balance" if partition.balance != "none" else "overlap" * bool(partition.overlap)


def _has_batch_norm(model: AnyModel) -> str:
    if getattr(model, "batch_norm", False):
        return "batch_norm"
    return "norm" * (getattr(model, "norm", "") == "batch")


OF_PRIVACY = (
    row("sync.noise", lambda sync, partition, faults: sync.noise_multiplier
        and _missing(sync, partition.clients, faults.max_update_norm),
        "`noise` needs {0}", "add it, or remove `noise`"),
    row("transport.availability", lambda sync, transport: sync.noise_multiplier and not transport.always_reached,
        "`noise` needs the same number of workers in each round, and some cannot be reached", "remove one of the two"),
    row("sync.optimizer_state", lambda sync, optimizer: sync.noise_multiplier and sync.optimizer_state == "average" and optimizer.moments,
        "the moments of the optimizers would be averaged without noise", 'set optimizer_state = "local" or "reset"'),
    row("model.{0}", lambda sync, model: sync.noise_multiplier and _has_batch_norm(model),
        "the statistics of BatchNorm would be in the network without noise", "use another norm, or none"),
    row("model.linear", lambda sync, model: sync.noise_multiplier and model.starts_from_items,
        "the network would start from the items of all workers, without noise", "remove it"),
    row("sync.schedule", lambda sync: sync.noise_multiplier and getattr(sync, "schedule", "") in ("adacomm", "overhead")
        and sync.schedule,
        'schedule = "{0}" goes by losses or times of all workers, which have no noise', 'use "constant", "post-local" or "qsr"', "value"),
    row("partition.{0}", lambda sync, partition: sync.noise_multiplier and _moves_items(partition),
        "`noise` hides a worker with its items, and `{0}` gives an item to several workers", "remove one of the two"),
    row("faults.on_nonfinite", lambda sync, faults: sync.noise_multiplier and faults.on_nonfinite == "exclude",
        '`noise` needs the same number of workers in each mean, and "exclude" leaves some out', 'use "stop"', "value"),
    row("faults.on_loss", lambda sync, faults: sync.noise_multiplier and faults.on_loss == "drop",
        '`noise` hides a worker with its items, and "drop" gives them to others', 'use "replay" or "stop"', "value"),
    row("seed", lambda sync, seed: sync.noise_multiplier and seed < GUESSED,
        "others can guess a seed of {seed:,}, compute the noise from it, and take it away",
        "set a `seed` of 18 random digits, and keep it secret", "value", "warning"),
)  # fmt: skip
"""On any machine."""

ACCOUNTED = row("sync.noise", lambda sync: sync.noise_multiplier and not find_spec("dp_accounting"),
    "privacy is not accounted: dp-accounting is not installed", "pip install 'partrain[privacy]'", severity="warning")  # fmt: skip
"""On this machine."""
