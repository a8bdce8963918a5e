"""Traits of a rule, which the engine and the checks of a job read. A rule overrides those in which it differs from averaging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from partrain.config.section import Section

if TYPE_CHECKING:
    from partrain.config.problems import Finding, KeyPath


@dataclass(frozen=True)
class JobContext:
    """The rest of the job, as a rule's `check` sees it."""

    workers: int
    """Number N of workers."""
    optimizer: Any = None
    """The `[optimizer]` table; None if it is invalid."""
    worker_tables: Sequence[Any] = ()
    """The `[[workers]]` tables."""
    capped: bool = False
    """True: `round_seconds` or `balance` sets the iterations of each worker by its speed."""


class Partitions(NamedTuple):
    """The workers' partitions, as a rule's `check_partitions` sees them."""

    sizes: Sequence[int]
    """Items of each worker, by rank."""
    items: int
    """Training items in all."""
    path: KeyPath
    """The table or key that sets the sizes."""


class Traffic(NamedTuple):
    """One worker's traffic in one round."""

    round: int
    iterations: int
    bytes: float


class RuleTraits(Section):
    """The base of `protocols.Rule`."""

    # Checks of the settings, and of the finished run

    counted_in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers",)
    """Settings that count rounds: partrain warns the user if the run ends before them."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        """Find wrong or unwise settings, before anything starts."""
        return iter(())

    def check_partitions(self, partitions: Partitions) -> Iterator[Finding]:
        """Find settings that do not suit the partitions, once their sizes are known."""
        return iter(())

    def review(self, rounds: Iterable[Traffic]) -> str | None:
        """Warn about the finished run, given the traffic of every worker and round; None if all is well."""
        return None

    # Properties that the engine asks for

    round_vectors: ClassVar[int] = 1
    """Vectors (d,) that a worker's round needs at the same time, in addition to its row and the rule's state: the gradient and
    intermediate results, as `benchmarks/rule_memory.py` measures them."""
    averages_gradients: ClassVar[bool] = False
    """True: workers average gradients, and their optimizers take equal steps."""
    mixes_once: ClassVar[bool] = False
    """True: a round that ends with equal replicas has one mean of the parameters, after all local iterations. This mean also
    averages the optimizers' state, and carries the exchange of the round's end (as does a mean of gradients of one iteration)."""

    @property
    def keeps_replicas_equal(self) -> bool:
        """True: all replicas are equal at the end of a round. Otherwise a checkpoint keeps each of them."""
        return True

    @property
    def keeps_worker_state(self) -> bool:
        """True: replicas are equal, but a worker keeps its own state from one round to the next, such as a control variate."""
        return False

    @property
    def uses_weights(self) -> bool:
        """True: `weights` apply to parameters. Otherwise they apply only to moments and buffers."""
        return self.keeps_replicas_equal and self.synchronous

    @property
    def syncs_every_iteration(self) -> bool:
        """True: workers meet after each iteration, and so need equal numbers of iterations."""
        return False

    @property
    def uncapped_reason(self) -> str:
        """Reason why `round_seconds` and `balance` cannot set the iterations of each worker; empty if they can."""
        if self.syncs_every_iteration:
            return "its workers meet after each iteration, and so need equal numbers of them"
        return "it already varies the iterations of a round" if self.varies_round_length else ""

    @property
    def full_batch(self) -> bool:
        """True: the rule itself takes steps on the gradient of the whole partition, without the local optimizer."""
        return False

    @property
    def needs_partition_sizes(self) -> bool:
        """True: the rule asks a worker for the number of items of its partition."""
        return self.full_batch

    @property
    def still_moves(self) -> str:
        """The part of the rule that moves the network while local steps are zero, as after a schedule; "" if there is none."""
        return ""

    @property
    def no_exclusion_reason(self) -> str:
        """Reason why a round's means cannot exclude a worker (`on_nonfinite = "exclude"`); "" if they can, by a weight of 0."""
        return "" if self.synchronous else "its workers do not mix at one moment"

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise in the sum of a round's updates, divided by the largest norm of an update; 0: no noise."""
        return 0.0

    def planned_iterations(self, cap: int) -> list[tuple[int, int]] | None:
        """Plan the local iterations of a worker with this cap: (first round, iterations) of each stretch of equal rounds.

        None: losses, learning rates or times decide.
        """
        return [(1, cap)]

    @property
    def varies_round_length(self) -> bool:
        """True: rounds do not all have the same number of iterations."""
        return self.planned_iterations(2) != [(1, 2)]

    # Properties of asynchronous rules, which `protocols.asynchronous.AsyncRule` explains

    @property
    def synchronous(self) -> bool:
        """True: all workers run the same rounds, and the same job gives the same bits. Otherwise visits make up a round."""
        return self.visits_per_worker is None

    @property
    def repeatable(self) -> bool:
        """True: no decision depends on a clock, so the same job gives the same bits."""
        return self.synchronous

    @property
    def visits_per_worker(self) -> int | None:
        """Visits of a worker in a round, on average; None under a synchronous rule."""
        return None

    @property
    def shared_vectors(self) -> int:
        """Number m of vectors (d,) that all workers share."""
        return 0

    @property
    def shares_params(self) -> bool:
        """True: the parameters of all workers are one vector."""
        return False

    @property
    def slices(self) -> int:
        """Parts of the center that workers may change at the same time."""
        return 1

    @property
    def single_machine_reason(self) -> str:
        """Reason why all workers need one machine; empty if several machines will do."""
        return ""

    def merge(self, center: Any, update: Any) -> None:
        """Apply an update that arrives at the center."""
        raise NotImplementedError
