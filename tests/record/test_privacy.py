"""The privacy of a client, against bounds computed here."""

from __future__ import annotations

import math
import sys
from statistics import NormalDist

import pytest

from partrain.record.privacy import NoisyMean, epsilon, privacy_line, privacy_of

MEAN: NoisyMean = {"noise": 1.0, "clients": 10, "workers": 500}


def exact_epsilon(noise: float, rounds: int, delta: float) -> float:
    """Epsilon of so many Gaussian mechanisms of all clients, exactly: one that moves the mean by mu = sqrt(T) 2 / z deviations.

    delta = Phi(mu / 2 - eps / mu) - exp(eps) Phi(-mu / 2 - eps / mu). Balle, Wang. 2018. arXiv:1805.06530, theorem 8.
    """
    mu, phi = math.sqrt(rounds) * 2 / noise, NormalDist().cdf
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        lost = phi(mu / 2 - middle / mu) - (math.exp(middle) * tail if (tail := phi(-mu / 2 - middle / mu)) else 0.0)
        low, high = (middle, high) if lost > delta else (low, middle)
    return high


def test_all_clients_in_each_round_are_a_plain_gaussian_mechanism() -> None:
    """Its Renyi divergence of the order a is a T (2 C)^2 / (2 (z C)^2) = 2 a T / z^2. Mironov. 2017: epsilon is at most
    2 a T / z^2 + log(1 / delta) / (a - 1), least at a = 1 + sqrt(log(1 / delta) z^2 / (2 T))."""
    pytest.importorskip("dp_accounting")
    for noise, rounds in ((5.0, 1), (20.0, 60), (40.0, 200)):
        most = 2 * rounds / noise**2 + 2 * math.sqrt(2 * rounds / noise**2 * math.log(1e5))
        bound = epsilon(noise, 10, 10, rounds)
        assert exact_epsilon(noise, rounds, 1e-5) < bound < most
        assert bound == pytest.approx(exact_epsilon(noise, rounds, 1e-5), rel=0.15)


def test_sampling_rounds_and_noise_move_epsilon_as_they_should() -> None:
    pytest.importorskip("dp_accounting")
    here = epsilon(1.0, 10, 500, 60)
    assert epsilon(1.0, 10, 500, 61) > here > epsilon(1.0, 10, 500, 59)
    assert epsilon(0.9, 10, 500, 60) > here > epsilon(1.1, 10, 500, 60)
    assert epsilon(1.0, 11, 500, 60) > here > epsilon(1.0, 9, 500, 60)
    assert epsilon(1.0, 10, 499, 60) > here > epsilon(1.0, 10, 501, 60)
    assert epsilon(1.0, 10, 500, 60, 1e-6) > here
    assert epsilon(1e4, 10, 500, 60) < 0.05
    assert epsilon(1.0, 10, 500, 0) == 0.0


def test_the_line_rounds_up() -> None:
    pytest.importorskip("dp_accounting")
    privacy = privacy_of(MEAN, 60)
    bound = privacy["epsilon"]
    assert bound is not None
    shown = float(privacy_line(privacy).split()[5])
    assert bound <= shown < bound + 0.01


@pytest.mark.parametrize(
    ("bound", "shown"), [(3.2, "3.2"), (3.2001, "3.21"), (0.0, "0"), (12345.678, "12345.68"), (None, "without a bound")]
)
def test_the_line(bound: float | None, shown: str) -> None:
    line = privacy_line({**MEAN, "delta": 1e-5, "rounds": 60, "epsilon": bound})
    assert line == f"privacy of a client: epsilon {shown} at delta 1e-05 (60 rounds, 10 of 500 clients, noise 1)"


def test_without_the_package_nothing_is_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    epsilon.cache_clear()
    privacy = privacy_of(MEAN, 60)
    assert privacy == {**MEAN, "delta": 1e-5, "rounds": 60}
    assert privacy_line(privacy) == "privacy is not accounted: pip install 'partrain[privacy]'"
