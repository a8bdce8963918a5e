"""The last lines of a run, with commands to continue."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partrain.display.number_format import number
from partrain.display.run_state import COMPLETED
from partrain.display.stop_conditions import Standing, suggest_until


def closing_lines(
    content: Mapping[str, Any],
    folder: Path,
    checkpoint: Path | None,
    stop: Mapping[str, Any] | None = None,
    own_code: bool = False,
    spent: bool = False,
    until: Sequence[str] = (),
    own_hook: bool = False,
    signed: bool = False,
) -> list[str]:
    """Return the last lines of a run: its end, results and folder, and commands to continue, ready to paste.

    `content` is that of summary.json. `checkpoint` is the one to continue from; it lies outside `folder` if a run resumed from there
    and added nothing. `stop` is the `[stop]` table. `own_code`: the network is user code, which each command must trust. `spent`: the
    learning rate is 0, so continuing is useless. `until`: stop conditions that the user moved for a run that added nothing. `own_hook`:
    the run calls user code, which `resume` must trust. `signed`: the user has trained this job, so that its code is trusted.
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
    earlier_best = _earlier_best(content)
    kept = bool(earlier_best) and (folder / "best.h5").exists()
    lines += [earlier_best + " (best.h5)" * kept] if earlier_best else _newest_best(content)
    lines += _waiting(content["workers"])
    if unlike := [worker["unevenness"] for worker in content["workers"] if "unevenness" in worker]:
        mean, most = sum(unlike) / len(unlike), max(unlike)
        lines.append(f"label skew of partitions: mean {mean:.0%}, max {most:.0%} (total variation distance)")
    lines.append(f"results: {shlex.quote(str(folder))}")
    if checkpoint is None:
        return lines
    here = checkpoint.absolute().is_relative_to(folder.absolute())
    trust = " --trust-code" * (own_code and not signed)
    path, best_path = shlex.quote(str(checkpoint)) + trust, f"{shlex.quote(str(folder))} --best{trust}"
    into = "" if here else f" --out {shlex.quote(str(folder))}"
    lines += [] if here else [f"nothing was added to {shlex.quote(str(checkpoint))}"]
    further = "".join(f" --until {shlex.quote(each)}" for each in until or _until(content, stop or {}))
    again = content["status"] == "diverged"  # it would diverge again
    resumed = path + " --trust-code" * (own_hook and not own_code and not signed)
    onward = [] if spent or again else [f"  partrain resume {resumed}{into}{further}"]
    file = shlex.quote(str(checkpoint))
    export = [] if own_code else [f"  partrain export {file} --format safetensors --output network.safetensors"]
    report = [f"  partrain report {shlex.quote(str(folder))}"]
    best = [f"  partrain evaluate {best_path}"] * kept
    return [*lines, f"  partrain evaluate {path}", *best, *export, *report, f"  partrain inspect {file}", *onward]


def _earlier_best(content: Mapping[str, Any]) -> str:
    """Return a line with the scores of the best judgement; "" if it is the newest one, whose scores stand above, or if there is none."""
    best = content.get("best")
    if not best or best["round"] == content.get("judged_round", content["rounds"]):
        return ""
    scores = {"loss": best["loss"], **best["metrics"]}
    return f"best: round {best['round']:,}, " + ", ".join(f"{key} {number(value)}" for key, value in scores.items())


def _newest_best(content: Mapping[str, Any]) -> list[str]:
    """Return a line saying that the newest judgement is the best one; none if nothing was judged."""
    return [f"best: round {content['best']['round']:,}, the newest judged"] if content.get("best") else []


def _waiting(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line with the share of their seconds that workers waited for each other; none for one worker."""
    shares = []
    for worker in workers:
        spent = worker["seconds"]
        if total := sum(spent.values()):
            shares.append(spent["wait"] / total)
    if len(shares) < 2:
        return []
    least, most = min(shares), max(shares)
    return [f"waiting for other workers: {least:.0%} to {most:.0%} of each worker's time"]


def _until(content: Mapping[str, Any], stop: Mapping[str, Any]) -> list[str]:
    """Return `--until` arguments that let the run continue; none if no stop condition ended it."""
    if content["status"] not in COMPLETED:
        return []
    at = Standing(
        content["rounds"],
        content["item_iterations"],
        content["seconds"]["train"],
        content.get("loss"),
        content.get("metrics", {}).get("accuracy"),
        metrics=content.get("metrics", {}),
    )
    return suggest_until(stop, content["status"], str(content.get("reason")), at)
