"""Run folders for the tests of `watch`, written as a coordinator writes them, without a training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from partrain.record.events import EndEvent, Event, FaultEvent, JudgementEvent, RoundEvent, SlowEvent, StartEvent, encode
from partrain.record.round_record import NAN, RoundRecord

T = 1795255200.0


def events_of(rounds: int = 20, workers: int = 2, name: str = "job", start: float = T, **start_keys: Any) -> list[Any]:
    """Events of a run with one judgement in two rounds; its second worker is slow."""
    described: Any = [{"rank": rank, "device": "cpu"} for rank in range(workers)]
    stop = {"rounds": 100, "accuracy": 0.99}
    found: list[Any] = [
        StartEvent(t=start, name=name, resumed_from=None, workers=described, stop=stop, **{"rule": "average", **start_keys})
    ]
    for round_ in range(1, rounds + 1):
        for rank in range(workers):
            compute = 0.3 if rank == 1 else 0.2
            record = RoundRecord(
                round=round_, iterations=3, items=96, loss=2.0 * 0.9**round_, lr=0.1, compute=compute, wait=0.4 - compute, mix=0.1,
                distance=0.01, bytes=1000, staleness=NAN, seconds=0.5 * round_,
            )  # fmt: skip
            found.append(RoundEvent(t=start + 2 + round_ / 2, rank=rank, record=record))
        if round_ == 5:
            found.append(SlowEvent(t=start + 2 + round_ / 2, round=5, rank=1, factor=1.5, since=1))
        if round_ % 2 == 0:
            found.append(judgement(round_, workers, start))
    return found


def judgement(round_: int, workers: int = 2, start: float = T) -> JudgementEvent:
    return JudgementEvent(
        t=start + 2 + round_ / 2, round=round_, item_iterations=96 * workers * round_, seconds=0.5 * round_,
        loss=2.0 * 0.9**round_, metrics={"accuracy": 1 - math.exp(-round_ / 10)}, best=True,
    )  # fmt: skip


def fault(what: str, rank: int | None = None) -> FaultEvent:
    return FaultEvent(t=T + 9, what=what, rank=rank)


def end(status: str = "finished", round_: int = 20) -> EndEvent:
    return EndEvent(t=T + 60, status=status, reason="rounds", round=round_)


def write(folder: Path, events: list[Event], summary: dict[str, Any] | None = None) -> Path:
    """A run folder with these events, and a summary if the run ended."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_bytes(b"".join(encode(event) for event in events))  # type: ignore[arg-type]
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def append(folder: Path, events: list[Event]) -> None:
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b"".join(encode(event) for event in events))  # type: ignore[arg-type]


def summary_of(loss: float = 0.5, status: str = "reached", rounds: int = 20) -> dict[str, Any]:
    return {
        "status": status, "reason": "target", "rounds": rounds, "loss": loss, "metrics": {"accuracy": 0.9},
        "seconds": {"train": 10.0, "total": 12.0}, "item_iterations": 3840, "workers": [],
    }  # fmt: skip
