"""C code of this package, compiled once for this processor by the C compiler of the machine, and kept in the user's cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from partrain.system.caches import own_cache
from partrain.system.environment import processor

# No -ffast-math, which would set a mode of the whole process, and no contraction: so results do not depend on the compiler.
_OPTIONS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")

_SHARED = Path(__file__).parent
"""The folder of `numeric.h`."""


class CannotCompile(Exception):
    """The reason why C code cannot be compiled here."""


def compiler() -> list[str]:
    """Return the command of the C compiler: $CC, else `cc`. Raises CannotCompile if there is none."""
    words = shlex.split(os.environ.get("CC") or "cc")
    program = words and shutil.which(words[0])
    if not program:
        raise CannotCompile(f"there is no C compiler `{' '.join(words)}`; install gcc")
    return [program, *words[1:]]


@cache
def library(source: Path, definitions: Sequence[str]) -> ctypes.CDLL:
    """Compile a C file with preprocessor definitions, unless that is done, and load it.

    Raises CannotCompile with the compiler's first line.
    """
    command = [*compiler(), *_OPTIONS, f"-I{_SHARED}", *(f"-D{definition}" for definition in definitions)]
    about = Path(command[0]).stat()
    headers = sorted([*_SHARED.glob("*.h"), *source.parent.glob("*.h")])
    parts = (
        source.read_text(),
        *(header.read_text() for header in headers),
        *command,
        about.st_size,
        about.st_mtime_ns,
        *sorted(processor().flags),
    )
    name = f"{source.stem}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}.so"
    try:
        folder = own_cache() / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            _compile([*command, str(source)], folder, name)
        return ctypes.CDLL(str(folder / name))
    except OSError:  # the cache cannot be written, or is where no code may be loaded
        with tempfile.TemporaryDirectory() as place:
            _compile([*command, str(source)], Path(place), name)
            try:
                return ctypes.CDLL(str(Path(place) / name))
            except OSError as error:
                raise CannotCompile(f"what {command[0]} made cannot be loaded: {error}") from None


def _compile(command: list[str], folder: Path, name: str) -> None:
    """Compile into a file of this name. Several processes may do so at once."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        output = Path(place) / name
        try:
            done = subprocess.run([*command, "-o", str(output), "-lm"], capture_output=True, text=True, check=False)
        except OSError as error:
            raise CannotCompile(f"{command[0]}: {error.strerror}") from None
        if done.returncode:
            raise CannotCompile(f"{command[0]}: {(done.stderr.strip() or f'exit code {done.returncode}').splitlines()[0]}")
        output.replace(folder / name)
