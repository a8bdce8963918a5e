"""Compressors, as a rule's `compressor` table names them: how a vector (d,) becomes a message of bytes.

`compress` gives the message and what its receivers will `read` in it, to the bit: the sender keeps the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field

from partrain.config.section import Section
from partrain.rules.compression.quantize import Precision

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.flat import SparseVector


class Identity(Section):
    """Nothing is lost: the vector's own bytes."""

    kind: Literal["identity"]

    def compress(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The message, and what it says (d,)."""
        from partrain.rules.compression.messages import raw_message

        return raw_message(x), x.clone()

    def read(self, message: Tensor, d: int) -> SparseVector:
        """What a message says of a vector (d,)."""
        from partrain.rules.compression.messages import read_raw

        return read_raw(message, d)


class Dense(Section):
    """All entries in fewer bits."""

    kind: Precision

    def compress(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The message, and what it says (d,)."""
        from partrain.rules.compression.messages import dense_message

        message = dense_message(x, self.kind)
        return message, self.read(message, len(x)).dense(len(x)).to(x)

    def read(self, message: Tensor, d: int) -> SparseVector:
        """What a message says of a vector (d,)."""
        from partrain.rules.compression.messages import read_dense

        return read_dense(message, d, self.kind)


class TopK(Section):
    """The entries of largest magnitude; zeros are not sent.

    Source: Stich, Cordonnier, Jaggi. Sparsified SGD with Memory. 2018. arXiv:1809.07599
    """

    kind: Literal["topk"]
    density: float = Field(0.01, gt=0, le=1)
    """Share of the entries that are sent; at least one."""
    values: Precision = "fp32"
    """Precision of what is sent of each."""
    chunk: int = Field(0, ge=0)
    """Choose within consecutive chunks of so many entries, instead of the whole vector (0)."""

    def compress(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The message, and what it says (d,)."""
        from partrain.rules.compression.messages import sparse_message

        index = self.choose(x)
        message = sparse_message(index, x[index], len(x), self.values)
        return message, self.read(message, len(x)).dense(len(x)).to(x)

    def read(self, message: Tensor, d: int) -> SparseVector:
        """What a message says of a vector (d,)."""
        from partrain.rules.compression.messages import read_sparse

        return read_sparse(message, d, self.values)

    def choose(self, x: Tensor) -> Tensor:
        """Increasing indices of the entries to be sent."""
        import torch

        d = len(x)
        size = min(self.chunk or d, d)
        whole = d - d % size
        parts = [self._largest(x[:whole].view(-1, size))]
        if whole < d:
            parts.append(self._largest(x[whole:].view(1, -1)) + whole)
        index = torch.cat(parts)
        return index[x[index] != 0].sort().values

    def _largest(self, rows: Tensor) -> Tensor:
        """Indices of the largest of each row, counted through."""
        from partrain.rules.compression.messages import largest

        count, size = rows.shape
        wanted = max(1, round(self.density * size))
        if count == 1:
            return largest(rows[0].abs(), wanted)
        places = rows.abs().topk(wanted, dim=1, sorted=False).indices
        starts = (places.new_ones(count).cumsum(0) - 1) * size
        return (places + starts[:, None]).view(-1)


AnyCompressor = Annotated[Identity | Dense | TopK, Discriminator("kind")]
