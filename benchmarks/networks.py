"""Rules on links between two machines: seconds per round on real links, beside those of simulated workers with `[transport] network`.

    python benchmarks/networks.py [--only WORD] [--link LINK]      # two machines in network namespaces (root, ip); records results/networks.json

The machines and links are those of `links.py`. The simulated workers' iterations take as long as those of two workers of one machine without a link.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from links import Link
from recording import FOLDER, record

ROUNDS = 9
LINKS = {
    "20 ms, 100 Mbit/s": Link(0.02, 12.5e6),
    "100 ms, 100 Mbit/s": Link(0.1, 12.5e6),
    "20 ms, 100 Mbit/s, 1 % lost": Link(0.02, 12.5e6, 0.01),
    "1 ms, 100 Mbit/s": Link(0.001, 12.5e6),
    "20 ms, 20 Mbit/s": Link(0.02, 2.5e6),
}
WIDE = ("average, 10 iterations", "average, 100 iterations", "diloco, 100 iterations", "sparseloco, 100 iterations")
"""Rules that are measured on all links; the others on the first one only."""
PACKET = 8960
"""Bytes that TCP puts into a packet of 9,000."""
RULES = {
    "bsp, 10 iterations": 'rule = "bsp", iterations = 10',
    "average, 1 iteration": 'rule = "average", iterations = 1',
    "average, 10 iterations": 'rule = "average", iterations = 10',
    "average, 100 iterations": 'rule = "average", iterations = 100',
    "diloco, 100 iterations": 'rule = "diloco", iterations = 100, outer_lr = 0.7, outer_momentum = 0.5',
    "topk, 100 iterations": 'rule = "topk", iterations = 100',
    "choco, 100 iterations": 'rule = "choco", iterations = 100',
    "sparseloco, 100 iterations": 'rule = "sparseloco", iterations = 100',
}
JOB = """\
name = "networks"
model = {{name = "mlp", hidden = [512]}}
dataset = {{name = "mnist", validation = 5000}}
optimizer = {{name = "sgd", lr = 0.05, momentum = 0.9, batch_size = 64}}
sync = {{{rule}}}
workers = [{{count = {count}, threads = 1}}]
stop = {{rounds = {rounds}, judge_every = 1000}}
checkpoint = {{every = 1000}}
{transport}
"""


def seconds_of_a_round(events: list[dict[str, Any]]) -> tuple[float, int, float]:
    """Median seconds of a round after the first ones, bytes that worker 0 sent in it, seconds of a local iteration."""
    rounds = [event for event in events if event["event"] == "round" and event["rank"] == 0]
    spans = [later["seconds"] - former["seconds"] for former, later in pairwise(rounds[1:-1])]
    iterations = [event["compute"] / event["iterations"] for event in rounds[1:]]
    return median(spans), max(event["bytes"] for event in rounds), median(iterations)


def here(rule: str, transport: str, count: int = 2) -> list[dict[str, Any]]:
    """Train on this machine, and return the events."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        job.write_text(JOB.format(rule=rule, count=count, rounds=ROUNDS, transport=transport))
        words = [sys.executable, "-m", "partrain", "run", str(job), "--out", f"{folder}/run", "-q"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return read(Path(folder) / "run")


def read(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def main(only: str, places: list[str]) -> None:
    file = FOLDER / "networks.json"
    former: list[dict[str, Any]] = json.loads(file.read_bytes())["rows"] if places and file.exists() else []
    rows = [row for row in former if row["link"] not in places]
    chosen = {name: rule for name, rule in RULES.items() if only in name and (not places or name in WIDE)}
    own = {name: seconds_of_a_round(here(rule, ""))[2] for name, rule in chosen.items()}
    for place, link in LINKS.items():
        if places and place not in places:
            continue
        with tempfile.TemporaryDirectory() as scratch, link.machines(Path(scratch)) as site:
            for name, rule in chosen.items():
                if link is not next(iter(LINKS.values())) and name not in WIDE:
                    continue
                folder = Path(scratch) / name.replace(" ", "-")
                folder.mkdir()
                (folder / "job.toml").write_text(JOB.format(rule=rule, count=1, rounds=ROUNDS, transport=""))
                said = site.run(("run", folder / "job.toml", "--out", folder / "run", "--quiet"), restarts=0)
                if any(one.code for one in said):
                    raise RuntimeError(said)
                seconds, sent, _ = seconds_of_a_round(read(folder / "run"))
                network = f"{{bandwidth = {link.rate}, latency = {link.delay}, loss = {link.loss}, packet = {PACKET}}}"
                simulated = f'transport = {{kind = "simulated", speed = [{1e-3 / own[name]}], network = {network}}}'
                predicted, _, _ = seconds_of_a_round(here(rule, simulated))
                row: dict[str, Any] = {"link": place, "rule": name, "seconds per round": seconds, "bytes sent in a round": sent}
                row |= {"simulated seconds": predicted, "simulated / real": predicted / seconds}
                rows.append(row)
                print(place, "|", name, f"| {seconds:.3f} s, simulated {predicted:.3f}: {predicted / seconds:.2f}", flush=True)
    off = [abs(row["simulated / real"] - 1) for row in rows]
    note = f"Simulated rounds are off by {median(off):.0%} (median), {max(off):.0%} (most); {sum(value <= 0.15 for value in off)} of {len(off)} by at most 15 %."
    print(note)
    record("networks", "Rules on links between two machines: 407,000 parameters", rows, notes=[note])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rules with this word in their names")
    parser.add_argument(
        "--link", action="append", default=[], choices=LINKS, help="measure this link anew; the others stay as recorded"
    )
    given = parser.parse_args()
    main(given.only, given.link)
