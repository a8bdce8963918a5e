"""The ready workers of a machine: their processes, and the check that all built the same network."""

from __future__ import annotations

from typing import Any

from partrain.errors import BadCheckpoint, UserCodeFailed
from partrain.launch.folder.other_workers import begins_anew
from partrain.launch.worker.messages import Ready
from partrain.training.snapshot_layout import SlotMap


class ReadyWorkers:
    """The ready workers, and the facts about the network in their messages."""

    def __init__(self) -> None:
        self.processes: dict[int, Ready] = {}
        """The newest message of each worker, by rank."""
        self.map = SlotMap()
        """Layout of a snapshot. The first ready worker sets it and the two numbers below."""
        self.parameters = self.slots_at = 0
        """Count of numbers in the network; byte of the arena where the slots begin."""
        self._first, self._fixed = -1, dict[str, str]()
        self._json: dict[str, Any] = {}

    def forget_processes(self) -> None:
        """Wait for new processes. The layout stays: copies of the state in the slots use it."""
        self.processes = {}

    def enter(self, message: Ready) -> None:
        """Add a worker. Raises UserCodeFailed if its network differs from the others'."""
        if not self.processes:
            self.map, self.parameters, self.slots_at = SlotMap.from_json(message.map), message.parameters, message.slots_at
            self._first, self._fixed, self._json = message.rank, message.fixed, message.map
        different = f"workers {self._first} and {message.rank} built different networks"
        if message.map != self._json:
            raise UserCodeFailed(f"{different}: {self._difference(SlotMap.from_json(message.map))}")
        if names := [name for name in message.fixed if message.fixed[name] != self._fixed[name]]:
            advice = "draw them from torch's default generator, which is seeded"
            raise UserCodeFailed(f"{different}: `{names[0]}` begins with other numbers; {advice}")
        self.processes[message.rank] = message

    def restore(self, arrays: dict[str, Any], slot: memoryview, *, others: bool = False) -> None:
        """Copy a checkpoint's arrays, by path, to the slot where the workers read them. `others`: the arrays are of a run with other workers.

        Raises BadCheckpoint if they do not fit the job's network.
        """
        for entry in self.map.entries:
            array = arrays.get(entry.path)
            if array is None and others and begins_anew(entry.path):
                continue
            if array is None or tuple(array.shape) != entry.shape or array.dtype.str != entry.dtype:
                raise BadCheckpoint(f"the checkpoint does not fit the job: `{entry.path}` should be {entry.dtype} {entry.shape}")
        views = self.map.view(slot)
        if unknown := sorted(path for path in arrays if path.startswith("model/") and path not in views):
            raise BadCheckpoint(f"the checkpoint does not fit the job: its network has `{unknown[0]}`, the job's has not")
        for path, view in views.items():
            if path in arrays:
                view[...] = arrays[path]

    def _difference(self, layout: SlotMap) -> str:
        for ours, theirs in zip(self.map.entries, layout.entries, strict=False):
            if ours != theirs:
                return f"`{ours.path}` {ours.shape} against `{theirs.path}` {theirs.shape}"
        return "one has more tensors than the other"
