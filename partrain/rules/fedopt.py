"""FedOpt: averaging, and an adaptive optimizer of the server (Adagrad, Adam or Yogi) between rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, Worker, replicated
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


@dataclass
class FedoptState:
    """The server optimizer's state."""

    squares: Tensor = replicated()
    """v (d,), initially tau^2."""


@dataclass
class MovingState(FedoptState):
    """The state if beta1 is not 0."""

    momentum: Tensor = replicated()
    """m (d,), initially 0."""


class Fedopt(Rule):
    """An adaptive optimizer takes the mean's movement in a round, delta, as the negative of its gradient.

        x_i   <- K_i local steps from a            (in parallel)
        delta <- sum_i w_i x_i / sum_i w_i - a
        m     <- beta1 m + (1 - beta1) delta
        v     <- v + delta^2                                          (`server = "adagrad"`)
                 beta2 v + (1 - beta2) delta^2                        ("adam")
                 v - (1 - beta2) delta^2 sign(v - delta^2)            ("yogi")
        a     <- a + eta m / (sqrt(v) + tau)

    All operations are elementwise. a: the params at the round's start; eta: `outer_lr`. Before the first round m = 0 and v =
    tau^2, the smallest v that the paper allows; there is no bias correction, as in its Algorithm 2. A number that moves far more
    than tau in a round goes about eta, any other at most eta / tau times as far as m. The paper's FedAvgM is `diloco` with
    nesterov = false.

    Source: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization. 2021. arXiv:2003.00295
    """

    round_vectors: ClassVar[int] = 9
    mixes_once: ClassVar[bool] = True

    rule: Literal["fedopt"]
    server: Literal["adam", "yogi", "adagrad"] = "adam"
    """Optimizer of the server: FedAdam, FedYogi or FedAdagrad."""
    outer_lr: float = Field(0.01, gt=0)
    """eta: learning rate of the server, about the distance each number moves in a round. The authors tune it for each task."""
    beta1: float | None = Field(None, ge=0, lt=1)
    """Decay of the momentum m in a round. Default: 0.9, and 0 for `adagrad`."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """`adam`, `yogi`: decay of the squares v in a round."""
    tau: float = Field(1e-3, gt=0)
    """tau: added to the root of v; v starts at tau^2. Larger is less adaptive."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        if self.server == "adagrad" and "beta2" in self.model_fields_set:
            yield warning("beta2", '`beta2` has no effect under server = "adagrad"', "leave it out")
        if self.server == "adam" and self.decay**2 > self.beta2:
            message = f"the squares forget faster than the momentum ({self.beta2:g} < {self.decay:g}^2): a step grows while deltas shrink"
            yield warning("beta2", message, "the paper has 0.9 and 0.99")
        if self.outer_lr > max(1.0, self.tau):
            message = f"at {self.outer_lr:g} each number of the network may move that far in a round"
            yield warning("outer_lr", message, "0.01 is the default")

    @property
    def decay(self) -> float:
        """beta1."""
        return self.beta1 if self.beta1 is not None else 0.0 if self.server == "adagrad" else 0.9

    @property
    def still_moves(self) -> str:
        return "the server's momentum" if self.decay else ""

    def init(self, worker: Worker, group: Group) -> FedoptState:
        shape = worker.params.shape
        squares = worker.params.new_full(shape, self.tau**2)
        return MovingState(squares, worker.params.new_zeros(shape)) if self.decay else FedoptState(squares)

    def round(self, worker: Worker, group: Group, state: FedoptState) -> None:
        anchor = worker.params.clone()
        worker.train()
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        self.step(anchor, worker.params - anchor, state)
        worker.params.copy_(anchor)

    def step(self, anchor: Tensor, delta: Tensor, state: FedoptState) -> None:
        """Move the anchor (d,) by a step of the server's optimizer."""
        # Separate products, not fused: every device gets the same bits.
        v, square, m = state.squares, delta.square(), delta
        if isinstance(state, MovingState):
            m = state.momentum.mul_(self.decay).add_(delta.mul_(1 - self.decay))
        match self.server:
            case "adagrad":
                v.add_(square)
            case "adam":
                v.mul_(self.beta2).add_(square.mul_(1 - self.beta2))
            case "yogi":
                v.sub_((v - square).sign_().mul_(square).mul_(1 - self.beta2))
        anchor.add_((m * self.outer_lr).div_(v.sqrt().add_(self.tau)))
