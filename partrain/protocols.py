"""The vocabulary of partrain: a rule sees one `Worker`, one `Group` and its own `State`, nothing else.

Symbols: N workers; d numbers in the network; x_i the parameters of worker i; g_i its gradient; c the center. Tensors carry
their shape, `(d,)` being one flat vector of which the network's own tensors are views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field

from partrain.config.section import Section

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from partrain.flat import SparseVector

State = Any
"""What a rule changes from round to round: a dataclass of tensors and numbers, or None. Every field is checkpointed."""


def replicated(**settings: Any) -> Any:
    """A field of a state that is equal on all workers at a round's end: kept once in a checkpoint."""
    return field(metadata={"same": True}, **settings)


class Worker(Protocol):
    """One replica of the network on one device."""

    params: Tensor
    """x_i (d,), flat, on the worker's device."""
    rank: int
    size: int
    """N."""
    round: int
    """Number of this round, from 1."""
    items: int
    """Item-iterations since the round began."""
    iterations: int
    """This worker's cap on local iterations: per round, or per visit under an asynchronous rule."""
    done: int
    """Local iterations since the round began."""
    lr: float
    """Learning rate of the newest iteration; before the first, of the one to come."""
    seconds: float
    """Seconds spent computing since the round began; by the simulated clock where there is one."""
    active: bool
    """Whether this worker trains in this round (`ramp_workers`); where not, `train` does nothing and gradients are zero."""

    @property
    def partition_size(self) -> int:
        """Items of its partition."""

    def train(self, iterations: int | None = None) -> None:
        """Run local iterations (default: the cap): x_i <- optimizer step on each next mini-batch."""

    def gradient(self, full: bool = False) -> Tensor:
        """g_i(x_i) (d,) on the next mini-batch, or on the whole partition; x_i stays as it is."""

    def apply(self, gradient: Tensor) -> None:
        """One step of the local optimizer with this gradient (d,)."""

    def loss(self) -> float:
        """Mean training loss over the items of the round so far."""

    def clock(self) -> float:
        """Seconds now, counted from any moment; simulated ones where there is a simulated clock."""

    def draw(self, *purpose: str | int, common: bool = False) -> np.random.Generator:
        """Randomness for one purpose in this round: this worker's own, or the same for all workers (`common`)."""


class Group(Protocol):
    """The workers together. Every verb is called by all workers, in the same order, but for those of the center."""

    def all_reduce_mean(self, x: Tensor, weight: float = 1.0) -> None:
        """x <- sum_i w_i x_i / sum_i w_i, in place, summed in rank order in float64, rounded once (see `[engine] exact`)."""

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """The x of every worker, by rank."""

    def exchange(self, x: Tensor, peers: Sequence[int]) -> list[Tensor]:
        """The x of some workers, in the order asked for; those whose peers these are send theirs."""

    def gather(self, message: Tensor) -> list[Tensor]:
        """The message, bytes (n_i,), of every worker, by rank: they may differ in length."""

    def reduce_messages(
        self, message: Tensor, read: Callable[[Tensor, int], SparseVector], d: int, weight: float | None = None
    ) -> Tensor:
        """sum_i q_i (d,), q_i being what `read` finds in the message of worker i; with weights sum_i w_i q_i / sum_i w_i.

        Summed in rank order in float64, rounded once. The workers of a machine share the reading.
        """

    def scores(self, *values: float) -> list[list[float]]:
        """A few numbers of every worker, by rank."""

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        """x <- x of worker `source`, in place."""

    def barrier(self) -> None:
        """Wait until every worker has come here."""

    # Asynchronous rules: no worker waits for another

    center: Tensor
    """Vectors (m, d) that all workers share: the center variable c first."""

    def claim(self, visits: int) -> bool:
        """Take one of the round's visits, which all workers share; False once they are used up."""

    def pull(self, fresh: int | None = None) -> Tensor:
        """A copy of c (d,); waits until this worker is at most `fresh` visits ahead of the slowest."""

    def push(self, delta: Tensor, base: Tensor | None = None, lr: float = 0.0) -> int:
        """Let the rule `merge` an update (d,), made from the c last pulled, into the center; its staleness."""

    def send(self, x: Tensor, share: float, peer: int) -> None:
        """A share of x (d,) to one worker, who need not wait for it: messages add up until it looks."""

    def receive(self) -> tuple[Tensor, float]:
        """Sum of share * x (d' >= d,) of all that has come since, and of the shares; nothing (0,) and 0 if nothing has."""


@dataclass
class Center:
    """What all workers share under an asynchronous rule, as `merge` sees it: one slice, d' of the d numbers."""

    vectors: Tensor
    """(m, d'): the center variable c, and what else the rule keeps beside it."""
    numbers: Tensor
    """(8,) float64: the rule's own counters; zero at first."""
    version: int
    """How often c has changed; `merge` counts it on when it changes c."""
    size: int
    """N."""


@dataclass(frozen=True)
class Update:
    """What a worker pushes."""

    delta: Tensor
    """(d',), by the rule's own reading: a step of c, or a gradient."""
    base: Tensor | None
    """(d',): the c it was made from, where the rule sends it."""
    lr: float
    """The worker's learning rate."""
    staleness: int
    """Versions of c since the one it was made from."""


