"""Why the defaults of `[sync]` are what they are: test accuracy of each setting on MNIST, two workers, several seeds.

Equal work for all settings of a group; accuracy does not depend on the machine's speed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recording import record
from runs import partrain, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
ROUNDS = "stop={rounds=100, judge_every=100}"
UNEQUAL = 'workers=[{device="cpu", partition_size=50000, iterations=20}, {device="cpu", partition_size=5000, iterations=2}]'
ADAM = ('optimizer={name="adam", lr=0.002, schedule="linear", warmup=0.1}', 'sync.lr_scale="none"')
POLICIES = ("average", "local", "reset")
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "optimizer_state, sgd with momentum": {policy: (f'sync.optimizer_state="{policy}"',) for policy in POLICIES},
    "optimizer_state, adam": {policy: (f'sync.optimizer_state="{policy}"', *ADAM) for policy in POLICIES},
    "buffers, network with BatchNorm": {
        policy: (f'sync.buffers="{policy}"', "model.batch_norm=true") for policy in ("average", "recalibrate", "local")
    },
    "weights, unequal work (20 iterations against 2)": {
        policy: (f'sync.weights="{policy}"', UNEQUAL) for policy in ("items", "equal")
    },
    "lr_scale": {scale: (f'sync.lr_scale="{scale}"',) for scale in ("none", "sqrt", "linear")},
}


def main(seeds: int) -> None:
    rows = []
    for group, settings in GROUPS.items():
        for name, sets in settings.items():
            found = [partrain(JOB, ROUNDS, *sets, f"seed={seed}")["test"]["accuracy"] for seed in range(seeds)]
            print(f"{group}, {name}: test accuracy {shown(found, '.4f')}", flush=True)
            rows.append({"key": group, "setting": name, "test accuracy": found})
    record("defaults", "Settings of [sync]: test accuracy of two workers after 100 rounds of 10 iterations", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
