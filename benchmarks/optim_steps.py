"""Optimizer steps of partrain against those of torch.optim: time ratios, and whether the bits are equal.

    python benchmarks/optim_steps.py [--seconds S] [--only NAME]

Each step starts from a list of gradients, one per parameter tensor, as autograd returns it. The tensors are those of an MLP with one
hidden layer and about d numbers. Ways to take the step:

* partrain: `LocalOptimizer`, torch's step functions on views of the row.
* function: torch's public function with `fused=True` on the same views (only for optimizers where partrain calls `torch._fused_*`).
* foreach: partrain's own call with `foreach=True` (only for optimizers without a fused kernel).
* class: torch.optim's class on the same views, with the moments of the row as its state.
* flat class, flat function: torch's class, and partrain's own call, on one view of the whole row, after a copy of the gradients into one
  vector.

A cell is the CPU time of partrain divided by that of the other way, with one thread: the median over pairs of short blocks, which
alternate. Above 1 the other way is faster. The column "itself" compares partrain with partrain: it shows the error of the measurement. `=` marks the same bits
as partrain after 20 steps (parameters and moments), `!` other bits. The last line is the cost of the first torch.optim class in a
process: torch imports its compiler (`torch._dynamo`) for it.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from runs import machine
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from partrain.flat import Layout
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.local import LocalOptimizer
from partrain.optim.sections import Adagrad, Adam, Adamax, AdamW, Muon, NAdam, RAdam, RmsProp, Rprop

SIZES = 1_000, 10_000, 100_000, 1_000_000
MUON_LIMIT = 100_000
"""Largest size for Muon: above it, one step takes seconds on the CPU, nearly all in matrix products."""
BUILDS = 5
"""Fresh states per cell: large vectors differ in speed by where they lie in memory."""
SECTIONS: dict[str, tuple[AnyOptimizer, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (Sgd(lr=0.1), torch.optim.SGD),
    "sgd, momentum": (Sgd(lr=0.1, momentum=0.9, weight_decay=0.01), torch.optim.SGD),
    "adam": (Adam(name="adam", lr=0.01), torch.optim.Adam),
    "adam, amsgrad": (Adam(name="adam", lr=0.01, amsgrad=True, weight_decay=0.01), torch.optim.Adam),
    "adamw": (AdamW(name="adamw", lr=0.01), torch.optim.AdamW),
    "nadam": (NAdam(name="nadam", lr=0.01), torch.optim.NAdam),
    "radam": (RAdam(name="radam", lr=0.01), torch.optim.RAdam),
    "adamax": (Adamax(name="adamax", lr=0.01), torch.optim.Adamax),
    "rmsprop": (RmsProp(name="rmsprop", lr=0.01), torch.optim.RMSprop),
    "rmsprop, centered": (RmsProp(name="rmsprop", lr=0.01, centered=True, momentum=0.5), torch.optim.RMSprop),
    "adagrad": (Adagrad(name="adagrad", lr=0.01), torch.optim.Adagrad),
    "rprop": (Rprop(name="rprop", lr=0.01), torch.optim.Rprop),
    "muon": (Muon(name="muon", lr=0.02), torch.optim.Muon),
}
SETTINGS = {
    "alpha", "amsgrad", "betas", "centered", "dampening", "decoupled_weight_decay", "eps", "etas", "initial_accumulator_value", "lr_decay",
    "momentum", "momentum_decay", "nesterov", "ns_coefficients", "ns_steps", "adjust_lr_fn", "step_sizes", "weight_decay",
}  # fmt: skip

Step = Callable[[list[Tensor], float], None]
"""One step with these gradients and this learning rate."""


class State:
    """A row of parameters and its moments, with views of their tensors."""

    def __init__(self, section: AnyOptimizer, layout: Layout, whole: Layout) -> None:
        """Draw the parameters. `whole`: the layout whose views are stepped, tensor by tensor or one flat view."""
        self.section, self.layout, self.whole = section, layout, whole
        self.row, self.moments = torch.zeros(layout.size), torch.zeros(len(section.moments), layout.size)
        for view, tensor in zip(layout.views(self.row), draws(layout, 0), strict=True):
            view.copy_(tensor)
        self.optimizer = LocalOptimizer(section, self.row, self.moments, whole)  # it also gives the moments their initial values
        self.params = whole.views(self.row)
        self.views = [whole.views(row) for row in self.moments]

    def partrain(self) -> Step:
        return self.optimizer.step

    def function(self) -> Step:
        """Return torch's public function for fused SGD, Adam or AdamW."""
        section, params, views = self.section, self.params, self.views
        counts = [torch.zeros(()) for _ in params]

        @torch.no_grad()
        def step_sgd(gradients: list[Tensor], lr: float) -> None:
            buffers = views[0] if views else [None] * len(params)
            sgd(params, gradients, buffers, fused=True, foreach=False, lr=lr, maximize=False,
                **section.model_dump(include={"weight_decay", "momentum", "dampening", "nesterov"}))  # fmt: skip

        @torch.no_grad()
        def step_adam(gradients: list[Tensor], lr: float) -> None:
            assert isinstance(section, Adam)
            adam(params, gradients, views[0], views[1], views[2] if section.amsgrad else [], counts, fused=True, foreach=False,
                 amsgrad=section.amsgrad, beta1=section.betas[0], beta2=section.betas[1], lr=lr, weight_decay=section.weight_decay,
                 eps=section.eps, maximize=False, decoupled_weight_decay=isinstance(section, AdamW))  # fmt: skip

        return step_sgd if isinstance(section, Sgd) else step_adam

    def foreach(self) -> Step:
        """Return partrain's steps with `foreach=True`: those of a second copy of its module."""
        spec = importlib.util.find_spec("partrain.optim.steps")
        assert spec is not None
        assert spec.loader is not None
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
        for name in "nadam", "radam", "adamax", "rmsprop", "adagrad", "rprop":
            setattr(copy, name, functools.partial(getattr(copy, name), foreach=True))
        chosen = copy._STEPS[type(self.section)]
        self.optimizer._groups = [(indices, chosen, tensors) for indices, _, tensors in self.optimizer._groups]
        return self.optimizer.step

    def classes(self, make: Callable[..., torch.optim.Optimizer]) -> Step:
        """Return steps of torch.optim's class, with the views of the moments as its state."""
        section, settings = self.section, self.section.model_dump(include=SETTINGS)
        params = [torch.nn.Parameter(view) for view in self.params]
        if isinstance(section, Muon):
            matrices = [param for param in params if param.dim() == 2]
            others = [param for param in params if param.dim() != 2]
            decay = section.weight_decay
            optimizers = [make(matrices, lr=section.lr, **settings),
                          torch.optim.AdamW(others, lr=section.lr, fused=True, weight_decay=decay, eps=section.adamw_eps)]  # fmt: skip
        else:
            fused = {"fused": True} if fuses(section) else {"foreach": False}
            optimizers = [make(params, lr=section.lr, **fused, **settings)]
        for index, param in enumerate(params):
            names = ["momentum_buffer" if name == "momentum" else name for name in section.moments]
            state = {name: row[index] for name, row in zip(names, self.views, strict=True)}
            if isinstance(section, Muon) and param.dim() == 2:
                state = {"momentum_buffer": state["exp_avg"]}
            if isinstance(section, NAdam):
                state["mu_product"] = torch.ones(())
            owner = next(one for one in optimizers if any(param is other for other in one.param_groups[0]["params"]))
            owner.state[param] = state | {"step": torch.zeros(())} if state else {}

        def step(gradients: list[Tensor], lr: float) -> None:
            for param, gradient in zip(params, gradients, strict=True):
                param.grad = gradient
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = lr
                optimizer.step()

        return step

    def gathered(self, step: Step) -> Step:
        """Copy the gradients into one vector, then take a step with that."""
        flat = torch.zeros_like(self.row)
        views = self.layout.views(flat)

        def gather_and_step(gradients: list[Tensor], lr: float) -> None:
            torch._foreach_copy_(views, gradients)
            step([flat], lr)

        return gather_and_step


