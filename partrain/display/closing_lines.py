"""The last lines of a run, and what would let it go on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partrain.display.live_table import number
from partrain.display.run_state import WELL


def epilogue(
    content: Mapping[str, Any],
    folder: Path,
    checkpoint: Path | None,
    stop: Mapping[str, Any] | None = None,
    own_code: bool = False,
    spent: bool = False,
    until: Sequence[str] = (),
) -> list[str]:
    """The last lines of a run: how it ended, what came out, where it is, and commands to go on with, ready to paste.

    `content` is that of summary.json; `checkpoint`: what to go on from, which lies outside `folder` where a run came from there and
    has added nothing; `stop`, the `[stop]` table, tells which condition a resumed run must move;
    `own_code`: the network is the user's, who has to say so each time; `spent`: the learning rate has come to 0, so there is no
    use in going on; `until`: stop conditions moved by hand, for a run that is to go on from where it did.
    """
    reason = f" ({content['reason']})" if content.get("reason") not in (None, content["status"]) else ""
    seconds = content["seconds"]["train"]
    done = f"{content['rounds']:,} rounds, {content['item_iterations']:,} item-iterations, {seconds:.1f} s of training"
    lines = [f"{content['status']}{reason}: {done}"]
    judged = {"loss": content["loss"], **content["metrics"]}
    label = "judged (any-worker)" if content.get("judge") == "any-worker" else "judged"
    if "judged_round" in content:
        label += f" in round {content['judged_round']:,}"
    for name, scores in ((label, judged), ("test", content["test"])):
        shown = ", ".join(f"{key} {number(value)}" for key, value in scores.items() if value is not None)
        if shown:
            lines.append(f"{name}: {shown}")
    if unlike := [worker["unevenness"] for worker in content["workers"] if "unevenness" in worker]:
        mean, most = sum(unlike) / len(unlike), max(unlike)
        lines.append(f"partitions: unlike all together by {mean:.0%} on average, at most {most:.0%} (distance of target shares)")
    lines.append(f"results: {shlex.quote(str(folder))}")
    if checkpoint is None:
        return lines
    here = checkpoint.absolute().is_relative_to(folder.absolute())
    path = shlex.quote(str(checkpoint)) + " --trust-code" * own_code
    into = "" if here else f" --out {shlex.quote(str(folder))}"
    lines += [] if here else [f"nothing was added to {shlex.quote(str(checkpoint))}"]
    further = "".join(f" --until {shlex.quote(each)}" for each in until or moved(content, stop or {}))
    again = content["status"] == "diverged"  # the same numbers would come
    onward = [] if spent or again else [f"  partrain resume {path}{into}{further}"]
    return [*lines, f"  partrain evaluate {path}", f"  partrain inspect {shlex.quote(str(checkpoint))}", *onward]


def moved(content: Mapping[str, Any], stop: Mapping[str, Any]) -> list[str]:
    """Stop conditions that let the run go on: each target halfway from what was reached to perfection, or the limit that ended it doubled."""
    status, reason = content["status"], str(content.get("reason"))
    if status not in WELL:
        return []
    loss, accuracy = content.get("loss"), content.get("metrics", {}).get("accuracy")
    targets = {
        "loss": min(stop.get("loss", 0), math.inf if loss is None else loss) / 2,
        "accuracy": (1 + max(stop.get("accuracy", 0), accuracy or 0)) / 2,
    }
    further = [f"{name}={goal:.4g}" for name, goal in targets.items() if name in stop and status == "reached"]
    if further:
        return further
    if reason in ("rounds", "item_iterations") and reason in stop:
        return [f"{reason}={2 * max(stop[reason], content[reason])}"]
    if reason in ("seconds", "patience") and reason in stop:
        return [f"{reason}={2 * stop[reason]}"]
    return [f"rounds={2 * content['rounds']}"]
