"""The vocabulary of partrain: a rule sees one `Worker`, one `Group` and its own `State`, nothing else.

Symbols: N workers; d numbers in the network; x_i the parameters of worker i; g_i its gradient. Tensors carry their shape: `(d,)` is
one flat vector of which the network's own tensors are views. Asynchronous rules also need `protocols.asynchronous`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field

from partrain.protocols.rule_traits import RuleTraits

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from partrain.flat import SparseVector

State = Any
"""A rule's memory from round to round: a dataclass of tensors and numbers, or None. Every field is checkpointed."""


def _whole_from_one(clients: float) -> float:
    if clients > 1 and clients % 1:
        raise ValueError("a number of workers is a whole number; below 1 it is their share of all")
    return clients


def replicated(**settings: Any) -> Any:
    """Declare a state's field that is equal on all workers at a round's end: a checkpoint keeps it once."""
    return field(metadata={"same": True}, **settings)


class Worker(Protocol):
    """One worker: it trains one replica of the network on one device."""

    params: Tensor
    """x_i (d,), flat, on the worker's device."""
    parameters: int
    """Numbers in the network. d is larger: it counts the padding between tensors, which is zero and stays zero."""
    rank: int
    size: int
    """Number N of workers."""
    lr: float
    """Learning rate of the newest iteration; before the first, of the next one."""
    active: bool
    """True if the worker trains in this round (`clients`, `ramp_workers`). Otherwise `train` does nothing and gradients are zero."""

    @property
    def round(self) -> int:
        """Number of this round, from 1."""

    @property
    def participants(self) -> Sequence[int]:
        """Ranks of the workers that train in this round, ascending."""

    @property
    def iterations(self) -> int:
        """Cap on local iterations: per round, or per visit under an asynchronous rule."""

    @property
    def done(self) -> int:
        """Local iterations since the round began."""

    @property
    def items(self) -> int:
        """Item-iterations since the round began."""

    @property
    def seconds(self) -> float:
        """Seconds spent computing since the round began, by the simulated clock if there is one."""

    @property
    def partition_size(self) -> int:
        """Items of the worker's partition."""

    def train(self, iterations: int | None = None) -> None:
        """Run local iterations (default: the cap): x_i <- optimizer step on each next mini-batch."""

    def gradient(self, *, full: bool = False) -> Tensor:
        """Compute g_i(x_i) (d,) on the next mini-batch, or on the whole partition; x_i does not change."""

    def apply(self, gradient: Tensor) -> None:
        """Take one step of the local optimizer with this gradient (d,)."""

    def add_noise(self, multiplier: float) -> None:
        """Add a draw of N(0, (multiplier C)^2) to each parameter, the same draw on all workers. C is `[faults] max_update_norm`."""

    def loss(self) -> float:
        """Return the mean training loss over the items of the round so far."""

    def clock(self) -> float:
        """Read the clock in seconds, from an arbitrary start: the simulated clock if there is one."""

    def draw(self, *purpose: str | int, common: bool = False) -> np.random.Generator:
        """Return a random generator for one purpose in this round: the worker's own, or (`common`) equal on all workers."""


