"""Transports: how the workers of a group reach one another. The `[transport]` table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from partrain.comm.network import SimulatedNetwork
from partrain.config.problems import Finding
from partrain.config.section import Section
from partrain.number_format import plural

if TYPE_CHECKING:
    from partrain.comm.machine import Machine
    from partrain.comm.transport import BaseTransport

Speed = Annotated[float, Field(gt=0, le=1e6)]
Span = Annotated[float, Field(ge=0, le=1e6)]


TRANSPORTS = {
    "shared": "partrain.comm.shared:SharedTransport",
    "replicas": "partrain.comm.replicas:ReplicaTransport",
    "simulated": "partrain.comm.simulated:SimulatedTransport",
}
"""`module:Class` of the transport of each `kind` on one machine. `shared` has another one for processes with several workers."""


LEAST_CHANCE = 0.001
"""Least chance that a worker can be reached in some round: below it, rounds would seldom begin."""


def _chances(value: Any) -> Any:
    several = value if isinstance(value, list) else [value]
    numbers = [chance for chance in several if isinstance(chance, int | float) and not isinstance(chance, bool)]
    if len(numbers) < max(1, len(several)) or not 0 <= min(numbers) <= max(numbers) <= 1:
        raise ValueError("expected a chance from 0 to 1, or a list of chances, one for each round")
    if max(numbers) < LEAST_CHANCE:
        raise ValueError(
            f"a worker that can never be reached has no use: give it a chance of {LEAST_CHANCE} or more in some round"
        )
    return value


class TransportSection(Section):
    """The `[transport]` table."""

    kind: Literal["shared", "simulated"] = "shared"
    """`shared`: one process for each worker, which exchange numbers in shared memory, and over the network under torchrun.
    `simulated`: all workers in one process, one at a time, by a simulated clock."""
    stall_seconds: float = Field(300.0, gt=0)
    """Seconds without a sign of life after which partrain considers a worker stuck and kills it. Its round runs again (see
    `[faults] on_loss`). If a worker is stuck there again, the run ends with exit code 75, and can be resumed."""
    speed: list[Speed] = Field([1.0], min_length=1)
    """`simulated`: speed of each worker, or one number for all. At 1 an iteration takes a simulated millisecond, at 0.25 four."""
    delay: list[Span] = Field([0.0], min_length=1)
    """`simulated`: seconds that each message and each meeting of all workers takes a worker; a number for each worker,
    or one for all."""
    jitter: list[Span] = Field([0.0], min_length=1)
    """`simulated`: spread of the time of iterations, as the standard deviation of its logarithm; a number for each
    worker, or one for all."""

    availability: list[Annotated[float | list[float], BeforeValidator(_chances)]] = Field([1.0], min_length=1)
    """Chance that a worker can be reached in a round; a number for each worker (with `[partition] clients`, for each client), or
    one for all. Instead of a number, a list has a chance for each round, and begins again after its last one, such as `[[1, 1, 0]]`;
    of 0 and 1 alone it is a trace. partrain draws for each round.
    `[sync] clients` are drawn from the workers that can be reached; without it, these all train. The others sit the round out."""
    network: SimulatedNetwork | None = None
    """`simulated`: the network between the workers, each on its own machine, as in `{bandwidth = 12.5e6, latency = 0.02}`.
    Meetings and messages then take the time that their bytes need, in addition to `delay`. Default: bytes take no time."""

    def implementation(self, machine: Machine | None = None, *, replicas: bool = False) -> type[BaseTransport]:
        """Return the transport on one machine, or between this `machine` and others. `replicas`: the process has several workers."""
        if machine is None:
            kind = "replicas" if replicas and self.kind == "shared" else self.kind
            module, _, name = TRANSPORTS[kind].partition(":")
            transport: type[BaseTransport] = getattr(import_module(module), name)
            return transport
        from partrain.comm.distributed import DistributedTransport  # imports torch

        return DistributedTransport

    def ranks_by_process(self, ranks: range, process: Callable[[int], int]) -> list[tuple[int, ...]]:
        """List the workers of each process of a machine: all in one, or grouped by the number that `process` gives them."""
        return [tuple(ranks)] if self.implementation().one_process else [tuple(group) for _, group in groupby(ranks, process)]

    def settings_of(self, rank: int) -> dict[str, float]:
        """Return a worker's values for the keys that only its transport reads."""
        every = {key: getattr(self, key) for key in self.implementation().settings}
        return {key: values[rank if len(values) > 1 else 0] for key, values in every.items()}

    @property
    def always_reached(self) -> bool:
        """True if all workers can be reached in each round."""
        return all(min(chances) == 1 for chances in self._cycles())

    def availability_of(self, clients: int) -> list[list[float]]:
        """Return the chances that a client can be reached in the rounds of a cycle, by number; [] if all always can.

        A client is a worker, or has one in some rounds.
        """
        cycles = self._cycles()
        return [] if self.always_reached else cycles if len(cycles) == clients else cycles[:1] * clients

    def _cycles(self) -> list[list[float]]:
        return [chances if isinstance(chances, list) else [chances] for chances in self.availability]

    def check(self, workers: int, clients: int | None) -> Iterator[Finding]:
        """Find keys of another transport, and lists without exactly one value for each worker, or for each client that workers take."""
        for key in ("speed", "delay", "jitter", "availability"):
            values = getattr(self, key)
            if key not in self.model_fields_set:
                continue
            if key != "availability" and key not in self.implementation().settings:
                yield Finding(("transport", key), f"`{key}` works in simulation only", 'use kind = "simulated"', at="key")
                continue
            who, count = ("client", clients) if clients and key == "availability" else ("worker", workers)
            if len(values) not in (1, count):
                message = f"`{key}` has {len(values)} values for {count} {plural(who, count)}"
                yield Finding(("transport", key), message, f"give one or {count}")
        if self.network and not self.implementation().settings:
            yield Finding(("transport", "network"), "`network` works in simulation only", 'use kind = "simulated"', at="key")
