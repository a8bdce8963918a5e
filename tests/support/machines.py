"""Several machines on this one: each a command in a folder of its own, under torchrun or with the environment that torchrun gives."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from support.runs import JOB, Command, Said
from torch.distributed import TCPStore

MANY = JOB.replace("items = 230", "items = 430")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Site:
    """Machines, two unless said otherwise, each a folder and perhaps a network of its own."""

    folder: Path
    address: str = "127.0.0.1"
    prefixes: tuple[tuple[str, ...], ...] = ((), ())
    """Prefix of a command on each machine, such as `ip netns exec NAME`."""
    environment: dict[str, str] = field(default_factory=lambda: {"GLOO_SOCKET_IFNAME": "lo"})
    _stores: list[TCPStore] = field(default_factory=list)

    def start(self, number: int, port: int, *words: object, restarts: int | None = None, attempt: int = 0) -> Command:
        """Start the command of one machine under a torchrun that restarts it up to `restarts` times.

        With None there is no torchrun, which spares an import of torch. The command gets the environment that torchrun would give
        it for this attempt, and the store at `store_port`.
        """
        if restarts is None:
            given = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": attempt, "LOCAL_WORLD_SIZE": 1, "WORLD_SIZE": len(self.prefixes),
                     "RANK": number, "MASTER_ADDR": self.address, "MASTER_PORT": port}  # fmt: skip
            environment = self.environment | {name: str(value) for name, value in given.items()}
            return Command(words, self.folder / str(number), environment, launcher=(*self.prefixes[number], sys.executable))
        launcher = (*self.prefixes[number], sys.executable, "-m", "torch.distributed.run", "--nnodes", len(self.prefixes), "--node-rank", number,
                    "--nproc-per-node", 1, "--master-addr", self.address, "--master-port", port,
                    "--max-restarts", restarts, "--monitor-interval", 0.1)  # fmt: skip
        return Command(words, self.folder / str(number), self.environment, launcher=launcher)

    def store_port(self) -> int:
        """The port of a store on this machine, as torchrun has one."""
        self._stores.append(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        return int(self._stores[-1].port)

    def run(self, first: tuple[object, ...], other: tuple[object, ...] | None = None, restarts: int | None = None) -> list[Said]:
        """Run a command on the first machine, and that or another on the others; return their outcomes."""
        port = self.store_port() if restarts is None else free_port()
        with ExitStack() as stack:
            all_of_them = [
                stack.enter_context(self.start(number, port, *(other if other and number else first), restarts=restarts))
                for number in range(len(self.prefixes))
            ]
            return [one.wait(120) for one in all_of_them]
