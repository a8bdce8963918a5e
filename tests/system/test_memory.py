"""Memory limits: found before a run takes the memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cores import two_cores
from support.runs import events, partrain, train, write_job

from partrain.launch import attempt
from partrain.system.memory import MemoryLimits, memory_limits

MEMINFO = """MemTotal:       {total} kB
MemFree:        10 kB
MemAvailable:   600 kB
AnonPages:      250 kB
Shmem:          50 kB
SwapTotal:      400 kB
SwapFree:       {swap} kB
"""
K = 1024


def machine(folder: Path, files: dict[str, str], own: str, swap: int = 0) -> MemoryLimits:
    """Read the limits of a machine with 1,000 KiB: processes hold 300, and 100 of the page cache are not free at once."""
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text(MEMINFO.format(total=1000, swap=swap))
    (folder / "self" / "cgroup").write_text(own)
    for name, text in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return memory_limits(folder, folder / "cgroup")


STAT_2 = f"anon {50 * K}\nfile {90 * K}\nshmem {20 * K}\nactive_file {30 * K}\ninactive_file {40 * K}\n"
STAT_1 = f"rss 1\ntotal_rss {50 * K}\ntotal_shmem {20 * K}\ntotal_active_file {30 * K}\ntotal_inactive_file {40 * K}\n"
V2 = {"memory.max": f"{400 * K}\n", "memory.current": f"{160 * K}\n", "memory.stat": STAT_2}
V1 = {"memory.limit_in_bytes": f"{400 * K}\n", "memory.usage_in_bytes": f"{160 * K}\n", "memory.stat": STAT_1}
FREE = {"memory.max": "max\n", "memory.current": f"{160 * K}\n", "memory.stat": STAT_2}
ENDLESS = V1 | {"memory.limit_in_bytes": "9223372036854771712\n"}


def below(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}".lstrip("/"): text for name, text in files.items()}


LIMITS = {
    "no groups": ({}, "", 0, (700, 600)),
    "swap": ({}, "", 80, (780, 680)),
    "a group without a limit": (below("a", FREE), "0::/a\n", 0, (700, 600)),
    "a group": (below("a", V2), "0::/a\n", 0, (330, 310)),
    "of a group": (below("a", V2) | below("a/b", FREE), "0::/a/b\n", 0, (330, 310)),
    "a container": (V2, "0::/\n", 0, (330, 310)),
    "a container that sees its path on the host": (V2, "0::/outside/a\n", 0, (330, 310)),
    "both versions at once": (below("unified/a", V2), "4:memory:/a\n0::/a\n", 0, (330, 310)),
    "a group, and swap": (below("a", V2 | {"memory.swap.max": "max\n"}), "0::/a\n", 80, (410, 390)),
    "a group without swap": (below("a", V2 | {"memory.swap.max": "0\n"}), "0::/a\n", 80, (330, 310)),
    "a group that says little": (below("a", {"memory.max": f"{400 * K}\n"}), "0::/a\n", 0, (400, 400)),
    "version 1": (below("memory/a", V1), "4:cpu,memory:/a\n", 0, (330, 310)),
    "version 1 in a container": (below("memory", V1), "4:memory:/outside/a\n", 0, (330, 310)),
    "version 1 without a limit": (below("memory/a", ENDLESS), "4:memory:/a\n", 0, (700, 600)),
    "version 1 without swap": (
        below("memory/a", V1 | {"memory.memsw.limit_in_bytes": f"{400 * K}\n"}),
        "4:memory:/a\n",
        80,
        (330, 310),
    ),
}


@pytest.mark.parametrize(("files", "own", "swap", "expected"), LIMITS.values(), ids=LIMITS)
def test_limits(tmp_path: Path, files: dict[str, str], own: str, swap: int, expected: tuple[int, int]) -> None:
    """Page cache counts as free. Memory of processes does not, nor does memory beyond the nearest limit."""
    found = machine(tmp_path, files, own, swap)
    assert (found.ceiling // K, found.free // K) == expected


def test_this_machine() -> None:
    found = memory_limits()
    assert 0 < found.free <= found.ceiling < 1 << 60


def test_nothing_is_known(tmp_path: Path) -> None:
    """If the kernel tells nothing, no run is refused."""
    found = memory_limits(tmp_path, tmp_path)
    assert found.free == found.ceiling > 1 << 60


@pytest.mark.parametrize("model", ["", 'model={name="own.py:Net"}'], ids=["ours", "own"])
def test_a_run_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """Refused once, before any row is written."""
    (tmp_path / "own.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(2, 3)\n"
    )
    monkeypatch.setattr(attempt, "memory_limits", lambda: MemoryLimits(1 << 40, ceiling=100, free=100))
    job = write_job(tmp_path, *filter(None, [model]))
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (78, ["bad-job"]), said
    assert "[[workers]]: 2 on the CPU need 0.0 GiB for their parameters, gradients and optimizer states, and of " in said.err
    assert "GiB of memory no more than 0.0 GiB are not in use; free memory, or take fewer workers or a" in said.err
    assert not events(tmp_path / "run", "start")


@two_cores
@pytest.mark.parametrize("transport", ["shared", "simulated"])
def test_a_run_that_may_not_fit_is_warned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str) -> None:
    """It warns once, and trains."""
    monkeypatch.setattr(attempt, "memory_limits", lambda: MemoryLimits(1 << 40, ceiling=1 << 40, free=100))
    job = write_job(tmp_path, f'transport.kind="{transport}"')
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert said.code == 0, said
    (line,) = said.err.splitlines()
    assert line.startswith(
        "partrain: warning: memory may not suffice: this run needs about 0.0 GiB (2 workers on the CPU 0.0 GiB,"
    )
    assert line.endswith("and 0.0 GiB are free; the kernel kills a worker when there is no more")


@two_cores
def test_a_run_that_fits_is_left_alone(tmp_path: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "-q")
    assert (said.code, said.err) == (0, "")


def test_a_resumed_run_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(tmp_path, "stop.rounds=1")
    monkeypatch.setattr(attempt, "memory_limits", lambda: MemoryLimits(1 << 40, ceiling=100, free=100))
    said = partrain("resume", run, "--until", "rounds=2", "-q")
    assert (said.code, said.errors) == (78, ["bad-job"]), said
