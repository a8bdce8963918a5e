"""Messages: what a receiver reads is what the sender says it sent, and the form is the shortest."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from partrain.rules.compression.bit_packing import pack_fixed, pack_rice
from partrain.rules.compression.messages import MAP, STEP, largest, read_signs, sign_map, sign_message, total
from partrain.rules.compression.quantize import quantise

numbers = st.floats(-8, 8, width=32)
vectors = st.lists(st.just(0.0) | numbers, min_size=1, max_size=200).map(torch.tensor)


@given(vectors, st.floats(2**-10, 4, width=32))
def test_signs(x: Tensor, threshold: float) -> None:
    message, sent, count = sign_message(x, threshold)
    assert message.dtype == torch.uint8
    assert count == sent.count_nonzero()
    assert torch.equal(read_signs(message, len(x)).dense(len(x)), sent)
    assert torch.equal(sent, torch.where(x.abs() >= threshold, x.sign() * threshold, torch.zeros(())))


@given(vectors, st.floats(2**-10, 4, width=32))
def test_the_form_is_the_shortest(x: Tensor, threshold: float) -> None:
    message, sent, _ = sign_message(x, threshold)
    index, d = sent.nonzero().view(-1).numpy(), len(x)
    sparse = 1 + 4 + -(-len(index) // 8) + min(len(pack_fixed(index, d)), len(pack_rice(index)))
    assert len(message) == STEP + min(sparse, 1 + -(-2 * d // 8))


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 1000])
def test_all_entries_are_a_map(d: int) -> None:
    x = torch.linspace(-2, -1, d)
    message, sent, _ = sign_message(x, 1.0)
    assert len(message) == STEP + 1 + -(-d // 4)
    assert message[STEP] == MAP
    assert torch.equal(read_signs(message, d).dense(d), sent)
    assert torch.equal(sent, -torch.ones(d))


def test_the_map_has_two_bits_an_entry() -> None:
    """None, plus, minus, none, plus: 00 01 10 00, the last of them highest, and 01."""
    assert sign_map(np.array([1, 2, 4]), np.array([True, False, True]), 5).tolist() == [MAP, 0b00100100, 0b01]


def test_nothing_to_say_takes_nine_bytes() -> None:
    message, sent, _ = sign_message(torch.full((1000,), 0.5), 1.0)
    assert (len(message), sent.count_nonzero()) == (9, 0)
    assert torch.equal(read_signs(message, 1000).dense(1000), torch.zeros(1000))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_threshold_of_zero_sends_the_vector_itself(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, -0.0, 3.0], dtype=dtype)
    message, sent, _ = sign_message(x, 0.0)
    assert len(message) == STEP + x.nbytes
    assert torch.equal(sent, x)
    assert torch.equal(read_signs(message, 3).dense(3), x)


def test_a_threshold_is_rounded_for_sender_and_receiver_alike() -> None:
    x = torch.tensor([0.2, -0.2], dtype=torch.float64)
    message, sent, _ = sign_message(x, 0.1)
    assert sent.tolist() == [float(np.float32(0.1)), -float(np.float32(0.1))]
    assert torch.equal(read_signs(message, 2).dense(2).double(), sent)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(bad: float) -> None:
    message, sent, _ = sign_message(torch.tensor([1.0, bad, 0.0]), 0.5)
    assert sent.isnan().all()
    assert read_signs(message, 3).dense(3).isnan().all()


def test_one_entry_in_a_hundred_takes_a_three_hundredth_of_a_vector() -> None:
    x = torch.zeros(100_000)
    x[torch.randperm(100_000, generator=torch.Generator().manual_seed(0))[:1000]] = 1.0
    message, _, _ = sign_message(x, 1.0)
    assert 4 * len(x) / len(message) > 300
    assert max(b - a for a, b in pairwise(x.nonzero().view(-1).tolist())) > 256  # gaps of more than a byte are among them


def test_totals_add_up_by_rank_and_weight() -> None:
    """Signs +-1 of one, a whole vector of the other: 3 * (1, 0, -1) + 1 * (0.5, 0.5, 0.5)."""
    signs, _, _ = sign_message(torch.tensor([1.5, 0.25, -1.0]), 1.0)
    whole, _, _ = sign_message(torch.tensor([0.5, 0.5, 0.5]), 0.0)
    said = [read_signs(signs, 3), read_signs(whole, 3)]
    assert total(said, [3.0, 1.0], 3).tolist() == [3.5, 0.5, -2.5]


def test_four_levels() -> None:
    """Mean 0; the variance of -3, -1, 1, 3 is 20 / 3, so bins are 6 * 2.58 / 4 = 3.87 wide, cut at -5.81, -1.94 and 1.94."""
    levels, codes = quantise(torch.tensor([-3.0, -1.0, 1.0, 3.0]))
    assert codes.tolist() == [1, 2, 2, 3]
    assert levels.tolist() == [0.0, -3.0, 0.0, 3.0]


@given(st.lists(numbers, min_size=1, max_size=200).map(torch.tensor))
def test_levels_keep_the_sum(values: Tensor) -> None:
    levels, codes = quantise(values)
    assert float(levels[codes].double().sum()) == pytest.approx(float(values.double().sum()), abs=1e-6 * 8 * len(values))


@pytest.mark.parametrize("k", [1, 30, 300, 3000, 10_000])
@pytest.mark.parametrize("scene", ["any", "few are not zero", "equal ones", "the sample misleads"])
def test_the_largest(scene: str, k: int) -> None:
    """As torch's topk finds them, by whichever way."""
    x = torch.rand(10_000, generator=torch.Generator().manual_seed(k))
    if scene == "few are not zero":
        x[20:] = 0.0
    elif scene == "equal ones":
        x = (x * 4).floor()
    elif scene == "the sample misleads":
        x[::16] += 1.0
    index = largest(x, k)
    assert len(index.unique()) == k
    assert torch.equal(x[index].sort(descending=True).values, x.topk(k).values)


@pytest.mark.parametrize("place", [0, 5])
def test_what_is_no_number_is_among_the_largest(place: int) -> None:
    """Whether it is in the sample or not; so it is sent, and seen."""
    x = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    x[place] = math.nan
    assert place in largest(x, 30).tolist()
