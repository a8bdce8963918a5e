"""Reading a checkpoint starts nothing, imports nothing and opens nothing but the file: Python's audit events tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.runs import newest, partrain, sabotage

PROGRAM = """
import json, sys
from pathlib import Path
from partrain import checkpoint
from partrain.checkpoint.manifest import manifest_of

def read(path):
    content = checkpoint.read(Path(path))
    manifest_of(content)
    return {name: array.sum() for name, array in content.arrays.items()}

read(sys.argv[1])  # imports what partrain itself needs
told, listening = [], True
def hook(event, arguments):
    if listening:
        told.append((event, [str(one)[:200] for one in arguments]))
sys.addaudithook(hook)
for path in sys.argv[2:]:
    try:
        read(path)
    except Exception as error:
        assert type(error).__name__ == "BadCheckpoint", error
listening = False
print(json.dumps(told))
"""


def test_reading_reaches_nothing_but_the_file(tmp_path: Path) -> None:
    """Checkpoints of a job with user code: one as it is, and others with bytes changed."""
    run = tmp_path / "run"
    assert partrain("run", sabotage(tmp_path, "", "stop.rounds=2"), "--out", run, "-q").code == 0
    image, paths = newest(run), [str(run / "checkpoint.h5")]
    for place in range(600, len(image), len(image) // 20):
        damaged = tmp_path / f"damaged-{place}.h5"
        damaged.write_bytes(image[:place] + bytes([image[place] ^ 255]) + image[place + 1 :])
        paths.append(str(damaged))
    said = subprocess.run([sys.executable, "-c", PROGRAM, paths[0], *paths], capture_output=True, text=True, check=True)
    told = json.loads(said.stdout)
    opened = [
        arguments[0] for event, arguments in told if event == "open" and not arguments[0].isdigit()
    ]  # a descriptor is opened already
    assert opened == paths, opened
    assert {event for event, _ in told} - {"builtins.id"} == {"open"}
