"""Matrix products in C: those of `product.h` against float64, at all shapes near its tiles, and BLAS's by the same call."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from partrain.flat import DEFINITIONS
from partrain.system.compiler import library
from partrain.training import blas

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

CODE = """
#include "product.h"
void multiply(Gemm *gemm, const int64_t *n, const NUMBER *a, const NUMBER *b, NUMBER kept, NUMBER *c) {
    strided_product(gemm, n[0], n[1], n[2], n[3], n[4], a, n[5], b, n[6], kept, c, n[7]);
}
"""
SIZES = st.one_of(st.integers(1, 40), st.sampled_from([48, 63, 64, 65, 255, 256, 257, 513]))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("product") / "multiply.c"
    path.write_text(CODE)
    return path


@pytest.mark.representative
@settings(max_examples=200)
@given(st.booleans(), st.booleans(), SIZES, SIZES, SIZES, st.booleans(), st.integers(0, 3), st.integers(0, 2**31), st.booleans())
def test_products(source, left: bool, right: bool, m: int, n: int, k: int, kept: bool, gap: int, seed: int, own: bool) -> None:
    """Matrices with gaps between their rows, which stay as they are; the sums are added to what is there where `kept`."""
    code = library(source, DEFINITIONS[torch.float32])
    own = own and bool(code.has_products())
    torch.manual_seed(seed)
    a, b = torch.randn((k, m + gap) if left else (m, k + gap)), torch.randn((n, k + gap) if right else (k, n + gap))
    c = torch.randn(m, n + gap)
    x, y = (a[:, :m].T if left else a[:, :k]), (b[:, :k].T if right else b[:, :n])
    wanted = x.double() @ y.double() + (c[:, :n].double() if kept else 0)
    size = x.double().abs() @ y.double().abs() + 1
    sides = c[:, n:].clone()
    numbers = (ctypes.c_int64 * 8)(left, right, m, n, k, a.shape[1], b.shape[1], c.shape[1])
    code.multiply.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_float, ctypes.c_void_p]
    product = None if own else blas._product("sgemm_")
    code.multiply(product, numbers, a.data_ptr(), b.data_ptr(), float(kept), c.data_ptr())
    assert float(((c[:, :n] - wanted) / size).abs().max()) < 1e-6
    assert torch.equal(c[:, n:], sides)


def test_a_number_depends_on_no_other(source) -> None:
    """The first row and column of a large product have the bits of a small one."""
    code = library(source, DEFINITIONS[torch.float32])
    if not code.has_products():
        pytest.skip("no products for this processor")
    code.multiply.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_float, ctypes.c_void_p]
    a, b = torch.randn(70, 300), torch.randn(90, 300)
    large, small = torch.empty(70, 90), torch.empty(1, 1)
    for c in large, small:
        numbers = (ctypes.c_int64 * 8)(0, 1, *c.shape, 300, 300, 300, c.shape[1])
        code.multiply(None, numbers, a.data_ptr(), b.data_ptr(), 0.0, c.data_ptr())
    assert torch.equal(large[:1, :1], small)


@pytest.mark.parametrize(
    ("vendor", "family", "threads", "own"),
    [
        ("AuthenticAMD", 26, 1, True),
        ("AuthenticAMD", 25, 1, False),
        ("GenuineIntel", 26, 1, False),
        ("AuthenticAMD", 26, 8, False),
    ],
)
def test_where_products_are_not_blas(
    source, monkeypatch: pytest.MonkeyPatch, vendor: str, family: int, threads: int, own: bool
) -> None:
    machine = blas.processor()
    monkeypatch.setattr(blas, "processor", lambda: type(machine)(vendor, family, frozenset({"avx512f"})))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    code, product = blas.code_and_product(source, torch.float32)
    assert (product == 0) == (own and bool(code.has_products()))
    assert blas.code_and_product(source, torch.float64)[1]