class Group(Protocol):
    """All workers together. Every worker calls these verbs, in the same order."""

    def all_reduce_mean(self, x: Tensor, weight: float = 1.0) -> None:
        """Average in place: x <- sum_i w_i x_i / sum_i w_i.

        Adds in rank order in float64 and rounds once. Several machines with `[engine] exact = false` add up their sums instead.
        """

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Return the x of every worker, by rank."""

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        """Overwrite x with the x of worker `source`."""

    def exchange(self, x: Tensor, peers: Sequence[int]) -> list[Tensor]:
        """Return the x of some workers, in the order of `peers`. Being a peer is mutual: each sends its own x."""

    def start_exchange(self, x: Tensor, peers: Sequence[int]) -> Callable[[], list[Tensor]]:
        """Begin an `exchange` of the current x, which may change immediately afterwards. The function returned gives the result.
        Until workers have called it they may train, but not call another verb."""

    def gather(self, message: Tensor) -> list[Tensor]:
        """Return the message of every worker, bytes (n_i,), by rank. Lengths may differ."""

    def reduce_messages(
        self, message: Tensor, read: Callable[[Tensor, int], SparseVector], d: int, weight: float | None = None
    ) -> Tensor:
        """Sum decoded messages: sum_i q_i (d,), q_i = `read`(message of i, d); with weights sum_i w_i q_i / sum_i w_i.

        Adds in rank order in float64 and rounds once. The workers of a machine share the decoding.
        """

    def scores(self, *values: float) -> list[list[float]]:
        """Return a few numbers of every worker, by rank."""

    def barrier(self) -> None:
        """Wait until every worker has called this."""


class Rule(RuleTraits):
    """A sync rule: a frozen model that owns one round. Its fields are its `[sync]` table; these are the base keys of all rules."""

    if TYPE_CHECKING:  # each rule narrows this to its only value
        rule: str = ""

    iterations: int | None = Field(None, ge=1)
    """Local iterations (optimizer steps) of each worker in a round, or in a visit under asynchronous rules. Give this
    or `passes`."""
    passes: int | None = Field(None, ge=1)
    """Passes over the partition of each worker in a round, instead of `iterations`."""
    weights: Literal["items", "equal"] = "items"
    """Weight of each replica in the mean: its item-iterations of the round (`items`), or the same for all (`equal`)."""
    optimizer_state: Literal["average", "local", "reset"] = "average"
    """State of the optimizers (momentum and moments) when replicas are mixed: average it, keep each worker's (`local`),
    or reset it."""
    buffers: Literal["average", "recalibrate", "local"] = "average"
    """BatchNorm statistics when replicas are mixed: pool means and variances (`average`), recompute them for the mixed network
    (`recalibrate`), or keep each worker's (`local`)."""
    lr_scale: Literal["none", "linear", "sqrt"] = "none"
    """Learning rate times the number of workers (`linear`), or times its square root (`sqrt`). Averaging makes steps steadier,
    not longer."""
    warmup_rounds: int = Field(0, ge=0)
    """With `lr_scale`: rounds in which the learning rate rises from the unscaled to the scaled one."""
    ramp_workers: int = Field(0, ge=0)
    """Rounds until all N workers train; in round r, ceil(N r / ramp_workers) of them train. 0: all from the start."""
    clients: Annotated[float, AfterValidator(_whole_from_one)] | None = Field(None, gt=0)
    """Number of workers that train in a round, or, below 1, their share of all. partrain draws them for each round. Default: all
    workers train."""
    client_sampling: Literal["uniform", "items"] = "uniform"
    """With `clients`: the chance of a worker. It is the same for all (`uniform`), or grows with the items of the worker's
    partition (`items`)."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Decay per local iteration of an exponential moving average (EMA) of the mixed network. partrain then judges and
    exports the average."""
    swa: float | None = Field(None, ge=0, lt=1)
    """Share of the run from which on partrain judges and exports the mean of the mixed networks of all rounds (SWA)."""

    def init(self, worker: Worker, group: Group) -> State:
        """Make the rule's state before the first round, when all replicas are equal."""
        return None

    def round(self, worker: Worker, group: Group, state: State) -> None:
        """Run one round of one worker: the paper's pseudo-code."""
        raise NotImplementedError

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        """Return this rule's network (d,), the same on every worker. All workers call this together."""
        return worker.params

    def weight(self, items: int) -> float:
        """Weigh a replica for the mean by its item-iterations; 0 for a worker that did not train."""
        return float(items) if self.weights == "items" else float(items > 0)

    @property
    def averages_networks(self) -> bool:
        """True: the run's network is an average over rounds, not the mixed network itself (`ema`, `swa`)."""
        return self.ema is not None or self.swa is not None

    def active_workers(self, workers: int, round_number: int) -> int:
        """Count the workers that train in a round if all can be reached: with `ramp_workers` the lowest ranks."""
        if self.clients is not None:
            return max(1, round(self.clients * workers if self.clients < 1 else self.clients))
        return workers if round_number >= self.ramp_workers else -(-workers * round_number // self.ramp_workers)