def fuses(section: AnyOptimizer) -> bool:
    """Return True if partrain calls torch's fused kernels."""
    return isinstance(section, Sgd | Adam)


def network(d: int) -> Layout:
    """Return the layout of an MLP with one hidden layer, 10 outputs and about d numbers."""
    hidden = int(d**0.5 / 2)
    shapes = [(hidden, (d - 11 * hidden - 10) // hidden), (hidden,), (10, hidden), (10,)]
    return Layout.of([(str(index), torch.empty(shape)) for index, shape in enumerate(shapes)], torch.float32)


def draws(layout: Layout, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(field.shape, generator=generator) for field in layout.fields]


def ways(
    section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], d: int
) -> Iterator[tuple[str, Callable[[], tuple[State, Step]]]]:
    """Yield each way to step by name, with a function that builds it."""
    layout = network(d)
    whole = Layout.of([("all", torch.empty(layout.size))], torch.float32)

    def built(choose: Callable[[State], Step], stepped: Layout) -> Callable[[], tuple[State, Step]]:
        def build() -> tuple[State, Step]:
            state = State(section, layout, stepped)
            return state, choose(state)

        return build

    yield "partrain", built(State.partrain, layout)
    yield "itself", built(State.partrain, layout)
    if fuses(section):
        yield "function", built(State.function, layout)
    elif not isinstance(section, Muon):
        yield "foreach", built(State.foreach, layout)
    yield "class", built(lambda state: state.classes(make), layout)
    if not isinstance(section, Muon):  # which needs matrices
        yield "flat class", built(lambda state: state.gathered(state.classes(make)), whole)
        yield "flat function", built(lambda state: state.gathered(state.partrain()), whole)


def numbers(build: Callable[[], tuple[State, Step]]) -> list[Tensor]:
    """Return parameters and moments after 20 steps at a falling rate, without the padding between tensors."""
    state, step = build()
    for count in range(20):
        step(draws(state.layout, count + 1), state.section.lr * (1 - count / 20))
    return [view for row in (state.row, *state.moments) for view in state.layout.views(row)]


def ratios(one: Step, other: Step, gradients: list[Tensor], seconds: float) -> list[float]:
    """Return t(one) / t(other) for pairs of alternating blocks of about 2 ms, for this many seconds."""

    def block(step: Step, count: int) -> float:
        start = time.thread_time()
        for _ in range(count):
            step(gradients, 1e-4)
        return time.thread_time() - start

    block(other, 3)
    count = max(1, int(0.002 / (block(one, 3) / 3)))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        first, second = (one, other) if len(found) % 2 else (other, one)
        times = block(first, count), block(second, count)
        found.append(times[0] / times[1] if first is one else times[1] / times[0])
    return found


def cells(name: str, d: int, seconds: float) -> dict[str, str]:
    """Return a cell for each way but partrain's."""
    section, make = SECTIONS[name]
    (_, ours), *others = ways(section, make, d)
    expected, found = numbers(ours), {}
    for way, build in others:
        same = all(torch.equal(one, other) for one, other in zip(expected, numbers(build), strict=True))
        pairs: list[float] = []
        for _ in range(BUILDS):
            (_, own), (state, step) = ours(), build()
            pairs += ratios(own, step, draws(state.layout, 1), seconds / BUILDS)
        found[way] = f"{statistics.median(pairs):.2f}{'=' if same else '!'}"
    return found


IMPORT = """
import time, torch, torch.optim
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024
params = [torch.nn.Parameter(torch.zeros(10))]
start, memory = time.process_time(), resident()
torch.optim.SGD(params, lr=0.1)
print(f"{time.process_time() - start:.2f} s of CPU time, {resident() - memory:.0f} MiB")
"""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds per cell")
    parser.add_argument("--only", default="", help="only optimizers with this in their name")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    columns = "itself", "function", "foreach", "class", "flat class", "flat function"
    print(f"CPU time of partrain / CPU time of the other way; torch {torch.__version__}; {machine()}\n")
    print(f"| optimizer | d | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}")
    for name in SECTIONS:
        for d in SIZES:
            if chosen.only in name and not (name == "muon" and d > MUON_LIMIT):
                found = cells(name, d, chosen.seconds)
                print(f"| {name} | {d:.0e} | {' | '.join(found.get(way, '') for way in columns)} |", flush=True)
    cost = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True).stdout.strip()
    print(f"\nThe first torch.optim class of a process: {cost}")


if __name__ == "__main__":
    main(sys.argv[1:])
