"""This machine's place among several, read from torchrun's environment variables. Only `store` imports torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.errors import BadJob

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Machine:
    """One machine under torchrun."""

    number: int
    """Number of this machine, from 0."""
    count: int
    host: str
    """Host of torchrun's store."""
    port: int
    logs: Path = Path()
    """Folder of this machine's torchrun for its logs, the same in all attempts."""
    serves: bool = False
    """True if torchrun shares no store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1): machine 0 serves one while it runs."""
    attempt: str = ""
    """Name of this attempt: see `rendezvous.meet`."""
    former: Path | None = None
    """Run folder of the former attempt, if there was one."""
    timeout_s: float = 300.0
    """Longest wait for another machine."""

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> Machine | None:
        """Return this machine, or None if torchrun did not start this process."""
        if "TORCHELASTIC_RUN_ID" not in environment:
            return None
        if int(environment["LOCAL_WORLD_SIZE"]) != 1:
            raise BadJob(
                "torchrun has started several processes on one machine; use --nproc-per-node 1: partrain starts the job's workers"
            )
        if not (error_file := environment.get("TORCHELASTIC_ERROR_FILE")):
            raise BadJob("torchrun has no folder for logs, where partrain notes the run folder; give torchrun a --log-dir")
        return cls(
            int(environment["RANK"]),
            int(environment["WORLD_SIZE"]),
            environment["MASTER_ADDR"],
            int(environment["MASTER_PORT"]),
            Path(error_file).parents[2],  # LOGS/attempt_0/0/error.json
            environment.get("TORCHELASTIC_USE_AGENT_STORE") == "False",
        )

    @property
    def alone(self) -> bool:
        """True if torchrun has no other machine in this attempt."""
        return self.count == 1

    def centers(self, count: int) -> range:
        """Return the center processes that run on this machine: `count` processes are dealt out in turn."""
        return range(self.number, count, self.count)

    def center(self, number: int) -> str:
        """Return the name of a center process for messages."""
        return f"the center's process {number} (of machine {number % self.count})"

    def store(self, *, of_all_attempts: bool = False) -> Store:
        """Connect to the store of all machines. By default its keys belong to this attempt only."""
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

        store = TCPStore(self.host, self.port, is_master=False, timeout=timedelta(seconds=self.timeout_s))
        return PrefixStore("partrain" if of_all_attempts else f"partrain/{self.attempt}", store)


@cache
def serve_store(port: int) -> Store:
    """Serve a store of several machines until this process ends."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("0.0.0.0", port, is_master=True, wait_for_workers=False)
