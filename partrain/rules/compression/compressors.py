"""Compressors, as a rule's `compressor` table names them: they encode a vector (d,) as a message of bytes.

`compress` returns the message and the vector that its receivers will `read` in it, to the bit. The sender keeps the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field

from partrain.config.section import Section
from partrain.rules.compression.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.flat import SparseVector


class Identity(Section):
    """The bytes of the vector itself, without loss."""

    kind: Literal["identity"]

    def compress(self, x: Tensor, numbers: int | None = None) -> tuple[Tensor, Tensor]:
        """Encode a vector: the message, and the vector (d,) it decodes to. `numbers`: entries that are not padding; None: all."""
        from partrain.rules.compression.messages import raw_message

        return raw_message(x), x.clone()

    def read(self, message: Tensor, d: int) -> SparseVector:
        """Decode a message to a vector (d,)."""
        from partrain.rules.compression.messages import read_raw

        return read_raw(message, d)


class Dense(Section):
    """All entries in fewer bits."""

    kind: Precision

    def compress(self, x: Tensor, numbers: int | None = None) -> tuple[Tensor, Tensor]:
        """Encode a vector: the message, and the vector (d,) it decodes to. `numbers`: entries that are not padding; None: all."""
        from partrain.rules.compression.messages import dense_message

        message = dense_message(x, self.kind)
        return message, self.read(message, len(x)).dense(len(x)).to(x)

    def read(self, message: Tensor, d: int) -> SparseVector:
        """Decode a message to a vector (d,)."""
        from partrain.rules.compression.messages import read_dense

        return read_dense(message, d, self.kind)


class TopK(Section):
    """The entries of largest magnitude; zeros are not sent.

    Source: Stich, Cordonnier, Jaggi. Sparsified SGD with Memory. 2018. arXiv:1809.07599
    """

    kind: Literal["topk"]
    density: float = Field(0.01, gt=0, le=1)
    """Share of the entries to send, those of largest magnitude; at least one entry."""
    values: Precision = "fp32"
    """Number type of the entries that are sent; `2bit` has four levels."""
    chunk: int = Field(0, ge=0)
    """Length of the chunks from each of which the largest entries are chosen, padding between tensors included; 0: one
    chunk for all."""

    def compress(self, x: Tensor, numbers: int | None = None) -> tuple[Tensor, Tensor]:
        """Encode a vector: the message, and the vector (d,) it decodes to. `numbers`: entries that are not padding; None: all."""
        from partrain.rules.compression.messages import sparse_message

        index = self.choose(x, numbers)
        message = sparse_message(index, x[index], len(x), self.values)
        return message, self.read(message, len(x)).dense(len(x)).to(x)

    def read(self, message: Tensor, d: int) -> SparseVector:
        """Decode a message to a vector (d,)."""
        from partrain.rules.compression.messages import read_sparse

        return read_sparse(message, d, self.values)

    def choose(self, x: Tensor, numbers: int | None = None) -> Tensor:
        """Choose the entries to send: increasing indices. `numbers`: as `compress`."""
        import torch

        d = len(x)
        size = min(self.chunk or d, d)
        whole, numbers = d - d % size, d if numbers is None else numbers
        parts = [self._largest(x[:whole].view(-1, size), numbers * size / d)]
        if whole < d:
            parts.append(self._largest(x[whole:].view(1, -1), numbers * (d - whole) / d) + whole)
        index = torch.cat(parts)
        return index[x[index] != 0].sort().values

    def _largest(self, rows: Tensor, numbers: float) -> Tensor:
        """Find the largest entries of each row: indices into the flattened rows. `numbers`: a row's entries that are not padding."""
        from partrain.rules.compression.messages import largest

        count, size = rows.shape
        k = max(1, round(self.density * numbers))
        if count == 1:
            return largest(rows[0].abs(), k)
        columns = rows.abs().topk(k, dim=1, sorted=False).indices
        starts = (columns.new_ones(count).cumsum(0) - 1) * size
        return (columns + starts[:, None]).view(-1)


AnyCompressor = Annotated[Identity | Dense | TopK, Discriminator("kind")]
