"""Flat rows: views stay views, means are exact, non-finite numbers are found."""

import math
import shutil
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from partrain import flat
from partrain.flat import ALIGNMENT, CHUNK, Layout, adopt, compiled_for, first_non_finite, mean_into, share_into, trainable


def layout_of(*shapes: tuple[int, ...]) -> Layout:
    return Layout.of([(f"t{index}", torch.zeros(shape)) for index, shape in enumerate(shapes)], torch.float32)


@given(st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), max_size=5))
def test_tensors_start_on_cache_lines_and_never_share_a_number(shapes: list[tuple[int, ...]]) -> None:
    layout = layout_of(*shapes)
    ends = [field.start + field.size for field in layout.fields]
    assert all(field.start * 4 % ALIGNMENT == 0 for field in layout.fields)
    assert all(end <= field.start for end, field in zip(ends, layout.fields[1:], strict=False))
    assert layout.size * 4 % ALIGNMENT == 0
    assert layout.size >= max(ends, default=0)


def test_views_have_their_shapes_and_lie_in_the_row() -> None:
    row = torch.arange(32.0)
    matrix, scalar = layout_of((2, 3), ()).views(row)
    assert matrix.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert scalar.item() == 16
    matrix[0, 1] = -1
    assert row[1] == -1


@pytest.mark.parametrize(("index", "name"), [(0, "t0"), (5, "t0"), (15, "t0"), (16, "t2"), (31, "t2")])
def test_a_number_is_named_by_its_tensor(index: int, name: str) -> None:
    assert layout_of((2, 3), (0,), (4, 4)).name_at(index) == name


def test_one_row_holds_one_type() -> None:
    with pytest.raises(TypeError, match=r"`half` is torch\.float16, the others are torch\.float32"):
        Layout.of([("whole", torch.zeros(2)), ("half", torch.zeros(2, dtype=torch.float16))], torch.float32)


def test_an_adopted_network_keeps_its_numbers_and_lives_in_the_row() -> None:
    network = nn.Linear(3, 2)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    layout = Layout.of(trainable(network), torch.float32)
    row = torch.zeros(layout.size)
    adopt(network, layout, row)
    assert all(torch.equal(one, other) for one, other in zip(before, network.parameters(), strict=True))
    row.fill_(7)
    assert network.weight.eq(7).all()
    assert network.bias.eq(7).all()


def test_tied_parameters_are_laid_out_once_and_stay_tied() -> None:
    network = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    network[1].weight = network[0].weight
    layout = Layout.of(trainable(network), torch.float32)
    adopt(network, layout, torch.zeros(layout.size))
    assert [field.name for field in layout.fields] == ["0.weight", "0.bias", "1.bias"]
    assert network[1].weight is network[0].weight


def test_frozen_parameters_are_left_where_they_are() -> None:
    network = nn.Linear(3, 2)
    network.weight.requires_grad_(False)
    assert [name for name, _ in trainable(network)] == ["bias"]


def test_mean_is_weighted() -> None:
    rows = [torch.tensor([0.0, 8.0]), torch.tensor([4.0, 0.0])]
    mean_into(rows, [3.0, 1.0])
    assert [row.tolist() for row in rows] == [[1.0, 6.0]] * 2


def test_mean_is_summed_in_double_precision_and_rounded_once() -> None:
    rows = [torch.tensor([x]) for x in (1e8, 1.0, -1e8, 1.0)]
    mean_into(rows, [1.0] * 4)
    assert rows[0].item() == 0.5


@given(st.integers(1, 5), st.integers(1, 7), st.sampled_from([torch.float32, torch.float64]), st.data())
def test_mean_does_not_depend_on_who_mixes_which_slice(workers: int, cuts: int, dtype: torch.dtype, data: st.DataObject) -> None:
    length = 67
    weights = data.draw(st.lists(st.floats(0.1, 100), min_size=workers, max_size=workers))
    edges = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=cuts))})
    whole = list(torch.randn(workers, length, generator=torch.Generator().manual_seed(1), dtype=dtype))
    sliced = [row.clone() for row in whole]
    mean_into(whole, weights)
    for first, last in pairwise(edges):
        mean_into([row[first:last] for row in sliced], weights)
    assert torch.equal(whole[0], sliced[0])


def test_mean_divides_by_the_weights_rather_than_multiplying_by_a_rounded_inverse() -> None:
    row = torch.ones(1, dtype=torch.float64)
    mean_into([row], [49.0])
    assert row.item() == 1.0


def test_rows_longer_than_a_chunk_are_mixed_to_the_end() -> None:
    rows = [torch.full((2 * CHUNK + 3,), x) for x in (1.0, 2.0)]
    mean_into(rows, [1.0, 1.0])
    assert rows[1].eq(1.5).all()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("workers", range(1, 6))
@pytest.mark.parametrize("alike", [False, True])
def test_compiled_code_gives_the_bits_of_torch(
    workers: int, dtype: torch.dtype, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(workers)
    rows = torch.randn(workers, CHUNK + 1001, generator=draw, dtype=dtype) * 10 ** torch.randn(
        CHUNK + 1001, generator=draw, dtype=dtype
    )
    weights = [640.0] * workers if alike else torch.rand(workers, generator=draw).tolist()
    part = slice(17, CHUNK + 900)

    def means() -> list[Tensor]:
        whole, some, sums, share = (list(rows.clone()) for _ in range(4))
        mean_into(whole, weights)
        mean_into(some, weights, part=part)
        mean_into(sums, weights, 1.0)
        share_into(share[0], share, weights, 3 * sum(weights), part=part)
        return [torch.stack(changed) for changed in (whole, some, sums, share)]

    assert compiled_for(rows)
    compiled = means()
    monkeypatch.setattr(flat, "compiled_for", lambda x: None)
    assert all(map(torch.equal, compiled, means()))


@pytest.mark.parametrize("x", [torch.zeros(2, 3).T, torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, device="meta")])
def test_torch_has_what_compiled_code_cannot_read(x: Tensor) -> None:
    assert compiled_for(x) is None


@pytest.mark.parametrize("workers", range(1, 9))
def test_the_mean_of_equal_rows_is_that_row(workers: int) -> None:
    row = torch.randn(1000, generator=torch.Generator().manual_seed(workers))
    rows = [row.clone() for _ in range(workers)]
    mean_into(rows, [640.0] * workers)
    assert torch.equal(rows[-1], row)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_number_that_is_not_finite_is_found(bad: float) -> None:
    assert first_non_finite(torch.tensor([1.0, bad, 2.0, bad])) == 1
    assert first_non_finite(torch.cat([torch.ones(5001), torch.tensor([bad])])) == 5001
    assert first_non_finite(torch.tensor([0.0, bad], dtype=torch.float64)) == 1
    assert first_non_finite(torch.tensor([[1.0, 0.0], [bad, 0.0]]).T[0]) == 1


@pytest.mark.parametrize("x", [torch.ones(3), torch.zeros(0), torch.full((4,), 3e38), torch.tensor([3e38, 3e38, -3e38, -3e38])])
def test_finite_numbers_pass_even_if_their_sum_overflows(x: Tensor) -> None:
    assert first_non_finite(x) is None


def test_opposite_infinities_do_not_cancel() -> None:
    assert first_non_finite(torch.tensor([0.0, math.inf, -math.inf])) == 1
