"""The processor's description."""

from __future__ import annotations

import platform

from partrain.system.environment import Processor

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
