"""The network of simulated workers, each on its own machine: `[transport] network`."""

from __future__ import annotations

import math

from pydantic import Field

from partrain.config.section import Section


class SimulatedNetwork(Section):
    """Links between equal machines: a transfer takes a round trip, in which both ends agree, and then the time of its bytes.

    Connections stay open, so no transfer begins slowly. Each lost packet costs another round trip. At a meeting all workers send
    their part to the next one, N - 1 times, as gloo does: N - 1 transfers. `benchmarks/networks.py` compares this with real
    links. With a `server` they send their part to it, and it sends one of the same size back to each: two transfers.
    """

    bandwidth: float = Field(gt=0)
    """Bytes per second that a machine can send, and receive: 125e6 is 1 Gbit/s."""
    latency: float = Field(0.0, ge=0, le=1e3)
    """Seconds that a packet takes from one machine to another."""
    loss: float = Field(0.0, ge=0, lt=1)
    """Share of the packets that are lost."""
    uplink: float | None = Field(None, gt=0)
    """Bytes per second of one link that all machines share, such as an office's; default: no such link."""
    server: float | None = Field(None, gt=0)
    """Bytes per second that a server can send, and receive: the workers mix through it, and share its link. Default: no server,
    and the workers send to one another."""
    packet: int = Field(1460, ge=500, le=65536)
    """Bytes of a packet."""

    def transfer(self, size: int, at_once: int = 1) -> float:
        """Return the seconds of a transfer of `size` bytes while `at_once` workers send at the same time."""
        shared = min(link for link in (self.uplink, self.server, math.inf) if link is not None)
        rate = min(self.bandwidth, shared / at_once)
        return 2 * self.latency * (1 + self.loss * size / self.packet) + size / rate

    def meeting(self, workers: int, size: int) -> float:
        """Return the seconds in which each of `workers` workers sends a part of `size` bytes to all others, or to the server and back."""
        return (2 if self.server else workers - 1) * self.transfer(size, workers)
