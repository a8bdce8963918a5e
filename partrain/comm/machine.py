"""This machine's place among several, read from torchrun's environment variables. Only `store` imports torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from partrain.errors import BadJob

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Machine:
    """One machine of several."""

    number: int
    """Number of this machine, from 0."""
    count: int
    host: str
    """Host of torchrun's store."""
    port: int
    attempt: int
    """Restarts by torchrun so far."""
    timeout_s: float = 300.0
    """Longest wait for another machine."""

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> Machine | None:
        """Return this machine, or None if torchrun did not start this process or has only one."""
        if "TORCHELASTIC_RUN_ID" not in environment or int(environment["WORLD_SIZE"]) == 1:
            return None
        if int(environment["LOCAL_WORLD_SIZE"]) != 1:
            raise BadJob(
                "torchrun has started several processes on one machine; use --nproc-per-node 1: partrain starts the job's workers"
            )
        return cls(
            int(environment["RANK"]),
            int(environment["WORLD_SIZE"]),
            environment["MASTER_ADDR"],
            int(environment["MASTER_PORT"]),
            int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )

    def centers(self, count: int) -> range:
        """Return the center processes that run on this machine: `count` processes are dealt out in turn."""
        return range(self.number, count, self.count)

    def center(self, number: int) -> str:
        """Return the name of a center process for messages."""
        return f"the center's process {number} (of machine {number % self.count})"

    def store(self, prefix: str | None = None) -> Store:
        """Connect to torchrun's store, which outlives restarts. By default its keys belong to this attempt only."""
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

        store = TCPStore(self.host, self.port, is_master=False, timeout=timedelta(seconds=self.timeout_s))
        return PrefixStore(f"partrain/{self.attempt}" if prefix is None else prefix, store)
