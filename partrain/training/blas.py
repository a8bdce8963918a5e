"""C code of this package that multiplies matrices by torch's own BLAS library."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from partrain.flat import DEFINITIONS
from partrain.system.compiler import CannotCompile, library

_PRODUCTS = {torch.float32: "sgemm_", torch.float64: "dgemm_"}
"""BLAS's matrix product, by the type of the numbers."""


def code_and_product(source: Path, dtype: torch.dtype) -> tuple[ctypes.CDLL, int]:
    """Return the compiled code of a C file, and the address of BLAS's product, which has torch's number of threads.

    Raises CannotCompile if there is no C compiler, or torch has no BLAS library.
    """
    return library(source, DEFINITIONS[dtype]), _product(_PRODUCTS[dtype])


@cache
def _product(name: str) -> int:
    library_of_torch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    try:
        return ctypes.cast(getattr(library_of_torch, name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise CannotCompile(f"this build of torch has no BLAS function `{name}`") from None
