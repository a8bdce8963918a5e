"""A package with hooks that other people could have written, as pip would install it, and runs that they follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOOKS = '''"""Hooks that write what they get, or fail."""

import json
import os
import time


class Recorder:
    def __init__(self, run):
        self.file = open(run.folder / "recorded.jsonl", "a")
        self.write("open", {"id": run.id, "started": run.started, "job": run.job["name"], "folder": str(run.folder)})

    def write(self, kind, values):
        self.file.write(json.dumps({"kind": kind, **values}) + "\\n")
        self.file.flush()

    def event(self, event, state):
        self.write(event.kind, {"round": state.round, "item_iterations": state.item_iterations, "status": state.status})

    def close(self):
        self.write("close", {})


class Replaying(Recorder):
    replay = True


class Failing(Recorder):
    def event(self, event, state):
        super().event(event, state)
        if event.kind == "judgement":
            raise RuntimeError("no more\\nof this")


class FailingClose(Recorder):
    def close(self):
        raise OSError("disk full")


class Dying(Recorder):
    def event(self, event, state):
        print("about to die", flush=True)
        os._exit(7)


class Stuck(Recorder):
    def close(self):
        self.write("stuck", {})
        time.sleep(600)


def refuse(run):
    raise PermissionError("not for you")
'''

ENTRY_POINTS = """[partrain.hooks]
recorder = theirs:Recorder
replaying = theirs:Replaying
failing = theirs:Failing
failing-close = theirs:FailingClose
dying = theirs:Dying
stuck = theirs:Stuck
refusing = theirs:refuse
absent = theirs:Absent
"""


def install(folder: Path) -> Path:
    """Install the package in a folder, for `sys.path`."""
    info = folder / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "theirs.py").write_text(HOOKS, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return folder


def recorded(run: Path) -> list[dict[str, Any]]:
    """The lines that a recorder wrote."""
    path = run / "recorded.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
