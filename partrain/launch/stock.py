"""The data set of a run, in a memory file that its workers map."""

from __future__ import annotations

import mmap
import os
import sys

from partrain.console import transfers
from partrain.data import Dataset, load
from partrain.job import LoadedJob, fit


def stocked(loaded: LoadedJob) -> tuple[Dataset, int]:
    """The data set, and the descriptor of the memory file it lies in."""
    descriptors: list[int] = []

    def allocate(size: int) -> memoryview:
        descriptor, view = _memory_file(size)
        descriptors.append(descriptor)
        return view

    job = loaded.job
    try:
        with transfers(sys.stderr) as report:
            dataset = load(job.dataset, loaded.folder, allocate, job.training, report)
        fit(loaded, dataset.facts)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return dataset, descriptors[0]


def _memory_file(size: int) -> tuple[int, memoryview]:
    """An anonymous memory file of this size, and its bytes."""
    descriptor = os.memfd_create("partrain data", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, max(size, 1))
    return descriptor, memoryview(mmap.mmap(descriptor, max(size, 1)))
