"""The guard of a worker's numbers before mixing: it undoes numbers that are not finite, and bounds updates (`[faults]`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from partrain.comm.group import NonFinite
from partrain.errors import Diverged
from partrain.flat import first_non_finite
from partrain.protocols import Rule
from partrain.record.round_record import NAN, NOT_FINITE
from partrain.system.accelerator import in_float64
from partrain.training.faults import Faults
from partrain.training.replica import Replica, persistent_buffers


@dataclass(frozen=True)
class Before:
    """The numbers of a replica before some local iterations."""

    params: Tensor
    """(d,)"""
    moments: Tensor | None
    buffers: list[Tensor]
    counts: Tensor
    """(p,): steps of the optimizer, by tensor."""

    def restore(self, replica: Replica) -> None:
        """Give the replica these numbers back."""
        replica.params.copy_(self.params)
        if self.moments is not None:
            replica.optimizer.moments.copy_(self.moments)
        replica.optimizer.counts.copy_(self.counts)
        for (_, buffer), kept in zip(persistent_buffers(replica.module), self.buffers, strict=True):
            buffer.copy_(kept)


class UpdateGuard:
    """Guard of one worker's updates and gradients.

    With `on_nonfinite = "exclude"` the guard undoes local iterations that made numbers that are not finite. The worker then
    counts as inactive for the rest of the round, as under `ramp_workers`: rules give it the weight 0 and the mean of the others.

    A bound scales the whole update of one worker before it is mixed, x <- b + (x - b) min(1, bound / |x - b|): flat clipping.

    Source: McMahan, Ramage, Talwar, Zhang. Learning Differentially Private Recurrent Language Models. 2018. arXiv:1710.06963
    """

    def __init__(self, replica: Replica, faults: Faults) -> None:
        self._replica = replica
        self.excludes, self.bound = faults.on_nonfinite == "exclude", faults.max_update_norm
        """`excludes`: undo non-finite numbers. `bound`: largest L2 norm of an update, if there is one."""
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        self.excluded = 0
        """The reason for an exclusion: an index of NOT_FINITE; 0 for none."""
        self.clipped_norm = NAN
        """L2 norm of the longest update that was scaled down."""

    def before(self, *, gradient: bool = False) -> Before | None:
        """Copy the numbers that local iterations, or a `gradient`, are about to change; None if no copy is needed."""
        replica, excludes = self._replica, self.excludes
        if not excludes and (gradient or self.bound is None):
            return None
        return Before(
            replica.params if gradient else replica.params.clone(),
            replica.optimizer.moments.clone() if excludes and not gradient else None,
            [buffer.clone() for _, buffer in persistent_buffers(replica.module)] if excludes else [],
            replica.optimizer.counts.clone(),
        )

    def check_update(self, before: Before | None, finite_loss: Callable[[], bool]) -> bool:
        """Bound the change of the parameters; return True if it was undone. Raises NonFinite unless workers are excluded."""
        params = self._replica.params
        if before is not None and self.bound is not None:
            self._clip(before.params, self.bound)
        if before is not None and self.excludes:
            return self._undone(before, finite_loss, {2: [params], 4: [self._replica.optimizer.moments.view(-1)]})
        if (bad := first_non_finite(params)) is not None:
            raise NonFinite(0, bad)
        return False

    def check_gradient(self, before: Before | None, finite_loss: Callable[[], bool], gradient: Tensor) -> bool:
        """Zero a gradient (d,) if it, the loss or a buffer is not finite, and return True. Without exclusion the group checks it."""
        undone = before is not None and self._undone(before, finite_loss, {3: [gradient]})
        if undone:
            gradient.zero_()
        return undone

    def _undone(self, before: Before, finite_loss: Callable[[], bool], numbers: dict[int, list[Tensor]]) -> bool:
        """Return to the numbers `before` if loss, `numbers` or buffers are not finite. Keys are indices of NOT_FINITE."""
        numbers[5] = [buffer.reshape(-1) for _, buffer in persistent_buffers(self._replica.module) if buffer.is_floating_point()]
        broken = (key for key, parts in numbers.items() if any(first_non_finite(part) is not None for part in parts))
        self.excluded = next(broken, 0) if finite_loss() else 1
        if self.excluded:
            before.restore(self._replica)
        return self.excluded > 0

    def _clip(self, before: Tensor, bound: float) -> None:
        """Scale an update down to the bound, in float64: squares of float32 overflow. A norm that is not finite is left to the check."""
        params = in_float64(self._replica.params)  # its own memory if that is float64
        before = before.to(params.device)
        update = params - before
        norm = float(torch.linalg.vector_norm(update))
        if bound < norm < math.inf:
            self._replica.params.copy_(update.mul_(bound / norm).add_(before))
            self.clipped_norm = norm if math.isnan(self.clipped_norm) else max(norm, self.clipped_norm)

    def none_left(self, rank: int, round_number: int) -> Diverged:
        """Build the failure of a round in which all workers are excluded."""
        problem = NOT_FINITE[self.excluded]
        own = f" (worker {rank}: non-finite numbers in {problem})" if problem else ""
        what = f"round {round_number}: no worker is left whose numbers are finite{own}"
        return Diverged(f"{what}; lower the learning rate, or look at the data")

    def check_mixed(self, rule: Rule, round_number: int) -> None:
        """Raise Diverged if the rule, such as its outer step, made numbers that are not finite from finite ones."""
        if (bad := first_non_finite(self._replica.params)) is None:
            return
        deed = "the step along the mean gradient" if rule.averages_gradients or rule.full_batch else "mixing"
        what = f"{deed} made non-finite numbers in {self._replica.layout.part_at(bad)} from finite ones"
        raise Diverged(f"round {round_number}: {what}; lower the learning rate")
