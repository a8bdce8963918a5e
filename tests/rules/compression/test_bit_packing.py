"""Whole numbers as bits: what was packed comes back, in as many bytes as the arithmetic says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partrain.rules.compression.bit_packing import (
    FIXED,
    RICE,
    ends_of_unary,
    pack,
    pack_fixed,
    pack_indices,
    pack_rice,
    pack_unary,
    unpack,
    unpack_indices,
    unpack_rice,
)

indices = st.integers(1, 5000).flatmap(
    lambda d: st.tuples(st.sets(st.integers(0, d - 1)).map(lambda chosen: np.array(sorted(chosen), np.int64)), st.just(d))
)
"""Increasing indices, and the number that they are below."""


@given(st.integers(0, 32).flatmap(lambda width: st.tuples(st.lists(st.integers(0, 2**width - 1)), st.just(width))))
def test_numbers_of_a_width(case: tuple[list[int], int]) -> None:
    numbers, width = case
    code = pack(np.array(numbers, np.int64), width)
    assert len(code) == -(-len(numbers) * width // 8)
    assert unpack(code, len(numbers), width).tolist() == numbers


def test_bits_come_least_significant_first() -> None:
    """1, 2 and 5 in three bits each: 100 010 101, so the bytes 0b01010001 and 0b1."""
    assert pack(np.array([1, 2, 5]), 3).tolist() == [0b01010001, 0b1]


@given(st.lists(st.integers(0, 300)))
def test_unary(numbers: list[int]) -> None:
    code = pack_unary(np.array(numbers, np.int64))
    assert len(code) == -(-(sum(numbers) + len(numbers)) // 8)
    ends = ends_of_unary(code, len(numbers))
    assert ends.tolist() == [sum(numbers[: n + 1]) + n for n in range(len(numbers))]


@given(indices)
def test_indices(case: tuple[np.ndarray, int]) -> None:
    index, d = case
    form, code = pack_indices(index, d)
    assert unpack_indices(form, code, len(index), d).tolist() == index.tolist()
    assert unpack_rice(pack_rice(index), len(index)).tolist() == index.tolist()
    assert len(code) == min(len(pack_fixed(index, d)), len(pack_rice(index)))


@given(indices)
def test_no_other_parameter_makes_a_rice_code_shorter(case: tuple[np.ndarray, int]) -> None:
    index, _ = case
    gaps = np.diff(index, prepend=-1) - 1
    lengths = [len(pack(gaps & ((1 << b) - 1), b)) + len(pack_unary(gaps >> b)) for b in range(14)]
    assert len(pack_rice(index)) <= 2 + min(lengths)  # the byte of b; and b is chosen by bits, of which bytes may be one more


@pytest.mark.parametrize(("count", "form"), [(0, FIXED), (1, FIXED), (1000, RICE), (100_000, RICE)])
def test_form_by_density(count: int, form: int) -> None:
    index = np.sort(np.random.default_rng(0).permutation(100_000)[:count])
    assert pack_indices(index, 100_000)[0] == form


def test_one_entry_in_a_hundred_costs_about_eight_bits() -> None:
    """The entropy of such a pattern is 0.0808 bits an entry, 8.08 for each that is sent; a Golomb-Rice code adds a few per cent."""
    index = np.sort(np.random.default_rng(0).permutation(100_000)[:1000])
    assert 8.0 <= len(pack_rice(index)) * 8 / 1000 <= 8.4
    assert len(pack_fixed(index, 100_000)) * 8 / 1000 == 17


def test_all_indices_cost_a_bit_each() -> None:
    assert len(pack_rice(np.arange(800))) == 101
