"""Robust averaging: a few workers that are wrong do not spoil the network of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, State, Worker
from partrain.rules.findings import error

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext

STEPS = 3
"""Steps of `clipped` in a round."""
CHUNK = 1 << 20
"""Numbers of each replica that are gathered at once: all workers together would need N times the memory of the network."""


class Robust(Rule):
    """Each worker trains alone for a while, then an estimate of their middle, which f wrong ones cannot move far, replaces all
    replicas.

        x_i <- K_i local steps from a            (in parallel)
        a   <- estimate(x_1 ... x_N)

    `estimate`, by number or for whole replicas:

        median     the median of each number
        trimmed    the mean of each number, without its f largest and f smallest values
        krum       the mean of the m replicas (`keep`) that have the smallest sums of squared distances to their N - f - 2 nearest
        clipped    a, moved three times by the mean of the vectors to all replicas, each cut to the length tau (`radius`)

    f is `faulty`. Workers that did not train in the round do not count. All others count equally.

    Source: Yin, Chen, Ramchandran, Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates. 2018.
        arXiv:1803.01498 (median, trimmed)
    Source: Blanchard, El Mhamdi, Guerraoui, Stainer. Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent. 2017.
        arXiv:1703.02757 (krum; m > 1 is multi-Krum)
    Source: Karimireddy, He, Jaggi. Learning from History for Byzantine Robust Optimization. 2021. arXiv:2012.10333 (clipped)
    """

    round_vectors: ClassVar[int] = 5

    rule: Literal["robust"]
    estimate: Literal["median", "trimmed", "krum", "clipped"] = "median"
    """Estimate of the middle of all replicas."""
    faulty: int = Field(1, ge=0)
    """`trimmed`, `krum`: number f of workers that may be wrong."""
    keep: int = Field(1, ge=1)
    """`krum`: number m of replicas in the mean; more than 1 is multi-Krum."""
    radius: float = Field(1.0, gt=0)
    """`clipped`: tau, the length to which the vector from the last network to each replica is cut."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset it.
    Default: it stays with the worker, as the moments of a wrong one would spoil a mean."""

    @property
    def uses_weights(self) -> bool:
        return False

    def check(self, context: JobContext) -> Iterator[Finding]:
        workers, f = context.workers, self.faulty
        least = {"trimmed": 2 * f + 1, "krum": 2 * f + 3}.get(self.estimate, 1) if f else 1
        if workers < least:
            yield error(
                "faulty",
                f'estimate = "{self.estimate}" needs at least {least} workers for {self.faulty} wrong ones, and the job has {workers}',
            )
        elif self.estimate == "krum" and self.keep > workers - self.faulty:
            yield error(
                "keep", f"`keep` {self.keep} takes in wrong replicas: at most {workers - self.faulty} of {workers} are right"
            )

    def round(self, worker: Worker, group: Group, state: State) -> None:
        anchor = worker.params.clone()
        worker.train()
        trained = [rank for rank, (items,) in enumerate(group.scores(worker.items)) if items]
        if not trained:
            group.all_reduce_mean(worker.params, 0.0)  # it raises, as for any mean of nothing
        match self.estimate:
            case "krum":
                chosen = self.chosen(distances(worker.params, group, trained))
                group.all_reduce_mean(worker.params, float(worker.rank in {trained[at] for at in chosen}))
            case "clipped":
                worker.params.copy_(self._clipped(anchor, worker, group))
            case _:
                replica = worker.params.clone()
                for span in chunks(len(replica)):
                    worker.params[span] = self.middle(gathered(replica[span], group, trained))

    def middle(self, rows: Tensor) -> Tensor:
        """Return the median, or the trimmed mean, of each column of rows (n, d'): (d',)."""
        ordered, n = rows.sort(0).values, len(rows)
        most = (n - 1) // 2
        cut = most if self.estimate == "median" else min(self.faulty, most)
        return ordered[cut : n - cut].mean(0)

    def chosen(self, squares: Tensor) -> list[int]:
        """Return the replicas that Krum chooses, the best first, by their squared distances (n, n)."""
        near = max(1, len(squares) - self.faulty - 2)
        scores = squares.sort(1).values[:, 1 : near + 1].sum(1)  # the nearest replica is the same one
        return scores.sort(stable=True).indices[: self.keep].tolist()

    def _clipped(self, center: Tensor, worker: Worker, group: Group) -> Tensor:
        """Move the center (d,) three times by the mean of the clipped vectors to all replicas."""
        for _ in range(STEPS):
            movement = worker.params - center
            length = float(movement.cpu().double().norm())
            movement.mul_(min(1.0, self.radius / length) if length else 1.0)
            group.all_reduce_mean(movement, float(worker.items > 0))
            center = center + movement
        return center


def distances(replica: Tensor, group: Group, ranks: Sequence[int]) -> Tensor:
    """Return the squared distances (n, n) between the replicas (d,) of some workers, in float64."""
    squares = replica.new_zeros((len(ranks), len(ranks))).cpu().double()
    for span in chunks(len(replica)):
        rows = gathered(replica[span], group, ranks).cpu().double()
        for number, row in enumerate(rows):
            squares[number] += (rows - row).square().sum(1)
    return squares


def gathered(x: Tensor, group: Group, ranks: Sequence[int]) -> Tensor:
    """Return the x (d',) of some workers as rows (n, d')."""
    import torch  # the checks of a job import rules, but not torch

    rows = group.all_gather(x)
    return torch.stack([rows[rank] for rank in ranks])


def chunks(length: int) -> Iterator[slice]:
    """Cut `length` numbers into parts of CHUNK at most."""
    return (slice(start, min(start + CHUNK, length)) for start in range(0, length, CHUNK))
