"""Transports: how the workers of a group reach one another. The `[transport]` table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from partrain.config.section import Section

if TYPE_CHECKING:
    from partrain.comm.simulated import Pace

Speed = Annotated[float, Field(gt=0, le=1e6)]
Span = Annotated[float, Field(ge=0, le=1e6)]


class TransportSection(Section):
    """The `[transport]` table."""

    kind: Literal["shared", "simulated"] = "shared"
    """`shared`: one process per worker over shared memory; `simulated`: all workers in one process, one at a time, by a simulated clock."""
    stall_seconds: float = Field(300.0, gt=0)
    """A worker that reports nothing for this long is taken for stuck: the run ends with 75, resumable."""
    speed: list[Speed] = Field([1.0], min_length=1)
    """Simulated: speed of each worker (one number: of all); at 1 an iteration takes a simulated millisecond, at 0.25 four."""
    delay: list[Span] = Field([0.0], min_length=1)
    """Simulated: seconds that each message and each meeting takes a worker (one number: all)."""
    jitter: list[Span] = Field([0.0], min_length=1)
    """Simulated: spread of a worker's iterations, the standard deviation of the logarithm of their time (one number: of all)."""

    def groups(self, ranks: range) -> list[tuple[int, ...]]:
        """Group the workers of a machine by the process they live in."""
        return [tuple(ranks)] if self.kind == "simulated" else [(rank,) for rank in ranks]

    @property
    def refuses_machines(self) -> str:
        """The reason why this transport cannot connect several machines; "" if it can."""
        return "simulated workers live in one process: run the job without torchrun" if self.kind == "simulated" else ""

    def pace(self, rank: int) -> Pace:
        """Give the speed of a simulated worker."""
        from partrain.comm.simulated import Pace

        speed, delay, jitter = (values[rank if len(values) > 1 else 0] for values in (self.speed, self.delay, self.jitter))
        return Pace(speed, delay, jitter)
