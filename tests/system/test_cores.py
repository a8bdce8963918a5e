"""The quota of processor time, as the kernel's files tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from partrain.system import cores
from partrain.system.cores import cpu_quota, usable_cores


def quota(folder: Path, group: str, files: dict[str, str]) -> float | None:
    """The quota in a process of this group, where the kernel has these files."""
    (folder / "proc/self").mkdir(parents=True, exist_ok=True)
    (folder / "proc/self/cgroup").write_text(group + "\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return cpu_quota(folder / "proc", folder)


@pytest.mark.parametrize(("group", "files", "expected"), [
    ("0::/", {"cpu.max": "100000 100000"}, 1.0),
    ("0::/", {"cpu.max": "max 100000"}, None),
    ("0::/", {}, None),
    ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000", "cpu.max": "800000 100000"}, 2.5),
    ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, 0.5),
    ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
])  # fmt: skip
def test_the_quota_of_control_groups(tmp_path: Path, group: str, files: dict[str, str], expected: float | None) -> None:
    assert quota(tmp_path, group, files) == expected


@pytest.mark.parametrize(("given", "cores_left"), [(None, 4), (8.0, 4), (2.5, 2), (1.0, 1), (0.3, 1)])
def test_the_cores_that_a_quota_leaves(monkeypatch: pytest.MonkeyPatch, given: float | None, cores_left: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: given)
    assert usable_cores() == cores_left


def test_cores_that_slurm_gave_and_does_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: None)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "16")
    assert usable_cores() == 16
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    assert usable_cores() == 8
    monkeypatch.setattr(cores, "cpu_quota", lambda: 2.5)
    assert usable_cores() == 2
