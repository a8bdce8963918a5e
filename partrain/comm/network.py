"""The network of simulated workers, each on a machine of its own: `[transport] network`."""

from __future__ import annotations

import math

from pydantic import Field

from partrain.config.section import Section

FIRST_WINDOW = 10
"""Packets that TCP sends before the first answer (RFC 6928)."""
LOSS_CONSTANT = math.sqrt(1.5)


class SimulatedNetwork(Section):
    """Links of equal machines. Transfers take as long as TCP needs for them.

    A transfer begins with ten packets and doubles them with each round trip, until it fills the link (slow start, which Linux repeats
    after each pause). Lost packets bound its rate by sqrt(3/2) packet / (round trip * sqrt(loss)). At a meeting all workers send
    their part to the next one, N - 1 times, as gloo does: (N - 1) times a transfer.

    Source: Mathis, Semke, Mahdavi, Ott. The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm. 1997
    Source: Cardwell, Savage, Anderson. Modeling TCP Latency. 2000
    """

    bandwidth: float = Field(gt=0)
    """Bytes per second that a machine can send, and receive: 125e6 is 1 Gbit/s."""
    latency: float = Field(0.0, ge=0, le=1e3)
    """Seconds that a packet takes from one machine to another."""
    loss: float = Field(0.0, ge=0, lt=1)
    """Share of the packets that are lost."""
    uplink: float | None = Field(None, gt=0)
    """Bytes per second of one link that all machines share, as that of an office; default: there is none."""
    packet: int = Field(1460, ge=500, le=65536)
    """Bytes of a packet."""

    def transfer(self, size: int, at_once: int = 1) -> float:
        """Return the seconds of a transfer of some bytes, if as many workers send `at_once`."""
        rate = min(self.bandwidth, math.inf if self.uplink is None else self.uplink / at_once)
        trip = 2 * self.latency
        if self.loss and trip:
            rate = min(rate, LOSS_CONSTANT * self.packet / (trip * math.sqrt(self.loss)))
        seconds, window, left = self.latency, FIRST_WINDOW * self.packet, size
        while left > window < rate * trip:
            seconds, left, window = seconds + trip, left - window, 2 * window
        return seconds + left / rate

    def meeting(self, workers: int, size: int) -> float:
        """Return the seconds in which each of some workers sends a part of `size` bytes to all others."""
        return (workers - 1) * self.transfer(size, workers)
