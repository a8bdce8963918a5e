"""C code of this package that multiplies matrices, by torch's own BLAS library or by `product.h`."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from partrain.flat import DEFINITIONS
from partrain.system.compiler import CannotCompile, library
from partrain.system.environment import processor

ZEN_5 = 26
"""First family of AMD processors that computes with 512 bits at once."""
_PRODUCTS = {torch.float32: "sgemm_", torch.float64: "dgemm_"}
"""Name of BLAS's matrix product by type of the numbers."""


MOST_THREADS = 2
"""Most threads with which the products of `product.h`, which use one thread, are faster than BLAS's."""


def prefers_own_products(dtype: torch.dtype) -> bool:
    """Return whether the products of `product.h` are faster here: on Zen 5, where BLAS (MKL) takes twice as long, with few threads."""
    machine = processor()
    wide = machine.vendor == "AuthenticAMD" and machine.family >= ZEN_5 and "avx512f" in machine.flags
    return wide and dtype == torch.float32 and torch.get_num_threads() <= MOST_THREADS


def code_and_product(source: Path, dtype: torch.dtype) -> tuple[ctypes.CDLL, int]:
    """Return the compiled code of a C file, and the address of BLAS's product, which uses torch's number of threads.

    The address is 0 if the code should use the products of `product.h`.

    Raises CannotCompile if there is no C compiler, or torch has no BLAS library.
    """
    code = library(source, DEFINITIONS[dtype])
    own = prefers_own_products(dtype) and code.has_products()
    return code, 0 if own else _product(_PRODUCTS[dtype])


@cache
def _product(name: str) -> int:
    library_of_torch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    try:
        return ctypes.cast(getattr(library_of_torch, name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise CannotCompile(f"this build of torch has no BLAS function `{name}`") from None
