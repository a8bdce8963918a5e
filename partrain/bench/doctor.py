"""`partrain doctor`: facts about this machine and installation, with advice; and a tiny training on every device."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.errors import Failure
from partrain.number_format import size
from partrain.system import accelerator
from partrain.system.compiler import CannotCompile, compiler
from partrain.system.cores import cpu_quota
from partrain.system.environment import processor, versions
from partrain.system.memory import memory_limits

FEW_FILES = 256
"""Limits of open files below this may be too low: each worker needs about ten."""
VARIABLES = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "GOMP_",
    "ATEN_",
    "ONEDNN_",
    "CUDA_VISIBLE",
    "CUBLAS_",
    "PYTORCH_",
    "TORCH_",
    "LD_PRELOAD",
)
"""Prefixes of environment variables that change speed or results."""

TINY = """
name = "doctor"

[model]
name = "mlp"
hidden = [16]

[dataset]
kind = "synthetic"
function = "blobs"
items = 600
validation = 100

[optimizer]
name = "sgd"
lr = 0.1
momentum = 0.9
batch_size = 16

[sync]
rule = "average"
iterations = 5

[[workers]]
count = 2

[stop]
rounds = 6
judge_every = 1

[checkpoint]
commit = "every"
keep = 10
"""


@dataclass(frozen=True)
class Fact:
    """One line of the report."""

    group: str
    name: str
    value: str
    advice: str = ""
    """The problem that the fact reveals, and its remedy; "" if there is none."""


def facts() -> Iterator[Fact]:
    """Yield facts about versions, processor, memory, limits, devices and terminal. Imports torch."""
    yield from _versions()
    yield from _machine()
    yield from _devices()
    yield from _surroundings()


def _versions() -> Iterator[Fact]:
    releases = versions()
    yield Fact("versions", "partrain", f"{releases['partrain']} in {Path(__file__).parents[1]}")
    yield Fact("versions", "python", f"{releases['python']} ({platform.python_implementation()}) in {sys.prefix}")
    yield Fact("versions", "system", f"{platform.system()} {platform.release()} {platform.machine()}")
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    yield Fact("versions", "torch", f"{torch.__version__} ({build})")
    yield Fact("versions", "numpy", releases["numpy"])
    yield _compiler()
    yield Fact("versions", "h5py", _version("h5py"))
    for extra, packages in extras().items():
        missing = [name for name, version in packages.items() if not version]
        installed = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
        yield Fact("extras", extra, f"not installed: pip install 'partrain[{extra}]'" if missing else installed)


def _compiler() -> Fact:
    try:
        words = compiler()
        first = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True).stdout.partition("\n")[0]
    except (CannotCompile, OSError, subprocess.CalledProcessError) as error:
        return Fact("versions", "C compiler", str(error), "networks of linear layers train by autograd, which takes longer")
    return Fact("versions", "C compiler", f"{' '.join(words)}: {first}")


def extras() -> dict[str, dict[str, str]]:
    """Map the extras of this package to their packages, each with its version; "" for a missing one."""
    by_extra: dict[str, dict[str, str]] = {}
    for line in importlib.metadata.requires("partrain") or ():
        match = re.fullmatch(r"""([\w.-]+)[^;]*;.*extra\s*==\s*["']([\w-]+)["'].*""", line)
        if match and match[2] not in ("dev", "audit", "docs", "peers", "integrations"):  # for work on partrain itself
            by_extra.setdefault(match[2], {})[match[1]] = _version(match[1])
    return by_extra


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _machine() -> Iterator[Fact]:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    yield Fact("machine", "processor", f"{_model_name()} ({processor().kind})")
    few = "one core: more workers do not train faster" if usable == 1 else ""
    yield Fact("machine", "cores", f"{usable} of {present}", few)
    quota = cpu_quota()
    if quota is not None:
        short = "" if quota >= usable else "the control group gives less time than the cores have; take fewer workers"
        yield Fact("machine", "CPU quota", f"{quota:.3g} cores", short)
    memory = memory_limits()
    yield Fact("machine", "memory", f"{size(memory.total)}, {size(memory.free)} free")
    disk = shutil.disk_usage(".")
    full = "checkpoints need room" if disk.free < 1e9 else ""
    yield Fact("machine", "disk", f"{size(disk.free)} free in {Path.cwd()}", full)
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = f"many workers need more open files: ulimit -n {min(most, 4096) if most > 0 else 4096}" if 0 < files < FEW_FILES else ""
    yield Fact("limits", "open files", _limit(files), low)
    yield Fact("limits", "processes", _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]))
    sizes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    small = "checkpoints and shared memory may not fit: ulimit -f unlimited" if 0 < sizes < 1 << 30 else ""
    yield Fact("limits", "file size", _limit(sizes), small)
    yield Fact("limits", "address space", _limit(resource.getrlimit(resource.RLIMIT_AS)[0]))


