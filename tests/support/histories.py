"""Run folders for tests of reports, written event by event without any training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STARTED = 1_790_000_000.0


def write_events(folder: Path, *events: dict[str, Any], job: str = 'name = "made"\n') -> Path:
    """A run folder with these events and no summary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_text(
        "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events), encoding="utf-8"
    )
    (folder / "job.toml").write_text(job, encoding="utf-8")
    return folder


def start(workers: int = 2, **changed: Any) -> dict[str, Any]:
    one = {"device": "cpu", "threads": 1, "pid": 1, "partition": 100, "iterations": 10, "passes": None, "batch_size": 8}
    event = {
        "event": "start", "t": STARTED, "version": "0.1.0", "name": "made", "run_id": "ab" * 16, "rule": "average", "resumed_from": None,
        "parameters": 10, "held_out": 10, "judge_every": 1, "cores": 2, "stop": {"rounds": 3},
        "workers": [{"rank": rank, **one} for rank in range(workers)],
    }  # fmt: skip
    return event | changed


def round_of(rank: int, number: int, **changed: Any) -> dict[str, Any]:
    """A worker's round of one second: 0.6 s of computing, 0.3 s of waiting, 0.1 s of mixing."""
    event = {
        "event": "round", "t": STARTED + number, "rank": rank, "round": number, "iterations": 10, "items": 80, "loss": 1 / number,
        "lr": 0.1, "compute": 0.6, "wait": 0.3, "mix": 0.1, "distance": 0.01, "bytes": 400, "staleness": None, "seconds": float(number),
    }  # fmt: skip
    return event | changed


def judgement(number: int, seconds: float, loss: float, **changed: Any) -> dict[str, Any]:
    event = {
        "event": "judgement", "t": STARTED + seconds, "round": number, "item_iterations": 160 * number, "seconds": seconds,
        "loss": loss, "metrics": {"accuracy": 1 - loss / 2}, "best": True, "regular": True,
    }  # fmt: skip
    return event | changed


def made_run(folder: Path, workers: int = 2, rounds: int = 3, pace: float = 1.0, **changed: Any) -> Path:
    """A run that was killed after some rounds, each judged: loss 1 / round, `pace` seconds a round."""
    events = [start(workers, **changed)]
    for number in range(1, rounds + 1):
        events += [round_of(rank, number, seconds=number * pace) for rank in range(workers)]
        events.append(judgement(number, number * pace, 1 / number))
    return write_events(folder, *events)
