"""The data set of a run, in a memory file that its workers map."""

from __future__ import annotations

from partrain.data import Dataset, load
from partrain.job import LoadedJob
from partrain.launch.coordinator import shared_memory


def stocked(loaded: LoadedJob) -> tuple[Dataset, int]:
    """The data set, and the descriptor of the memory file it lies in."""
    descriptors: list[int] = []

    def allocate(size: int) -> memoryview:
        descriptor, view = shared_memory(size)
        descriptors.append(descriptor)
        return view

    dataset = load(loaded.job.dataset, loaded.folder, allocate)
    return dataset, descriptors[0]
