"""This machine's place among several, read from the environment variables of torchrun or srun. Only `store` imports torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.errors import BadJob

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


PORTS = range(15000, 45000)
"""Ports of the store of a run under srun without MASTER_PORT: jobs and their steps take them in turn."""
NOT_FOR_STEPS = "TORCHELASTIC_RUN_ID", "SLURM_STEP_NUM_NODES"
"""Variables that make a process one of several machines. A workflow's step gets none of them: it is a separate run."""


@dataclass(frozen=True)
class Machine:
    """One machine under torchrun or srun."""

    number: int
    """Number of this machine, from 0."""
    count: int
    host: str
    """Host of the store."""
    port: int
    logs: Path | None = None
    """Folder of this machine's torchrun for its logs, the same in all attempts; None under srun, which makes one attempt."""
    serves: bool = False
    """True if machine 0 serves the store while it runs: under srun, and if torchrun shares none (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)."""
    attempt: str = ""
    """Name of this attempt: see `rendezvous.meet`."""
    former: Path | None = None
    """Run folder of the former attempt, if there was one."""
    timeout_s: float = 300.0
    """Longest wait for another machine."""

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> Machine | None:
        """Return this machine, or None if neither torchrun nor srun started this process on several."""
        if "TORCHELASTIC_RUN_ID" in environment:
            return cls._under_torchrun(environment)
        nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
        return cls._under_srun(environment, nodes) if nodes > 1 else None

    @classmethod
    def _under_srun(cls, environment: Mapping[str, str], nodes: int) -> Machine:
        if (tasks := int(environment["SLURM_STEP_NUM_TASKS"])) != nodes:
            raise BadJob(
                f"srun has started {tasks} processes on {nodes} nodes; use --ntasks-per-node=1: partrain starts the job's workers"
            )
        turn = int(environment["SLURM_JOB_ID"]) * 10 + int(environment["SLURM_STEP_ID"])
        port = int(environment.get("MASTER_PORT", PORTS[turn % len(PORTS)]))
        host = environment.get("MASTER_ADDR") or first_host(environment["SLURM_STEP_NODELIST"])
        return cls(int(environment["SLURM_PROCID"]), nodes, host, port, serves=True)

    @classmethod
    def _under_torchrun(cls, environment: Mapping[str, str]) -> Machine:
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
    def restarts(self) -> bool:
        """True if a failed attempt restarts by itself, as under torchrun."""
        return self.logs is not None

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


def first_host(nodes: str) -> str:
    """Return the first name in a list of hosts as SLURM writes it: `gpu[003-005,9],login` begins with gpu003."""
    match = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\])?([^\[,]*)", nodes)
    return "".join(part or "" for part in match.groups()) if match else nodes


def shutdown_timeout(torchrun: int, environment: Mapping[str, str] = os.environ) -> float:
    """Return the seconds after SIGTERM in which a program has to end before torchrun, the process of this number, kills it."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{torchrun}/cmdline").read_text(encoding="utf-8").split("\0")
        for number, word in enumerate(words):
            option, _, seconds = word.partition("=")
            if option.replace("_", "-") == "--shutdown-timeout":
                return float(seconds or words[number + 1])
    return float(environment.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))


@cache
def serve_store(port: int) -> Store:
    """Serve a store of several machines until this process ends."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("0.0.0.0", port, is_master=True, wait_for_workers=False)
