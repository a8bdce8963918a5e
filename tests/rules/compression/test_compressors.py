"""Compressors: what they send, what that costs, what is left."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from partrain.rules.compression import AnyCompressor, Dense, Identity, TopK

CHOICE: TypeAdapter[Any] = TypeAdapter(AnyCompressor)
ALL: list[Any] = [
    Identity(kind="identity"),
    *(Dense(kind=kind) for kind in ("fp32", "fp16", "bf16", "2bit")),
    *(TopK(kind="topk", density=0.1, values=values) for values in ("fp32", "fp16", "bf16", "2bit")),
    TopK(kind="topk", density=1.0),
    TopK(kind="topk", density=0.1, chunk=16),
]

vectors = st.lists(st.just(0.0) | st.floats(-8, 8, width=32), min_size=1, max_size=200).map(torch.tensor)
every_compressor = pytest.mark.parametrize("compressor", ALL, ids=str)


@every_compressor
@given(x=vectors)
def test_a_receiver_reads_what_the_sender_says_it_sent(compressor: Any, x: Tensor) -> None:
    before = x.clone()
    message, sent = compressor.compress(x)
    assert (message.dtype, message.dim(), message.device.type) == (torch.uint8, 1, "cpu")
    assert torch.equal(compressor.read(message, len(x)).dense(len(x)), sent)
    assert torch.equal(x, before)


@every_compressor
def test_a_network_of_double_precision_keeps_it(compressor: Any) -> None:
    x = torch.linspace(-1, 1, 33, dtype=torch.float64)
    message, sent = compressor.compress(x)
    assert sent.dtype == torch.float64
    assert torch.equal(compressor.read(message, 33).dense(33).double(), sent)


@every_compressor
def test_what_is_not_finite_is_not_hidden(compressor: Any) -> None:
    _, sent = compressor.compress(torch.tensor([0.5, float("nan"), 1.0]))
    assert sent.isnan().any()


@pytest.mark.parametrize(("kind", "length"), [("identity", 4004), ("fp32", 4004), ("fp16", 2002), ("bf16", 2002), ("2bit", 267)])
def test_bytes_of_a_thousand_and_one_numbers(kind: str, length: int) -> None:
    """Two bits a number, rounded up, and four levels of four bytes: 251 + 16."""
    message, _ = CHOICE.validate_python({"kind": kind}).compress(torch.randn(1001))
    assert len(message) == length


@pytest.mark.parametrize(
    ("kind", "sent"), [("fp32", 1.0009765625), ("fp16", 1.0009765625), ("bf16", 1.0)], ids=["fp32", "fp16", "bf16"]
)
def test_rounding(kind: Any, sent: float) -> None:
    """1 + 2^-10 has ten binary places: single and half precision have them, bfloat16 has seven."""
    assert Dense(kind=kind).compress(torch.tensor([1.0009765625]))[1].tolist() == [sent]


def test_identity_is_exact_in_double_precision_where_fp32_rounds() -> None:
    x = torch.tensor([0.1], dtype=torch.float64)
    assert Identity(kind="identity").compress(x)[1].item() == 0.1
    assert Dense(kind="fp32").compress(x)[1].item() != 0.1


def test_the_largest_are_sent() -> None:
    x = torch.tensor([1.0, -4.0, 0.5, 3.0, -2.0, 0.0, 0.25, 0.125, 2.5, -1.5])
    _, sent = TopK(kind="topk", density=0.3).compress(x)
    assert sent.tolist() == [0.0, -4.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 2.5, 0.0]


def test_the_largest_of_each_chunk_are_sent() -> None:
    """Chunks of four, the last one of two: half of each."""
    x = torch.tensor([9.0, 8.0, 7.0, 6.0, 0.1, 0.4, 0.3, 0.2, 5.0, -5.5])
    _, sent = TopK(kind="topk", density=0.5, chunk=4).compress(x)
    assert sent.nonzero().view(-1).tolist() == [0, 1, 5, 6, 9]


def test_a_chunk_larger_than_the_vector_is_the_vector() -> None:
    x = torch.randn(10)
    assert torch.equal(TopK(kind="topk", density=0.3, chunk=64).compress(x)[1], TopK(kind="topk", density=0.3).compress(x)[1])


def test_at_least_one_entry_is_sent_and_no_zero() -> None:
    least = TopK(kind="topk", density=1e-6)
    assert least.compress(torch.tensor([1.0, -2.0, 0.0]))[1].tolist() == [0.0, -2.0, 0.0]
    message, sent = least.compress(torch.zeros(3))
    assert (len(message), sent.tolist()) == (5, [0.0] * 3)


@pytest.mark.parametrize(("values", "bits"), [("fp32", 32), ("fp16", 16), ("bf16", 16), ("2bit", 2)])
def test_bytes_of_one_entry_in_a_hundred(values: Any, bits: int) -> None:
    """A place costs about eight bits; a head of five bytes, the levels and the Rice parameter come on top."""
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    message, sent = TopK(kind="topk", density=0.01, values=values).compress(x)
    assert bits + 8 <= len(message) * 8 / 1000 <= bits + 8.6
    assert sent.count_nonzero() <= 1000


@pytest.mark.parametrize("table", [{"kind": "topk", "density": 0.0}, {"kind": "topk", "density": 1.5}, {"kind": "zip"}, {}])
def test_what_is_no_compressor(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CHOICE.validate_python(table)
