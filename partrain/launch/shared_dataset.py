"""The data set of a run in a memory file that its workers map."""

from __future__ import annotations

import os
import sys

from partrain.comm.arena import mapped, memory_file
from partrain.data import Dataset
from partrain.display.display import transfers
from partrain.job.load import LoadedJob, check_against_data, load_dataset


def load_shared(loaded: LoadedJob) -> tuple[Dataset, int]:
    """Load the data set into a memory file. Returns it and the file's descriptor, which the caller closes."""
    descriptors: list[int] = []

    def allocate(size: int) -> memoryview:
        while descriptors:  # a reader that learns the size of the items late asks again
            os.close(descriptors.pop())
        descriptors.append(memory_file("partrain data"))
        return memoryview(mapped(descriptors[-1], max(size, 1)))

    try:
        with transfers(sys.stderr) as report:
            dataset = load_dataset(loaded, allocate, report)
        check_against_data(loaded, dataset.spec)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return dataset, descriptors[0]
