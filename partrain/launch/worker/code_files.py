"""The files of user code: modules that it imports, and files that it opens while it builds the network.

A file is named by its path from the job's folder, or from a folder of Python's path, so that another checkout finds it. Modules of
Python and of installed packages do not count, except the whole package that a job names.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from partrain.job.code_changes import digest_of

MOST_FILES = 500
"""Most source files of a package for all of them to count."""
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr")


class CodeFiles:
    """Notes the files that this process opens, until its end: Python cannot stop an audit hook."""

    def __init__(self, folder: Path) -> None:
        """Begin to note files. `folder`: the job's folder."""
        self._folder, self._opened = folder.resolve(), set[str]()
        self._bases = [self._folder, *(Path(entry).resolve() for entry in sys.path if entry)]
        self.opening = True
        """True while opened files belong to user code."""
        installed = [
            sys.prefix,
            sys.base_prefix,
            *site.getsitepackages(),
            site.getusersitepackages(),
            *sysconfig.get_paths().values(),
        ]
        others = [*installed, *SYSTEM, str(Path(__file__).parents[2]), str(Path.home() / ".cache")]
        self._others = tuple({os.path.realpath(path) + os.sep for path in others})
        sys.addaudithook(self._note)

    def digests(self, codes: Sequence[str]) -> dict[str, str]:
        """Return the digest of each file by name. `codes`: the code that the job names."""
        own = (Path(file).resolve() for file in _module_files() if not file.startswith(self._others))
        modules = {*filter(self._counts, own), *_packages(codes)}
        places = {self._folder, *(path.parent for path in modules)}
        opened = {
            path
            for path in map(Path.resolve, map(Path, self._opened))
            if self._counts(path) and not places.isdisjoint(path.parents)
        }
        return dict(sorted({self._name(path): digest_of(path) for path in modules | opened}.items()))

    def _counts(self, path: Path) -> bool:
        """Return whether a file belongs neither to Python nor to an installed package nor to a package's metadata."""
        written = any(part.endswith((".egg-info", ".dist-info")) for part in path.parts)
        return not written and not str(path).startswith(self._others) and path.is_file()

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.opening and isinstance(arguments[0], str) and not arguments[0].endswith(".pyc"):
            _, _, flags = arguments
            if not flags & (os.O_WRONLY | os.O_RDWR):
                self._opened.add(str(Path.cwd() / arguments[0]))

    def _name(self, path: Path) -> str:
        inside = [path.relative_to(base) for base in self._bases if path.is_relative_to(base)]
        return str(min(inside, key=lambda name: len(name.parts))) if inside else os.path.relpath(path, self._folder)


def _module_files() -> Iterator[str]:
    """Yield the files of all modules."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield file


def _packages(codes: Sequence[str]) -> Iterator[Path]:
    """Yield the source files of the packages that a job names, wherever installed; of large packages only the imported modules."""
    for name in {code.partition(":")[0].partition(".")[0] for code in codes if not code.partition(":")[0].endswith(".py")}:
        folders = [Path(folder).resolve() for folder in getattr(sys.modules.get(name), "__path__", ())]
        sources = [path for folder in folders for path in folder.rglob("*.py") if path.is_file()]
        if len(sources) > MOST_FILES:
            imported = {Path(file).resolve() for file in _module_files()}
            sources = [path for path in sources if path in imported]
        yield from sources
