"""The offline files of Weights & Biases hold a run's numbers, settings and tags, as its own protocol buffers read them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import events, partrain, resume, summary, write_job

pytestmark = pytest.mark.slow

BLOCK = 32 * 1024
HEADER = 7


def chunks(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, which follow a header of seven bytes."""
    assert data[:4] == b":W&B"
    at, whole = HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # padding
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + HEADER])
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


READ = """
import json, sys
from wandb.proto.wandb_internal_pb2 import Record
told = []
for line in sys.stdin:
    record = Record.FromString(bytes.fromhex(line))
    kind = record.WhichOneof("record_type")
    if kind == "history":
        told.append([kind, {each.key or each.nested_key[0]: json.loads(each.value_json) for each in record.history.item}])
    elif kind == "run":
        config = {each.key or each.nested_key[0]: json.loads(each.value_json) for each in record.run.config.update}
        told.append([kind, {"id": record.run.run_id, "project": record.run.project, "name": record.run.display_name, "config": config}])
    elif kind == "config":
        told.append([kind, {each.key or each.nested_key[0]: json.loads(each.value_json) for each in record.config.update}])
    elif kind == "summary":
        told.append([kind, {each.key or each.nested_key[0]: json.loads(each.value_json) for each in record.summary.update}])
    elif kind == "exit":
        told.append([kind, record.exit.exit_code])
print(json.dumps(told))
"""


def told(file: Path) -> list[Any]:
    """The records of an offline run, decoded by wandb in a process of its own."""
    lines = "\n".join(chunk.hex() for chunk in chunks(file.read_bytes()))
    done = subprocess.run([sys.executable, "-c", READ], input=lines, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path), "--out", run, "-q", "--log", "wandb").code == 0
    (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
    records = told(file)
    first = next(values for kind, values in records if kind == "run")
    assert (first["project"], first["name"], first["config"]["optimizer.lr"]) == ("clouds", "run", 0.05)
    rows = [values for kind, values in records if kind == "history"]
    judged = [(row["item_iterations"], row["judged/loss"]) for row in rows if "judged/loss" in row]
    assert judged == [(each["item_iterations"], each["loss"]) for each in events(run, "judgement")]
    assert rows[-1]["test/accuracy"] == summary(run)["test"]["accuracy"]
    assert {"rule": "average", "workers": "2 cpu"}.items() <= {
        name: value for kind, values in records if kind == "config" for name, value in values.items()
    }.items()
    assert [values["status"] for kind, values in records if kind == "summary" and "status" in values][-1] == "finished"
    assert records[-1] == ["exit", 0]

    resume(run, "--until", "rounds=6", "--log", "wandb")
    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    assert len(files) == 2
    again = told(files[1])
    assert next(values for kind, values in again if kind == "run")["id"] == first["id"]
    rounds = [row["round"] for kind, row in again if kind == "history" and "round" in row]
    assert rounds[0] == 5
    assert rounds[-1] == 6
