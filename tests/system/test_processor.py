"""The processor's description, and the choice of oneDNN: only where it multiplies in float32 and is faster."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest
import torch

from partrain.system.environment import Processor, processor
from partrain.training import onednn

CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
flags\t\t: fpu avx2 avx512f

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 25
flags\t\t: fpu
"""


def test_a_processor_is_read_from_the_kernels_list() -> None:
    assert Processor.of(CPUINFO) == Processor("AuthenticAMD", 26, frozenset({"fpu", "avx2", "avx512f"}))
    assert Processor.of("processor\t: 0\nFeatures\t: fp asimd bf16\n").flags >= {"asimd", "bf16"}
    assert Processor.of("") == Processor()


def test_its_kind_is_what_decides_the_last_bits() -> None:
    assert Processor.of(CPUINFO).kind == f"{platform.machine()} AuthenticAMD family 26 AVX-512"
    assert Processor("GenuineIntel", 6, frozenset({"avx2"})).kind == f"{platform.machine()} GenuineIntel family 6 AVX2"
    assert Processor().kind == platform.machine()


ZEN = Processor("AuthenticAMD", 26, frozenset({"avx512f"}))
WITH_BFLOAT16 = [
    Processor("GenuineIntel", 6, frozenset({"avx512f", "amx_tile", "amx_bf16"})),
    Processor("", 0, frozenset({"asimd", "bf16"})),
]
OTHERS = {
    "Intel": Processor("GenuineIntel", 26, frozenset({"avx512f"})),
    "Zen 4": Processor("AuthenticAMD", 25, frozenset({"avx512f"})),
    "no wide vectors": Processor("AuthenticAMD", 26, frozenset({"avx2"})),
    "one that computes in bfloat16": Processor("AuthenticAMD", 26, frozenset({"avx512f", "amx_tile", "amx_bf16"})),
    "an unknown one": Processor(),
}


@pytest.mark.parametrize("cpu", WITH_BFLOAT16)
def test_a_processor_that_would_multiply_in_bfloat16_cannot_be_asked_to(cpu: Processor) -> None:
    with pytest.raises(AssertionError, match="this processor would multiply in bfloat16"), onednn._Onednn(cpu):
        pass


@pytest.fixture
def asked() -> Iterator[None]:
    """Clear the cache of `onednn_pays` before and after."""
    onednn.onednn_pays.cache_clear()
    yield
    onednn.onednn_pays.cache_clear()


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("cpu", OTHERS.values(), ids=OTHERS)
def test_elsewhere_it_is_not_asked(cpu: Processor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "processor", lambda: cpu)
    assert not onednn.onednn_pays()


@pytest.mark.skipif(
    processor().rounds_to_bfloat16, reason="oneDNN would multiply in bfloat16 on this processor (AMX or Arm BF16)"
)
@pytest.mark.usefixtures("asked")
def test_nor_is_it_where_its_numbers_are_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "processor", lambda: ZEN)
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        pytest.skip("this torch has only one of the two libraries")
    assert onednn.onednn_pays()
    onednn.onednn_pays.cache_clear()
    monkeypatch.setattr(onednn, "ROUNDING", 1e-9)
    assert not onednn.onednn_pays()
