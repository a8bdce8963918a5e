"""Data sets: the `[dataset]` table and what it loads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from partrain.section import Section


class _Held(Section):
    """What every data set has: items held out of training."""

    validation: int = Field(0, ge=0)
    """Items kept out of training to judge the mixed network."""


class Mnist(_Held):
    """The embedded MNIST digits: 60,000 training and 10,000 test images, float32 (1, 28, 28) in [0, 1], labels 0-9."""

    name: Literal["mnist"]


class Idx(_Held):
    """IDX files, plain or gzipped: inputs and targets, and optionally a test set."""

    kind: Literal["idx"]
    inputs: str
    """File of the inputs, relative to the job; bytes are scaled to [0, 1]."""
    targets: str
    """File of the targets; integers are class labels."""
    test_inputs: str | None = None
    test_targets: str | None = None


class Synthetic(_Held):
    """Generated items, for demonstrations and tests."""

    kind: Literal["synthetic"]
    function: Literal["sine", "seeds", "blobs", "xor"]
    """`sine`: y = sin(x) on [-pi, pi]; `seeds`: the function the older trainers were measured on; `blobs`: Gaussian classes; `xor`: noisy XOR of two bits."""
    items: int = Field(5000, ge=2, le=10**8)
    test_items: int = Field(0, ge=0, le=10**8)
    features: int = Field(2, ge=1, le=10**5)
    """Inputs of each item (`blobs` only)."""
    classes: int = Field(3, ge=2, le=10**4)
    """Classes (`blobs` only)."""
    noise: float = Field(0.1, ge=0)
    """Standard deviation of the noise (`blobs`, `xor` and `sine`)."""


def _which(table: Any) -> str | None:
    """The tag of a `[dataset]` table, given as a table or as a section."""
    get = table.get if isinstance(table, dict) else lambda key: getattr(table, key, None)
    return get("kind") if get("kind") is not None else get("name")


AnyDataset = Annotated[
    Annotated[Mnist, Tag("mnist")] | Annotated[Idx, Tag("idx")] | Annotated[Synthetic, Tag("synthetic")],
    Discriminator(_which),
]
