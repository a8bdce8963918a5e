"""The privacy of a client of a federated run: epsilon at a fixed delta, for the rounds so far (`[sync] noise`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, TypedDict

from partrain.number_format import counted

DELTA = 1e-5
"""Delta for which a finished run reports epsilon."""


class NoisyMean(TypedDict):
    """The noisy mean of every round."""

    noise: float
    """Noise multiplier z: standard deviation of the noise in the sum of the updates, divided by the largest norm of an update."""
    clients: int
    """Number of workers that train in a round."""
    workers: int
    """Number of workers from which they are drawn."""


class PrivacyOptions(TypedDict, total=False):
    """Fields that only some runs have."""

    epsilon: float | None
    """Epsilon; null without a bound. Absent if dp-accounting is not installed."""


class Privacy(NoisyMean, PrivacyOptions):
    """The privacy of a client, as (epsilon, delta) for the replacement of all its items."""

    delta: float
    """Delta."""
    rounds: int
    """Number of rounds that epsilon counts."""


def privacy_of(mean: NoisyMean, rounds: int) -> Privacy:
    """Account for a number of rounds."""
    noise, clients, workers = mean["noise"], mean["clients"], mean["workers"]
    privacy = Privacy(noise=noise, clients=clients, workers=workers, delta=DELTA, rounds=rounds)
    try:
        bound = epsilon(noise, clients, workers, rounds)
    except ImportError:
        return privacy
    privacy["epsilon"] = bound if math.isfinite(bound) else None
    return privacy


@cache
def epsilon(noise: float, clients: int, workers: int, rounds: int, delta: float = DELTA) -> float:
    """Bound epsilon by Renyi differential privacy; infinite if it gives no bound. Raises ImportError without dp-accounting.

    Two runs are neighbours if all items of one client are replaced. That keeps the number N of workers, which sampling a fixed
    number of them without replacement requires (REPLACE_ONE). The client's update, of norm at most C, becomes another one, so the
    sum of the updates moves by at most 2 C. dp-accounting takes the noise in units of this sensitivity. The deviation in the sum
    is z C: z / 2.

    Source: Wang, Balle, Kasiviswanathan. Subsampled Renyi Differential Privacy and Analytical Moments Accountant. 2019. arXiv:1808.00087
    Source: Mironov. Renyi Differential Privacy. 2017. arXiv:1702.07476
    """
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    if not rounds:
        return 0.0
    sampled = SampledWithoutReplacementDpEvent(workers, clients, GaussianDpEvent(noise / 2))
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(sampled, rounds).get_epsilon(delta))


def privacy_line(privacy: Mapping[str, Any]) -> str:
    """Describe the privacy in words. Epsilon is rounded up."""
    if "epsilon" not in privacy:
        return "privacy is not accounted: pip install 'partrain[privacy]'"
    bound = privacy["epsilon"]
    shown = "without a bound" if bound is None else f"{math.ceil(bound * 100) / 100:.12g}"
    drawn = f"{privacy['clients']:,} of {counted(privacy['workers'], 'client')}"
    how = f"{counted(privacy['rounds'], 'round')}, {drawn}, noise {privacy['noise']:g}"
    return f"privacy of a client: epsilon {shown} at delta {privacy['delta']:g} ({how})"
