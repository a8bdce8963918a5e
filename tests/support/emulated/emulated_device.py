"""The emulated accelerator of device.cpp as a device of torch: `emulated:0` and `emulated:1`.

torch loads it by itself where this folder is on PYTHONPATH, as it loads any package with an entry point `torch.backends`. Run as a
script, this file compiles it into the environment (once for each version of torch and of the source). Variables for processes
that tests start, each a number for both devices:

EMULATED_SLOWNESS   factor by which operations take longer, or two with a comma between them
EMULATED_MEMORY     bytes of memory
EMULATED_FAIL_AT    number of the operation that fails, from 1
EMULATED_FLOAT64    0: there is no double precision
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

NAME = "emulated"
COUNT = 2
SOURCE = Path(__file__).with_name("device.cpp")
LIBRARY = "emulated_device_library"


def folder() -> Path:
    """Return the folder of the compiled library for this source, torch and Python."""
    digest = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode() + sys.version.encode()).hexdigest()[:16]
    return Path(sys.prefix) / "emulated-device" / digest


def compile_library() -> None:
    """Compile the library into the environment, unless it is there."""
    from torch.utils.cpp_extension import load

    place = folder()
    if not (place / f"{LIBRARY}.so").exists():
        shutil.rmtree(place.parent, ignore_errors=True)
        place.mkdir(parents=True)
        os.environ["PATH"] = f"{Path(sys.prefix) / 'bin'}:{os.environ.get('PATH', '')}"
        load(
            LIBRARY,
            [str(SOURCE)],
            build_directory=str(place),
            extra_cflags=["-O1", "-g0", "-Wno-sign-compare"],
            is_python_module=False,
        )


class Device:
    """The module `torch.emulated`: what torch and its users ask of any accelerator's module."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.default_generators = tuple(map(library.default_generator, range(COUNT)))

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def _lazy_init(self) -> None:
        pass

    def device_count(self) -> int:
        return COUNT

    def current_device(self) -> int:
        return int(self.library.current_device())

    def set_device(self, device: Any) -> None:
        self.library.set_device(self.index(device))

    def synchronize(self, device: Any = None) -> None:
        self.library.synchronize(self.index(device))

    def index(self, device: Any) -> int:
        """Return the index of a device, given as torch takes devices."""
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index
        return self.current_device() if index is None else index

    def get_device_name(self, device: Any = None) -> str:
        return "emulated in the CPU's memory"

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        free, total = self.library.memory(self.index(device))
        return free, total

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        self.default_generators[self.current_device()].manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return self.default_generators[self.index(device)].get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self.default_generators[self.index(device)].set_state(state)


def register() -> None:
    """Make the compiled device known to torch. Nothing happens where it is not compiled."""
    path = folder() / f"{LIBRARY}.so"
    if not path.exists():
        return
    torch._meta_registrations._meta_lib_dont_use_me_use_register_meta._destroy()  # slow ones in Python hide those of C++
    torch.utils.rename_privateuse1_backend(NAME)
    spec = spec_from_file_location(LIBRARY, path, loader=ExtensionFileLoader(LIBRARY, str(path)))
    assert spec is not None
    assert spec.loader is not None
    library = module_from_spec(spec)
    spec.loader.exec_module(library)
    torch._register_device_module(NAME, Device(library))
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)


if __name__ == "__main__":
    if shutil.which("g++") and Path(sysconfig.get_path("include"), "Python.h").exists():
        compile_library()
    else:
        print("no C++ compiler, or no headers of Python: the tests of the emulated device are skipped")
