"""What workers say of themselves when they are ready: their processes, and that all have built one and the same network."""

from __future__ import annotations

from typing import Any

from partrain.errors import BadCheckpoint, UserCodeFailed
from partrain.train.snapshot_layout import SlotMap


class ReadyWorkers:
    """The workers of a machine that are ready."""

    def __init__(self) -> None:
        self.processes: dict[int, int] = {}
        """By rank."""
        self.map = SlotMap(())
        """Where things lie in a snapshot; it, and what follows, are known once one is ready."""
        self.parameters = self.slots_at = 0
        """Numbers in the network; the arena's byte where the slots begin."""
        self._first, self._fixed = -1, dict[str, str]()

    def enter(
        self, rank: int, pid: int, parameters: int, slots_at: int, map: list[dict[str, Any]], fixed: dict[str, str]
    ) -> None:
        """A worker is ready. `fixed`: digests of what it does not train, by name."""
        entries = SlotMap.from_json(map)
        if not self.processes:
            self.map, self.parameters, self.slots_at = entries, parameters, slots_at
            self._first, self._fixed = rank, fixed
        what = f"workers {self._first} and {rank} built different networks"
        if entries != self.map:
            raise UserCodeFailed(f"{what}: {self._difference(entries)}")
        if other := [name for name in fixed if fixed[name] != self._fixed[name]]:
            advice = "draw them from torch's default generator, which is seeded"
            raise UserCodeFailed(f"{what}: `{other[0]}` begins with other numbers; {advice}")
        self.processes[rank] = pid

    def restore(self, arrays: dict[str, Any], slot: memoryview) -> None:
        """Put a checkpoint's arrays, by path, where the workers look for them."""
        for entry in self.map.entries:
            array = arrays.get(entry.path)
            if array is None or tuple(array.shape) != entry.shape or array.dtype.str != entry.dtype:
                raise BadCheckpoint(f"the checkpoint does not fit the job: `{entry.path}` should be {entry.dtype} {entry.shape}")
        for path, view in self.map.view(slot).items():
            view[...] = arrays[path]

    def _difference(self, entries: SlotMap) -> str:
        for ours, theirs in zip(self.map.entries, entries.entries, strict=False):
            if ours != theirs:
                return f"`{ours.path}` {ours.shape} against `{theirs.path}` {theirs.shape}"
        return "one has more tensors than the other"