class Remark(NamedTuple):
    """Something to say about a rule's settings before anything starts."""

    key: str
    message: str
    advice: str = ""
    severity: Literal["error", "warning"] = "error"


class Rule(Section):
    """A sync rule: a frozen model that owns one round. Its fields are its `[sync]` table, these the base keys of all."""

    if TYPE_CHECKING:  # each rule has its own one and only value
        rule: str = ""

    iterations: int | None = Field(None, ge=1)
    """Cap on local iterations (optimizer steps) per worker and round."""
    passes: int | None = Field(None, ge=1)
    """Instead: passes over the partition per worker and round."""
    weights: Literal["items", "equal"] = "items"
    """Weight of each replica in the mean: its item-iterations of the round, or the same for all."""
    optimizer_state: Literal["average", "local", "reset"] = "average"
    """What happens to momentum and moments when replicas are mixed."""
    buffers: Literal["average", "recalibrate", "local"] = "average"
    """BatchNorm statistics: pooled as mean and variance, recomputed for the mixed network, or each worker's own."""
    lr_scale: Literal["none", "linear", "sqrt"] = "none"
    """Learning rate times N, or times its square root: averaging N replicas lowers noise, not the step."""
    warmup_rounds: int = Field(0, ge=0)
    """Rounds over which the scaled learning rate is approached from the unscaled one."""
    ramp_workers: int = Field(0, ge=0)
    """Rounds over which the number of workers that train rises from one to N."""

    in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers",)
    """Settings that count rounds: a run that ends before them is mentioned."""

    @property
    def synchronous(self) -> bool:
        """All workers run the same rounds, and the same job gives the same bits. Otherwise a round is so many visits."""
        return self.visits_per_worker is None

    @property
    def visits_per_worker(self) -> int | None:
        """Asynchronous rules: how often a worker trains in a round, on average; `claim` shares the round's visits out."""
        return None

    @property
    def keeps_replicas_equal(self) -> bool:
        """All replicas are equal at the end of a round. Where not, each is kept in checkpoints."""
        return True

    @property
    def uses_weights(self) -> bool:
        """Parameters are mixed by `weights`. Where not, these are for moments and buffers only."""
        return self.keeps_replicas_equal and self.synchronous

    @property
    def syncs_every_iteration(self) -> bool:
        """Workers meet within the round, after each iteration, and so need the same number of them."""
        return False

    @property
    def full_batch(self) -> bool:
        """An iteration is a step on the gradient of the whole partition, which the rule takes itself: no local optimizer."""
        return False

    @property
    def shared_vectors(self) -> int:
        """m: vectors (d,) that all workers share; the rule's center variable is the first."""
        return 0

    @property
    def shares_params(self) -> bool:
        """All workers of one machine train the same numbers: everyone's params are the center, without locks."""
        return False

    @property
    def slices(self) -> int:
        """Parts of the center that may be visited at the same time."""
        return 1

    def active_workers(self, workers: int, round: int) -> int:
        """How many workers train in a round: those of the lowest ranks."""
        return workers if round >= self.ramp_workers else -(-workers * round // self.ramp_workers)

    def open_visits(self, worker: Worker) -> int:
        """Asynchronous rules: visits of this round that a worker may `claim`, shared by all who train in it; none where it does not,
        so that nobody waits for it."""
        return (self.visits_per_worker or 0) * self.active_workers(worker.size, worker.round) if worker.active else 0

    def weight(self, items: int) -> float:
        """A replica's weight in the mean, given its item-iterations: none has no say."""
        return float(items) if self.weights == "items" else float(items > 0)

    def remarks(self, workers: int) -> Iterator[Remark]:
        """What is wrong, or unwise, with these settings for N workers."""
        return iter(())

    def init(self, worker: Worker, group: Group) -> State:
        """The rule's state before the first round, when all replicas are equal."""
        return None

    def round(self, worker: Worker, group: Group, state: State) -> None:
        """One round of one worker: the paper's pseudo-code."""
        raise NotImplementedError

    def merge(self, center: Center, update: Update) -> None:
        """What becomes of an update that arrives at the center, slice by slice; only for rules that `push`."""
        raise NotImplementedError

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        """The network this rule hands back (d,): the same on every worker. All workers call it together."""
        return worker.params


class DivergentReplicas(Rule):
    """A rule under which replicas stay apart: each worker keeps its own, and the rule says which network counts."""

    optimizer_state: Literal["average", "local", "reset"] = "local"
    """What happens to momentum and moments at the end of a round: here they stay with the worker, as its parameters do."""
    buffers: Literal["average", "recalibrate", "local"] = "recalibrate"
    """BatchNorm statistics: pooled, recomputed for the network that counts, which no worker has trained, or each worker's own."""

    @property
    def keeps_replicas_equal(self) -> bool:
        return False

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        """The network that counts (d,): the mean of all replicas, where the rule does not say otherwise."""
        mean = worker.params.clone()
        group.all_reduce_mean(mean)
        return mean
