"""Damage job files and data files at random and read them: `python -m support.damaged_files SEED COUNT FOLDER` in tests/.

Prints how many of each kind were refused and how many accepted. It runs under limits of memory and time. Anything but an answer ends it
with an error: a traceback, an exit code of no meaning, an exception that is no `Failure`, more than one line.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
from pydantic import TypeAdapter, ValidationError
from support.runs import JOB, partrain
from support.sample_tables import passengers, sales

from partrain.data import AnyDataset, load
from partrain.errors import Failure

JOBS = Path(__file__).parents[2] / "jobs"
WORDS = [b"\x00", b"\xff\xfe", b'"', b"[", b"]]", b"{", b"=", b"\n", b",", b"nan", b"1e400", b"-1", b"9" * 400, b"true", b"\xe2\x80\xae", b"[[workers]]\n", b"\x1b[2J"]  # fmt: skip
CODES = {0, 65, 66, 78}
"""Exit codes of `validate`: good, or a file that holds something else, that is missing, that is no good job."""


def damaged(whole: bytes, draw: random.Random) -> bytes:
    """Return a copy with one to four changes: bits, words put in, pieces removed, doubled or moved, the end cut off."""
    data = bytearray(whole)
    for _ in range(draw.randint(1, 4)):
        here, there = sorted(draw.randint(0, len(data)) for _ in range(2))
        there = min(there, here + draw.randint(1, 60))
        match draw.randint(0, 5):
            case 0 if here < len(data):
                data[here] ^= 1 << draw.randint(0, 7)
            case 1:
                data[here:here] = draw.choice(WORDS)
            case 2:
                del data[here:there]
            case 3:
                data[here:here] = data[here:there]
            case 4:
                piece = data[here:there]
                del data[here:there]
                data[draw.randint(0, len(data)) : 0] = piece
            case _ if draw.random() < 0.2:
                del data[here:]
    return bytes(data)


def job_files(count: int, draw: random.Random, folder: Path) -> list[int]:
    """Validate damaged jobs by the command."""
    wholes = [JOB.encode(), *(path.read_bytes() for path in sorted(JOBS.glob("*.toml")))]
    outcomes, path = [0, 0], folder / "job.toml"
    for _ in range(count):
        path.write_bytes(damaged(draw.choice(wholes), draw))
        said = partrain("validate", path)
        told = said.out + said.err
        if said.code not in CODES or "Traceback" in told or "\x1b" in told or (said.code and not told.strip()):
            (folder / "kept.toml").write_bytes(path.read_bytes())
            raise SystemExit(f"{folder / 'kept.toml'}: {said}")
        outcomes[said.code == 0] += 1
    return outcomes


def data_files(count: int, draw: random.Random, folder: Path) -> list[int]:
    """Load damaged data sets."""
    outcomes = [0, 0]
    samples = [(path, path.read_bytes(), section) for path, section in written(folder)]
    for _ in range(count):
        path, whole, section = draw.choice(samples)
        path.write_bytes(damaged(whole, draw))
        try:
            load(TypeAdapter[object](AnyDataset).validate_python(section), folder)  # type: ignore[arg-type]
            outcomes[1] += 1
        except (Failure, ValidationError) as refusal:
            if isinstance(refusal, Failure) and "\n" in refusal.message:
                raise SystemExit(f"{path}: more than one line: {refusal.message}") from None
            outcomes[0] += 1
        except Exception:
            path.rename(folder / f"kept-{path.name}")
            print(f"kept-{path.name}: {section}", file=sys.stderr)
            raise
        path.write_bytes(whole)
    return outcomes


def written(folder: Path) -> list[tuple[Path, dict[str, object]]]:
    """Write a data set of each kind of file; return the paths with their sections."""
    random = np.random.default_rng(0)
    inputs, targets = random.normal(size=(40, 3)).astype(np.float32), random.integers(0, 3, 40)
    passengers(folder / "passengers.csv", 60)
    sales(folder / "sales.csv", 60)
    np.savez(folder / "a.npz", inputs=inputs, targets=targets)
    np.save(folder / "inputs.npy", inputs)
    np.save(folder / "targets.npy", targets)
    with h5py.File(folder / "a.h5", "w") as file:
        file["inputs"], file["targets"] = inputs, targets
    (folder / "text.txt").write_text("one word after the other, and so on; " * 30)
    named: dict[str, dict[str, object]] = {
        "passengers.csv": {
            "kind": "csv",
            "target": "survived",
            "categories": ["sex", "port", "member"],
            "dates": ["born", "seen"],
            "missing": "median",
        },
        "sales.csv": {"kind": "series", "target": "sold", "time": "day", "window": 4, "steps": 2},
        "a.npz": {"kind": "npz"},
        "a.h5": {"kind": "hdf5"},
        "text.txt": {"kind": "text", "length": 8},
    }
    found = [(folder / name, {**section, "path": name}) for name, section in named.items()]
    arrays: dict[str, object] = {"kind": "npy", "inputs": "inputs.npy", "targets": "targets.npy"}
    return [*found, (folder / "inputs.npy", arrays), (folder / "targets.npy", arrays)]


def main(seed: int, count: int, folder: Path) -> None:
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    draw = random.Random(seed)
    kinds: dict[str, Callable[[int, random.Random, Path], list[int]]] = {"jobs": job_files, "data": data_files}
    for name, check in kinds.items():
        print(name, *check(count, draw, folder))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
