"""The `[engine]` table: details of the computation that the rest of the job leaves open."""

from typing import Literal

from partrain.config.section import Section
from partrain.system.environment import processor

Precision = Literal["float32", "bfloat16"]


class Engine(Section):
    """The `[engine]` table."""

    exact: bool = True
    """For several machines. true: each machine gets the numbers of all workers and sums them in rank order, which gives the same
    bits as one machine. false: each machine sums its own workers first and sends only that sum, which is less traffic and rounds
    differently."""
    precision: Precision = "float32"
    """Number type of the forward and backward pass. `bfloat16`: matrix products have this type, on CUDA and on CPUs that support
    it. Parameters, gradients, optimizer state and everything mixed stay float32, and the network is judged and answers in float32."""
    compiled: bool = True
    """true: plain stacks of linear layers, the network `tabular` and recurrent layers train on the CPU in C code, which partrain compiles
    once with the machine's C compiler; the first two also answer items in C code. false: torch computes everything. Both give the same
    numbers up to rounding."""


def cpu_has_bfloat16() -> bool:
    """Return whether this machine's CPU multiplies in bfloat16. Read the kernel's file: asking torch would cost its import."""
    return bool(processor().flags & {"avx512_bf16", "amx_bf16", "bf16"})