def _devices() -> Iterator[Fact]:
    import torch

    yield Fact("devices", "cpu", f"torch uses {torch.get_num_threads()} threads by itself; partrain gives each worker one")
    if unusable := accelerator.why_unusable():
        yield Fact("devices", "cuda", f"{accelerator.count('cuda')} in the driver's files", unusable)
    devices = list(accelerator.found())
    for device in devices:
        precision = "" if device.has_float64 else ", no float64"
        yield Fact("devices", str(device.device), f"{device.name}, {size(device.free_memory)} free{precision}")
    if not devices:
        yield Fact("devices", "accelerators", "none")


def _surroundings() -> Iterator[Fact]:
    width, height = shutil.get_terminal_size()
    where = f"{width} x {height}" if sys.stdout.isatty() else "none: output goes to a file or a pipe"
    yield Fact("terminal", "size", where)
    yield Fact("terminal", "encoding", sys.stdout.encoding or "unknown")
    colors = {name: os.environ[name] for name in ("TERM", "NO_COLOR", "COLORTERM") if name in os.environ}
    yield Fact("terminal", "colors", " ".join(f"{name}={value}" for name, value in colors.items()) or "no TERM")
    for name, value in sorted(os.environ.items()):
        if name.startswith(VARIABLES):
            yield Fact("environment", name, value)


def _model_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value:,}"


def check_devices() -> list[Fact]:
    """Train a tiny network on every device, twice, and resume it: all results of a device must be bit-identical."""
    return [_trial(device) for device in ["cpu", *(str(device.device) for device in accelerator.found())]]


def _trial(device: str) -> Fact:
    from partrain.job.load import parse

    name = f"training on {device}"
    try:
        with tempfile.TemporaryDirectory(prefix="partrain-doctor-") as scratch:
            loaded = parse(TINY, Path(scratch), "doctor", local=True, overrides=[f'workers.0.device="{device}"'])
            first, again = (_trained(loaded, Path(scratch, name)) for name in ("first", "again"))
            resumed = _resumed(loaded, Path(scratch, "first/checkpoints/round-000003.h5"), Path(scratch, "resumed"))
            problems = []
            if not first["loss"] < first["start"]:
                problems.append(f"the loss did not fall below {first['start']:.4f}")
            if again["file"] != first["file"]:
                problems.append("a second run gave other bits")
            if resumed["file"] != first["file"]:
                problems.append("a resumed run gave other bits")
    except Failure as failure:
        return Fact("test", name, "failed", failure.message)
    rate = f"loss {first['start']:.4f} to {first['loss']:.4f}, {first['items']:,} item-iterations, {first['seconds']:.2f} s"
    report = "please report this with the lines above"
    return Fact(
        "test", name, f"2 workers, {rate}; same bits again and resumed", f"{'; '.join(problems)}; {report}" if problems else ""
    )


def _trained(loaded: Any, folder: Path) -> dict[str, Any]:
    from partrain.launch.folder.run_folder import new_folder
    from partrain.launch.run import run
    from partrain.record.events import JudgementEvent
    from partrain.record.run_folder import RunFolder

    outcome = run(loaded, _context(new_folder(folder, "doctor").path))
    if outcome.failure:
        raise outcome.failure
    files = RunFolder(folder)
    judged = [event.loss for event in files.events() if isinstance(event, JudgementEvent)]
    summary = outcome.summary
    return {
        "file": files.checkpoint.read_bytes(),
        "start": judged[0],
        "loss": summary["loss"],
        "items": summary["item_iterations"],
        "seconds": summary["seconds"]["train"],
    }


def _resumed(loaded: Any, checkpoint: Path, folder: Path) -> dict[str, Any]:
    from partrain.checkpoint import read
    from partrain.launch.folder.resume import resume
    from partrain.launch.folder.run_folder import new_folder
    from partrain.record.run_folder import RunFolder

    outcome = resume(loaded, read(checkpoint), _context(new_folder(folder, "doctor").path))
    if outcome.failure:
        raise outcome.failure
    return {"file": RunFolder(folder).checkpoint.read_bytes()}


def _context(folder: Path) -> Any:
    from partrain.display.display import Display
    from partrain.launch.context import RunContext
    from partrain.record.run_state import RunState

    return RunContext(folder, Display(RunState()))


def render(listed: list[Fact]) -> list[str]:
    """Format the facts by group, then the advice: text to paste into an issue."""
    from partrain.display.text_table import aligned

    lines: list[str] = []
    for group in dict.fromkeys(fact.group for fact in listed):
        rows = [(f"  {fact.name}", fact.value) for fact in listed if fact.group == group]
        lines += [group, *aligned(rows)]
    advice = [f"  {fact.name}: {fact.advice}" for fact in listed if fact.advice]
    return [*lines, "", *(["to look at:", *advice] if advice else ["no problem found"])]
