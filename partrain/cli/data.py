"""The `partrain data` commands: inspect a data set, write its memory-mapped form, fetch its files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from partrain.cli.options import Debug, Force, Json, Overrides
from partrain.cli.shared import examples
from partrain.errors import BadJob, CannotCreate, InputMissing
from partrain.inference.output import check, document

if TYPE_CHECKING:
    from partrain.data import DataSection, Dataset
    from partrain.job.load import LoadedJob

app = typer.Typer(name="data", help="Look at data sets, convert them, fetch them.", no_args_is_help=True, rich_markup_mode=None)

Source = Annotated[Path, typer.Argument(metavar="JOB.toml|FILE", help="A job, for its data set; or a file of data.")]


@app.command(epilog=examples("partrain data inspect houses.csv", "partrain data inspect jobs/wine.toml"))
def inspect(source: Source, set_: Overrides = None, *, as_json: Json = False, debug: Debug = False) -> None:
    """Show shapes, classes, ranges, faults, and items that training shares with validation and test."""
    facts = _inspected(source, set_ or ())
    print(document({"source": str(source), **facts}) if as_json else "\n".join(_lines(source, facts)))


@app.command(epilog=examples("partrain data convert jobs/mnist.toml -o mnist.items"))
def convert(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="X.items", help="The file to write.")],
    *,
    force: Force = False,
    set_: Overrides = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a data set as a file for `kind = "mapped"`, which is memory-mapped and may be larger than the memory.

    Items are those of the job: means and deviations are learnt from the items that this job trains on.
    """
    from partrain.data.arrays import mapped
    from partrain.data.base import check_finite

    check(output, force=force)
    buffers: list[memoryview] = []

    def allocate(size: int) -> memoryview:
        buffers[:] = [_scratch(output, size)]
        return buffers[0]

    dataset, loaded = _loaded(source, set_ or (), allocate)
    if dataset.stream:
        raise BadJob(f"{source}: its training items are a stream, which a file of items cannot hold: name the data it reads from")
    if dataset.held_out is not None:
        what = "`group` and `validation_path` choose its held-out items, which a file of items does not name"
        raise BadJob(f"{source}: {what}: train on the table itself")
    for role, numbers in (("inputs", dataset.inputs), ("test inputs", dataset.test_inputs)):
        if numbers is not None:  # numbers of mapped files were not checked yet
            check_finite(numbers, f"{source}: {role}")
    if loaded:
        trained = mapped.training_hash(dataset, loaded.job.training)
    else:
        trained = mapped.stored_training_hash(source) if _is(mapped.is_mapped, source) else ""
    mapped.write(output, dataset.info, buffers[0], trained)
    size = output.stat().st_size
    if as_json:
        print(json.dumps({"file": str(output), "bytes": size, "fingerprint": mapped.read(output).fingerprint}))
        return
    print(f'{output}: {size:,} bytes; in a job: kind = "mapped", path = "{output.name}"')


@app.command(epilog=examples("partrain data fetch jobs/*.toml"))
def fetch(
    jobs: Annotated[list[Path], typer.Argument(metavar="JOB.toml...", help="Job files.")],
    set_: Overrides = None,
    *,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fetch the files of data sets that jobs name by URL, and check those that exist."""
    from partrain.data.fetch import fetch as transfer
    from partrain.display.display import transfers
    from partrain.job.load import load

    with transfers(sys.stderr) as report:
        fetched = [path for job in jobs for path in transfer(load(job, set_ or ()).job.dataset, report)]
    print(json.dumps({"fetched": list(map(str, fetched))}) if as_json else "\n".join(map(str, fetched)) or "nothing to fetch")


def _inspected(source: Path, overrides: Iterable[str]) -> dict[str, Any]:
    import numpy as np

    from partrain.data import inspect
    from partrain.data.arrays import mapped
    from partrain.data.partition import split

    if source.suffix != ".toml" and not _is(mapped.is_mapped, source):
        return inspect.describe_file(source)
    if source.suffix != ".toml":
        mapped.verify(source)
    dataset, loaded = _loaded(source, overrides)
    trained, held_out = np.arange(len(dataset.inputs)), np.arange(0)
    if loaded is not None:
        job = loaded.job
        trained, held_out = split(dataset, job.dataset, job.partition.order, job.seed)
    return inspect.describe_dataset(dataset, trained, held_out)


def _loaded(source: Path, overrides: Iterable[str], allocate: Any = None) -> tuple[Dataset, LoadedJob | None]:
    """Load the data set of a job, or of a file that needs no job."""
    from partrain.data import load
    from partrain.data.arrays import mapped

    if source.suffix != ".toml":
        section = _section(source)
        if isinstance(section, mapped.Mapped):  # no training here: open it as it is
            return mapped.read(source).open(allocate(0) if allocate else memoryview(b"")), None
        return load(section, Path(), allocate, in_memory=not allocate), None
    from partrain.job import load as jobs

    loaded = jobs.load(source, tuple(overrides))
    return jobs.load_dataset(loaded, allocate, in_memory=not allocate), loaded


def _scratch(output: Path, size: int) -> memoryview:
    """Map a temporary file next to the output as a buffer: the items may be larger than the memory."""
    from mmap import mmap
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=output.absolute().parent) as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
            return memoryview(mmap(file.fileno(), max(size, 1)))[:size]
    except OSError as error:
        raise CannotCreate(f"{output}: {error.strerror}") from None


def _section(path: Path) -> DataSection:
    """Make the `[dataset]` table of a file that needs no job."""
    from partrain.data.arrays import mapped
    from partrain.data.arrays.sections import Hdf5, Npz

    if path.suffix == ".npz":
        return Npz(kind="npz", path=str(path))
    if path.suffix in (".h5", ".hdf5"):
        return Hdf5(kind="hdf5", path=str(path))
    if _is(mapped.is_mapped, path):
        return mapped.Mapped(kind="mapped", path=str(path))
    raise InputMissing(f"{path}: cannot tell inputs from targets; pass a job file instead")


def _is(question: Any, path: Path) -> bool:
    from partrain.data.base import reading
    from partrain.data.fetch import require_regular

    with reading(path):
        return not require_regular(path).is_dir() and bool(question(path))


def _lines(source: Path, facts: dict[str, Any]) -> list[str]:
    from partrain.data.inspect import render

    return [str(source), *render(facts)]
