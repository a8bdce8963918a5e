"""Two machines on a slow link: items per second by rule, and what came of them.

    python benchmarks/links.py [--seeds N] [--only WORD]        # needs root and ip; records the results

The machines are network namespaces. Each has a tun device, between which this process carries the packets, late and one after the
other. (Linux's own netem would do it, but is not in every kernel.) Each machine has one worker, which sends a network of a million parameters (4 MB) after 100 iterations of batch 64. "alone" is the sum of
two runs that never meet, one after the other on one core each: no rule can be faster.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from recording import record
from runs import partrain, rate

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from support.machines import Site  # noqa: E402

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
ROUNDS = 16
OUTER = "outer_lr = 0.7, outer_momentum = 0.5"
RULES = {
    "average": 'rule = "average"',
    "average, optimizers' state local": 'rule = "average", optimizer_state = "local"',
    "gossip of all with all, before": 'rule = "gossip", topology = "complete", order = "before"',
    "diloco": f'rule = "diloco", {OUTER}',
    "diloco, 4 fragments": f'rule = "diloco", {OUTER}, fragments = 4',
    "diloco, before": f'rule = "diloco", {OUTER}, order = "before"',
    "diloco, 4 fragments, before": f'rule = "diloco", {OUTER}, fragments = 4, order = "before"',
}
JOB = """\
name = "links"
seed = {seed}
model = {{name = "mlp", hidden = [1258]}}
dataset = {{name = "mnist", validation = 5000}}
optimizer = {{name = "sgd", lr = 0.05, momentum = 0.9, batch_size = 64, schedule = "linear", warmup = 0.1}}
sync = {{{rule}, iterations = 100}}
workers = [{{count = 1, threads = 1}}]
stop = {{rounds = {rounds}, judge_every = {rounds}}}
"""


@dataclass
class Link:
    """A link between two network namespaces."""

    delay: float
    """Seconds from one end to the other."""
    rate: float
    """Bytes per second in each direction."""
    loss: float = 0.0
    """Share of the packets that are lost."""

    @contextmanager
    def machines(self, folder: Path) -> Iterator[Site]:
        """Make two machines of it. Packets of 9,000 bytes, as in many data centers, keep this process from taking much of a core."""
        names = [f"link{os.getpid()}{end}" for end in "ab"]
        made, ends = [], []
        try:
            for number, name in enumerate(names, start=1):
                end = os.open("/dev/net/tun", os.O_RDWR)
                ends.append(end)
                fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
                ip("netns", "add", name)
                made.append(name)
                ip("link", "set", name, "netns", name, "mtu", "9000")
                ip("-n", name, "addr", "add", f"10.78.0.{number}", "peer", f"10.78.0.{3 - number}", "dev", name)
                for device in "lo", name:
                    ip("-n", name, "link", "set", device, "up")
            for source, target in (ends, ends[::-1]):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()
            prefixes = tuple(("env", f"GLOO_SOCKET_IFNAME={name}", "ip", "netns", "exec", name) for name in names)
            yield Site(folder, "10.78.0.1", prefixes, {}, ("10.78.0.1", "10.78.0.2"))
        finally:
            for name in made:
                ip("netns", "delete", name)

    def _carry(self, source: int, target: int) -> None:
        """Carry packets from one end to the other until the link is gone."""
        packets: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def deliver() -> None:
            while True:
                due, packet = packets.get()
                time.sleep(max(0.0, due - time.perf_counter()))
                with suppress(OSError):
                    os.write(target, packet)

        threading.Thread(target=deliver, daemon=True).start()
        free_at, lots = 0.0, random.Random(0)
        with suppress(OSError):
            while packet := os.read(source, 1 << 16):
                free_at = max(time.perf_counter(), free_at) + len(packet) / self.rate
                if lots.random() >= self.loss:
                    packets.put((free_at + self.delay, packet))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def measured(site: Site, rule: str, seed: int) -> dict[str, float]:
    """Train on both machines: items per second, test accuracy, bytes that a worker sent in a round."""
    with tempfile.TemporaryDirectory(dir=site.folder) as folder:
        job, run = Path(folder) / "job.toml", Path(folder) / "run"
        job.write_text(JOB.format(seed=seed, rule=rule, rounds=ROUNDS))
        said = site.run(("run", job, "--out", run, "--quiet"), restarts=0)
        if any(one.code for one in said):
            raise RuntimeError(said)
        summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
        events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
        sent = [event["bytes"] for event in events if event["event"] == "round" and event["rank"] == 0]
    return {"items": rate(summary), "accuracy": summary["test"]["accuracy"], "bytes": max(sent)}


LINKS = {"20 ms, 100 Mbit/s": Link(0.02, 12.5e6), "5 ms, 1 Gbit/s": Link(0.005, 125e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="rules with this word in their names")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        job = Path(scratch) / "alone.toml"
        job.write_text(JOB.format(seed=0, rule='rule = "average"', rounds=ROUNDS))
        alone = [2 * rate(partrain(job, f"seed={seed}")) for seed in range(given.seeds)]
        for name, link in LINKS.items():
            with link.machines(Path(scratch)) as site:
                for title, rule in RULES.items():
                    if given.only not in title:
                        continue
                    runs = [measured(site, rule, seed) for seed in range(given.seeds)]
                    rows.append(
                        {
                            "link": name,
                            "rule": title,
                            "items per second / alone": [run["items"] / most for run, most in zip(runs, alone, strict=True)],
                            "test accuracy": [run["accuracy"] for run in runs],
                            "bytes sent in a round, at most": max(run["bytes"] for run in runs),
                        }
                    )
                    print(rows[-1], flush=True)
    record("links", "Two machines on a slow link", rows, notes=[f"Runs of {ROUNDS} rounds; alone: {alone[0]:,.0f} items/s."])


if __name__ == "__main__":
    main()
