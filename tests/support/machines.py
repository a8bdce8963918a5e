"""Several machines on this one: each a command in a folder of its own, under torchrun or with the environment that torchrun gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.runs import JOB, Command, Said, write_job
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
    addresses: tuple[str, ...] = ()
    """Address of each machine, if they have networks of their own."""
    _stores: list[TCPStore] = field(default_factory=list)

    def start(self, number: int, port: int, *words: object, restarts: int | None = None) -> Command:
        """Start the command of one machine under a torchrun that restarts it up to `restarts` times.

        With None there is no torchrun, which spares an import of torch. The command gets the environment that torchrun would give
        it, and the store at `store_port`.
        """
        if restarts is None:
            logs = self.logs(number, port)
            given = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_ERROR_FILE": logs / "attempt_0/0/error.json",
                     "LOCAL_WORLD_SIZE": 1, "WORLD_SIZE": len(self.prefixes), "RANK": number, "MASTER_ADDR": self.address, "MASTER_PORT": port}  # fmt: skip
            environment = self.environment | {name: str(value) for name, value in given.items()}
            return Command(words, self.folder / str(number), environment, launcher=(*self.prefixes[number], sys.executable))
        launcher = (*self.prefixes[number], sys.executable, "-m", "torch.distributed.run", "--nnodes", len(self.prefixes), "--node-rank", number,
                    "--nproc-per-node", 1, "--master-addr", self.address, "--master-port", port,
                    "--max-restarts", restarts, "--monitor-interval", 0.1)  # fmt: skip
        return Command(words, self.folder / str(number), self.environment, launcher=launcher)

    def elastic(self, number: int, port: int, *words: object) -> Command:
        """Start the command of one machine under a torchrun that goes on with any number of machines, and meets on the first.

        torchrun of torch 2.13 lets no machine join later if it shares its store: the first one does not tell it the address again.
        """
        launcher = (*self.prefixes[number], sys.executable, "-m", "torch.distributed.run", "--nnodes", f"1:{len(self.prefixes)}", "--nproc-per-node", 1,
                    "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.address}:{port}", "--rdzv-id", "elastic",
                    "--max-restarts", 9, "--local-addr", self.addresses[number] if self.addresses else self.address, "--monitor-interval", 0.1,
                    "--rdzv-conf", f"is_host={int(not number)},last_call_timeout=2,keep_alive_interval=1")  # fmt: skip
        environment = self.environment | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return Command(words, self.folder / str(number), environment, launcher=launcher)

    def link(self, number: int, state: str) -> None:
        """Cut or mend the link of a machine that has a network of its own: "down" or "up"."""
        first, other = self.prefixes[0][-1], self.prefixes[number][-1]
        subprocess.run(["ip", "-n", first, "link", "set", other, state], check=True)

    def logs(self, number: int, port: int) -> Path:
        """The folder of the logs of a machine's torchrun: another port is another torchrun."""
        folder = self.folder / f"torchrun-{port}-{number}"
        folder.mkdir(exist_ok=True)
        return folder

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


def train_on_two(folder: Path) -> None:
    """Train MANY on two machines of two workers: `run`, and the messages of the second machine in `messages`."""
    job, run = write_job(folder / "job", text=MANY), folder / "run"
    said = Site(folder).run(("run", job, "--out", run, "--quiet"), ("run", job, "--out", folder / "unused"))
    assert [one.code for one in said] == [0, 0], said
    (folder / "messages").write_text(said[1].err)


@contextmanager
def networks(folder: Path, count: int) -> Iterator[Site]:
    """Machines in network namespaces of their own, wired to a bridge on the first."""
    names = [f"pt{os.getpid() % 100000}{letter}" for letter in "abcdefgh"[:count]]
    made = []

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", names[0], "link", "add", names[0], "type", "bridge")
            for name in names[1:]:
                ip("link", "add", name, "netns", name, "type", "veth", "peer", "name", name, "netns", names[0])
                ip("-n", names[0], "link", "set", name, "master", names[0], "up")
            for number, name in enumerate(names, start=1):
                ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name)
                ip("-n", name, "link", "set", name, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', b'') or error}")
        wired = [("env", f"GLOO_SOCKET_IFNAME={name}", "ip", "netns", "exec", name) for name in names]
        addresses = tuple(f"10.77.0.{number}" for number in range(1, count + 1))
        yield Site(folder, addresses[0], tuple(wired), {}, addresses)
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
